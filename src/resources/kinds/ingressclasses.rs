//! `ingressclasses` (networking.k8s.io/v1 IngressClass).

use crate::resources::prelude::*;

object! {
    /// The fields of an IngressClass that metrics read.
    pub struct IngressClass<'a> {
        spec: IngressClassSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct IngressClassSpec<'a> {
        controller: Str<'a> = 1 "controller",
    }
}

/// The IngressClass kind.
pub struct IngressClasses;

impl Kind for IngressClasses {
    const API: Api = Api::cluster_wide("networking.k8s.io", "v1", "IngressClass", "ingressclasses")
        .off_by_default();
    const NOUN: &'static str = "ingress class";
    const IDENTITY: &'static [Identity<Self>] = &[("ingressclass", |class| &class.metadata.name)];
    type View<'a> = IngressClass<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { class, s:
        alpha "kube_ingressclass_info" ["controller"],
            "The controller that serves the ingress class.":
            s.with(&[("controller", &class.spec.controller)], 1.0);
        created(Alpha, "kube_ingressclass_created");
        annotations(Alpha, "kube_ingressclass_annotations");
        labels(Alpha, "kube_ingressclass_labels");
    };
}
