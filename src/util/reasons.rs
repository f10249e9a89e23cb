//! Errors that are a reason in words, made from texts and from the errors of other rooms.

/// Declares an error with one text, and the conversions into it: from texts, and from the errors after `from`, whose messages
/// it keeps.
macro_rules! reason {
    ($(#[$about:meta])* $visibility:vis struct $Name:ident $(from $($Error:ty),+)?;) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        #[error("{0}")]
        $visibility struct $Name(String);

        impl From<String> for $Name {
            fn from(reason: String) -> Self {
                Self(reason)
            }
        }

        impl From<&str> for $Name {
            fn from(reason: &str) -> Self {
                Self(reason.to_owned())
            }
        }

        $($(impl From<$Error> for $Name {
            fn from(error: $Error) -> Self {
                Self(error.to_string())
            }
        })+)?
    };
}

pub(crate) use reason;
