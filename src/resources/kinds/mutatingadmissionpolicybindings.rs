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

kind! {
    /// The MutatingAdmissionPolicyBinding kind.
    MutatingAdmissionPolicyBindings: MutatingAdmissionPolicyBinding, "mutating admission policy binding",
        Api::cluster_wide("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings");
    identity namespace_and::<Self>("mutatingadmissionpolicybinding");
    families binding, s:
        alpha "kube_mutatingadmissionpolicybinding_info"
            {
                "policy_name": &binding.spec.policy_name,
                "param_name": &binding.spec.param_ref.name,
                "param_namespace": &binding.spec.param_ref.namespace,
                "param_not_found_action": &binding.spec.param_ref.not_found_action,
            },
            "The policy that the mutating admission policy binding puts into force, and its parameters.";
        created(Alpha, "kube_mutatingadmissionpolicybinding_created");
}
