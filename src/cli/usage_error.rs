//! The error of command lines.

use crate::exposition::normalise::NormaliserError;
use crate::go::strconv::ParseError;
use crate::kube::selector::SelectorError;
use crate::kube::workloads::PodLabelsError;
use crate::pods::UnknownLabel;

/// The reason why a command line or a value on it is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(String);

impl From<String> for UsageError {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<&str> for UsageError {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// Errors of the rooms that own the values of some flags.
macro_rules! from_values {
    ($($Error:ty),+) => {$(
        impl From<$Error> for UsageError {
            fn from(error: $Error) -> Self {
                Self(error.to_string())
            }
        }
    )+};
}

from_values!(ParseError, NormaliserError, PodLabelsError, SelectorError, UnknownLabel);
