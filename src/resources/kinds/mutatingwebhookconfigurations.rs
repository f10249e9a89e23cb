//! `mutatingwebhookconfigurations` (admissionregistration.k8s.io/v1 MutatingWebhookConfiguration).

use super::admission::{self, WebhookConfiguration};
use crate::resources::prelude::*;

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
            ["webhook_name", "service_name", "service_namespace"],
            "The service that a webhook calls; empty for one that calls a URL.":
            admission::services(&configuration.webhooks, s);
}
