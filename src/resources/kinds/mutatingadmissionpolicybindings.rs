//! `mutatingadmissionpolicybindings` (admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding).

use super::admission::ParamRef;
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, created};
use crate::wire::view::{Str, view};

view! {
    /// The fields of a MutatingAdmissionPolicyBinding that metrics read.
    pub struct MutatingAdmissionPolicyBinding<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: BindingSpec<'a> = 2 "spec",
    }

    /// `spec`.
    pub struct BindingSpec<'a> {
        policy_name: Str<'a> = 1 "policyName",
        param_ref: ParamRef<'a> = 2 "paramRef",

    }
}

impl<'a> Object<'a> for MutatingAdmissionPolicyBinding<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The MutatingAdmissionPolicyBinding kind.
pub struct MutatingAdmissionPolicyBindings;

impl Kind for MutatingAdmissionPolicyBindings {
    const API: Api = Api {
        name: "mutatingadmissionpolicybindings",
        group: "admissionregistration.k8s.io",
        version: "v1",
        kind: "MutatingAdmissionPolicyBinding",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |binding| &binding.metadata.namespace),
        ("mutatingadmissionpolicybinding", |binding| &binding.metadata.name),
    ];
    type View<'a> = MutatingAdmissionPolicyBinding<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        alpha(
            "kube_mutatingadmissionpolicybinding_info",
            &["policy_name", "param_name", "param_namespace", "param_not_found_action"],
            "The policy that the mutating admission policy binding puts into force, and its parameters.",
            |binding, s| binding.spec.param_ref.info(&binding.spec.policy_name, s),
        ),
        of_metadata(alpha(
            "kube_mutatingadmissionpolicybinding_created",
            &[],
            "Unix time of the mutating admission policy binding's creation.",
            |binding, s| created(binding, s),
        )),
    ];
}
