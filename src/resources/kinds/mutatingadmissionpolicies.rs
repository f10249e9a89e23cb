//! `mutatingadmissionpolicies` (admissionregistration.k8s.io/v1 MutatingAdmissionPolicy).

use super::admission::ParamKind;
use crate::resources::prelude::*;

object! {
    /// The fields of a MutatingAdmissionPolicy that metrics read.
    pub struct MutatingAdmissionPolicy<'a> {
        spec: PolicySpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct PolicySpec<'a> {
        param_kind: ParamKind<'a> = 1 "paramKind",
        failure_policy: Str<'a> = 5 "failurePolicy",
        reinvocation_policy: Str<'a> = 7 "reinvocationPolicy",
    }
}

/// The MutatingAdmissionPolicy kind.
pub struct MutatingAdmissionPolicies;

impl Kind for MutatingAdmissionPolicies {
    const API: Api = Api::cluster_wide(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
    );
    const NOUN: &'static str = "mutating admission policy";
    const IDENTITY: &'static [Identity<Self>] = &namespace_and::<Self>("mutatingadmissionpolicy");
    type View<'a> = MutatingAdmissionPolicy<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { policy, s:
        alpha "kube_mutatingadmissionpolicy_info"
            ["param_api_version", "param_kind", "failure_policy", "reinvocation_policy"],
            "The kind of parameters that the mutating admission policy takes, and what its failure leads to.":
            info(policy, s);
        created(Alpha, "kube_mutatingadmissionpolicy_created");
    };
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
