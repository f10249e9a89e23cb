//! `validatingadmissionpolicies` (admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy).

use super::admission::ParamKind;
use crate::resources::prelude::*;

object! {
    /// The fields of a ValidatingAdmissionPolicy that metrics read.
    pub struct ValidatingAdmissionPolicy<'a> {
        spec: PolicySpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct PolicySpec<'a> {
        param_kind: ParamKind<'a> = 1 "paramKind",
        failure_policy: Str<'a> = 4 "failurePolicy",

    }
}

kind! {
    /// The ValidatingAdmissionPolicy kind.
    ValidatingAdmissionPolicies: ValidatingAdmissionPolicy, "validating admission policy",
        Api::cluster_wide("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
    identity namespace_and::<Self>("validatingadmissionpolicy");
    families policy, s:
        alpha "kube_validatingadmissionpolicy_info" {
                "param_api_version": &policy.spec.param_kind.api_version,
                "param_kind": &policy.spec.param_kind.kind,
                "failure_policy": &policy.spec.failure_policy,
            },
            "The kind of parameters that the validating admission policy takes, and what its failure leads to.";
        created(Alpha, "kube_validatingadmissionpolicy_created");
}
