//! Rereads the files with credentials and certificates when they change, and builds the TLS configuration from them.

use std::sync::Arc;

use ::kube::client::ConfigExt as _;
use http::HeaderValue;
use tokio_rustls::rustls::ClientConfig;

use super::plugins::headers_now;
use super::state::{Built, FILES_CHANGED, Files, State};
use crate::kube::client::error::{TransportError, causes};
use crate::kube::client::files::Watched;

impl State {
    /// Rereads the files that have changed, or all of them. If the new content is unusable, the previous one stays in
    /// use: a certificate may be written before its key.
    pub(super) fn reread(&mut self, all: bool) {
        let mut result = Ok(());
        let mut has_new = false;
        let Files { authorities, certificate, key } = &mut self.files;
        for file in [authorities, certificate, key].into_iter().flatten() {
            match file.refresh(all) {
                Ok(new) => has_new |= new,
                Err(error) => result = Err(error),
            }
        }
        self.dynamic.is_outdated |= has_new && self.dynamic.running.is_some();
        // Until the new content is in use, which takes longer if another file cannot be read.
        self.broken |= has_new;
        if self.broken {
            result = result.and_then(|()| self.renew_tls());
        }
        if let Some(file) = &mut self.token {
            let read = file.refresh(all);
            let read = read.and_then(|changed| changed.then(|| token(file)).transpose());
            let renewed = read.and_then(|text| text.map_or(Ok(()), |text| self.renew_token(text)));
            result = result.and(renewed.map_err(|error| format!("token file {error}").into()));
        }
        match result {
            Ok(()) => self.complained = false,
            // Logs the error once, not for each request.
            Err(error) if !std::mem::replace(&mut self.complained, true) => {
                tracing::warn!(%error, "Cannot use the new credentials, going on with the old ones");
            }
            Err(_) => {}
        }
    }

    fn renew_token(&mut self, text: String) -> Result<(), TransportError> {
        self.user.token = Some(text.into());
        self.headers = Arc::new(headers_now(&self.config_of_credentials()?)?);
        Ok(())
    }

    /// Uses the files last read for TLS. If a plugin prints the certificate, its next run does.
    ///
    /// # Errors
    /// The content of a file is unusable.
    pub(super) fn renew_tls(&mut self) -> Result<(), TransportError> {
        let mut config = self.config(self.files.authorities.as_ref().map(Watched::content))?;
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

/// Returns the token in a file, trimmed.
pub(super) fn token(file: &Watched) -> Result<String, TransportError> {
    let fault = |reason: &str| TransportError::from(format!("{}: {reason}", file.path().display()));
    let text = std::str::from_utf8(file.content()).map_err(|_| fault("not UTF-8"))?.trim();
    if text.is_empty() {
        return Err(fault("it is empty"));
    }
    if HeaderValue::from_str(text).is_err() {
        return Err(fault("the token has characters that cannot be sent"));
    }
    Ok(text.to_owned())
}
