//! The errors of the API server client.

use std::fmt::Write as _;
use std::time::Duration;

use crate::telemetry::kube::Reason;
use crate::util::reasons::reason;

/// The reason why the API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No API server is configured.
    #[error(
        "no API server is configured: set --kubeconfig or --apiserver, or run in a pod with a service account"
    )]
    NotConfigured,
    /// The URL is invalid.
    #[error("API server URL {url:?}: {reason}")]
    Url {
        /// The URL as configured, without user and password.
        url: String,
        /// A description of the problem.
        reason: String,
    },
    /// The configuration is not supported, or the credentials are invalid.
    #[error("API server {url}: {reason}")]
    Setup {
        /// The URL of the API server.
        url: String,
        /// A description of the problem.
        reason: String,
    },
    /// The server did not respond, or something else that the text describes.
    #[error("{0}")]
    Other(String),
    /// The server responded with a status other than success.
    #[error("API server {url} answers {code}: {message}")]
    Refused {
        /// The URL of the request.
        url: String,
        /// The HTTP status code.
        code: u16,
        /// The message in the response body, or a description of the status.
        message: String,
        /// The value of the `Retry-After` header.
        retry_after: Option<Duration>,
    },
}

impl ClientError {
    /// Returns how long the server asks to wait before the next request.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns the reason of a failed request, as for list/watches.
    pub(crate) fn failure_reason(&self) -> Reason {
        match self {
            Self::Refused { code, .. } => Reason::of_status(*code),
            _ => Reason::Broken,
        }
    }
}

reason! {
    /// The reason why requests cannot be sent to a server: its address, a proxy, TLS, credentials, or the connection.
    pub struct TransportError;
}

/// Formats an error and its causes in one line.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        // The text of many errors already ends with their cause.
        if !text.ends_with(&more) {
            let _ = write!(text, ": {more}");
        }
        source = cause.source();
    }
    text
}
