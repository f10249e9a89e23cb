//! The state of credentials and TLS: their sources, and what was last made of them.

use std::sync::Arc;

use ::kube::Config;
use ::kube::config::{
    AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use jiff::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;
use tower::BoxError;
use tower::util::BoxService;

use crate::kube::client::error::{TransportError, causes};
use crate::kube::client::files::Watched;

/// The credentials and TLS configuration at one point in time.
#[derive(Clone)]
pub(crate) struct Current {
    /// The headers to add to each request.
    pub headers: Arc<HeaderMap>,
    /// The TLS configuration, for `https` only.
    pub tls: Option<Built>,
}

/// A TLS configuration, with a generation number that each renewal increments.
#[derive(Clone)]
pub(crate) struct Built {
    pub config: Arc<ClientConfig>,
    pub generation: u64,
}

impl Built {
    pub(super) fn new(mut config: ClientConfig, generation: u64) -> Self {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Self { config: Arc::new(config), generation }
    }
}

/// The sources of the credentials of one user, and what was last made of them.
#[derive(Default)]
pub(super) struct State {
    pub(super) cluster: Cluster,
    pub(super) user: AuthInfo,
    pub(super) user_agent: Option<HeaderValue>,
    pub(super) files: Files,
    /// The file with a bearer token. It is read here because kube does not trim the token, and rereads it only once a
    /// minute.
    pub(super) token: Option<Watched>,
    pub(super) headers: Arc<HeaderMap>,
    pub(super) tls: Option<Built>,
    /// The content of the file with CA certificates with which TLS could be built last. Credentials do not wait until a new
    /// content is usable.
    pub(super) usable_authorities: Option<Vec<u8>>,
    /// The files last read are not in use yet and must be tried again.
    pub(super) broken: bool,
    /// The log already has a warning about unusable files.
    pub(super) complained: bool,
    pub(super) dynamic: Dynamic,
}

/// The files for TLS. kube gets their content, because it would block on a file that does not respond.
#[derive(Default)]
pub(super) struct Files {
    pub(super) authorities: Option<Watched>,
    pub(super) certificate: Option<Watched>,
    pub(super) key: Option<Watched>,
}

/// kube's layers around a service that returns the headers of the request.
pub(super) type Signer = BoxService<Request<Full<Bytes>>, Response<()>, BoxError>;

/// The credentials from a call of a plugin or provider.
pub(super) struct Signed {
    pub(super) headers: HeaderMap,
    /// The certificate that the plugin printed, if any.
    pub(super) certificate: Option<Printed>,
    /// The signer was created for this call, which ran the plugin.
    pub(super) is_new: bool,
}

/// The signer for the next call, and the result of this one.
pub(super) type Run = (Option<Signer>, Result<Signed, TransportError>);

/// Replaces the expiry of a plugin's certificate if files have changed since: the plugin runs at once.
pub(super) const FILES_CHANGED: Timestamp = Timestamp::MIN;

/// The state of a plugin or a provider.
#[derive(Default)]
pub(super) struct Dynamic {
    pub(super) signer: Option<Signer>,
    /// The expiry of the last certificate, or [`FILES_CHANGED`], if the plugin prints certificates.
    pub(super) certificate: Option<Option<Timestamp>>,
    /// A call in progress. One that exceeds the timeout is awaited again instead of starting another.
    pub(super) running: Option<oneshot::Receiver<Run>>,
    /// Files have changed since that call was started.
    pub(super) is_outdated: bool,
    /// The time and the result of the last run of the plugin.
    pub(super) ran: Option<(Instant, Result<(), TransportError>)>,
    /// When the signer was last called.
    pub(super) asked: Option<Instant>,
    /// Starts a call of a simulated plugin instead.
    #[cfg(any(test, fuzzing))]
    pub(super) simulated: Option<SimulatedStart>,
}

/// Starts a call of a simulated plugin.
#[cfg(any(test, fuzzing))]
pub(super) type SimulatedStart =
    Arc<dyn Fn(Option<Signer>) -> oneshot::Receiver<Run> + Send + Sync>;

/// A TLS configuration with a plugin's certificate, and when the certificate expires.
pub(super) type Printed = (ClientConfig, Option<Timestamp>);

impl State {
    pub(super) fn differs(&self, from: &Current) -> bool {
        let generation = |built: &Option<Built>| built.as_ref().map(|built| built.generation);
        self.headers.get(AUTHORIZATION) != from.headers.get(AUTHORIZATION)
            || generation(&self.tls) != generation(&from.tls)
    }

    /// Returns kube's configuration for credentials, with the last usable CA certificates.
    pub(super) fn config_of_credentials(&self) -> Result<Config, TransportError> {
        self.config(self.usable_authorities.as_deref())
    }

    /// Returns kube's configuration, with these CA certificates and other files as last read.
    pub(super) fn config(&self, authorities: Option<&[u8]>) -> Result<Config, TransportError> {
        let (mut cluster, mut user) = (self.cluster.clone(), self.user.clone());
        let Files { certificate, key, .. } = &self.files;
        let data = |file: &Watched| BASE64_STANDARD.encode(file.content());
        if let Some(content) = authorities {
            cluster.certificate_authority_data = Some(BASE64_STANDARD.encode(content));
        }
        if let Some(file) = certificate {
            user.client_certificate_data = Some(data(file));
        }
        if let Some(file) = key {
            user.client_key_data = Some(data(file).into());
        }
        let mut config = Config::try_from(single(cluster, user)).map_err(|error| causes(&error))?;
        if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
            return Err("certificate authority: no certificate in it".into());
        }
        // Otherwise kube loads the system's CA certificates, and fails in an image without any.
        if config.accept_invalid_certs || config.cluster_url.scheme_str() != Some("https") {
            config.root_cert.get_or_insert_with(Vec::new);
        }
        config.headers.extend(self.user_agent.clone().map(|user_agent| (USER_AGENT, user_agent)));
        Ok(config)
    }
}

/// Returns a kubeconfig with a single context.
fn single(cluster: Cluster, user: AuthInfo) -> Kubeconfig {
    let name = "only".to_owned();
    let context = Context { cluster: name.clone(), user: Some(name.clone()), ..Context::default() };
    Kubeconfig {
        current_context: Some(name.clone()),
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: name.clone(),
            auth_info: Some(user),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext { name, context: Some(context), ..NamedContext::default() }],
        ..Kubeconfig::default()
    }
}
