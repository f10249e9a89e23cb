//! Configuration errors.

use std::fmt::Display;
use std::path::Path;

use super::kube_args::KubeArgs;
use super::load::{FilesInUse, Load};
use crate::server::listen::ListenAddress;
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

/// The result of resolving flags and files.
pub type Result<T, E = ConfigErrors> = std::result::Result<T, E>;

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

/// A configuration error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConfigError {
    /// The reason, which names the flag.
    reason: String,
    /// The keys of the options file that may cause it, if they are valid by themselves.
    pub(super) keys: &'static [&'static str],
}

impl From<String> for ConfigError {
    fn from(reason: String) -> Self {
        Self { reason, keys: &[] }
    }
}

impl ConfigError {
    /// Returns the error of two listeners with the same address.
    pub(super) fn same_address(first: &str, second: &str, address: &ListenAddress) -> Self {
        let reason = format!(
            "--{first} and --{second} are the same address {address}; give them different ports"
        );
        Self { reason, keys: &["telemetry_port", "port", "telemetry_host", "host"] }
    }

    /// Returns the error of an options file.
    pub(super) fn of_options(path: &str, reason: &impl Display) -> Self {
        format!("--config={path}: {reason}").into()
    }
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
