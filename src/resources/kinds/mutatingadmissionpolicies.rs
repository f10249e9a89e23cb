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

kind! {
    /// The MutatingAdmissionPolicy kind.
    MutatingAdmissionPolicies: MutatingAdmissionPolicy, "mutating admission policy",
        Api::cluster_wide("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies");
    identity namespace_and::<Self>("mutatingadmissionpolicy");
    families policy, s:
        alpha "kube_mutatingadmissionpolicy_info" {
                "param_api_version": &policy.spec.param_kind.api_version,
                "param_kind": &policy.spec.param_kind.kind,
                "failure_policy": &policy.spec.failure_policy,
                "reinvocation_policy": &policy.spec.reinvocation_policy,
            },
            "The kind of parameters that the mutating admission policy takes, and what its failure leads to.";
        created(Alpha, "kube_mutatingadmissionpolicy_created");
}
