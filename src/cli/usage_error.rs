//! The error of command lines.

use crate::exposition::normalise::NormaliserError;
use crate::go::strconv::ParseError;
use crate::kube::selector::SelectorError;
use crate::kube::workloads::PodLabelsError;
use crate::pods::UnknownLabel;
use crate::util::reasons::reason;

reason! {
    /// The reason why a command line or a value on it is refused.
    pub struct UsageError from
        ParseError, NormaliserError, PodLabelsError, SelectorError, UnknownLabel;
}
