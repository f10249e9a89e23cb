//! `validatingadmissionpolicies` (admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy).

use super::admission::ParamKind;
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, created};
use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a ValidatingAdmissionPolicy that metrics read.
    pub struct ValidatingAdmissionPolicy<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: PolicySpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct PolicySpec<'a> {
        param_kind: ParamKind<'a> = 1 "paramKind",
        failure_policy: Str<'a> = 4 "failurePolicy",

    }
}

impl<'a> Object<'a> for ValidatingAdmissionPolicy<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ValidatingAdmissionPolicy kind.
pub struct ValidatingAdmissionPolicies;

impl Kind for ValidatingAdmissionPolicies {
    const API: Api = Api {
        name: "validatingadmissionpolicies",
        group: "admissionregistration.k8s.io",
        version: "v1",
        kind: "ValidatingAdmissionPolicy",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |policy| &policy.metadata.namespace),
        ("validatingadmissionpolicy", |policy| &policy.metadata.name),
    ];
    type View<'a> = ValidatingAdmissionPolicy<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        alpha(
            "kube_validatingadmissionpolicy_info",
            &["param_api_version", "param_kind", "failure_policy"],
            "The kind of parameters that the validating admission policy takes, and what its failure leads to.",
            |policy, s| info(policy, s),
        ),
        of_metadata(alpha(
            "kube_validatingadmissionpolicy_created",
            &[],
            "Unix time of the validating admission policy's creation.",
            |policy, s| created(policy, s),
        )),
    ];
}

fn info(policy: &ValidatingAdmissionPolicy<'_>, s: &mut Series<'_>) {
    let spec = &policy.spec;
    let labels = [
        ("param_api_version", &*spec.param_kind.api_version),
        ("param_kind", &*spec.param_kind.kind),
        ("failure_policy", &*spec.failure_policy),
    ];
    s.with(&labels, 1.0);
}
