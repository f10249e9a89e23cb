//! Servers other than the API server, reached in the same way: by TLS, proxies and credentials.
//!
//! A URL and what flags say of TLS and of us flow in, an [`Endpoint`] flows out whose address can be asked for again and
//! again. The words are those of a kubeconfig, and so are the rules.

use std::path::{Path, PathBuf};

use http::{HeaderValue, Response};

use super::Client;
use super::connection::Body;
use super::error::ClientError;
use super::kubeconfig::{Cluster, User};
use super::options::{ClientOptions, SERVICE_ACCOUNT};

/// What is asked for where a URL has no path.
const PATH: &str = "/metrics";

/// How a server proves who it is, and who we are to it. Not `Debug`: it holds secrets.
#[derive(Clone, Default)]
pub struct Access {
    /// Certificates of the authorities that sign the server's; those of the system otherwise.
    pub certificate_authority: Option<PathBuf>,
    /// Whether any server is trusted.
    pub insecure_skip_tls_verify: bool,
    /// What the server is called in its certificate, if not as in the URL.
    pub tls_server_name: Option<String>,
    /// Our own certificate.
    pub client_certificate: Option<PathBuf>,
    /// Its key.
    pub client_key: Option<PathBuf>,
    /// A bearer token.
    pub token: Option<String>,
    /// A file with one, read again when it changes.
    pub token_file: Option<PathBuf>,
    /// A user, with a password; counts before those of the URL.
    pub username: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl Access {
    /// With the token and the authorities of the pod's service account, where nothing else is named and there is one.
    #[must_use]
    pub(crate) fn or_service_account(mut self) -> Self {
        let file =
            |name: &str| Some(Path::new(SERVICE_ACCOUNT).join(name)).filter(|of| of.exists());
        let named = self.token.is_some() || self.token_file.is_some() || self.username.is_some();
        if !named && self.client_certificate.is_none() {
            self.token_file = file("token");
        }
        if self.certificate_authority.is_none() && !self.insecure_skip_tls_verify {
            self.certificate_authority = file("ca.crt");
        }
        self
    }
}

/// A server, and one address on it.
pub(crate) struct Endpoint {
    client: Client,
    target: String,
}

impl Endpoint {
    /// Reads what `access` names. Does not contact the server. A URL without a path means `/metrics`.
    ///
    /// # Errors
    /// What cannot be used, in words.
    pub(crate) fn new(url: &str, access: Access, user_agent: &str) -> Result<Self, String> {
        let start = url.find("://").map_or(0, |at| at + 3);
        let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
        let target = url[end..].split('#').next().unwrap_or_default();
        let target = match target {
            "" => PATH.to_owned(),
            query if query.starts_with('?') => format!("{PATH}{query}"),
            target => target.to_owned(),
        };
        let cluster = Cluster {
            server: Some(url[..end].to_owned()),
            tls_server_name: access.tls_server_name,
            insecure_skip_tls_verify: Some(access.insecure_skip_tls_verify),
            certificate_authority: access.certificate_authority,
            ..Cluster::default()
        };
        let user = User {
            client_certificate: access.client_certificate,
            client_key: access.client_key,
            token: access.token,
            token_file: access.token_file,
            username: access.username,
            password: access.password,
            ..User::default()
        };
        let setup = ClientOptions::default().with(cluster, user).map_err(in_words)?;
        let client = Client::of(setup, user_agent).map_err(in_words)?;
        Ok(Self { client, target })
    }

    /// Asks for it, in the forms and the codings that are named.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) async fn get(
        &self,
        accept: &'static str,
        coding: &'static str,
    ) -> Result<Response<Body>, String> {
        self.get_at(&self.target, accept, coding).await
    }

    /// Asks for another path and query of the same server.
    ///
    /// # Errors
    /// There is no answer.
    pub(crate) async fn get_at(
        &self,
        target: &str,
        accept: &'static str,
        coding: &'static str,
    ) -> Result<Response<Body>, String> {
        let (accept, coding) = (HeaderValue::from_static(accept), HeaderValue::from_static(coding));
        self.client.ask(target, accept, coding, None).await
    }
}

/// The reason alone: it is no API server.
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
            let endpoint = Endpoint::new(url, Access::default(), "test/1");
            let endpoint = endpoint.unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(endpoint.client.url().to_string(), server);
            assert_eq!(endpoint.target, target);
        }
        for (url, part) in [("http://", "URL \"http://\": "), ("ftp://a", "must be http or https")]
        {
            let error = Endpoint::new(url, Access::default(), "test/1").err().expect("an error");
            assert!(error.contains(part), "{error}");
        }
    }
}
