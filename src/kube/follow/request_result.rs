//! The result of a request: the outcome for the state machine, the failure reason for logs and metrics, and hints for the
//! next request.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Failure;
use super::chunks::ReadError;
use super::machine::Outcome;
use crate::kube::client::Refusal;
use crate::kube::frame::WireError;
use crate::telemetry::kube::Reason;

#[cfg(test)]
mod tests;

/// The minimum silence of a watch that is considered dead. A live one that merely ends late has had a bookmark more recently.
pub(super) const DEAD: Duration = Duration::from_secs(15);

/// The result of a request.
#[derive(Debug, Default)]
pub(super) struct RequestResult {
    pub(super) outcome: Outcome,
    /// The reason of the failure, if it failed.
    pub(super) reason: Option<Reason>,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
    /// The watch made progress or lasted long enough: the next request needs no backoff.
    pub(super) useful: bool,
    /// The watch ended on time or lasted long: the next request is not a retry and takes no token.
    pub(super) lasted: bool,
    /// The client ended the request on purpose.
    pub(super) is_planned: bool,
    /// The client ended the stream because no bookmark arrived.
    pub(super) is_cut: bool,
    /// The time of the last data from the connection, if the connection seems dead.
    pub(super) dead_since: Option<Instant>,
    /// The server does not support the requested representation.
    pub(super) is_unsupported: bool,
}

impl RequestResult {
    /// A result without a failure.
    pub(super) fn ok(outcome: Outcome, message: &str) -> Self {
        Self { outcome, message: message.to_owned(), ..Self::default() }
    }

    /// A failure for this reason.
    pub(super) fn failed(outcome: Outcome, reason: Reason, message: String) -> Self {
        Self { reason: Some(reason), ..Self::ok(outcome, &message) }
    }

    /// A healthy watch that the client ends on purpose.
    pub(super) fn planned(message: &str) -> Self {
        Self { is_planned: true, ..Self::ok(Outcome::Closed, message) }
    }

    /// A response that cannot be parsed.
    pub(super) fn garbled(message: String) -> Self {
        Self::failed(Outcome::Garbled, Reason::Garbled, message)
    }

    /// A body that failed; its last data arrived at `heard`.
    pub(super) fn body_failed(error: ReadError, heard: Instant) -> Self {
        let torn = if heard.elapsed() >= DEAD {
            Outcome::Lost
        } else {
            Outcome::Broken { answered: true }
        };
        let (reason, message) = match error {
            ReadError::Broken(message) => return Self::failed(torn, Reason::Broken, message),
            // The connection is already closed.
            ReadError::Dead(message) => return Self::failed(torn, Reason::Frozen, message),
            ReadError::NoHeartbeat(silence) => {
                let message = format!("no event or bookmark for {} s", silence.as_secs());
                // The connection itself answers probes, so the next stream may use it.
                return Self {
                    is_cut: true,
                    ..Self::failed(Outcome::Lost, Reason::Frozen, message)
                };
            }
            ReadError::Overdue(silence) if silence < DEAD => {
                return Self::ok(Outcome::Closed, "watch lasts longer than asked for");
            }
            ReadError::Overdue(silence) => (
                Reason::Frozen,
                format!("watch does not end and has been silent for {} s", silence.as_secs()),
            ),
            ReadError::Silent(idle) => (Reason::Frozen, format!("nothing received for {idle:?}")),
            ReadError::Slow => (Reason::Slow, "less than 1 KiB/s received".to_owned()),
        };
        Self { dead_since: Some(heard), ..Self::failed(torn, reason, message) }
    }
}

impl From<Refusal> for RequestResult {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message, retry_after } = refusal;
        let message = format!("server answers {code}: {message}");
        let reason = Reason::of_status(code);
        let is_unsupported = matches!(code, 406 | 415);
        Self {
            retry_after,
            is_unsupported,
            ..Self::failed(Outcome::Refused { code }, reason, message)
        }
    }
}

impl From<WireError> for RequestResult {
    fn from(error: WireError) -> Self {
        let (outcome, reason) = match error {
            WireError::Truncated { .. } => (Outcome::Broken { answered: true }, Reason::Broken),
            WireError::Status { code: code @ 400..=599, .. } => {
                (Outcome::Refused { code }, Reason::of_status(code))
            }
            _ => (Outcome::Garbled, Reason::Garbled),
        };
        let is_unsupported = matches!(error, WireError::IncompleteTable { .. });
        Self { is_unsupported, ..Self::failed(outcome, reason, error.to_string()) }
    }
}

/// Classifies a failure for the backoff.
pub(super) fn failure(outcome: &Outcome) -> Failure {
    match outcome {
        Outcome::Refused { code: 401 | 408 | 410 | 429 } => Failure::Transient,
        Outcome::Refused { code: 404 } => Failure::Absent,
        Outcome::Refused { code: 400..=499 } => Failure::Denied,
        _ => Failure::Transient,
    }
}
