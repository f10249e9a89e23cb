//! `mutatingadmissionpolicies` (admissionregistration.k8s.io/v1 MutatingAdmissionPolicy).

use super::admission::ParamKind;
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, created};
use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a MutatingAdmissionPolicy that metrics read.
    pub struct MutatingAdmissionPolicy<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: PolicySpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct PolicySpec<'a> {
        param_kind: ParamKind<'a> = 1 "paramKind",
        failure_policy: Str<'a> = 5 "failurePolicy",
        reinvocation_policy: Str<'a> = 7 "reinvocationPolicy",
    }
}

impl<'a> Object<'a> for MutatingAdmissionPolicy<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The MutatingAdmissionPolicy kind.
pub struct MutatingAdmissionPolicies;

impl Kind for MutatingAdmissionPolicies {
    const API: Api = Api {
        name: "mutatingadmissionpolicies",
        group: "admissionregistration.k8s.io",
        version: "v1",
        kind: "MutatingAdmissionPolicy",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |policy| &policy.metadata.namespace),
        ("mutatingadmissionpolicy", |policy| &policy.metadata.name),
    ];
    type View<'a> = MutatingAdmissionPolicy<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        alpha(
            "kube_mutatingadmissionpolicy_info",
            &["param_api_version", "param_kind", "failure_policy", "reinvocation_policy"],
            "The kind of parameters that the mutating admission policy takes, and what its failure leads to.",
            |policy, s| info(policy, s),
        ),
        of_metadata(alpha(
            "kube_mutatingadmissionpolicy_created",
            &[],
            "Unix time of the mutating admission policy's creation.",
            |policy, s| created(policy, s),
        )),
    ];
}

fn info(policy: &MutatingAdmissionPolicy<'_>, s: &mut Series<'_>) {
    let spec = &policy.spec;
    let labels = [
        ("param_api_version", &*spec.param_kind.api_version),
        ("param_kind", &*spec.param_kind.kind),
        ("failure_policy", &*spec.failure_policy),
        ("reinvocation_policy", &*spec.reinvocation_policy),
    ];
    s.with(&labels, 1.0);
}
