//! Support for unit tests and fuzz targets.

#[cfg(fuzzing)]
pub mod fuzzed;
#[cfg(test)]
pub(crate) mod recorded;

/// Returns the number in an environment variable, if it is set.
pub(crate) fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Returns a hash that is the same in each process.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    use std::hash::BuildHasher as _;
    foldhash::quality::FixedState::default().hash_one(bytes)
}
