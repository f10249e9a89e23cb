//! The cache of rendered text in a templated form, and its expansion at a scrape.
//!
//! A series line of the exposition is metric name + `{identity labels` + rest. The name is the same for all objects of
//! a family, and the identity for all series of an object, so the cache stores only the rest of each line, in *pages*
//! of [`PAGE`] objects with one contiguous *segment* per family, and the identity of each object once. A scrape walks
//! the segments in exposition order and concatenates the three parts of each line. This is about as fast as copying
//! the text and takes a fifth of its memory, so data is never compressed or decompressed as it ages.
//!
//! Renderers produce [`Rendered`] objects, and [`Catalog`] implements [`Source`](crate::exposition::Source) for the
//! server. The cache knows nothing of Kubernetes: an object is a uid, an identity and lines for each family of a
//! [`Schema`]. Gzip bodies are written by [`deflate`](crate::deflate), whose memo each page holds.

mod body;
mod buffer_pool;
mod catalog;
mod code_cache;
mod counted_labels;
mod deflate_cache;
mod deflated_body;
mod frame_size;
mod object_filter;
mod object_view;
mod objects;
mod packed_pages;
mod page;
mod part;
mod resource;
mod schema;
mod scrape_interval;
mod snapshot_text;
mod store;
mod tally;
#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
mod typed_snapshot;

pub use catalog::{Catalog, UpdateLock};
pub use counted_labels::CountedLabels;
pub use object_view::ObjectView;
pub(crate) use objects::Key;
pub use page::PAGE;
pub use schema::{Family, MetricKind, Rendered, Schema, Size};
pub(crate) use store::Keys;
pub use store::{Replacement, Store, fnv1a64};
