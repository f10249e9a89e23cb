//! The error of an unusable web configuration.

use crate::util::reasons::reason;

reason! {
    /// The reason why a web configuration cannot be used, with its position.
    pub(crate) struct Unusable;
}
