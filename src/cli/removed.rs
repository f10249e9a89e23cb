//! Flags of earlier versions. Giving one is an error that names the value in use instead.

use clap::error::{ContextKind, ContextValue};

const REMOVED: [(&str, &str); 8] = [
    ("gate-metrics-timeout", "a kind that cannot be listed is waited for during 30 s"),
    ("limit.name-bytes", "names of StatsD metrics and labels may have 1,024 bytes"),
    ("limit.value-bytes", "label values may have 1,024 bytes"),
    ("tolerance", "increases may differ by 10%"),
    ("walk-bytes-per-second", "the walk reads at most 1,000,000 bytes of directories a second"),
    ("walk-io-pressure", "the walk pauses while IO pressure exceeds 10%"),
    ("walk-pressure-file", "pressure is read below --host-proc"),
    ("walk-reread-passes", "the walk rescans each directory after 16 passes"),
];

/// Returns the error for a removed flag, given without dashes.
pub fn error(flag: &str) -> Option<String> {
    let (_, instead) = REMOVED.iter().find(|(name, _)| *name == flag)?;
    Some(format!("the flag --{flag} was removed: {instead}"))
}

/// Returns the error if clap does not know a flag because it was removed.
pub fn error_of_clap(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => self::error(flag.strip_prefix("--")?),
        _ => None,
    }
}
