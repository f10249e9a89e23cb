//! Builds TLS configurations, from the files of a kubeconfig or with the certificate of an exec plugin.

use ::kube::client::ConfigExt as _;
use jiff::Timestamp;
use tokio_rustls::rustls::ClientConfig;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::state::{Built, FILES_CHANGED, State};
use crate::kube::client::error::{TransportError, causes};

impl State {
    /// Uses the files last read for TLS. If a plugin prints the certificate, its next run does.
    ///
    /// # Errors
    /// The content of a file is unusable.
    pub(super) fn renew_tls(&mut self) -> Result<(), TransportError> {
        let mut config = self.config()?;
        // TLS does not need the credentials for headers, and kube would run the plugin for them.
        config.auth_info.exec = None;
        config.auth_info.auth_provider = None;
        let built = config.rustls_client_config().map_err(|error| match &error {
            ::kube::Error::InferKubeconfig(error) => causes(error),
            error => causes(error),
        })?;
        self.usable_authorities =
            self.files.authorities.as_ref().map(|file| file.content().to_vec());
        match &mut self.dynamic.certificate {
            Some(end) => *end = Some(FILES_CHANGED),
            None => {
                self.broken = false;
                self.use_tls(built);
            }
        }
        Ok(())
    }

    pub(super) fn use_tls(&mut self, config: ClientConfig) {
        let generation = self.tls.as_ref().map_or(0, |built| built.generation + 1);
        if generation > 0 {
            tracing::info!("TLS certificates have changed, new connections use the new ones");
        }
        self.tls = Some(Built::new(config, generation));
    }
}

/// Returns the client certificate that a configuration presents, in DER.
pub(super) fn chain(config: &ClientConfig) -> Option<Vec<u8>> {
    let shown = config.client_auth_cert_resolver.resolve(&[], &[])?;
    shown.cert.first().map(|certificate| certificate.to_vec())
}

/// Returns when a DER certificate expires.
pub(super) fn end(certificate: &[u8]) -> Option<Timestamp> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let end = certificate.tbs_certificate().validity().not_after.to_unix_duration();
    Timestamp::from_second(i64::try_from(end.as_secs()).ok()?).ok()
}
