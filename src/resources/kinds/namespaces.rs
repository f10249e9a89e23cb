//! `namespaces` (v1 Namespace).

use super::condition::{self, Condition};
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata, stable};
use crate::resources::metadata::{Metadata, annotations, created, labels};
use crate::wire::view::{Str, view};

view! {
    /// The fields of a Namespace that metrics read.
    pub struct Namespace<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        status: NamespaceStatus<'a> = 3 "status",
    }

    /// `status`.
    pub struct NamespaceStatus<'a> {
        phase: Str<'a> = 1 "phase",
        conditions: Vec<Condition<'a>> = 2 "conditions",
    }
}

impl<'a> Object<'a> for Namespace<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The Namespace kind.
pub struct Namespaces;

impl Kind for Namespaces {
    const API: Api = Api {
        name: "namespaces",
        group: "",
        version: "v1",
        kind: "Namespace",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] =
        &[("namespace", |namespace| &namespace.metadata.name)];
    type View<'a> = Namespace<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(stable(
            "kube_namespace_created",
            &[],
            "Unix time of the namespace's creation.",
            |namespace, s| created(namespace, s),
        )),
        of_metadata(alpha(
            "kube_namespace_annotations",
            &["annotation_*"],
            "The namespace's annotations that the allow list selects.",
            |namespace, s| annotations(namespace, s),
        )),
        of_metadata(stable(
            "kube_namespace_labels",
            &["label_*"],
            "The namespace's labels that the allow list selects.",
            |namespace, s| labels(namespace, s),
        )),
        stable(
            "kube_namespace_status_phase",
            &["phase"],
            "The phase of the namespace: one series for each, 1 for the present one.",
            |namespace, s| {
                s.state_set("phase", &["Active", "Terminating"], &namespace.status.phase);
            },
        ),
        alpha(
            "kube_namespace_status_condition",
            &["condition", "status"],
            "The conditions of the namespace: for each, one series for each status, 1 for the present one.",
            |namespace, s| condition::all(&namespace.status.conditions, s),
        ),
    ];
}
