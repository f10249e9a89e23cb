//! What the pods of one node hold on its disks: writable layers, logs and volumes of the node itself.
//!
//! Each figure comes from the cheapest source that has it: the [`kubelet`]'s own summary, project [`quota`]s, a [`walk`]
//! of our own where that was asked for. All of them enter what they find into one [`Store`](store::Store), which joins it
//! with what [`pods`] say of limits and owners; [`families`] shows it. Nothing here knows where a server is or how it is
//! spoken to: who starts it hands over an [`Ask`](kubelet::Ask) for each.

pub(crate) mod families;
mod figure;
pub(crate) mod kubelet;
mod mounts;
mod pieces;
mod pod;
mod pods;
mod quota;
mod record;
pub(crate) mod report;
pub(crate) mod store;
mod summary;
mod sys;
mod trend;
pub(crate) mod walk;

#[cfg(fuzzing)]
pub(crate) use mounts::places;
