//! Support for unit tests and fuzz targets.

#[cfg(fuzzing)]
pub mod fuzzed;
#[cfg(test)]
pub(crate) mod recorded;
