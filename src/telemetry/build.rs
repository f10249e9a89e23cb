//! What this program is.

use crate::exposition::family::{Family, Kind, Series};

/// Version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The toolchain that the program needs at least; stands where the originals name their Go version.
pub const TOOLCHAIN: &str = concat!("rust", env!("CARGO_PKG_RUST_VERSION"));

/// The revision of its sources, as `build.rs` in the root of the repository finds it.
pub const REVISION: &str = match option_env!("KSTATD_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// The name that Go gives this architecture, which the label has in the originals.
pub fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// What such a family says.
pub(super) const HELP: &str = "Build of this program; the value is always 1.";

/// A family of one series of value 1 that names this build, with the labels that the originals use.
pub fn info(name: &'static str, help: &'static str) -> Family {
    info_with(name, help, &[])
}

/// The same with the labels of kube-state-metrics. There is no client-go in it, and so no version of one.
pub(super) fn kube_info(name: &'static str) -> Family {
    info_with(name, HELP, &[("client_go_version", "")])
}

fn info_with(name: &'static str, help: &'static str, more: &[(&str, &str)]) -> Family {
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
    Family { name, help, kind: Kind::Gauge, series: vec![Series::new(&labels, 1.0)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_order() {
        let labels = kube_info("x_build_info").series.swap_remove(0).labels;
        let names: Vec<&[u8]> =
            crate::exposition::labels::iter(&labels).map(|(name, _)| name).collect();
        assert!(names.is_sorted() && names.len() == 8, "{names:?}");
    }
}
