//! The kinds of `admissionregistration.k8s.io`.

use crate::resources::prelude::*;
use crate::wire::view::view;

view! {
    /// `spec.paramKind` of a policy.
    pub struct ParamKind<'a> {
        api_version: Str<'a> = 1 "apiVersion",
        kind: Str<'a> = 2 "kind",
    }
}

object! {
    /// The fields of a MutatingAdmissionPolicy that metrics read.
    pub struct MutatingPolicy<'a> {
        spec: MutatingPolicySpec<'a> = 2 "spec" struct MutatingPolicySpec {
            param_kind: ParamKind<'a> = 1 "paramKind",
            failure_policy: Str<'a> = 5 "failurePolicy",
            reinvocation_policy: Str<'a> = 7 "reinvocationPolicy",
        },
    }
}

object! {
    /// The fields of a ValidatingAdmissionPolicy that metrics read.
    pub struct ValidatingPolicy<'a> {
        spec: ValidatingPolicySpec<'a> = 2 "spec" struct ValidatingPolicySpec {
            param_kind: ParamKind<'a> = 1 "paramKind",
            failure_policy: Str<'a> = 4 "failurePolicy",
        },
    }
}

object! {
    /// The fields of a MutatingAdmissionPolicyBinding that metrics read.
    pub struct MutatingBinding<'a> {
        spec: MutatingBindingSpec<'a> = 2 "spec" struct MutatingBindingSpec {
            policy_name: Str<'a> = 1 "policyName",
            param_ref: ParamRef<'a> = 2 "paramRef" struct ParamRef {
                name: Str<'a> = 1 "name",
                namespace: Str<'a> = 2 "namespace",
                not_found_action: Str<'a> = 4 "parameterNotFoundAction",
            },
        },
    }
}

object! {
    /// The fields of a ValidatingAdmissionPolicyBinding that metrics read.
    pub struct ValidatingBinding<'a> {
        spec: ValidatingBindingSpec<'a> = 2 "spec" struct ValidatingBindingSpec {
            policy_name: Str<'a> = 1 "policyName",
            param_ref: ParamRef<'a> = 2 "paramRef",
            validation_actions: Vec<Str<'a>> = 4 "validationActions",
        },
    }
}

object! {
    /// The fields of a webhook configuration, mutating or validating, that metrics read.
    pub struct WebhookConfiguration<'a> {
        webhooks: Vec<Webhook<'a>> = 2 "webhooks" struct Webhook {
            name: Str<'a> = 1 "name",
            client_config: ClientConfig<'a> = 2 "clientConfig" struct ClientConfig {
                service: ServiceReference<'a> = 1 "service" struct ServiceReference {
                    namespace: Str<'a> = 1 "namespace",
                    name: Str<'a> = 2 "name",
                },
            },
        },
    }
}

kind! {
    /// The MutatingAdmissionPolicy kind.
    MutatingAdmissionPolicies: MutatingPolicy, "mutating admission policy",
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

kind! {
    /// The MutatingAdmissionPolicyBinding kind.
    MutatingAdmissionPolicyBindings: MutatingBinding, "mutating admission policy binding",
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

kind! {
    /// The MutatingWebhookConfiguration kind.
    MutatingWebhookConfigurations: WebhookConfiguration, "mutating webhook configuration",
        Api::cluster_wide("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
    identity namespace_and::<Self>("mutatingwebhookconfiguration");
    families configuration, s:
        info(Alpha, "kube_mutatingwebhookconfiguration_info");
        created(Alpha, "kube_mutatingwebhookconfiguration_created");
        version(Alpha, "kube_mutatingwebhookconfiguration_metadata_resource_version");
        alpha "kube_mutatingwebhookconfiguration_webhook_clientconfig_service"
            {
                "webhook_name": &webhook.name,
                "service_name": &webhook.client_config.service.name,
                "service_namespace": &webhook.client_config.service.namespace,
            } for webhook in &configuration.webhooks,
            "The service that a webhook calls; empty for one that calls a URL.";
}

kind! {
    /// The ValidatingAdmissionPolicy kind.
    ValidatingAdmissionPolicies: ValidatingPolicy, "validating admission policy",
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

kind! {
    /// The ValidatingAdmissionPolicyBinding kind.
    ValidatingAdmissionPolicyBindings: ValidatingBinding, "validating admission policy binding",
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

kind! {
    /// The ValidatingWebhookConfiguration kind.
    ValidatingWebhookConfigurations: WebhookConfiguration, "validating webhook configuration",
        Api::cluster_wide("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations");
    identity namespace_and::<Self>("validatingwebhookconfiguration");
    families configuration, s:
        info(Alpha, "kube_validatingwebhookconfiguration_info");
        created(Alpha, "kube_validatingwebhookconfiguration_created");
        version(Alpha, "kube_validatingwebhookconfiguration_metadata_resource_version");
        alpha "kube_validatingwebhookconfiguration_webhook_clientconfig_service"
            {
                "webhook_name": &webhook.name,
                "service_name": &webhook.client_config.service.name,
                "service_namespace": &webhook.client_config.service.namespace,
            } for webhook in &configuration.webhooks,
            "The service that a webhook calls; empty for one that calls a URL.";
}
