//! `mutatingwebhookconfigurations` (admissionregistration.k8s.io/v1 MutatingWebhookConfiguration).

use super::admission::{self, Webhook};
use crate::resources::kind::{Api, Family, Identity, Kind, Object, alpha, of_metadata};
use crate::resources::metadata::{Metadata, created, one, resource_version};
use crate::wire::view::view;

view! {
    /// The fields of a MutatingWebhookConfiguration that metrics read.
    pub struct MutatingWebhookConfiguration<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        webhooks: Vec<Webhook<'a>> = 2 "webhooks",
    }
}

impl<'a> Object<'a> for MutatingWebhookConfiguration<'a> {
    fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }
}

/// The MutatingWebhookConfiguration kind.
pub struct MutatingWebhookConfigurations;

impl Kind for MutatingWebhookConfigurations {
    const API: Api = Api {
        name: "mutatingwebhookconfigurations",
        group: "admissionregistration.k8s.io",
        version: "v1",
        kind: "MutatingWebhookConfiguration",
        namespaced: false,
        default_enabled: true,
    };
    const IDENTITY: &'static [Identity<Self>] = &[
        ("namespace", |configuration| &configuration.metadata.namespace),
        ("mutatingwebhookconfiguration", |configuration| &configuration.metadata.name),
    ];
    type View<'a> = MutatingWebhookConfiguration<'a>;

    const FAMILIES: &'static [Family<Self>] = &[
        of_metadata(alpha(
            "kube_mutatingwebhookconfiguration_info",
            &[],
            "1 for each mutating webhook configuration.",
            |configuration, s| one(configuration, s),
        )),
        of_metadata(alpha(
            "kube_mutatingwebhookconfiguration_created",
            &[],
            "Unix time of the mutating webhook configuration's creation.",
            |configuration, s| created(configuration, s),
        )),
        of_metadata(alpha(
            "kube_mutatingwebhookconfiguration_metadata_resource_version",
            &[],
            "The version of the mutating webhook configuration that the API server last reported.",
            |configuration, s| resource_version(configuration, s),
        )),
        alpha(
            "kube_mutatingwebhookconfiguration_webhook_clientconfig_service",
            &["webhook_name", "service_name", "service_namespace"],
            "The service that a webhook calls; empty for one that calls a URL.",
            |configuration, s| admission::services(&configuration.webhooks, s),
        ),
    ];
}
