//! `validatingwebhookconfigurations` (admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration).

use super::admission::{self, Webhook};
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, created, one, resource_version};
use crate::wire::view::view;

view! {
    /// The fields of a ValidatingWebhookConfiguration that metrics read.
    pub struct ValidatingWebhookConfiguration<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        webhooks: Vec<Webhook<'a>> = 2 "webhooks",
    }
}

impl<'a> Object<'a> for ValidatingWebhookConfiguration<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The ValidatingWebhookConfiguration kind.
pub struct ValidatingWebhookConfigurations;

impl Kind for ValidatingWebhookConfigurations {
    const API: Api = Api {
        name: "validatingwebhookconfigurations",
        group: "admissionregistration.k8s.io",
        version: "v1",
        kind: "ValidatingWebhookConfiguration",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |configuration| &configuration.metadata.namespace),
        ("validatingwebhookconfiguration", |configuration| &configuration.metadata.name),
    ];
    type View<'a> = ValidatingWebhookConfiguration<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_validatingwebhookconfiguration_info",
            &[],
            "1 for each validating webhook configuration.",
            |configuration, s| one(configuration, s),
        )),
        of_metadata(alpha(
            "kube_validatingwebhookconfiguration_created",
            &[],
            "Unix time of the validating webhook configuration's creation.",
            |configuration, s| created(configuration, s),
        )),
        of_metadata(alpha(
            "kube_validatingwebhookconfiguration_metadata_resource_version",
            &[],
            "The version of the validating webhook configuration that the API server last reported.",
            |configuration, s| resource_version(configuration, s),
        )),
        alpha(
            "kube_validatingwebhookconfiguration_webhook_clientconfig_service",
            &["webhook_name", "service_name", "service_namespace"],
            "The service that a webhook calls; empty for one that calls a URL.",
            |configuration, s| admission::services(&configuration.webhooks, s),
        ),
    ];
}
