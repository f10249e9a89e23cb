//! `kstatd status`: shows the status of a running process.
//!
//! The process itself formats the text, so the versions need not match.

use super::process_client::{ProcessClient, refusal};
use crate::server::status::{PATH, PREFIXED_PATH};
use crate::status::words::printable;

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// The data is complete and up to date.
    Ok,
    /// Data is stale or incomplete, or the configuration is not applied.
    Degraded,
    /// There is no response, or none with a status.
    Down,
}

impl ProcessState {
    /// Returns the exit code.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Degraded => 1,
            Self::Down => 2,
        }
    }
}

/// Requests the status. The text is safe for a terminal; without a status it contains the reason.
pub(crate) async fn fetch(process: &ProcessClient) -> (ProcessState, String) {
    let address = process.address();
    let answered = process.with_timeout(fetch_text(process)).await;
    let text = match answered.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(text) => text,
        Err(error) => return (ProcessState::Down, format!("no status from {address}: {error}\n")),
    };
    let state = match text.split_whitespace().next() {
        Some("OK") => ProcessState::Ok,
        Some("DEGRADED") => ProcessState::Degraded,
        _ => return (ProcessState::Down, format!("{address} is not a kstatd process\n")),
    };
    (state, text.lines().map(|line| format!("{}\n", printable(line))).collect())
}

/// Tries both paths; under the name statsd_exporter, the other path may return any page.
async fn fetch_text(process: &ProcessClient) -> Result<String, String> {
    let mut last = String::new();
    for path in [PREFIXED_PATH, PATH] {
        let (status, body) = process.get(&format!("{path}?format=text"), "text/plain").await?;
        let text = String::from_utf8_lossy(&body);
        if status == 200 {
            return Ok(text.into_owned());
        }
        last = refusal(status, &text);
        if status != 404 {
            break;
        }
    }
    Err(last)
}
