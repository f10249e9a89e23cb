//! The error of commands.

use crate::cli::usage_error::UsageError;
use crate::config_file::FileError;
use crate::kube::{ClientError, TransportError};
use crate::util::reasons::reason;

reason! {
    /// The reason why a command fails, or cannot apply a changed configuration, in the words that standard error or the log
    /// shows.
    pub struct CommandError from ClientError, FileError, TransportError, UsageError;
}
