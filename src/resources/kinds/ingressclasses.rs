//! `ingressclasses` (networking.k8s.io/v1 IngressClass).

use crate::resources::prelude::*;

object! {
    /// The fields of an IngressClass that metrics read.
    pub struct IngressClass<'a> {
        spec: IngressClassSpec<'a> = 2 "spec" struct IngressClassSpec {
            controller: Str<'a> = 1 "controller",
        },
    }
}

kind! {
    /// The IngressClass kind.
    IngressClasses: IngressClass, "ingress class",
        Api::cluster_wide("networking.k8s.io", "v1", "IngressClass", "ingressclasses").off_by_default();
    identity [("ingressclass", |class| &class.metadata.name)];
    families class, s:
        alpha "kube_ingressclass_info" {"controller": &class.spec.controller},
            "The controller that serves the ingress class.";
        created(Alpha, "kube_ingressclass_created");
        annotations(Alpha, "kube_ingressclass_annotations");
        labels(Alpha, "kube_ingressclass_labels");
}
