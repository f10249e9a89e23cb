//! The outcomes of resolving the senders of lines.

use crate::util::words::words;

words! {
    /// The evidence by which the sender of a line was found, or the cause for which it was not.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum SenderOutcome {
        /// Its address.
        Address = "address",
        /// The credentials of its Unix socket.
        Credentials = "credentials",
        /// The container ID in the line.
        ContainerId = "container_id",
        /// The external data in the line.
        ExternalData = "external_data",
        /// The replica that received the line.
        Replica = "replica",
        /// The pods have not been listed.
        NotSynced = "not_synced",
        /// No pod has the address.
        UnknownAddress = "unknown_address",
        /// No pod has the container in the line.
        UnknownContainer = "unknown_container",
        /// The pod that the receiving replica found is not known here.
        UnknownPod = "unknown_pod",
        /// The pod ended a while ago.
        Ended = "pod_ended",
        /// The address is that of a node.
        HostNetwork = "host_network",
        /// There is neither an address nor an origin in the line.
        NoOrigin = "no_origin",
        /// The workload of the pod is not known.
        NoWorkload = "unknown_workload",
        /// The process is in no container.
        HostProcess = "host_process",
        /// The process is gone, or cannot be seen from here.
        HiddenProcess = "hidden_process",
    }
}

impl SenderOutcome {
    /// Returns true if the sender was found.
    pub(crate) const fn is_known(self) -> bool {
        (self as usize) < Self::NotSynced as usize
    }
}

words! {
    /// The evidence that contradicts the origin in a line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum RejectedClaim {
        /// The address is that of another pod.
        Address = "address",
        /// The address is that of a node on which the pod does not run.
        NodeAddress = "node_address",
        /// The credentials are those of another pod.
        Credentials = "credentials",
    }
}
