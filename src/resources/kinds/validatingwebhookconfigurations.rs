//! `validatingwebhookconfigurations` (admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration).

use super::admission::{self, Webhook};
use crate::resources::prelude::*;

object! {
    /// The fields of a ValidatingWebhookConfiguration that metrics read.
    pub struct ValidatingWebhookConfiguration<'a> {
        webhooks: Vec<Webhook<'a>> = 2 "webhooks",
    }
}

/// The ValidatingWebhookConfiguration kind.
pub struct ValidatingWebhookConfigurations;

impl Kind for ValidatingWebhookConfigurations {
    const API: Api = Api::cluster_wide(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
    );
    const NOUN: &'static str = "validating webhook configuration";
    const IDENTITY: &'static [Identity<Self>] =
        &namespace_and::<Self>("validatingwebhookconfiguration");
    type View<'a> = ValidatingWebhookConfiguration<'a>;

    const FAMILIES: &'static [Family<Self>] = families! { configuration, s:
        info(Alpha, "kube_validatingwebhookconfiguration_info");
        created(Alpha, "kube_validatingwebhookconfiguration_created");
        version(Alpha, "kube_validatingwebhookconfiguration_metadata_resource_version");
        alpha "kube_validatingwebhookconfiguration_webhook_clientconfig_service"
            ["webhook_name", "service_name", "service_namespace"],
            "The service that a webhook calls; empty for one that calls a URL.":
            admission::services(&configuration.webhooks, s);
    };
}
