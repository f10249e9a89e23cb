//! OpenMetrics text, as `prometheus-client` writes it, turned into the text format 0.0.4.
//!
//! The formats differ in more than the trailer: OpenMetrics names a counter's family without `_total`
//! and an info's without `_info`, has types and a `UNIT` line that 0.0.4 does not know, and exemplars.

use crate::exposition::float;

/// Converts a whole body.
pub(super) fn from_open_metrics(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    let mut help = None;
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "unknown" => ("", "untyped"),
                "gaugehistogram" => ("", "histogram"),
                kind => ("", kind),
            };
            if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                out.push_str(&format!("# HELP {name}{suffix} {}\n", unescape_quotes(text)));
            }
            out.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            sample(&mut out, without_exemplar(line));
        }
    }
    out
}

/// Writes a sample with its number in the form that the exposition has everywhere else.
fn sample(out: &mut String, line: &str) {
    let number = line.rsplit_once(' ').and_then(|(series, value)| {
        let value = match value {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            value => value.parse().ok()?,
        };
        let mut text = Vec::new();
        float::write(&mut text, value);
        Some((series, String::from_utf8(text).ok()?))
    });
    let (series, number) = number.unwrap_or((line, String::new()));
    labelled(out, series);
    if !number.is_empty() {
        out.push(' ');
        out.push_str(&number);
    }
    out.push('\n');
}

/// OpenMetrics wants the bound of a bucket with a fraction (`1.0`), 0.0.4 has it as Go prints it (`1`). A
/// series is the same only where its labels are.
fn labelled(out: &mut String, line: &str) {
    let bound = line.find("{le=\"").or_else(|| line.find(",le=\"")).map(|at| at + "{le=\"".len());
    match bound.and_then(|start| line.split_at_checked(start)) {
        Some((before, rest)) => {
            let (value, after) = rest.split_at(rest.find('"').unwrap_or(rest.len()));
            out.push_str(before);
            out.push_str(value.strip_suffix(".0").unwrap_or(value));
            out.push_str(after);
        }
        None => out.push_str(line),
    }
}

/// In OpenMetrics a quote in a help text is escaped, in 0.0.4 it is not.
fn unescape_quotes(help: &str) -> String {
    help.replace("\\\"", "\"")
}

/// An exemplar follows the sample after ` # {`; a label value may contain the same characters, but
/// only before the closing brace of the sample's own labels.
fn without_exemplar(line: &str) -> &str {
    let labels_end = line.rfind("} ").map_or(0, |end| end);
    match line.rfind(" # {") {
        // The last "} " belongs to the exemplar itself.
        Some(at) if at < labels_end && line[..at].contains("} ") => &line[..at],
        Some(at) if !line[..at].contains('{') => &line[..at],
        _ => line,
    }
}

/// Keeps the families whose name (as its `TYPE` line has it) passes `keep`.
pub(super) fn only(body: &str, keep: impl Fn(&str) -> bool) -> String {
    let mut out = String::new();
    let mut kept = false;
    for line in body.lines() {
        let name = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        if let Some(name) = name.and_then(|rest| rest.split(' ').next()) {
            kept = keep(name);
        }
        if kept {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_names() {
        let open = "# HELP a Counts \\\"a\\\".\n# TYPE a counter\na_total{x=\"1\"} 3\n\
                    # HELP b B.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c_seconds C.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n\
                    c_seconds_bucket{a=\"x\",le=\"1.0\"} 0\nc_seconds_bucket{le=\"2.5\"} 0\n\
                    c_seconds_bucket{le=\"+Inf\"} 0\n# TYPE d unknown\nd 1\n# EOF\n";
        assert_eq!(
            from_open_metrics(open),
            "# HELP a_total Counts \"a\".\n# TYPE a_total counter\na_total{x=\"1\"} 3\n\
             # HELP b_info B.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n\
             # HELP c_seconds C.\n# TYPE c_seconds histogram\n\
             c_seconds_bucket{a=\"x\",le=\"1\"} 0\nc_seconds_bucket{le=\"2.5\"} 0\n\
             c_seconds_bucket{le=\"+Inf\"} 0\n# TYPE d untyped\nd 1\n"
        );
    }

    #[test]
    fn exemplars_go_and_label_values_stay() {
        for (line, expected) in [
            ("a_total 1 # {t=\"x\"} 1 1.5", "a_total 1"),
            ("a_total{l=\"v\"} 1 # {t=\"x\"} 1", "a_total{l=\"v\"} 1"),
            ("a_total{l=\"v # {y\"} 1", "a_total{l=\"v # {y\"} 1"),
            ("a 2", "a 2"),
        ] {
            assert_eq!(without_exemplar(line), expected);
        }
    }
}
