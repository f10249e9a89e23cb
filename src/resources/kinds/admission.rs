//! Types shared by the kinds of `admissionregistration.k8s.io`: parameters and webhooks.

use crate::resources::metadata::object;
use crate::resources::series::Series;
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

impl ParamRef<'_> {
    /// Writes the series of a binding's `_info` family.
    pub fn info(&self, policy_name: &str, series: &mut Series<'_>) {
        let labels = [
            ("policy_name", policy_name),
            ("param_name", &self.name),
            ("param_namespace", &self.namespace),
            ("param_not_found_action", &self.not_found_action),
        ];
        series.with(&labels, 1.0);
    }
}

/// Writes one series for each webhook with the service it calls; the labels are empty for one that calls a URL.
pub fn services(webhooks: &[Webhook<'_>], series: &mut Series<'_>) {
    for webhook in webhooks {
        let service = &webhook.client_config.service;
        let labels = [
            ("webhook_name", &*webhook.name),
            ("service_name", &*service.name),
            ("service_namespace", &*service.namespace),
        ];
        series.with(&labels, 1.0);
    }
}
