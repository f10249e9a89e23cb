//! Types shared by the kinds of `admissionregistration.k8s.io`: parameters and webhooks.

use crate::resources::metadata::object;
use crate::wire::view::{Str, view};

view! {
    /// `spec.paramKind` of an admission policy.
    pub struct ParamKind<'a> {
        api_version: Str<'a> = 1 "apiVersion",
        kind: Str<'a> = 2 "kind",
    }

    /// `spec.paramRef` of a binding.
    pub struct ParamRef<'a> {
        name: Str<'a> = 1 "name",
        namespace: Str<'a> = 2 "namespace",
        not_found_action: Str<'a> = 4 "parameterNotFoundAction",
    }

    /// `webhooks[]` of a webhook configuration.
    pub struct Webhook<'a> {
        name: Str<'a> = 1 "name",
        client_config: ClientConfig<'a> = 2 "clientConfig",
    }

    /// `webhooks[].clientConfig`.
    pub struct ClientConfig<'a> {
        service: ServiceReference<'a> = 1 "service",
    }

    /// `webhooks[].clientConfig.service`.
    pub struct ServiceReference<'a> {
        namespace: Str<'a> = 1 "namespace",
        name: Str<'a> = 2 "name",
    }
}

object! {
    /// A webhook configuration, mutating or validating.
    pub struct WebhookConfiguration<'a> {
        webhooks: Vec<Webhook<'a>> = 2 "webhooks",
    }
}
