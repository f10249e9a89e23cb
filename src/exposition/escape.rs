//! Escaping of label values and HELP texts in text 0.0.4 and OpenMetrics 1.0.
//!
//! See <https://prometheus.io/docs/instrumenting/exposition_formats/>: in a label value `\`, `"` and
//! newline are escaped; in a HELP text `\` and newline, and in OpenMetrics `"` too. Everything else is raw UTF-8.

use super::Format;

/// Appends the escaped `value`, for use between the quotes of a label.
pub fn label_value(out: &mut Vec<u8>, value: &str) {
    escape(out, value.as_bytes(), |rest| memchr::memchr3(b'\\', b'"', b'\n', rest));
}

/// Appends the escaped `text`, for use in a `# HELP` line.
pub fn help(out: &mut Vec<u8>, format: Format, text: &str) {
    match format {
        Format::Text => {
            escape(out, text.as_bytes(), |rest| memchr::memchr2(b'\\', b'\n', rest));
        }
        Format::OpenMetrics => label_value(out, text),
    }
}

#[inline]
fn escape(out: &mut Vec<u8>, mut rest: &[u8], find: impl Fn(&[u8]) -> Option<usize>) {
    while let Some(at) = find(rest) {
        let (clean, special) = rest.split_at(at);
        out.extend_from_slice(clean);
        match special[0] {
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.extend_from_slice(&[b'\\', byte]),
        }
        rest = &special[1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(value: &str) -> String {
        let mut out = Vec::new();
        label_value(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn label_values_escape_three_characters() {
        assert_eq!(label(""), "");
        assert_eq!(label("plain ünïcode\r\t"), "plain ünïcode\r\t");
        assert_eq!(label("\\\"\n"), "\\\\\\\"\\n");
        assert_eq!(label("a\\b\"c\nd"), "a\\\\b\\\"c\\nd");
    }

    #[test]
    fn label_values_match_the_recorded_vectors() {
        for case in crate::recorded::cases("ksm/label_values.json", 1) {
            let input = case["value"].as_str().unwrap();
            let want = case["line"].as_str().unwrap();
            assert_eq!(format!("x{{l=\"{}\"}} 1", label(input)), want);
        }
    }
}
