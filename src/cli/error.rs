//! Configuration errors.

use std::path::Path;

use super::kube_args::KubeArgs;
use super::load::{FilesInUse, Load};
use crate::server::web_config::{WebConfig, WebConfigError};

/// All errors of a configuration; never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl ConfigErrors {
    /// Formats the first error and the number of others.
    pub(crate) fn first(&self) -> String {
        let first = self.0.first().map_or_else(String::new, ToString::to_string);
        match self.0.len() {
            0 | 1 => first,
            count => format!("{first} (and {} more)", count - 1),
        }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

/// A configuration error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// An unknown resource.
    #[error("resource {name} does not exist. Available resources: {available}")]
    UnknownResource {
        /// The name.
        name: String,
        /// The available resources.
        available: String,
    },
    /// A port outside 0–65535.
    #[error("--{flag}={value}: a port must be from 0 to 65535")]
    Port {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: i64,
    },
    /// Two listeners with the same address.
    #[error("--{first} and --{second} are the same address {address}; give them different ports")]
    SameAddress {
        /// The first flag.
        first: &'static str,
        /// The second flag.
        second: &'static str,
        /// The address.
        address: String,
    },
    /// The options file is unreadable or invalid.
    #[error("--config={path}: {reason}")]
    OptionsFile {
        /// The path.
        path: String,
        /// The error.
        reason: String,
    },
    /// Any other error, with the flag in the text.
    #[error("{0}")]
    Invalid(String),
}

/// Returns the error of the configured web configuration file. A file in use reloads itself.
pub(crate) fn web_problem(args: &KubeArgs, load: Load<'_>) -> Option<WebConfigError> {
    let path = named(&args.tls_config)?;
    if let Load::Again(FilesInUse { web_config: Some(in_use), .. }) = load
        && *in_use == Path::new(&path)
    {
        return None;
    }
    WebConfig::load(Path::new(&path)).err()
}

/// Returns the text unless it is empty.
pub(crate) fn named(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
