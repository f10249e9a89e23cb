//! `kstatd render statsd`: the exposition after processing StatsD lines with a mapping.
//!
//! Lines pass through the same parser, mapper and registry as in the server; rejections are
//! reported at once with the line number.

use std::io::{self, BufRead, Write};
use std::sync::Arc;

use super::render_kube::write;
use crate::exposition::{Format, ScrapeQuery};
use crate::mapper::Mapper;
use crate::statsd::describe_reason;
use crate::statsd::line::ParserFlags;
use crate::statsd::{Offline, OfflineConfig};

/// The result of processing the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of lines.
    pub lines: u64,
    /// The number of lines that were rejected at least in part.
    pub refused: u64,
}

/// Prints the exposition after all lines of `input`. Calls `complain` for each rejected line, or
/// part of a line, with the reason.
///
/// # Errors
///
/// A read or write error.
pub fn render(
    mapper: Mapper,
    flags: ParserFlags,
    mut input: impl BufRead,
    format: Format,
    out: &mut impl Write,
    mut complain: impl FnMut(&str),
) -> io::Result<Summary> {
    let reserved = Arc::new(crate::statsd::is_own_name);
    let config = OfflineConfig { flags, reserved, ..OfflineConfig::default() };
    let mut offline = Offline::new(mapper, config);
    let mut summary = Summary::default();
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        summary.lines += 1;
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        let mut words = offline.line(content);
        // Other errors of such a line are consequences of this one.
        if let Some(of_dogstatsd) = words.iter().find(|word| word.starts_with("dogstatsd_")) {
            words = vec![*of_dogstatsd];
        }
        if !words.is_empty() {
            // A line remains valid without an invalid tag.
            let refused = words.iter().any(|word| *word != TAG_ERROR);
            summary.refused += u64::from(refused);
            let severity = if refused { "" } else { "warning: " };
            let reasons: Vec<String> =
                words.iter().map(|word| format!("{word} ({})", describe_reason(word))).collect();
            complain(&format!(
                "{severity}standard input, line {}: {}: {:?}",
                summary.lines,
                reasons.join(", "),
                String::from_utf8_lossy(content)
            ));
        }
        line.clear();
    }
    write(offline.frames(format, &ScrapeQuery::default()), format, out)?;
    Ok(summary)
}

/// The reason for invalid tags, which are omitted while the rest of the line counts.
const TAG_ERROR: &str = "tag_error";

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(mapping: &str, input: &str) -> (String, String, u64) {
        let mapper = Mapper::from_yaml(mapping).expect("mapping");
        let flags = ParserFlags { dogstatsd: true, ..ParserFlags::default() };
        let (mut out, mut said) = (Vec::new(), String::new());
        let complain = |text: &str| said = format!("{said}{text}\n");
        let summary = render(mapper, flags, input.as_bytes(), Format::Text, &mut out, complain);
        let refused = summary.expect("read and written").refused;
        (String::from_utf8(out).expect("UTF-8"), said, refused)
    }

    #[test]
    fn lines_are_mapped_and_summed() {
        let mapping = "mappings:\n- {match: a.*, name: n, labels: {ll: \"$1\"}}\n";
        let (text, said, _) = rendered(mapping, "a.x:1|c\n\na.x:2|c\na.y:1|c|#t:u");
        assert_eq!(said, "");
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["n{ll=\"x\"} 3", "n{ll=\"y\",t=\"u\"} 1"]);
    }

    #[test]
    fn rejected_lines_are_reported_and_the_rest_is_printed() {
        let mapping = "mappings:\n- {match: nameless.*, match_type: glob, name: \"$2\"}\n\
                       - {match: dropped.*, name: x, action: drop}\n";
        let lines = [
            ("ok:1|c", ""),
            ("bad", "malformed_line"),
            ("worse:x|c", "malformed_value"),
            ("ok:1|g", "other_kind"),
            ("q:1|c|#__x:1", "invalid_label_name"),
            ("s:1|ms|#quantile:1", "reserved_label"),
            ("t:1|ms", ""),
            ("t_sum:1|c", "derived_name"),
            ("fall:-1|c", "illegal_negative_counter"),
            ("nameless.a:1|c", "empty_metric_name"),
            ("statsd_exporter_lines_total:1|c", "reserved_name"),
            ("dropped.a:1|c", ""),
            ("a:1|y", "illegal_event"),
            ("_e{1,1}:a|b", "dogstatsd_event"),
            ("_sc|a|0", "dogstatsd_service_check"),
            ("tag:1|c|#:x", "tag_error"),
            ("ok:1:2|c", "invalid_extended_aggregate_type"),
            ("two:1|c:1|x", "illegal_event"),
            ("rate:1|c|@x", "invalid_sample_factor"),
            ("n:1|ms|@9", "no_event"),
        ];
        let input: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
        let (text, said, refused) = rendered(mapping, &input);
        assert!(text.contains("ok 1\n") && text.contains("tag 1\n"), "{text}");
        let expected: Vec<_> =
            (1..).zip(&lines).filter(|(_, (_, word))| !word.is_empty()).collect();
        assert_eq!(said.lines().count(), expected.len(), "{said}");
        for (said, (number, (line, word))) in said.lines().zip(&expected) {
            let begin = format!("standard input, line {number}: {word} (");
            assert!(said.trim_start_matches("warning: ").starts_with(&begin), "{said}");
            assert!(said.ends_with(&format!("): {line:?}")), "{said}");
        }
        assert_eq!(refused, expected.len() as u64 - 1);
    }

    #[test]
    fn values_are_applied_in_line_order() {
        let (text, ..) = rendered("", "x:100|g\nx:+1|g\ny:5|g\ny:0|g\n");
        assert!(text.contains("x 101\n") && text.contains("y 0\n"), "{text}");
    }

    #[test]
    fn every_rejection_reason_is_explained() {
        let offline = Offline::new(Mapper::default(), OfflineConfig::default());
        let words = offline.rejection_reasons();
        assert!(words.len() > 20);
        assert!(words.iter().all(|word| describe_reason(word) != "rejected"), "{words:?}");
    }
}
