//! The `# HELP` and `# TYPE` lines of a family.

use super::{Format, escape};

/// Appends `# HELP` and `# TYPE` of the family `name`; `help` is unescaped, `kind` is the format's word for the type.
pub fn write(out: &mut Vec<u8>, format: Format, name: &str, kind: &str, help: &str) {
    out.extend_from_slice(b"# HELP ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    escape::help(out, format, help);
    out.extend_from_slice(b"\n# TYPE ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(kind.as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_escaped_in_open_metrics_alone() {
        for (format, help) in [
            (Format::Text, "Say \"no\" \\\\ \\n"),
            (Format::OpenMetrics, "Say \\\"no\\\" \\\\ \\n"),
        ] {
            let mut out = Vec::new();
            write(&mut out, format, "up", "gauge", "Say \"no\" \\ \n");
            let want = format!("# HELP up {help}\n# TYPE up gauge\n");
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}
