//! `kstatd status`: shows the status of a running process.
//!
//! The process itself formats the text, so the versions need not match.

use serde_json::Value;

use super::process_client::ProcessClient;
use crate::status::words::{json_line, printable_lines};

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// The data is complete and up to date.
    Ok,
    /// The same, with warnings.
    Warn,
    /// Data is stale or incomplete, or the configuration is not applied.
    Degraded,
    /// There is no response, or none with a status.
    Down,
}

impl ProcessState {
    /// Returns the exit code.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Ok | Self::Warn => 0,
            Self::Degraded => 1,
            Self::Down => 2,
        }
    }
}

/// Requests the status as text or JSON. The text is safe for a terminal; without a status it contains the reason.
pub(crate) async fn fetch(process: &ProcessClient, json: bool) -> (ProcessState, String) {
    let address = process.address();
    let query = if json { "format=json" } else { "format=text" };
    let text = match process.with_timeout(process.status_text(query)).await.flatten() {
        Ok(text) => text,
        Err(error) => return (ProcessState::Down, format!("no status from {address}: {error}\n")),
    };
    let facts = json.then(|| serde_json::from_str::<Value>(&text).unwrap_or_default());
    let word = match &facts {
        Some(facts) => facts["state"].as_str().unwrap_or_default().to_uppercase(),
        None => text.split_whitespace().next().unwrap_or_default().to_owned(),
    };
    let state = match word.as_str() {
        "OK" => ProcessState::Ok,
        "WARN" => ProcessState::Warn,
        "DEGRADED" => ProcessState::Degraded,
        _ => return (ProcessState::Down, format!("{address} is not a kstatd process\n")),
    };
    if let Some(facts) = facts {
        return (state, json_line(&facts));
    }
    (state, printable_lines(&text))
}
