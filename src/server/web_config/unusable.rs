//! The error of an unusable web configuration.

/// The reason why a web configuration cannot be used, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unusable(String);

impl From<String> for Unusable {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<&str> for Unusable {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}
