//! The fields of jobs and nodes that the ledger reads.

use crate::kube::observed::Metadata;
use crate::resources::kinds::pods::PodCondition;
use crate::wire::view::view;

/// A condition of a Job or a Node, which has the form of a Pod's.
pub(super) type Condition<'a> = PodCondition<'a>;

view! {
    /// The fields of a Job that the ledger reads.
    pub struct Job<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: JobStatus<'a> = 3 "status",
    }

    /// `status` of a Job.
    pub struct JobStatus<'a> {
        conditions: Vec<Condition<'a>> = 1 "conditions",
    }

    /// The fields of a Node that the ledger reads.
    pub struct Node<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: NodeStatus<'a> = 3 "status",
    }

    /// `status` of a Node.
    pub struct NodeStatus<'a> {
        conditions: Vec<Condition<'a>> = 4 "conditions",
    }
}
