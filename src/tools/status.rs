//! `kstatd status`: asks a running process how it is doing.
//!
//! The process itself writes the text, so what asks need not be of the same version.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;

use super::client::{self, Ask};
use crate::server::status::{PATH, PATH_BESIDE};

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// What it serves is what there is.
    Ok,
    /// Something is old, incomplete or not what the configuration says.
    Degraded,
    /// There is no answer, or none that says how it is doing.
    Down,
}

impl Doing {
    /// The exit code that tells it.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Degraded => 1,
            Self::Down => 2,
        }
    }
}

/// Asks the process at `address` (`HOST:PORT`, or a URL of it) for its status, with a bearer token if it wants one. The text
/// is for people; where there is no status, it says why.
pub async fn ask(address: &str, token: Option<&str>) -> (Doing, String) {
    let place = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
    match timeout(PATIENCE, answer(place, token)).await {
        Ok(Ok(text)) => {
            let doing = match text.split_whitespace().next() {
                Some("OK") => Doing::Ok,
                Some("DEGRADED") => Doing::Degraded,
                _ => return (Doing::Down, format!("what answers at {address} is no kstatd\n")),
            };
            (doing, text)
        }
        Ok(Err(error)) => (Doing::Down, format!("no status from {address}: {error}\n")),
        Err(_) => {
            let seconds = PATIENCE.as_secs();
            (Doing::Down, format!("no status from {address}: no answer within {seconds} s\n"))
        }
    }
}

async fn answer(place: &str, token: Option<&str>) -> Result<String, String> {
    if place.starts_with("https://") {
        return Err("TLS is not spoken here; ask for /status?format=text with curl".to_owned());
    }
    let found: Vec<SocketAddr> =
        lookup_host(place).await.map_err(|error| error.to_string())?.collect();
    let mut last = "the host has no address".to_owned();
    for address in found {
        match first_of(address, place, token).await {
            Ok(text) => return Ok(text),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks at both paths; under the name statsd_exporter everything may be an answer at the other one.
async fn first_of(address: SocketAddr, host: &str, token: Option<&str>) -> Result<String, String> {
    let mut last = String::new();
    for path in [PATH_BESIDE, PATH] {
        let mut text = Vec::new();
        let path = format!("{path}?format=text");
        let ask = Ask { address, host, path: &path, token };
        let status = client::ask(&ask, |data| text.extend_from_slice(data)).await;
        match status.map_err(|error| error.to_string())? {
            200 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            status => {
                last = format!("{status} {}", String::from_utf8_lossy(&text).trim_end());
                if status != 404 {
                    break;
                }
            }
        }
    }
    Err(last)
}
