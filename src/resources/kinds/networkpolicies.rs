//! `networkpolicies` (networking.k8s.io/v1 NetworkPolicy).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, annotations, labels};
use crate::wire::view::{Present, view};

view! {
    /// The fields of a NetworkPolicy that metrics read.
    pub struct NetworkPolicy<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: NetworkPolicySpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct NetworkPolicySpec<'a> {
        ingress: Vec<Present> = 2 "ingress",
        egress: Vec<Present> = 3 "egress",
    }
}

impl<'a> Object<'a> for NetworkPolicy<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The NetworkPolicy kind.
pub struct NetworkPolicies;

impl Kind for NetworkPolicies {
    const API: Api = Api {
        name: "networkpolicies",
        group: "networking.k8s.io",
        version: "v1",
        kind: "NetworkPolicy",
        namespaced: true,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |policy| &policy.metadata.namespace),
        ("networkpolicy", |policy| &policy.metadata.name),
    ];
    type View<'a> = NetworkPolicy<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_networkpolicy_created",
            &[],
            "Unix time of the network policy's creation.",
            |policy, s| {
                // Printed even if unset, unlike for all other kinds.
                s.value(policy.metadata.creation_timestamp.seconds());
            },
        )),
        of_metadata(alpha(
            "kube_networkpolicy_annotations",
            &["annotation_*"],
            "The network policy's annotations that the allow list selects.",
            |policy, s| annotations(policy, s),
        )),
        of_metadata(alpha(
            "kube_networkpolicy_labels",
            &["label_*"],
            "The network policy's labels that the allow list selects.",
            |policy, s| labels(policy, s),
        )),
        alpha(
            "kube_networkpolicy_spec_ingress_rules",
            &[],
            "How many rules for incoming traffic the network policy has.",
            |policy, s| s.value(policy.spec.ingress.len() as f64),
        ),
        alpha(
            "kube_networkpolicy_spec_egress_rules",
            &[],
            "How many rules for outgoing traffic the network policy has.",
            |policy, s| s.value(policy.spec.egress.len() as f64),
        ),
    ];
}
