//! `mutatingwebhookconfigurations` (admissionregistration.k8s.io/v1 MutatingWebhookConfiguration).

use super::admission::WebhookConfiguration;
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
            {
                "webhook_name": &webhook.name,
                "service_name": &webhook.client_config.service.name,
                "service_namespace": &webhook.client_config.service.namespace,
            } for webhook in &configuration.webhooks,
            "The service that a webhook calls; empty for one that calls a URL.";
}
