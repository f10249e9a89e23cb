//! The HTTP client for commands that query a running process.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::check::pods::Pod;
use crate::kube::Client;
use crate::kube::client::endpoint::{Access, Endpoint};
use crate::server::cardinality::KSTATD_PREFIX;
use crate::server::status::{PATH, PREFIXED_PATH};
use crate::status::words::printable;
use crate::tools::{CommandError, Result};

/// The request timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum response size in bytes; the server is not trusted.
const MAX_RESPONSE: usize = 64 << 20;

/// The maximum size of an exposition in bytes after decompression: ten times that of 50,000 pods.
pub(crate) const MAX_EXPOSITION: u64 = 4 << 30;

/// A running process at an address, or a pod that the API server forwards requests to.
pub(crate) struct ProcessClient {
    address: String,
    endpoint: Endpoint,
    /// The path before each requested path; empty without the API server.
    base: String,
}

/// An error of the API server itself, rather than of the process that it forwards requests to.
#[derive(Deserialize)]
struct ApiStatus {
    kind: String,
    message: String,
}

/// Returns the error of a server that did not answer within this time.
pub(crate) fn late(limit: Duration) -> CommandError {
    format!("no answer within {} s", limit.as_secs()).into()
}

/// A response in the format of Prometheus' API.
#[derive(Deserialize)]
struct Answer<T> {
    data: Option<T>,
    error: Option<String>,
}

impl ProcessClient {
    /// Prepares a client for `address` (`HOST:PORT` or a URL) without connecting.
    ///
    /// # Errors
    /// When the address or the access settings are invalid.
    pub(crate) fn new(address: &str, access: Access) -> Result<Self> {
        let url = if address.contains("://") { address } else { &format!("http://{address}") };
        let endpoint = Endpoint::new(url, access)?;
        Ok(Self { address: address.to_owned(), endpoint, base: String::new() })
    }

    /// Prepares a client for the paths below one of the API server: that of a pod, or of the proxy to one of its ports.
    pub(crate) fn of_pod(client: &Client, pod: &Pod, base: String) -> Self {
        let endpoint = Endpoint::over(client.clone(), base.clone());
        Self { address: format!("pod {}/{}", pod.namespace, pod.name), endpoint, base }
    }

    /// Returns the address as given by the user.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Requests a path with query and returns status and body.
    ///
    /// # Errors
    /// When there is no response.
    pub(crate) async fn get(&self, target: &str, accept: &'static str) -> Result<(u16, Vec<u8>)> {
        self.get_within(target, accept, REQUEST_TIMEOUT).await
    }

    /// Requests a path like [`ProcessClient::get`], with another timeout.
    ///
    /// # Errors
    /// As [`ProcessClient::get`].
    pub(crate) async fn get_within(
        &self,
        target: &str,
        accept: &'static str,
        limit: Duration,
    ) -> Result<(u16, Vec<u8>)> {
        let asking = async {
            let target = format!("{}{target}", self.base);
            let answer = self.endpoint.get_at(&target, accept, "identity").await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            self.refusal_of_api_server(status, &body)?;
            Ok((status, body.to_vec()))
        };
        let answer = timeout(limit, asking).await.map_err(|_| late(limit)).flatten();
        answer.map_err(|error: CommandError| printable(&error.to_string()).as_ref().into())
    }

    /// Fails if the API server has refused a request instead of forwarding it.
    fn refusal_of_api_server(&self, status: u16, body: &[u8]) -> Result<()> {
        if self.base.is_empty() || status < 400 {
            return Ok(());
        }
        // Of a pod itself, the message names what is missing.
        let is_forwarded = self.base.ends_with("/proxy");
        match (status, serde_json::from_slice::<ApiStatus>(body)) {
            (403, Ok(ApiStatus { kind, message })) if kind == "Status" && is_forwarded => Err(format!(
                "forbidden by the API server, which requires the verb get on the resource pods/proxy: {}", printable(&message)
            ).into()),
            (_, Ok(ApiStatus { kind, message })) if kind == "Status" => {
                Err(format!("{status} from the API server: {}", printable(&message)).into())
            }
            _ => Ok(()),
        }
    }

    /// Runs several requests within one request timeout.
    ///
    /// # Errors
    /// When the timeout expires first.
    pub(crate) async fn with_timeout<F: Future>(&self, asking: F) -> Result<F::Output> {
        timeout(REQUEST_TIMEOUT, asking).await.map_err(|_| late(REQUEST_TIMEOUT))
    }

    /// Requests a path of the API that has a prefix under the name kube-state-metrics, and returns its data. `absent` is what is
    /// said of a process without this path.
    ///
    /// # Errors
    /// When there is none; the text contains the address.
    pub(crate) async fn data<T: DeserializeOwned>(&self, target: &str, absent: &str) -> Result<T> {
        let usual = match self.data_at(target).await {
            Ok(Some(data)) => return Ok(data),
            other => other.map(|_| ()),
        };
        // Another program may have the usual path too.
        match (usual, self.data_at(&format!("{KSTATD_PREFIX}{target}")).await) {
            (_, Ok(Some(data))) => Ok(data),
            (Err(error), _) | (Ok(()), Err(error)) => Err(error),
            (Ok(()), Ok(None)) => Err(format!("{} {absent}", self.address).into()),
        }
    }

    /// Requests a path of the API and returns its data; `None` if the process does not have the path.
    ///
    /// # Errors
    /// When there is no data; the text contains the address.
    pub(super) async fn data_at<T: DeserializeOwned>(&self, target: &str) -> Result<Option<T>> {
        let address = &self.address;
        let (status, body) = self
            .get(target, "application/json")
            .await
            .map_err(|error| format!("no answer from {address}: {error}"))?;
        let answer = serde_json::from_slice::<Answer<T>>(&body);
        match answer {
            Ok(Answer { data: Some(data), .. }) if status == 200 => Ok(Some(data)),
            Ok(Answer { error: Some(error), .. }) => {
                Err(format!("{address}: {}", printable(&error)).into())
            }
            _ if status == 200 => Err(format!("{address} is not a kstatd process").into()),
            _ if status == 404 => Ok(None),
            _ => {
                let refusal = refusal(status, &String::from_utf8_lossy(&body));
                Err(format!("no answer from {address}: {refusal}").into())
            }
        }
    }

    /// Requests the status with a query. Tries both paths: under the name statsd_exporter, kstatd's usual one may return any
    /// page.
    ///
    /// # Errors
    /// There is no successful response.
    pub(super) async fn status_text(&self, query: &str) -> Result<String> {
        let mut last = String::new();
        for path in [PREFIXED_PATH, PATH] {
            let (status, body) = self.get(&format!("{path}?{query}"), "*/*").await?;
            let text = String::from_utf8_lossy(&body);
            if status == 200 {
                return Ok(text.into_owned());
            }
            last = refusal(status, &text);
            if status != 404 {
                break;
            }
        }
        Err(last.into())
    }

    /// Requests the status as JSON.
    ///
    /// # Errors
    /// There is no response, or none with a status.
    pub(crate) async fn status<T: DeserializeOwned>(&self) -> Result<T> {
        let text = self.status_text("format=json&labels=0").await?;
        serde_json::from_str(&text)
            .map_err(|_| format!("{} is not a kstatd process", self.address).into())
    }
}

/// Formats an unsuccessful response for a terminal: the status and a part of the body.
pub(crate) fn refusal(status: u16, body: &str) -> String {
    const SHOWN: usize = 200;
    let text: String = body.trim_end().chars().take(SHOWN).collect();
    format!("{status} {}", printable(&text))
}
