//! The pods that may send StatsD lines. The Kubernetes side writes the [`PodIndex`], the StatsD side reads it.

mod cgroup;
mod claim;
mod index;
mod pod;
mod selection;

#[cfg(test)]
mod tests;

pub use cgroup::{Cgroup, CgroupInodes};
pub use claim::{Claim, ContainerClaim};
pub use index::{Found, Lookup, Missing, PodIndex, SenderLabels};
pub use pod::{Pod, PodWorkload};
pub use selection::{PodLabel, Selection, UnknownLabel};
