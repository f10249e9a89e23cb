//! `namespaces` (v1 Namespace).

use crate::resources::prelude::*;

object! {
    /// The fields of a Namespace that metrics read.
    pub struct Namespace<'a> {
        status: NamespaceStatus<'a> = 3 "status" struct NamespaceStatus {
            phase: Str<'a> = 1 "phase",
            conditions: Vec<Condition<'a>> = 2 "conditions",
        },
    }
}

kind! {
    /// The Namespace kind.
    Namespaces: Namespace, "namespace", Api::cluster_wide("", "v1", "Namespace", "namespaces");
    identity [("namespace", |namespace| &namespace.metadata.name)];
    families namespace, s:
        created(Stable, "kube_namespace_created");
        annotations(Alpha, "kube_namespace_annotations");
        labels(Stable, "kube_namespace_labels");
        stable "kube_namespace_status_phase" ["phase"],
            "The phase of the namespace: one series for each, 1 for the present one.": {
                s.state_set("phase", &["Active", "Terminating"], &namespace.status.phase);
            };
        alpha "kube_namespace_status_condition" ["condition", "status"],
            "The conditions of the namespace: for each, one series for each status, 1 for the present one.":
            condition::all(&namespace.status.conditions, s);
}
