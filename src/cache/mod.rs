//! The cache of rendered text, in a templated form, and its expansion at a scrape.
//!
//! A series line of the exposition is `name` + `{identity labels` + the rest, and all but the rest
//! repeats: the name for every object of a family, the identity for every series of an object. What is
//! kept is the rest alone, one line for each series, in *pages* of [`PAGE`] objects that hold one
//! contiguous *segment* for each family, and the identity of each object once. A scrape walks segments
//! in exposition order and writes the three parts of each line one after the other; that costs about as
//! much as copying the text, at a fifth of its memory, so nothing needs to be compressed or
//! decompressed as it ages.
//!
//! [`Rendered`] objects flow in from a renderer, [`Catalog`] implements
//! [`Source`](crate::exposition::Source) for the server. The cache knows no Kubernetes: an object is a
//! uid, an identity text and lines for each family of a [`Schema`].

mod bits;
mod body;
mod catalog;
mod codes;
mod counted;
mod crc;
mod frames;
mod gzip;
mod huffman;
#[cfg(test)]
mod inflated;
mod kept;
mod lines;
mod narrow;
mod objects;
mod packed;
mod page;
mod recorded;
mod resource;
mod schema;
mod scrapes;
mod search;
mod segment;
mod store;
mod symbols;
mod tails;
mod tally;
mod text;
mod texts;

pub use catalog::Catalog;
pub use counted::Counted;
pub use kept::Kept;
pub(crate) use objects::Key;
pub use page::PAGE;
pub use schema::{Family, MetricKind, Rendered, Schema, Size};
pub use store::{Replacement, Store};
pub(crate) use texts::{Reader, Texts};
