//! Names that Prometheus accepts without quotes.

/// True for the name of a metric.
pub(crate) fn is_metric(name: &[u8]) -> bool {
    is_name(name, b"_:")
}

/// True for the name of a label.
pub(crate) fn is_label(name: &[u8]) -> bool {
    is_name(name, b"_")
}

fn is_name(name: &[u8], signs: &[u8]) -> bool {
    name.first().is_some_and(|first| !first.is_ascii_digit())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || signs.contains(byte))
}
