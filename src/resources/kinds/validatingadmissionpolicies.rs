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

/// The ValidatingAdmissionPolicy kind.
pub struct ValidatingAdmissionPolicies;

impl Kind for ValidatingAdmissionPolicies {
    const API: Api = Api::cluster_wide(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
    );
    const NOUN: &'static str = "validating admission policy";
    const IDENTITY: &'static [Identity<Self>] = &namespace_and::<Self>("validatingadmissionpolicy");
    type View<'a> = ValidatingAdmissionPolicy<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { policy, s:
        alpha "kube_validatingadmissionpolicy_info"
            ["param_api_version", "param_kind", "failure_policy"],
            "The kind of parameters that the validating admission policy takes, and what its failure leads to.":
            info(policy, s);
        created(Alpha, "kube_validatingadmissionpolicy_created");
    };
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
