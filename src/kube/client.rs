//! The API server: single requests to it, and what it answers when it refuses one.
//!
//! Flags and environment flow in, a [`Client`] flows out that every list/watch shares. Each request goes
//! out with credentials that are looked after here, without a rate limit and without retries, but for one
//! when the server refuses credentials that have been renewed meanwhile: a list/watch knows better when to
//! ask again. Nothing here knows resources.

pub(crate) mod connection;
mod credentials;
pub(crate) mod endpoint;
mod error;
mod exec;
mod files;
mod kubeconfig;
mod options;
pub(crate) mod proxy;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::time::Instant;
use tokio_rustls::rustls::sign::CertifiedKey;

use super::frame::{Encoding, Status};
pub(crate) use connection::Body;
use connection::Connections;
use credentials::Credentials;
pub use error::ClientError;
pub(crate) use error::causes;
pub use options::{ClientOptions, check_url};
use tls::Tls;

/// How long an answer to a single request may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How many times a server that is busy is asked for its version again; Go's clients have the same.
const PATIENCE: u32 = 10;
/// The largest answer to a single request, in bytes.
const MAX_ANSWER: usize = 4 * 1024 * 1024;
/// The largest error answer that is read, in bytes.
const MAX_STATUS: usize = 64 * 1024;

/// How many there were.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

/// An API server and the credentials for it; cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    number: u64,
    connections: Connections,
    credentials: Credentials,
    tls: Option<Tls>,
    url: Uri,
    /// What every request says of us.
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.0.url).finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the configuration and its credentials. Does not contact the server.
    ///
    /// # Errors
    /// Nothing says where the server is, or a file or URL cannot be used.
    pub async fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        Self::of(options.setup()?, &options.user_agent)
    }

    /// For another process like this one, at an address: with the certificate and key that it shows over TLS, plain without.
    ///
    /// # Errors
    /// They cannot be used.
    pub(super) fn of_peer(
        address: SocketAddr,
        identity: Option<&Arc<CertifiedKey>>,
    ) -> Result<Self, ClientError> {
        let scheme = if identity.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let setup = options::Setup::of_peer(&url, identity);
        Self::of(setup.map_err(|reason| ClientError::Setup { url, reason })?, "kstatd")
    }

    /// A client that has been set up.
    fn of(setup: options::Setup, user_agent: &str) -> Result<Self, ClientError> {
        let options::Setup { url, server_name, tls, credentials, mut headers, proxy } = setup;
        let user_agent = HeaderValue::from_str(user_agent).map_err(|_| {
            let reason = format!("{user_agent:?} cannot be sent as user agent");
            ClientError::Setup { url: url.to_string(), reason }
        })?;
        headers.push((USER_AGENT, user_agent));
        if let Some(proxy) = &proxy {
            tracing::info!(server = %url, %proxy, "the server is reached through a proxy");
        }
        let connections = Connections::new(&url, server_name, proxy);
        let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
        Ok(Self(Arc::new(Inner { number, connections, credentials, tls, url, headers })))
    }

    /// A client whose connections go over another network.
    ///
    /// # Errors
    /// As [`Client::new`].
    #[cfg(any(test, fuzzing))]
    pub(crate) fn over(
        options: &ClientOptions,
        network: Arc<dyn connection::Network>,
    ) -> Result<Self, ClientError> {
        let mut client = Self::of(options.setup()?, &options.user_agent)?;
        let inner = Arc::get_mut(&mut client.0).expect("nobody else has it yet");
        inner.connections.over(network);
        Ok(client)
    }

    /// How many connections were opened from the event loop of the caller.
    pub(crate) fn opened(&self) -> u64 {
        self.0.connections.opened()
    }

    /// A number that only clones of this client have.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// The address of the server.
    #[must_use]
    pub fn url(&self) -> &Uri {
        &self.0.url
    }

    /// Asks for `path` (with query), in the encodings that `accept` names, over a connection that was
    /// opened after `opened_after` if that is given.
    pub(crate) async fn get(
        &self,
        path: &str,
        accept: &'static str,
        opened_after: Option<Instant>,
    ) -> Result<Response<Body>, String> {
        // Compression in a watch would come as one stream for each event.
        let coding = HeaderValue::from_static("identity");
        self.ask(path, HeaderValue::from_static(accept), coding, opened_after).await
    }

    /// The same, in the codings that are named too.
    async fn ask(
        &self,
        path: &str,
        accept: HeaderValue,
        coding: HeaderValue,
        opened_after: Option<Instant>,
    ) -> Result<Response<Body>, String> {
        let mut request = Request::get(self.uri(path)?)
            .header(ACCEPT, accept)
            .header(ACCEPT_ENCODING, coding)
            .body(Bytes::new())
            .map_err(|error| causes(&error))?;
        for (name, value) in &self.0.headers {
            request.headers_mut().append(name, value.clone());
        }
        self.send(request, opened_after).await
    }

    /// Creates an object of JSON at `path`, and returns what the server makes of it, or how it refuses.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) async fn create(
        &self,
        path: &str,
        object: Bytes,
    ) -> Result<Result<Bytes, Refusal>, String> {
        let mut request = Request::post(self.uri(path)?)
            .header(ACCEPT, "application/json, */*")
            .header(ACCEPT_ENCODING, "identity")
            .header(CONTENT_TYPE, "application/json")
            .body(object)
            .map_err(|error| causes(&error))?;
        for (name, value) in &self.0.headers {
            request.headers_mut().append(name, value.clone());
        }
        let response = self.send(request, None).await?;
        if !response.status().is_success() {
            return Ok(Err(Refusal::read(response).await));
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        body.map(|body| Ok(body.to_bytes())).map_err(|error| causes(&*error))
    }

    /// Sends a request with credentials, and once more if the server refuses them and there are others.
    async fn send(
        &self,
        mut request: Request<Bytes>,
        opened_after: Option<Instant>,
    ) -> Result<Response<Body>, String> {
        let Inner { connections, credentials, tls, .. } = &*self.0;
        let mut again = true;
        loop {
            let authorization = credentials.current().await?;
            let tls = match tls {
                Some(tls) => Some((tls, tls.current(authorization.identity.as_ref())?)),
                None => None,
            };
            if let Some(header) = &authorization.header {
                request.headers_mut().insert(AUTHORIZATION, header.clone());
            }
            let built = tls.as_ref().map(|(_, built)| built);
            let response = connections.send(&request, built, opened_after).await?;
            if response.status() != StatusCode::UNAUTHORIZED || !again {
                return Ok(response);
            }
            again = false;
            let mut renewed = credentials.refused(&authorization).await;
            if let Some((tls, built)) = tls {
                renewed |= tls.refused(built.generation);
            }
            if !renewed {
                return Ok(response);
            }
        }
    }

    /// A path on the server, below that of its URL.
    fn uri(&self, path: &str) -> Result<Uri, String> {
        let mut parts = self.0.url.clone().into_parts();
        let base = self.0.url.path().trim_end_matches('/');
        let path = PathAndQuery::try_from(format!("{base}{path}"));
        parts.path_and_query = Some(path.map_err(|error| causes(&error))?);
        Uri::from_parts(parts).map_err(|error| causes(&error))
    }

    /// The version of the server, such as `v1.36.3`. A server that says when to ask again is asked again.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub async fn version(&self) -> Result<String, ClientError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let mut left = PATIENCE;
        let body = loop {
            match self.fetch("/version").await {
                Err(ClientError::Refused { retry_after: Some(wait), .. }) if left > 0 => {
                    left -= 1;
                    tokio::time::sleep(wait.min(ANSWER)).await;
                }
                answer => break answer?,
            }
        };
        let version: Version = serde_json::from_slice(&body).map_err(|error| {
            let (url, reason) = (self.place("/version"), format!("not a version: {error}"));
            ClientError::Unreachable { url, reason }
        })?;
        Ok(version.git_version)
    }

    /// Whether the server says that it is alive, for our own `/livez`.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub async fn livez(&self) -> Result<(), ClientError> {
        self.fetch("/livez").await.map(|_| ())
    }

    pub(super) async fn fetch(&self, path: &str) -> Result<Bytes, ClientError> {
        let unreachable =
            |reason: String| ClientError::Unreachable { url: self.place(path), reason };
        let answer = async {
            let response =
                self.get(path, "application/json, */*", None).await.map_err(unreachable)?;
            if !response.status().is_success() {
                let refusal = Refusal::read(response).await;
                let Refusal { code, message, retry_after } = refusal;
                let url = self.place(path);
                return Err(ClientError::Refused { url, code, message, retry_after });
            }
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            body.map(|body| body.to_bytes()).map_err(|error| unreachable(causes(&*error)))
        };
        match tokio::time::timeout(ANSWER, answer).await {
            Ok(result) => result,
            Err(_) => Err(unreachable(format!("no answer within {} s", ANSWER.as_secs()))),
        }
    }

    fn place(&self, path: &str) -> String {
        format!("{}{path}", self.0.url.to_string().trim_end_matches('/'))
    }
}

/// An answer other than success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) code: u16,
    /// What the server says about it.
    pub(crate) message: String,
    /// How long the server wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

impl Refusal {
    /// Reads the answer's body, which should be a `Status`.
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
