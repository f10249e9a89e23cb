//! The HTTP client for commands that query a running process.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::kube::client::endpoint::{Access, Endpoint};
use crate::status::words::printable;

/// The request timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum response size in bytes; the server is not trusted.
const MAX_RESPONSE: usize = 64 << 20;

/// The maximum size of an exposition in bytes after decompression: ten times that of 50,000 pods.
pub(crate) const MAX_EXPOSITION: u64 = 4 << 30;

/// A running process at an address.
pub(crate) struct ProcessClient {
    address: String,
    endpoint: Endpoint,
}

/// A process did not answer within the request timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {} s", REQUEST_TIMEOUT.as_secs())]
pub(crate) struct NoAnswer;

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
    pub(crate) fn new(address: &str, access: Access, user_agent: &str) -> Result<Self, String> {
        let url = if address.contains("://") { address } else { &format!("http://{address}") };
        let endpoint = Endpoint::new(url, access, user_agent)?;
        Ok(Self { address: address.to_owned(), endpoint })
    }

    /// Returns the address as given by the user.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Requests a path with query and returns status and body.
    ///
    /// # Errors
    /// When there is no response.
    pub(crate) async fn get(
        &self,
        target: &str,
        accept: &'static str,
    ) -> Result<(u16, Vec<u8>), String> {
        let asking = async {
            let answer = self.endpoint.get_at(target, accept, "identity").await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MAX_RESPONSE).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok((status, body.to_vec()))
        };
        match timeout(REQUEST_TIMEOUT, asking).await {
            Ok(answer) => answer.map_err(|error: String| printable(&error).into_owned()),
            Err(_) => Err(NoAnswer.to_string()),
        }
    }

    /// Runs several requests within one request timeout.
    ///
    /// # Errors
    /// When the timeout expires first.
    pub(crate) async fn with_timeout<F: Future>(&self, asking: F) -> Result<F::Output, NoAnswer> {
        timeout(REQUEST_TIMEOUT, asking).await.map_err(|_| NoAnswer)
    }

    /// Requests a path of the API and returns its data.
    ///
    /// # Errors
    /// When there is none; the text contains the address.
    pub(crate) async fn data<T: DeserializeOwned>(&self, target: &str) -> Result<T, String> {
        let address = &self.address;
        let (status, body) = self
            .get(target, "application/json")
            .await
            .map_err(|error| format!("no answer from {address}: {error}"))?;
        let answer = serde_json::from_slice::<Answer<T>>(&body);
        match answer {
            Ok(Answer { data: Some(data), .. }) if status == 200 => Ok(data),
            Ok(Answer { error: Some(error), .. }) => {
                Err(format!("{address}: {}", printable(&error)))
            }
            _ if status == 200 => Err(format!("{address} is not a kstatd process")),
            _ if status == 404 => Err(format!(
                "{address} does not receive StatsD lines; use the main port of a kstatd with the StatsD side enabled"
            )),
            _ => {
                let refusal = refusal(status, &String::from_utf8_lossy(&body));
                Err(format!("no answer from {address}: {refusal}"))
            }
        }
    }
}

/// Formats an unsuccessful response for a terminal: the status and a part of the body.
pub(crate) fn refusal(status: u16, body: &str) -> String {
    const SHOWN: usize = 200;
    let text: String = body.trim_end().chars().take(SHOWN).collect();
    format!("{status} {}", printable(&text))
}
