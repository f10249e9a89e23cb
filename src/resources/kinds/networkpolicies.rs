//! `networkpolicies` (networking.k8s.io/v1 NetworkPolicy).

use crate::resources::prelude::*;

object! {
    /// The fields of a NetworkPolicy that metrics read.
    pub struct NetworkPolicy<'a> {
        spec: NetworkPolicySpec<'a> = 2 "spec" struct NetworkPolicySpec {
            ingress: Vec<Present> = 2 "ingress",
            egress: Vec<Present> = 3 "egress",
        },
    }
}

kind! {
    /// The NetworkPolicy kind.
    NetworkPolicies: NetworkPolicy, "network policy",
        Api::namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies");
    identity namespace_and::<Self>("networkpolicy");
    families policy, s:
        // Printed even if unset, unlike for all other kinds.
        alpha of_metadata "kube_networkpolicy_created", "Unix time of the network policy's creation.":
            s.value(policy.metadata.creation_timestamp.seconds());
        annotations(Alpha, "kube_networkpolicy_annotations");
        labels(Alpha, "kube_networkpolicy_labels");
        alpha "kube_networkpolicy_spec_ingress_rules",
            "How many rules for incoming traffic the network policy has.":
            s.value(policy.spec.ingress.len() as f64);
        alpha "kube_networkpolicy_spec_egress_rules",
            "How many rules for outgoing traffic the network policy has.":
            s.value(policy.spec.egress.len() as f64);
}
