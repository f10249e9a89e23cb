//! The kinds: what each object of the Kubernetes API becomes in the exposition.
//!
//! One file for each resource holds a lean [`view`] (the fields that are read) and a table of families
//! in exposition order; [`kind`] is the contract of such a file and [`series`] what its functions write
//! to. Objects flow in as bytes, lines for the [`cache`](crate::cache) flow out. Nothing here knows how
//! objects are fetched or how text is served. `docs/adding-a-metric.md` walks through a change.

pub mod condition;
pub mod filter;
pub mod kind;
pub mod metadata;
pub mod resource_list;
pub mod scalars;
pub mod selection;
pub mod series;
pub mod values;
pub mod view;

pub mod deployments;
pub mod namespaces;
pub mod nodes;
pub mod pods;
pub mod replicasets;
pub mod services;

pub use kind::{Api, FamilyInfo, RenderOptions, Renderer, Resource, Stability};
pub use view::{DecodeError, ObjectBytes};

use kind::Handle;

/// Every resource, in byte order of the names, which is also exposition order.
static RESOURCES: &[&dyn Resource] = &[
    &Handle::<deployments::Deployments>::new(),
    &Handle::<namespaces::Namespaces>::new(),
    &Handle::<nodes::Nodes>::new(),
    &Handle::<pods::Pods>::new(),
    &Handle::<replicasets::ReplicaSets>::new(),
    &Handle::<services::Services>::new(),
];

/// Every resource, in byte order of the names.
#[must_use]
pub fn registry() -> &'static [&'static dyn Resource] {
    RESOURCES
}

/// The resource of this plural name.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Resource> {
    RESOURCES.iter().copied().find(|resource| resource.name() == name)
}
