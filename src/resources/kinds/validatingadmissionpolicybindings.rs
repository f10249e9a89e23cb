//! `validatingadmissionpolicybindings` (admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding).

use super::admission::ParamRef;
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, created};
use crate::wire::view::{Str, view};

view! {
    /// The fields of a ValidatingAdmissionPolicyBinding that metrics read.
    pub struct ValidatingAdmissionPolicyBinding<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: BindingSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct BindingSpec<'a> {
        policy_name: Str<'a> = 1 "policyName",
        param_ref: ParamRef<'a> = 2 "paramRef",
        validation_actions: Vec<Str<'a>> = 4 "validationActions",
    }
}

impl<'a> Object<'a> for ValidatingAdmissionPolicyBinding<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ValidatingAdmissionPolicyBinding kind.
pub struct ValidatingAdmissionPolicyBindings;

impl Kind for ValidatingAdmissionPolicyBindings {
    const API: Api = Api {
        name: "validatingadmissionpolicybindings",
        group: "admissionregistration.k8s.io",
        version: "v1",
        kind: "ValidatingAdmissionPolicyBinding",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |binding| &binding.metadata.namespace),
        ("validatingadmissionpolicybinding", |binding| &binding.metadata.name),
    ];
    type View<'a> = ValidatingAdmissionPolicyBinding<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        alpha(
            "kube_validatingadmissionpolicybinding_info",
            &["policy_name", "param_name", "param_namespace", "param_not_found_action"],
            "The policy that the validating admission policy binding puts into force, and its parameters.",
            |binding, s| binding.spec.param_ref.info(&binding.spec.policy_name, s),
        ),
        of_metadata(alpha(
            "kube_validatingadmissionpolicybinding_created",
            &[],
            "Unix time of the validating admission policy binding's creation.",
            |binding, s| created(binding, s),
        )),
        alpha(
            "kube_validatingadmissionpolicybinding_validation_action",
            &["action"],
            "What is done about a request that fails the validation.",
            |binding, s| {
                for action in &binding.spec.validation_actions {
                    s.with(&[("action", action)], 1.0);
                }
            },
        ),
    ];
}
