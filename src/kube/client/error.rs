//! Why the API server cannot be used, and errors in words.

use std::fmt::Write as _;
use std::time::Duration;

/// Why the API server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing says where it is.
    #[error(
        "no API server is configured: set --kubeconfig or --apiserver, or run in a pod with a service account"
    )]
    NotConfigured,
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {origin}: {reason}")]
    Kubeconfig {
        /// The file, or the environment variable that names it.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The URL is none.
    #[error("API server URL {url:?}: {reason}")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The service account of the pod cannot be used.
    #[error("service account of this pod: {0}")]
    ServiceAccount(String),
    /// The configuration asks for something that is not supported, or its credentials are broken.
    #[error("API server {url}: {reason}")]
    Setup {
        /// The API server.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The list/watches have no thread to run on.
    #[error("cannot start the thread that follows the API server: {0}")]
    Thread(#[source] std::io::Error),
    /// No answer.
    #[error("API server {url} does not answer: {reason}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// What happened.
        reason: String,
    },
    /// An answer other than success.
    #[error("API server {url} answers {code}: {message}")]
    Refused {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        code: u16,
        /// What the server says about it.
        message: String,
        /// How long the server wants to be left alone.
        retry_after: Option<Duration>,
    },
}

/// An error and what caused it, in one line.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        // Many errors print their cause already.
        if !text.ends_with(&more) {
            let _ = write!(text, ": {more}");
        }
        source = cause.source();
    }
    text
}
