//! The credentials and TLS configuration of one user in one cluster, renewed when their sources change.
//!
//! kube builds both from a kubeconfig: its layers add `Authorization` and impersonation headers to a request, and its
//! rustls configuration holds the CA certificates and the client certificate. kube reads most files only once, and
//! takes the certificate of an exec plugin only once. This module rebuilds them when a file changes, when a plugin's
//! certificate is about to expire, and when the server responds 401.

mod plugins;
#[cfg(fuzzing)]
#[path = "identity/tests/simulated.rs"]
pub(crate) mod simulated;
mod sources;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::simulated;

use std::sync::Arc;

use ::kube::config::{AuthInfo, Cluster};
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use secrecy::ExposeSecret as _;
use tokio::sync::Mutex;
use tokio_rustls::rustls::ClientConfig;

use super::error::TransportError;
use super::files::Watched;
use plugins::headers_now;
use sources::token;
pub(crate) use state::{Built, Current};
use state::{Files, State};

/// The credentials and TLS configuration for one server, shared by all requests.
pub(crate) struct Identity {
    /// The credentials come from an exec plugin or a token provider, and may take time to obtain.
    is_dynamic: bool,
    state: Mutex<State>,
}

impl Identity {
    /// Reads the files that the cluster and the user reference.
    ///
    /// # Errors
    /// A file cannot be read, its content is invalid, or a token is not a valid header value.
    pub(crate) fn new(
        mut cluster: Cluster,
        mut user: AuthInfo,
        user_agent: HeaderValue,
        https: bool,
    ) -> Result<Self, TransportError> {
        let mut state = State { user_agent: Some(user_agent), ..State::default() };
        if https {
            let file = |path: &Option<String>, is_inline: bool| {
                let path = path.as_ref().filter(|_| !is_inline);
                path.map(|path| Watched::read(path.as_ref())).transpose()
            };
            state.files = Files {
                authorities: file(
                    &cluster.certificate_authority,
                    cluster.certificate_authority_data.is_some(),
                )?,
                certificate: file(
                    &user.client_certificate,
                    user.client_certificate_data.is_some(),
                )?,
                key: file(&user.client_key, user.client_key_data.is_some())?,
            };
        } else {
            (cluster.certificate_authority, cluster.certificate_authority_data) = (None, None);
        }
        if let Some(path) = user.token_file.take() {
            match Watched::read(path.as_ref()).and_then(|file| Ok((token(&file)?, file))) {
                Ok((text, file)) => (user.token, state.token) = (Some(text.into()), Some(file)),
                // Like client-go, uses `token` until the token file is usable.
                Err(error) if user.token.is_some() => {
                    tracing::warn!(
                        %error,
                        "The token file cannot be read, the token beside it is used"
                    );
                    state.token = Some(Watched::unread(path.as_ref()));
                    state.complained = true;
                }
                Err(error) => return Err(format!("token file {error}").into()),
            }
        }
        if let Some(token) = &user.token
            && HeaderValue::from_str(token.expose_secret()).is_err()
        {
            return Err("the token has characters that cannot be sent".into());
        }
        let has_certificate = (user.client_certificate.is_some()
            || user.client_certificate_data.is_some())
            && (user.client_key.is_some() || user.client_key_data.is_some());
        if has_certificate {
            // As with client-go, the plugin is not needed.
            user.exec = None;
        }
        let is_dynamic = user.auth_provider.is_some()
            || user.exec.is_some() && user.token.is_none() && user.username.is_none();
        (state.cluster, state.user) = (cluster, user);
        if https {
            state.renew_tls()?;
        }
        if !is_dynamic {
            state.headers = Arc::new(headers_now(&state.config_of_credentials()?)?);
        }
        Ok(Self { is_dynamic, state: Mutex::new(state) })
    }

    /// Creates an identity without credentials, with a TLS configuration that never changes.
    pub(crate) fn fixed(tls: Option<ClientConfig>, user_agent: HeaderValue) -> Self {
        let mut state = State { tls: tls.map(|config| Built::new(config, 0)), ..State::default() };
        state.headers = Arc::new(HeaderMap::from_iter([(USER_AGENT, user_agent)]));
        Self { is_dynamic: false, state: Mutex::new(state) }
    }

    /// Returns the current credentials and TLS configuration. Rereads changed files, and calls the plugin or provider
    /// if due.
    ///
    /// # Errors
    /// The plugin or the provider fails.
    pub(crate) async fn current(&self) -> Result<Current, TransportError> {
        let mut state = self.state.lock().await;
        state.reread(false);
        if self.is_dynamic {
            state.refresh(false).await?;
        }
        Ok(Current { headers: Arc::clone(&state.headers), tls: state.tls.clone() })
    }

    /// Renews the credentials and TLS after the server has rejected a request with `refused`. Returns whether the
    /// current ones are different, so that the request can be retried.
    pub(crate) async fn refused(&self, refused: &Current) -> bool {
        let mut state = self.state.lock().await;
        // Another request may have renewed them already.
        if !state.differs(refused) {
            state.reread(true);
            if self.is_dynamic
                && let Err(error) = state.refresh(true).await
            {
                tracing::warn!(%error, "The API server refuses the credentials");
            }
        }
        state.differs(refused)
    }
}
