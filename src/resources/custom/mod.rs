//! Custom resource state metrics: families that users define in a file instead of in code.
//!
//! The text of a configuration ([`load()`]: a typed [`Config`], with every problem and its position) and the kinds that
//! a cluster serves ([`resolve()`]) go in; [renderers](crate::resources::Renderer) like those of the built-in kinds
//! come out. Paths are compiled once ([`path`]), and a [`mask`] is built from all of them: everything else in an
//! object's JSON is skipped without parsing ([`json`]). Numbers follow the rules of kube-state-metrics ([`number`]).
//! The module does not connect to a server.

mod against;
mod built_in;
mod check;
pub mod config;
mod definition;
mod json;
mod label;
mod labels_check;
mod lines;
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
pub(crate) use labels_check::too_many_values;
pub use load::{Loaded, load};
pub use number::Reason;
pub use program::CompileError;
pub(crate) use render::template;
pub use render::{ValueError, ValueErrors};
pub use resolve::{Resolution, Resolved, resolve};
pub use shape::{Shape, is_metadata};
