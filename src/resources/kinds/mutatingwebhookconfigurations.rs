//! `mutatingwebhookconfigurations` (admissionregistration.k8s.io/v1 MutatingWebhookConfiguration).

use super::admission::{self, Webhook};
use crate::resources::prelude::*;

object! {
    /// The fields of a MutatingWebhookConfiguration that metrics read.
    pub struct MutatingWebhookConfiguration<'a> {
        webhooks: Vec<Webhook<'a>> = 2 "webhooks",
    }
}

/// The MutatingWebhookConfiguration kind.
pub struct MutatingWebhookConfigurations;

impl Kind for MutatingWebhookConfigurations {
    const API: Api = Api::cluster_wide(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
    );
    const NOUN: &'static str = "mutating webhook configuration";
    const IDENTITY: &'static [Identity<Self>] =
        &namespace_and::<Self>("mutatingwebhookconfiguration");
    type View<'a> = MutatingWebhookConfiguration<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { configuration, s:
        info(Alpha, "kube_mutatingwebhookconfiguration_info");
        created(Alpha, "kube_mutatingwebhookconfiguration_created");
        version(Alpha, "kube_mutatingwebhookconfiguration_metadata_resource_version");
        alpha "kube_mutatingwebhookconfiguration_webhook_clientconfig_service"
            ["webhook_name", "service_name", "service_namespace"],
            "The service that a webhook calls; empty for one that calls a URL.":
            admission::services(&configuration.webhooks, s);
    };
}
