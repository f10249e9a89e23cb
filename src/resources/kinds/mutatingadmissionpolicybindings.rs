//! `mutatingadmissionpolicybindings` (admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding).

use super::admission::ParamRef;
use crate::resources::prelude::*;

object! {
    /// The fields of a MutatingAdmissionPolicyBinding that metrics read.
    pub struct MutatingAdmissionPolicyBinding<'a> {
        spec: BindingSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct BindingSpec<'a> {
        policy_name: Str<'a> = 1 "policyName",
        param_ref: ParamRef<'a> = 2 "paramRef",

    }
}

/// The MutatingAdmissionPolicyBinding kind.
pub struct MutatingAdmissionPolicyBindings;

impl Kind for MutatingAdmissionPolicyBindings {
    const API: Api = Api::cluster_wide(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
    );
    const NOUN: &'static str = "mutating admission policy binding";
    const IDENTITY: &'static [Identity<Self>] =
        &namespace_and::<Self>("mutatingadmissionpolicybinding");
    type View<'a> = MutatingAdmissionPolicyBinding<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { binding, s:
        alpha "kube_mutatingadmissionpolicybinding_info"
            ["policy_name", "param_name", "param_namespace", "param_not_found_action"],
            "The policy that the mutating admission policy binding puts into force, and its parameters.":
            binding.spec.param_ref.info(&binding.spec.policy_name, s);
        created(Alpha, "kube_mutatingadmissionpolicybinding_created");
    };
}
