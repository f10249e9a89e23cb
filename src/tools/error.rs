//! The error of commands.

use tokio::task::JoinError;

use crate::cli::error::{ConfigError, ConfigErrors};
use crate::cli::usage_error::UsageError;
use crate::config_file::FileError;
use crate::kube::{ClientError, TransportError};
use crate::resources::custom::CompileError;
use crate::server::pprof::flame_graph::DrawError;
use crate::server::web_config::WebConfigError;
use crate::statsd::StartError;
use crate::util::reasons::reason;

reason! {
    /// The reason why a command fails, or cannot apply a changed configuration, in the words that standard error or the log
    /// shows.
    pub struct CommandError from
        ClientError, CompileError, ConfigError, ConfigErrors, DrawError, FileError, JoinError, StartError, TransportError,
        UsageError, WebConfigError;
}

/// The result of a part of a command.
pub type Result<T, E = CommandError> = std::result::Result<T, E>;
