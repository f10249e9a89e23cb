//! `ingressclasses` (networking.k8s.io/v1 IngressClass).

use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, annotations, created, labels};
use crate::wire::view::{Str, view};

view! {
    /// The fields of an IngressClass that metrics read.
    pub struct IngressClass<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: IngressClassSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct IngressClassSpec<'a> {
        controller: Str<'a> = 1 "controller",
    }
}

impl<'a> Object<'a> for IngressClass<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The IngressClass kind.
pub struct IngressClasses;

impl Kind for IngressClasses {
    const API: Api = Api {
        name: "ingressclasses",
        group: "networking.k8s.io",
        version: "v1",
        kind: "IngressClass",
        namespaced: false,
        default_enabled: false,
    };
    const IDENTITY: &'static [Identity<Self>] = &[("ingressclass", |class| &class.metadata.name)];
    type View<'a> = IngressClass<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        alpha(
            "kube_ingressclass_info",
            &["controller"],
            "The controller that serves the ingress class.",
            |class, s| s.with(&[("controller", &class.spec.controller)], 1.0),
        ),
        of_metadata(alpha(
            "kube_ingressclass_created",
            &[],
            "Unix time of the ingress class's creation.",
            |class, s| created(class, s),
        )),
        of_metadata(alpha(
            "kube_ingressclass_annotations",
            &["annotation_*"],
            "The ingress class's annotations that the allow list selects.",
            |class, s| annotations(class, s),
        )),
        of_metadata(alpha(
            "kube_ingressclass_labels",
            &["label_*"],
            "The ingress class's labels that the allow list selects.",
            |class, s| labels(class, s),
        )),
    ];
}
