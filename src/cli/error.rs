//! What keeps a configuration from being used.

use std::path::Path;

use super::kube_args::KubeArgs;
use crate::server::web_config::{WebConfig, WebConfigError};

/// Everything for which the flags cannot be used; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

/// A reason why the flags cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A resource that is not known.
    #[error("resource {name} does not exist. Available resources: {available}")]
    UnknownResource {
        /// The name.
        name: String,
        /// What there is.
        available: String,
    },
    /// A port outside 0–65535.
    #[error("--{flag}={value}: a port must be from 0 to 65535")]
    Port {
        /// The flag.
        flag: &'static str,
        /// What it says.
        value: i64,
    },
    /// Two listeners with one address.
    #[error("--{first} and --{second} are the same address {address}; give them different ports")]
    SameAddress {
        /// One flag.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// The address.
        address: String,
    },
    /// The options file cannot be read or understood.
    #[error("--config={path}: {reason}")]
    OptionsFile {
        /// Its path.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Anything else, with the flag in the text.
    #[error("{0}")]
    Invalid(String),
}

/// Why the web configuration that is named cannot be used.
pub(crate) fn web_problem(args: &KubeArgs) -> Option<WebConfigError> {
    let path = named(&args.tls_config)?;
    WebConfig::load(Path::new(&path)).err()
}

/// What a flag names, unless it is empty.
pub(crate) fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
