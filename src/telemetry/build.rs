//! Build information.

use crate::exposition::family::{Family, Kind, Series};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The minimum Rust version, shown where the originals show their Go version.
pub const TOOLCHAIN: &str = concat!("rust", env!("CARGO_PKG_RUST_VERSION"));

/// The source revision, as determined by `build.rs` in the root of the repository.
pub const REVISION: &str = match option_env!("KSTATD_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// Returns the `User-Agent` of requests of commands and of `kstatd node`.
pub(crate) fn user_agent() -> String {
    format!("kstatd/{VERSION}")
}

/// Returns Go's name of this architecture, as in the originals' label.
pub fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// Returns the series of a build information family with the originals' labels, and `more`; its value is 1.
pub(crate) fn series(more: &[(&str, &str)]) -> Series {
    let mut labels = vec![
        ("branch", ""),
        ("goarch", go_arch()),
        ("goos", std::env::consts::OS),
        ("goversion", TOOLCHAIN),
        ("revision", REVISION),
        ("tags", ""),
        ("version", VERSION),
    ];
    labels.extend(more);
    labels.sort_unstable();
    Series::new(&labels, 1.0)
}

/// Returns a build information family with this series.
pub(super) fn info(name: &'static str, more: &[(&str, &str)]) -> Family {
    let help = "Build of this program; the value is always 1.";
    Family { name, help, kind: Kind::Gauge, series: vec![series(more)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_order() {
        let labels =
            info("x_build_info", &[("client_go_version", "")]).series.swap_remove(0).labels;
        let names: Vec<&[u8]> =
            crate::exposition::labels::iter(&labels).map(|(name, _)| name).collect();
        assert!(names.is_sorted() && names.len() == 8, "{names:?}");
    }
}
