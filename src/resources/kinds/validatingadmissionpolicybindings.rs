//! `validatingadmissionpolicybindings` (admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding).

use super::admission::ParamRef;
use crate::resources::prelude::*;

object! {
    /// The fields of a ValidatingAdmissionPolicyBinding that metrics read.
    pub struct ValidatingAdmissionPolicyBinding<'a> {
        spec: BindingSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct BindingSpec<'a> {
        policy_name: Str<'a> = 1 "policyName",
        param_ref: ParamRef<'a> = 2 "paramRef",
        validation_actions: Vec<Str<'a>> = 4 "validationActions",
    }
}

kind! {
    /// The ValidatingAdmissionPolicyBinding kind.
    ValidatingAdmissionPolicyBindings: ValidatingAdmissionPolicyBinding, "validating admission policy binding",
        Api::cluster_wide("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
    identity namespace_and::<Self>("validatingadmissionpolicybinding");
    families binding, s:
        alpha "kube_validatingadmissionpolicybinding_info"
            {
                "policy_name": &binding.spec.policy_name,
                "param_name": &binding.spec.param_ref.name,
                "param_namespace": &binding.spec.param_ref.namespace,
                "param_not_found_action": &binding.spec.param_ref.not_found_action,
            },
            "The policy that the validating admission policy binding puts into force, and its parameters.";
        created(Alpha, "kube_validatingadmissionpolicybinding_created");
        alpha "kube_validatingadmissionpolicybinding_validation_action" {"action": action}
            for action in &binding.spec.validation_actions,
            "What is done about a request that fails the validation.";
}
