//! HTTP endpoints other than the API server, with the same support for TLS, proxies and credentials.
//!
//! An [`Endpoint`] is created from a URL and an [`Access`], and can be requested repeatedly. Names and rules are
//! those of a kubeconfig.

#[cfg(feature = "demo")]
use std::net::SocketAddr;
use std::path::Path;

use ::kube::config::{AuthInfo, Cluster};
use http::Response;

use super::Client;
use super::config::{ClientOptions, SERVICE_ACCOUNT};
use super::connection::Body;
use super::error::{ClientError, TransportError};
use crate::telemetry::user_agent;

/// The path to request if a URL has none.
const PATH: &str = "/metrics";

/// The TLS settings and credentials for a server. Not `Debug`, because it holds secrets.
#[derive(Clone, Default)]
pub struct Access {
    /// The TLS settings; the URL is that of the [`Endpoint`].
    pub cluster: Cluster,
    /// The credentials. A user name overrides the one in the URL.
    pub user: AuthInfo,
}

impl Access {
    /// Adds the token and the CA certificates of the pod's service account, if its files exist and no other
    /// credentials or CA certificates are set.
    #[must_use]
    pub(crate) fn or_service_account(mut self) -> Self {
        let file = |name: &str| {
            let path = Path::new(SERVICE_ACCOUNT).join(name);
            path.exists().then(|| path.to_string_lossy().into_owned())
        };
        let Self { cluster, user } = &mut self;
        let named = user.token.is_some() || user.token_file.is_some() || user.username.is_some();
        if !named && user.client_certificate.is_none() {
            user.token_file = file("token");
        }
        if cluster.certificate_authority.is_none() && cluster.insecure_skip_tls_verify != Some(true)
        {
            cluster.certificate_authority = file("ca.crt");
        }
        self
    }
}

/// A server, with the path and query to request.
#[derive(Clone)]
pub(crate) struct Endpoint {
    client: Client,
    target: String,
}

impl Endpoint {
    /// Creates an endpoint and reads the files in `access`. Does not contact the server. A URL without a path means
    /// `/metrics`.
    ///
    /// # Errors
    /// The URL, a file or a credential cannot be used.
    pub(crate) fn new(url: &str, access: Access) -> Result<Self, TransportError> {
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
        let target = url[end..].split('#').next().unwrap_or_default();
        let target = match target {
            "" => PATH.to_owned(),
            query if query.starts_with('?') => format!("{PATH}{query}"),
            target => target.to_owned(),
        };
        let Access { mut cluster, user } = access;
        cluster.server = Some(url[..end].to_owned());
        let options = ClientOptions { user_agent: user_agent(), ..ClientOptions::default() };
        let client = Client::of(options.with(cluster, user).map_err(in_words)?);
        Ok(Self { client, target })
    }

    /// Creates an endpoint for `/metrics` of another kstatd process, which no proxy is in front of.
    ///
    /// # Errors
    /// The address cannot be used.
    #[cfg(feature = "demo")]
    pub(crate) fn of_peer(address: SocketAddr) -> Result<Self, ClientError> {
        Ok(Self { client: Client::of_peer(address, None)?, target: PATH.to_owned() })
    }

    /// Creates an endpoint for a path of the API server, such as its proxy to a pod. Does not contact the server.
    ///
    /// # Errors
    /// No API server is configured, or its configuration cannot be used.
    pub(crate) fn of_api_server(
        options: &ClientOptions,
        target: String,
    ) -> Result<Self, TransportError> {
        let setup = options.setup().map_err(|error| TransportError::from(error.to_string()))?;
        Ok(Self { client: Client::of(setup), target })
    }

    /// Creates an endpoint for a path of the API server over an existing client.
    pub(crate) fn over(client: Client, target: String) -> Self {
        Self { client, target }
    }

    /// Returns the path and query.
    #[cfg(test)]
    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    /// Sends a GET request with these `Accept` and `Accept-Encoding` headers.
    ///
    /// # Errors
    /// There is no response.
    pub(crate) async fn get(
        &self,
        accept: &'static str,
        coding: &'static str,
    ) -> Result<Response<Body>, TransportError> {
        self.get_at(&self.target, accept, coding).await
    }

    /// Sends a GET request for another path and query on the same server.
    ///
    /// # Errors
    /// There is no response.
    pub(crate) async fn get_at(
        &self,
        target: &str,
        accept: &'static str,
        coding: &'static str,
    ) -> Result<Response<Body>, TransportError> {
        self.client.ask(target, accept, coding, None).await
    }
}

/// Describes an error without calling the server an API server.
fn in_words(error: ClientError) -> String {
    match error {
        ClientError::Url { url, reason } => format!("URL {url:?}: {reason}"),
        ClientError::Setup { reason, .. } => reason,
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (url, server, target) in [
            ("http://a", "http://a/", "/metrics"),
            ("https://me:pw@a:1?name[]=x", "https://a:1/", "/metrics?name[]=x"),
            ("http://[::1]:1/x/metrics?a=b#c", "http://[::1]:1/", "/x/metrics?a=b"),
            ("http://a/", "http://a/", "/"),
        ] {
            let endpoint = Endpoint::new(url, Access::default());
            let endpoint = endpoint.unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(endpoint.client.url().to_string(), server);
            assert_eq!(endpoint.target, target);
        }
        for (url, part) in [("http://", "URL \"http://\": "), ("ftp://a", "must be http or https")]
        {
            let error = Endpoint::new(url, Access::default()).err().expect("an error");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
