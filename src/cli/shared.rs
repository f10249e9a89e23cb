//! Flags that several of kstatd's own commands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing::Level;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogStyle {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Who gets profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Profiles {
    /// Who asks from this host, as through `kubectl port-forward`.
    #[default]
    ThisHost,
    /// Whoever reaches the port.
    Everybody,
}

/// Least severity that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Things that may need somebody.
    Warn,
    /// The life of the process.
    #[default]
    Info,
    /// Single requests and lines.
    Debug,
    /// Everything.
    Trace,
}

impl From<LogLevel> for Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Flags about the log.
#[derive(Clone, Debug, Default, Args)]
pub struct LogArgs {
    /// Form of the log
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogStyle,
    /// Least severity that is logged
    #[arg(long, value_enum, default_value_t)]
    pub log_level: LogLevel,
}

impl std::fmt::Debug for AccessArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // There are secrets among them.
        f.debug_struct("AccessArgs").finish_non_exhaustive()
    }
}

/// Flags that say how servers are reached, all of them alike, in the words of kubectl.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Servers")]
pub struct AccessArgs {
    /// Certificates of the authorities that sign the servers', instead of the system's
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Trust any server
    #[arg(long, conflicts_with = "certificate_authority")]
    pub insecure_skip_tls_verify: bool,
    /// What the servers are called in their certificates
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Own certificate
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// Key of the own certificate
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// Bearer token; one in a file is not seen by others
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["token_file", "username"])]
    pub token: Option<String>,
    /// File with a bearer token, such as that of a service account
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    pub token_file: Option<PathBuf>,
    /// User for basic authentication; a URL may have one of its own
    #[arg(long, value_name = "NAME")]
    pub username: Option<String>,
    /// Password for basic authentication
    #[arg(long, value_name = "PASSWORD", requires = "username", conflicts_with = "password_file")]
    pub password: Option<String>,
    /// File with the password
    #[arg(long, value_name = "FILE", requires = "username")]
    pub password_file: Option<PathBuf>,
}

/// A duration as in the originals' flags, above 0.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match crate::go::duration::parse(text) {
        Some(nanoseconds) if nanoseconds > 0 => {
            Ok(Duration::from_nanos(nanoseconds.unsigned_abs()))
        }
        _ => Err("must be a duration above 0, such as 30s or 10m".to_owned()),
    }
}
