//! Support for unit tests and fuzz targets.

#[path = "../../tests/support/bounds.rs"]
mod bounds;
#[cfg(fuzzing)]
pub mod fuzzed;
#[cfg(test)]
pub(crate) mod recorded;
#[cfg(test)]
pub(crate) mod replay;
pub(crate) mod seeds;

/// Returns the number in an environment variable, if it is set.
pub(crate) fn env_number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Returns a bound on a simulated time of `tests/bounds.csv`.
pub(crate) fn time_bound(bound: &str) -> std::time::Duration {
    let all = bounds::Bounds::parse(include_str!("../../tests/bounds.csv")).expect("the bounds");
    std::time::Duration::from_secs_f64(all.current("time", bound).expect("a bound"))
}

/// Returns a hash that is the same in each process.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    use std::hash::BuildHasher as _;
    foldhash::quality::FixedState::default().hash_one(bytes)
}
