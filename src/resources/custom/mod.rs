//! Custom resource state metrics: families that people describe in a file instead of in code.
//!
//! In goes the text of a configuration ([`load()`]: typed [`Config`], with every problem and its place), together with
//! the kinds that a cluster serves ([`resolve()`]); out come [renderers](crate::resources::Renderer) like those of the
//! built-in kinds. Paths are compiled once ([`path`]), and from all of them together a [`mask`] is made of what an
//! object has to be read for: the rest of its JSON is skipped without being looked at ([`json`]). Numbers follow the
//! rules of kube-state-metrics ([`number`]). Nothing here asks a server or knows how kinds are found.

mod against;
mod built_in;
mod check;
pub mod config;
mod definition;
mod json;
mod label;
mod labels_check;
mod load;
mod mask;
mod metric;
mod number;
mod path;
mod program;
mod render;
pub mod resolve;
mod shape;
mod tree;

pub use built_in::with_built_in;
pub use config::Config;
pub use definition::Definition;
pub use load::{Loaded, load};
pub use program::CompileError;
pub(crate) use render::template;
pub use render::{Reason, ValueError, ValueErrors};
pub use resolve::{Resolution, Resolved, Twice, resolve};
pub use shape::Shape;
