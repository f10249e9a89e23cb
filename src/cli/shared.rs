//! Flags shared by several of kstatd's own commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing::Level;

use super::usage_error::UsageError;
use crate::go::strconv;
use crate::util::words::words;

words! {
    /// The name under which the program runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Name {
        /// kstatd.
        Kstatd = "kstatd",
        /// kube-state-metrics.
        KubeStateMetrics = "kube-state-metrics",
        /// statsd_exporter.
        StatsdExporter = "statsd_exporter",
        /// `kstatd node`.
        Node = "kstatd node",
    }
}

/// The log format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogStyle {
    /// Human-readable.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The clients that may fetch profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Profiles {
    /// Authenticated clients; without authentication, connections from this host (`kubectl
    /// port-forward`, a proxy in the pod).
    #[default]
    ThisHost,
    /// Every client that can reach the port.
    Everybody,
}

/// The minimum log level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Conditions that may need attention.
    Warn,
    /// Life cycle events of the process.
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

/// Log flags.
#[derive(Clone, Default, Args)]
pub struct LogArgs {
    /// Log format
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogStyle,
    /// Minimum log level
    #[arg(long, value_enum, default_value_t)]
    pub log_level: LogLevel,
}

/// The output format of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable.
    #[default]
    Text,
    /// JSON.
    Json,
}

/// The output flag, which all commands share.
#[derive(Clone, Copy, Default, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: OutputFormat,
    /// The same as -o json
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
}

impl OutputArgs {
    /// Returns true for JSON.
    pub fn is_json(self) -> bool {
        self.json || self.output == OutputFormat::Json
    }
}

/// Flags for connecting to servers, named like kubectl's.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Servers")]
pub struct AccessArgs {
    /// File with CA certificates, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Do not verify server certificates
    #[arg(long, conflicts_with = "certificate_authority")]
    pub insecure_skip_tls_verify: bool,
    /// Server name to verify in certificates
    #[arg(long, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Client certificate file
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_certificate: Option<PathBuf>,
    /// Client key file
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<PathBuf>,
    /// Bearer token; prefer --token-file, which does not appear in process lists
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["token_file", "username"])]
    pub token: Option<String>,
    /// File with a bearer token, such as that of a service account
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    pub token_file: Option<PathBuf>,
    /// User name for basic authentication; a URL may contain its own
    #[arg(long, value_name = "NAME")]
    pub username: Option<String>,
    /// Password for basic authentication
    #[arg(long, value_name = "PASSWORD", requires = "username", conflicts_with = "password_file")]
    pub password: Option<String>,
    /// File with the password
    #[arg(long, value_name = "FILE", requires = "username")]
    pub password_file: Option<PathBuf>,
}

/// Parses a positive duration in the originals' syntax.
pub(super) fn duration(text: &str) -> Result<Duration, UsageError> {
    let duration = strconv::parse_duration(text).ok().and_then(strconv::positive_duration);
    duration.ok_or_else(|| "must be a duration above 0, such as 30s or 10m".into())
}

/// Parses a pattern that must match an entire name.
pub(super) fn whole(text: &str) -> Result<regex::Regex, UsageError> {
    regex::Regex::new(&format!("^(?:{text})$")).map_err(|error| error.to_string().into())
}

/// Returns true for a valid Kubernetes name.
pub(super) fn is_name(name: &str) -> bool {
    let byte =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.bytes().all(byte)
}
