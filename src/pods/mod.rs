//! The pods that may send StatsD lines. The Kubernetes side writes the [`PodIndex`], the StatsD side reads it.

mod cgroup;
mod claim;
mod index;
mod selection;

#[cfg(test)]
mod tests;

pub use cgroup::{Cgroup, CgroupInodes};
pub use claim::{Claim, ContainerClaim};
pub use index::{Found, Lookup, Missing, Pod, PodIndex, PodWorkload, SenderLabels};
pub use selection::{PodLabel, Selection};
