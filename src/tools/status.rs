//! `kstatd status`: asks a running process how it is doing.
//!
//! The process itself writes the text, so what asks need not be of the same version.

use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::kube::client::endpoint::{Access, Endpoint};
use crate::server::status::{PATH, PATH_BESIDE};

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// What it serves is what there is.
    Ok,
    /// Something is old, incomplete or not what the configuration says.
    Degraded,
    /// There is no answer, or none that says how it is doing.
    Down,
}

impl Doing {
    /// The exit code that tells it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Degraded => 1,
            Self::Down => 2,
        }
    }
}

/// Asks the process at `address` (`HOST:PORT`, or a URL of it) for its status. The text is for people; where there is no
/// status, it says why.
pub(crate) async fn ask(address: &str, access: Access, user_agent: &str) -> (Doing, String) {
    match timeout(PATIENCE, answer(address, access, user_agent)).await {
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

/// Asks at both paths; under the name statsd_exporter everything may be an answer at the other one.
async fn answer(address: &str, access: Access, user_agent: &str) -> Result<String, String> {
    let url = if address.contains("://") { address } else { &format!("http://{address}") };
    let server = Endpoint::new(url, access, user_agent)?;
    let mut last = String::new();
    for path in [PATH_BESIDE, PATH] {
        let answer =
            server.get_at(&format!("{path}?format=text"), "text/plain", "identity").await?;
        let status = answer.status();
        let body =
            answer.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        if status == 200 {
            return Ok(text.into_owned());
        }
        last = format!("{} {}", status.as_u16(), text.trim_end());
        if status != 404 {
            break;
        }
    }
    Err(last)
}
