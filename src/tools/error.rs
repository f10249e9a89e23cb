//! The error of commands.

use crate::cli::usage_error::UsageError;
use crate::config_file::FileError;
use crate::kube::{ClientError, TransportError};

/// The reason why a command fails, or cannot apply a changed configuration, in the words that standard error or the log
/// shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CommandError(String);

impl From<&str> for CommandError {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// Errors of other rooms, which commands show unchanged.
macro_rules! shown {
    ($($Error:ty),+) => {$(
        impl From<$Error> for CommandError {
            fn from(error: $Error) -> Self {
                Self(error.to_string())
            }
        }
    )+};
}

shown!(String, ClientError, FileError, TransportError, UsageError);
