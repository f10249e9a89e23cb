//! What this program is.

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The toolchain that the program needs at least; stands where the originals name their Go version.
pub const TOOLCHAIN: &str = concat!("rust", env!("CARGO_PKG_RUST_VERSION"));
