//! `validatingwebhookconfigurations` (admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration).

use super::admission::WebhookConfiguration;
use crate::resources::prelude::*;

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
