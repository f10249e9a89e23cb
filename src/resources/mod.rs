//! Rendering of Kubernetes API objects as metrics.
//!
//! [`kind`] is the contract of a kind and [`series`] the writer that its functions use; [`kinds`] holds the kinds.
//! [`select`] chooses their families, labels and annotations. Objects come in as bytes and leave as lines for the
//! [`cache`](crate::cache). The module is independent of how objects are fetched and how text is served.
//! `docs/adding/metric.md` walks through a change.

pub(crate) mod common;
pub mod custom;
pub(crate) mod kind;
pub(crate) mod kinds;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod prelude;
pub(crate) mod scalars;
pub mod select;
pub(crate) mod series;
pub mod values;

pub use crate::wire::view::{DecodeError, ObjectBytes};
pub use kind::{
    Api, Column, FamilyInfo, Renderer, Representation, Resource, Stability, UserLabelFamily,
    UserLabels,
};
pub use kinds::{find, registry};
pub use options::RenderOptions;
