//! The HTTP client of the API server: sends requests and reads error responses.
//!
//! All list/watches share one [`Client`], created from [`ClientOptions`]. It is also the transport of kube's client,
//! for small typed requests. Each request carries the current credentials. There is no rate limit, and list/watches
//! have their own backoff: a request is only retried if the server did not process it, if it is a GET that failed on
//! a reused connection, or once after a 401 if the credentials could be renewed. Nothing here depends on resource
//! types.

mod bounded;
mod config;
pub(crate) mod connection;
pub(crate) mod endpoint;
mod error;
mod files;
mod identity;
#[cfg(any(test, fuzzing))]
pub(crate) use identity::simulated;
mod inner;
pub(crate) mod probe;
mod proxy;
mod tls;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::time::Instant;
use tokio_rustls::rustls::sign::CertifiedKey;
use tower::{BoxError, service_fn};

use super::frame::{Encoding, Status};
use bounded::bounded;
use config::Setup;
pub use config::{ClientOptions, check_url};
pub(crate) use connection::Body;
use connection::{BodyError, Connections};
pub(crate) use error::causes;
pub use error::{ClientError, TransportError};
use identity::Identity;
use inner::Inner;

/// The timeout of a single request.
const ANSWER: Duration = Duration::from_secs(30);
/// The maximum number of retries of the version request to a busy server, as in client-go.
const PATIENCE: u32 = 10;
/// The maximum size of the response to a single request, or of an event of a watch of kube's client, in bytes.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// The maximum size of an error response, in bytes.
const MAX_STATUS: usize = 64 * 1024;

/// The number of clients created so far.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

/// The connections to an API server and the credentials for it; cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.0.url).finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the configuration and its credentials. Does not contact the server.
    ///
    /// # Errors
    /// No API server is configured, or a file or URL cannot be used.
    pub async fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        Ok(Self::of(options.setup()?))
    }

    /// Returns a client for another kstatd process. With an identity it uses mutual TLS, and the other process must
    /// have the same certificate.
    ///
    /// # Errors
    /// The address or the certificate cannot be used.
    pub(crate) fn of_peer(
        address: SocketAddr,
        identity: Option<&Arc<CertifiedKey>>,
    ) -> Result<Self, ClientError> {
        let scheme = if identity.is_some() { "https" } else { "http" };
        let text = format!("{scheme}://{address}");
        let fault = |reason: String| ClientError::Setup { url: text.clone(), reason };
        let url: Uri = text.parse().map_err(|error| fault(causes(&error)))?;
        let tls = identity.map(tls::of_own).transpose();
        let tls = tls.map_err(|error| fault(error.to_string()))?;
        let identity = Identity::fixed(tls, HeaderValue::from_static("kstatd"));
        Ok(Self::of(Setup { url, server_name: None, identity, proxy: None }))
    }

    fn of(setup: Setup) -> Self {
        let Setup { url, server_name, identity, proxy } = setup;
        if let Some(proxy) = &proxy {
            tracing::info!(server = %url, %proxy, "The server is reached through a proxy");
        }
        let connections = Connections::new(&url, server_name, proxy);
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(Inner { number, connections, identity, url }))
    }

    /// Returns the number of HTTP/2 connections opened so far from the caller's event loop.
    pub(crate) fn opened(&self) -> u64 {
        self.0.connections.opened()
    }

    /// Returns a number that is unique in the process and shared by all clones of this client.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns whether watches are expected to share connections, which are probed when silent: over TLS, unless the
    /// last connection negotiated HTTP/1.1.
    pub(crate) fn shares_connections(&self) -> bool {
        self.0.connections.are_shared()
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> &Uri {
        &self.0.url
    }

    /// Sends a GET request for `path` (with query) with this `Accept` header. With `opened_after`, only uses a
    /// connection opened after that instant.
    pub(crate) async fn get(
        &self,
        path: &str,
        accept: &'static str,
        opened_after: Option<Instant>,
    ) -> Result<Response<Body>, TransportError> {
        // A compressed watch would arrive as a separate gzip stream for each event.
        self.ask(path, accept, "identity", opened_after).await
    }

    /// Sends a GET request like [`Client::get`], with this `Accept-Encoding`.
    async fn ask(
        &self,
        path: &str,
        accept: &'static str,
        coding: &'static str,
        opened_after: Option<Instant>,
    ) -> Result<Response<Body>, TransportError> {
        let request = Request::get(self.0.uri(path)?)
            .header(ACCEPT, accept)
            .header(ACCEPT_ENCODING, coding)
            .body(Bytes::new())
            .map_err(|error| causes(&error))?;
        self.send(request, opened_after).await
    }

    /// Sends a request with the current credentials. After a 401, renews them and, if they changed, sends the request
    /// once more.
    async fn send(
        &self,
        mut request: Request<Bytes>,
        opened_after: Option<Instant>,
    ) -> Result<Response<Body>, TransportError> {
        let Inner { connections, identity, .. } = &*self.0;
        let mut again = true;
        loop {
            let current = identity.current().await?;
            request.headers_mut().extend(HeaderMap::clone(&current.headers));
            let opened = |number| probe::spawn(&self.0, number);
            let response =
                connections.send(&request, current.tls.as_ref(), opened_after, &opened).await?;
            let is_refused = response.status() == StatusCode::UNAUTHORIZED;
            if !is_refused || !std::mem::take(&mut again) || !identity.refused(&current).await {
                return Ok(response);
            }
        }
    }

    /// Returns a kube client that uses these connections and credentials, for small typed requests.
    pub(super) fn api(&self) -> ::kube::Client {
        let client = self.clone();
        let service = service_fn(move |request| {
            let client = client.clone();
            async move { client.serve(request).await }
        });
        ::kube::Client::new(service, "default")
    }

    /// Sends a request of kube's client. A status other than success becomes [`ClientError::Refused`], with the
    /// server's `Retry-After`.
    async fn serve(
        &self,
        request: Request<::kube::client::Body>,
    ) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = BodyError> + use<>>, BoxError>
    {
        let (mut head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default();
        let is_watch = query.split('&').any(|parameter| parameter == "watch=true");
        let path = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
        // kube starts the query with `?&`, and appends a lone `?` if there are no parameters.
        let path = path.replacen("?&", "?", 1);
        let path = path.trim_end_matches('?');
        head.uri = self.0.uri(path)?;
        let json = HeaderValue::from_static("application/json, */*");
        head.headers.entry(ACCEPT).or_insert(json);
        head.headers.entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
        let request = Request::from_parts(head, body.collect_bytes().await?);
        let url = || format!("{}{path}", self.0.url.to_string().trim_end_matches('/'));
        let response = self.send(request, None).await;
        let response = response.map_err(|error| unreachable(url(), error))?;
        if !response.status().is_success() {
            let Refusal { code, message, retry_after } = Refusal::read(response).await;
            return Err(ClientError::Refused { url: url(), code, message, retry_after }.into());
        }
        Ok(response.map(|body| bounded(body, is_watch, MAX_ANSWER)))
    }

    /// Waits for the response to a request of kube's client, for at most 30 s.
    ///
    /// # Errors
    /// There is no response in time, its status is an error, or its body has an unexpected format.
    pub(super) async fn answer<T>(
        &self,
        request: impl Future<Output = ::kube::Result<T>>,
    ) -> Result<T, ClientError> {
        tokio::time::timeout(ANSWER, self.plain(request)).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", ANSWER.as_secs());
            Err(unreachable(&self.0.url, reason))
        })
    }

    /// Waits for the response to a request of kube's client without a timeout, and converts its error.
    ///
    /// # Errors
    /// As [`Client::answer`].
    pub(super) async fn plain<T>(
        &self,
        request: impl Future<Output = ::kube::Result<T>>,
    ) -> Result<T, ClientError> {
        request.await.map_err(|error| match error {
            ::kube::Error::Service(error) => match error.downcast::<ClientError>() {
                Ok(error) => *error,
                Err(error) => unreachable(&self.0.url, causes(&*error)),
            },
            ::kube::Error::Api(status) => ClientError::Refused {
                url: self.0.url.to_string(),
                code: status.code,
                message: status.message,
                retry_after: None,
            },
            ::kube::Error::SerdeError(error) => {
                unreachable(&self.0.url, format!("the answer cannot be read: {error}"))
            }
            error => unreachable(&self.0.url, causes(&error)),
        })
    }

    /// Returns the version of the server, such as `v1.36.3`. Retries a response with `Retry-After` up to 10 times.
    ///
    /// # Errors
    /// The server does not respond, or responds with an error.
    pub async fn version(&self) -> Result<String, ClientError> {
        let mut left = PATIENCE;
        loop {
            match self.answer(self.api().apiserver_version()).await {
                Err(ClientError::Refused { retry_after: Some(wait), .. }) if left > 0 => {
                    left -= 1;
                    tokio::time::sleep(wait.min(ANSWER)).await;
                }
                answer => return answer.map(|version| version.git_version),
            }
        }
    }

    /// Requests `/livez` of the server, for kstatd's own `/livez`.
    ///
    /// # Errors
    /// The server does not respond, or responds with an error.
    pub async fn livez(&self) -> Result<(), ClientError> {
        let api = self.api();
        self.answer(async {
            let request = Request::get("/livez").body(Vec::new());
            api.request_text(request.map_err(::kube::Error::HttpError)?).await.map(drop)
        })
        .await
    }

    /// Sends a GET request for `path` and returns a body of at most `limit` bytes.
    ///
    /// # Errors
    /// There is no response, its status is an error, or its body is too long or incomplete.
    pub(crate) async fn fetch_bytes(
        &self,
        path: &str,
        limit: usize,
    ) -> Result<Bytes, TransportError> {
        let response = self.get(path, "*/*", None).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await.message.into());
        }
        let body = Limited::new(response.into_body(), limit).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| causes(&*error).into())
    }
}

fn unreachable(url: impl Display, reason: impl Display) -> ClientError {
    ClientError::Other(format!("API server {url} does not answer: {reason}"))
}

/// A response with a status other than success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The HTTP status code.
    pub(crate) code: u16,
    /// The message in the response body, or a description of the status.
    pub(crate) message: String,
    /// The value of the `Retry-After` header.
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    /// Reads the response body, which should be a `Status`.
    pub(crate) async fn read(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let retry_after = header(http::header::RETRY_AFTER)
            .and_then(|seconds| seconds.parse().ok())
            .map(Duration::from_secs);
        let encoding =
            header(CONTENT_TYPE).and_then(|value| Encoding::from_content_type(value).ok());
        let status = head.status;
        let body = Limited::new(body, MAX_STATUS).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Self { code: status.as_u16(), message: describe(status, encoding, &body), retry_after }
    }
}

fn describe(status: StatusCode, encoding: Option<Encoding>, body: &[u8]) -> String {
    if let Some(encoding) = encoding
        && let Ok(answer) = Status::from_body(encoding, body)
        && !answer.message.is_empty()
    {
        return answer.message.to_string();
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
    let text = text.trim();
    if text.is_empty() || text.contains(char::is_control) {
        status.canonical_reason().unwrap_or("unknown status").to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn options(kubeconfig: Option<&Path>, apiserver: Option<&str>) -> ClientOptions {
        ClientOptions {
            kubeconfig: kubeconfig.map(Path::to_owned),
            apiserver: apiserver.map(str::to_owned),
            user_agent: "test/1".to_owned(),
            ..ClientOptions::default()
        }
    }

    async fn error(options: &ClientOptions) -> String {
        Client::new(options).await.expect_err("an error").to_string()
    }

    #[tokio::test]
    async fn urls() {
        let url = async |text| {
            let client = Client::new(&options(None, Some(text))).await.expect(text);
            client.url().to_string()
        };
        assert_eq!(url("https://[::1]:6443/base").await, "https://[::1]:6443/base");
        assert_eq!(url("localhost:8080").await, "http://localhost:8080/");
        for (text, complaint) in [
            ("ftp://x", "API server URL \"ftp://x\": the scheme must be http or https"),
            ("http://", "API server URL \"http://\": "),
            ("a b", "API server URL \"a b\": "),
        ] {
            let error = error(&options(None, Some(text))).await;
            assert!(error.starts_with(complaint), "{error}");
        }
    }

    #[tokio::test]
    async fn kubeconfigs() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        let missing = error(&options(Some(&path), None)).await;
        assert!(missing.contains(&*path.to_string_lossy()), "{missing}");
        assert!(missing.contains("No such file"), "{missing}");
        std::fs::write(&path, "clusters: [\n").expect("written");
        let broken = error(&options(Some(&path), None)).await;
        assert!(broken.contains("YAML"), "{broken}");
        std::fs::write(&path, "current-context: a\n").expect("written");
        assert!(error(&options(Some(&path), None)).await.contains("context: a"));
        let text = |token: &str| {
            format!(
                "clusters: [{{name: c, cluster: {{server: 'http://one:1'}}}}]\n\
                 users: [{{name: u, user: {{token: \"{token}\"}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
                 current-context: x\n"
            )
        };
        std::fs::write(&path, text("abc")).expect("written");
        let client = Client::new(&options(Some(&path), None)).await.expect("a client");
        assert_eq!(client.url(), "http://one:1/");
        let client =
            Client::new(&options(Some(&path), Some("https://two"))).await.expect("a client");
        assert_eq!(client.url(), "https://two/");
        std::fs::write(&path, text("abc\\n")).expect("written");
        assert!(error(&options(Some(&path), None)).await.contains("cannot be sent"));
    }

    #[tokio::test]
    async fn unreachable_servers_are_named() {
        let client = Client::new(&options(None, Some("http://127.0.0.1:1/base"))).await;
        let error = client.expect("a client").version().await.expect_err("nobody there");
        let text = error.to_string();
        assert!(text.starts_with("API server http://127.0.0.1:1/base/version does not"), "{text}");
        assert!(text.contains("refused"), "{text}");
    }

    #[tokio::test]
    async fn refusals_are_read() {
        let response = |body: &'static str| {
            Response::builder()
                .status(429)
                .header("retry-after", "7")
                .header("content-type", "application/json")
                .body(Body::from(Bytes::from_static(body.as_bytes())))
                .expect("a response")
        };
        let refusal = Refusal::read(response(r#"{"message":"slowly"}"#)).await;
        let retry_after = Some(Duration::from_secs(7));
        assert_eq!(refusal, Refusal { code: 429, message: "slowly".to_owned(), retry_after });
    }

    #[test]
    fn answers_are_described() {
        let describe = |encoding, body: &[u8]| describe(StatusCode::FORBIDDEN, encoding, body);
        let status = br#"{"kind":"Status","message":"no"}"#;
        assert_eq!(describe(Some(Encoding::Json), status), "no");
        assert_eq!(describe(Some(Encoding::Json), b"{}"), "{}");
        assert_eq!(describe(None, b" bad gateway\n"), "bad gateway");
        assert_eq!(describe(Some(Encoding::Protobuf), b"k8s\0\x01"), "Forbidden");
        assert_eq!(describe(None, b""), "Forbidden");
    }
}
