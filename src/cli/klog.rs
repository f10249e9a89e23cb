//! The logging flags of kube-state-metrics. Those for writing to files are parsed and validated but have no effect,
//! which is logged once.

use super::flag::{Flag, ValueType};
use super::kube_args::KubeArgs;
use crate::go::strconv;

type Set = fn(&mut KubeArgs, &str) -> Result<(), String>;

const fn switch(
    name: &'static str,
    default: &'static str,
    help: &'static str,
    set: Set,
) -> Flag<KubeArgs> {
    Flag { name, short: None, value_type: ValueType::Boolean, default, help, set, keys: None }
}

const fn value(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    help: &'static str,
    set: Set,
) -> Flag<KubeArgs> {
    Flag { name, short: None, value_type: ValueType::Text(kind), default, help, set, keys: None }
}

/// Declares a flag that is validated and otherwise ignored.
macro_rules! noted {
    ($name:literal, $check:expr) => {
        |args, text| {
            $check(text)?;
            args.klog.ignored_flags.push($name);
            Ok(())
        }
    };
}

/// The logging flags.
pub const FLAGS: &[Flag<KubeArgs>] = &[
    switch("add_dir_header", "", "Accepted, no effect.", noted!("add_dir_header", boolean)),
    switch(
        "alsologtostderr",
        "",
        "Accepted, no effect: the log always goes to stderr.",
        noted!("alsologtostderr", boolean),
    ),
    value(
        "alsologtostderrthreshold",
        "severity",
        "",
        "Accepted, no effect.",
        noted!("alsologtostderrthreshold", severity),
    ),
    switch(
        "legacy_stderr_threshold_behavior",
        "true",
        "Accepted, no effect.",
        noted!("legacy_stderr_threshold_behavior", boolean),
    ),
    value(
        "log_backtrace_at",
        "traceLocation",
        ":0",
        "Accepted, no effect.",
        noted!("log_backtrace_at", trace_location),
    ),
    value(
        "log_dir",
        "string",
        "",
        "Accepted, no effect: the log goes to stderr.",
        noted!("log_dir", any_text),
    ),
    value(
        "log_file",
        "string",
        "",
        "Accepted, no effect: the log goes to stderr.",
        noted!("log_file", any_text),
    ),
    value(
        "log_file_max_size",
        "uint",
        "1800",
        "Accepted, no effect.",
        noted!("log_file_max_size", size),
    ),
    switch(
        "logtostderr",
        "true",
        "Accepted, no effect: the log always goes to stderr.",
        noted!("logtostderr", boolean),
    ),
    switch("one_output", "", "Accepted, no effect.", noted!("one_output", boolean)),
    switch(
        "skip_headers",
        "",
        "Omit severity, time and source before each message.",
        |args, text| boolean(text).map(|skip| args.klog.skip_headers = skip),
    ),
    switch("skip_log_headers", "", "Accepted, no effect.", noted!("skip_log_headers", boolean)),
    value(
        "stderrthreshold",
        "severity",
        "2",
        "Accepted, no effect: every severity goes to stderr.",
        noted!("stderrthreshold", severity),
    ),
    Flag {
        name: "v",
        short: Some('v'),
        value_type: ValueType::Text("Level"),
        default: "",
        help: "Log verbosity; 4 enables debug, 6 enables trace.",
        set: |args, text| strconv::parse_int(text, 32).map(|level| args.klog.verbosity = level),
        keys: None,
    },
    value("vmodule", "moduleSpec", "", "Accepted, no effect.", noted!("vmodule", module_spec)),
];

// Go's flag package, which klog uses, reports less detail than strconv.

fn boolean(text: &str) -> Result<bool, String> {
    strconv::parse_bool(text).map_err(|_| "parse error".to_owned())
}

fn size(text: &str) -> Result<(), String> {
    match strconv::parse_uint(text) {
        Ok(_) => Ok(()),
        Err(error) if error.ends_with("value out of range") => Err("value out of range".to_owned()),
        Err(_) => Err("parse error".to_owned()),
    }
}

fn any_text(_: &str) -> Result<(), String> {
    Ok(())
}

/// Validates a severity: a case-insensitive name or a number.
fn severity(text: &str) -> Result<(), String> {
    match text.to_ascii_uppercase().as_str() {
        "INFO" | "WARNING" | "ERROR" | "FATAL" => Ok(()),
        _ => decimal(text).map(drop),
    }
}

fn decimal(text: &str) -> Result<i64, String> {
    if text.starts_with('0') && text.len() > 1 {
        // Base 10 here, where leading zeros are insignificant.
        return strconv::parse_int(text.trim_start_matches('0'), 32).or_else(|_| {
            if text.bytes().all(|byte| byte == b'0') { Ok(0) } else { strconv::parse_int("", 32) }
        });
    }
    strconv::parse_int(text, 32)
}

/// Validates `file.go:234` or an empty text.
fn trace_location(text: &str) -> Result<(), String> {
    let error = || "syntax error: expect file.go:234".to_owned();
    if text.is_empty() {
        return Ok(());
    }
    let (file, line) = text.split_once(':').ok_or_else(error)?;
    if !file.contains('.') {
        return Err(error());
    }
    match line.parse::<i64>() {
        Ok(1..) => Ok(()),
        Ok(_) => Err("negative or zero value for level".to_owned()),
        Err(_) => Err(error()),
    }
}

/// Validates `pattern=N,pattern=N`.
fn module_spec(text: &str) -> Result<(), String> {
    let error = || "syntax error: expect comma-separated list of filename=N".to_owned();
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
        assert!(severity("warning").is_ok() && severity("2").is_ok());
        assert_eq!(severity("x"), Err("strconv.ParseInt: parsing \"x\": invalid syntax".into()));
        assert!(trace_location("a.go:5").is_ok() && trace_location("").is_ok());
        assert!(trace_location(":0").is_err());
        for text in ["a.go:0", "a.go:-1"] {
            let reason = "negative or zero value for level".to_owned();
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
