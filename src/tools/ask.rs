//! A running process that commands ask over HTTP.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::kube::client::endpoint::{Access, Endpoint};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer that is read: what answers may be anything.
const MAX_ANSWER: usize = 64 << 20;

/// A process at an address.
pub(crate) struct Asked {
    address: String,
    endpoint: Endpoint,
}

/// An answer as Prometheus' API gives it.
#[derive(Deserialize)]
struct Answer<T> {
    data: Option<T>,
    error: Option<String>,
}

impl Asked {
    /// The process at `address` (`HOST:PORT`, or a URL of it). It is not asked yet.
    ///
    /// # Errors
    /// What cannot be used, in words.
    pub(crate) fn new(address: &str, access: Access, user_agent: &str) -> Result<Self, String> {
        let url = if address.contains("://") { address } else { &format!("http://{address}") };
        let endpoint = Endpoint::new(url, access, user_agent)?;
        Ok(Self { address: address.to_owned(), endpoint })
    }

    /// Where it is, as it was named.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The status and the body of the answer at a path with its query.
    ///
    /// # Errors
    /// There is no answer, in words with the address.
    pub(crate) async fn get(
        &self,
        target: &str,
        accept: &'static str,
    ) -> Result<(u16, Vec<u8>), String> {
        let address = &self.address;
        let asking = async {
            let answer = self.endpoint.get_at(target, accept, "identity").await?;
            let status = answer.status().as_u16();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok((status, body.to_vec()))
        };
        match timeout(PATIENCE, asking).await {
            Ok(answer) => {
                answer.map_err(|error: String| format!("no answer from {address}: {error}"))
            }
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                Err(format!("no answer from {address} within {seconds} s"))
            }
        }
    }

    /// The data that a path of the API has.
    ///
    /// # Errors
    /// There are none, in words with the address.
    pub(crate) async fn data<T: DeserializeOwned>(&self, target: &str) -> Result<T, String> {
        let address = &self.address;
        let (status, body) = self.get(target, "application/json").await?;
        let answer = serde_json::from_slice::<Answer<T>>(&body);
        match answer {
            Ok(Answer { data: Some(data), .. }) if status == 200 => Ok(data),
            Ok(Answer { error: Some(error), .. }) => Err(format!("{address}: {error}")),
            _ if status == 200 => Err(format!("what answers at {address} is no kstatd")),
            _ if status == 404 => Err(format!(
                "nothing at {address} takes StatsD lines: the main port of a kstatd with a StatsD side does"
            )),
            _ => {
                let text = String::from_utf8_lossy(&body);
                Err(format!("no answer from {address}: {status} {}", text.trim_end()))
            }
        }
    }
}
