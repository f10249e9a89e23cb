//! The logging flags of kube-state-metrics. Those for writing to files are parsed and validated but have no effect,
//! which is logged once.

use super::flag::ValueType::{Boolean, Text};
use super::flag::{Flag, store};
use super::kube_args::KubeArgs;
use super::usage_error::UsageError;
use crate::go::strconv::{self, ParseError};

/// Defines a flag that is validated and otherwise ignored. The help may say why.
macro_rules! ignored {
    ($name:literal, $value_type:expr, $default:literal, $why:literal, $check:ident) => {
        Flag {
            name: $name,
            short: None,
            value_type: $value_type,
            default: $default,
            help: concat!("Accepted, no effect", $why, "."),
            set: |args, text| {
                $check(text)?;
                args.klog.ignored_flags.push($name);
                Ok(())
            },
            keys: None,
        }
    };
}

/// The logging flags.
pub const FLAGS: &[Flag<KubeArgs>] = &[
    ignored!("add_dir_header", Boolean, "", "", boolean),
    ignored!("alsologtostderr", Boolean, "", ": the log always goes to stderr", boolean),
    ignored!("alsologtostderrthreshold", Text("severity"), "", "", severity),
    ignored!("legacy_stderr_threshold_behavior", Boolean, "true", "", boolean),
    ignored!("log_backtrace_at", Text("traceLocation"), ":0", "", trace_location),
    ignored!("log_dir", Text("string"), "", ": the log goes to stderr", any_text),
    ignored!("log_file", Text("string"), "", ": the log goes to stderr", any_text),
    ignored!("log_file_max_size", Text("uint"), "1800", "", size),
    ignored!("logtostderr", Boolean, "true", ": the log always goes to stderr", boolean),
    ignored!("one_output", Boolean, "", "", boolean),
    Flag {
        name: "skip_headers",
        short: None,
        value_type: Boolean,
        default: "",
        help: "Omit severity, time and source before each message.",
        set: |args, text| boolean(text).map(|skip| args.klog.skip_headers = skip),
        keys: None,
    },
    ignored!("skip_log_headers", Boolean, "", "", boolean),
    ignored!("stderrthreshold", Text("severity"), "2", ": every severity goes to stderr", severity),
    Flag {
        name: "v",
        short: Some('v'),
        value_type: Text("Level"),
        default: "",
        help: "Log verbosity; 4 enables debug, 6 enables trace.",
        set: |args, text| store(&mut args.klog.verbosity, strconv::parse_decimal(text, 32)),
        keys: None,
    },
    ignored!("vmodule", Text("moduleSpec"), "", "", module_spec),
];

// Go's flag package, which klog uses, reports less detail than strconv.

fn boolean(text: &str) -> Result<bool, UsageError> {
    strconv::parse_bool(text).map_err(|_| "parse error".into())
}

fn size(text: &str) -> Result<(), UsageError> {
    match strconv::parse_uint(text) {
        Ok(_) => Ok(()),
        Err(ParseError::Range { .. }) => Err("value out of range".into()),
        Err(_) => Err("parse error".into()),
    }
}

fn any_text(_: &str) -> Result<(), UsageError> {
    Ok(())
}

/// Validates a severity: a case-insensitive name or a number.
fn severity(text: &str) -> Result<(), UsageError> {
    match text.to_ascii_uppercase().as_str() {
        "INFO" | "WARNING" | "ERROR" | "FATAL" => Ok(()),
        _ => Ok(strconv::parse_decimal(text, 32).map(drop)?),
    }
}

/// Validates `file.go:234` or an empty text.
fn trace_location(text: &str) -> Result<(), UsageError> {
    let error = || UsageError::from("syntax error: expect file.go:234");
    if text.is_empty() {
        return Ok(());
    }
    let (file, line) = text.split_once(':').ok_or_else(error)?;
    if !file.contains('.') {
        return Err(error());
    }
    match line.parse::<i64>() {
        Ok(1..) => Ok(()),
        Ok(_) => Err("negative or zero value for level".into()),
        Err(_) => Err(error()),
    }
}

/// Validates `pattern=N,pattern=N`.
fn module_spec(text: &str) -> Result<(), UsageError> {
    let error = || UsageError::from("syntax error: expect comma-separated list of filename=N");
    for item in text.split(',').filter(|item| !item.is_empty()) {
        let (pattern, level) = item.split_once('=').ok_or_else(error)?;
        if pattern.is_empty() || level.parse::<i32>().is_err() {
            return Err(error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        assert!(severity("warning").is_ok() && severity("2").is_ok() && severity("08").is_ok());
        assert_eq!(
            severity("0x2"),
            Err("strconv.ParseInt: parsing \"0x2\": invalid syntax".into())
        );
        assert_eq!(severity("x"), Err("strconv.ParseInt: parsing \"x\": invalid syntax".into()));
        assert!(trace_location("a.go:5").is_ok() && trace_location("").is_ok());
        assert!(trace_location(":0").is_err());
        for text in ["a.go:0", "a.go:-1"] {
            let reason = "negative or zero value for level".into();
            assert_eq!(trace_location(text), Err(reason), "{text}");
        }
        assert!(trace_location("a:0").is_err() && trace_location("a.go:x").is_err());
        assert_eq!(trace_location("x"), Err("syntax error: expect file.go:234".into()));
        assert!(module_spec("a=1,b*=2").is_ok());
        assert!(module_spec("x").is_err() && module_spec("a=x").is_err());
        assert_eq!(size("-1"), Err("parse error".into()));
        assert_eq!(boolean("x"), Err("parse error".into()));
    }
}
