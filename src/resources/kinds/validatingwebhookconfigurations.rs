//! `validatingwebhookconfigurations` (admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration).

use super::admission::{self, WebhookConfiguration};
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
            ["webhook_name", "service_name", "service_namespace"],
            "The service that a webhook calls; empty for one that calls a URL.":
            admission::services(&configuration.webhooks, s);
}
