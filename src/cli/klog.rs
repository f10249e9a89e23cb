//! The logging flags of kube-state-metrics. Those for writing to files are accepted with any value but have no
//! effect, which is logged once.

use super::flag::ValueType::{Boolean, Text};
use super::flag::{Flag, store};
use super::kube_args::KubeArgs;
use super::usage_error::UsageError;
use crate::go::strconv;

/// Defines a flag that is ignored. The help may say why.
macro_rules! ignored {
    ($name:literal, $value_type:expr, $default:literal, $why:literal) => {
        Flag {
            name: $name,
            short: None,
            value_type: $value_type,
            default: $default,
            help: concat!("Accepted, no effect", $why, "."),
            set: |args, _| {
                args.klog.ignored_flags.push($name);
                Ok(())
            },
            keys: None,
        }
    };
}

/// The logging flags.
pub const FLAGS: &[Flag<KubeArgs>] = &[
    ignored!("add_dir_header", Boolean, "", ""),
    ignored!("alsologtostderr", Boolean, "", ": the log always goes to stderr"),
    ignored!("alsologtostderrthreshold", Text("severity"), "", ""),
    ignored!("legacy_stderr_threshold_behavior", Boolean, "true", ""),
    ignored!("log_backtrace_at", Text("traceLocation"), ":0", ""),
    ignored!("log_dir", Text("string"), "", ": the log goes to stderr"),
    ignored!("log_file", Text("string"), "", ": the log goes to stderr"),
    ignored!("log_file_max_size", Text("uint"), "1800", ""),
    ignored!("logtostderr", Boolean, "true", ": the log always goes to stderr"),
    ignored!("one_output", Boolean, "", ""),
    Flag {
        name: "skip_headers",
        short: None,
        value_type: Boolean,
        default: "",
        help: "Omit severity, time and source before each message.",
        set: |args, text| boolean(text).map(|skip| args.klog.skip_headers = skip),
        keys: None,
    },
    ignored!("skip_log_headers", Boolean, "", ""),
    ignored!("stderrthreshold", Text("severity"), "2", ": every severity goes to stderr"),
    Flag {
        name: "v",
        short: Some('v'),
        value_type: Text("Level"),
        default: "",
        help: "Log verbosity; 4 enables debug, 6 enables trace.",
        set: |args, text| store(&mut args.klog.verbosity, strconv::parse_decimal(text, 32)),
        keys: None,
    },
    ignored!("vmodule", Text("moduleSpec"), "", ""),
];

/// Parses a boolean. Go's flag package, which klog uses, reports less detail than strconv.
fn boolean(text: &str) -> Result<bool, UsageError> {
    strconv::parse_bool(text).map_err(|_| "parse error".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let mut args = KubeArgs::default();
        let verbosity = FLAGS.iter().find(|flag| flag.name == "v").expect("a flag");
        assert_eq!((verbosity.set)(&mut args, "08"), Ok(()));
        assert_eq!(args.klog.verbosity, 8);
        assert_eq!(
            (verbosity.set)(&mut args, "0x2"),
            Err("strconv.ParseInt: parsing \"0x2\": invalid syntax".into())
        );
        assert_eq!(boolean("x"), Err("parse error".into()));
    }
}
