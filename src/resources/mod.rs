//! What each object of the Kubernetes API becomes in the exposition.
//!
//! [`kind`] is the contract of a kind and [`series`] what its functions write to; [`kinds`] holds the kinds. Which of
//! their families, labels and annotations are wanted is said by [`select`]. Objects flow in as bytes, lines for the
//! [`cache`](crate::cache) flow out. Nothing here knows how objects are fetched or how text is served.
//! `docs/adding/metric.md` walks through a change.

pub mod custom;
pub(crate) mod kind;
pub(crate) mod kinds;
pub(crate) mod metadata;
pub(crate) mod options;
pub(crate) mod scalars;
pub mod select;
pub(crate) mod series;
pub mod values;

pub use crate::wire::view::{DecodeError, ObjectBytes};
pub use kind::{
    Api, Column, FamilyInfo, Follower, Needs, Open, OpenLabels, Renderer, Resource, Settings,
    Stability,
};
pub use kinds::{find, registry};
pub use options::RenderOptions;
