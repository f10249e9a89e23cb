//! `kstatd render statsd`: the exposition after some StatsD lines, under some mapping.
//!
//! Lines pass through the same grammar, mapper and registry as those that come over a socket.

use std::io::{self, BufRead, Write};

use crate::exposition::{Format, ScrapeQuery};
use crate::statsd::line::{self, Event, ParserFlags, SampleError, Sink};
use crate::statsd::mapper::Mapper;
use crate::statsd::{Offline, OfflineConfig};

/// Why the result is not what the lines say.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Lines that were refused; the exposition has been printed without them.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
    /// Input or output failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Most refused lines that are named one by one.
const MAX_NAMED: usize = 100;

/// Prints the exposition after all lines of `input`.
///
/// # Errors
///
/// Refused lines, by number, after everything else was printed; or a failure to read or write.
pub fn render(
    mapper: Mapper,
    flags: ParserFlags,
    mut input: impl BufRead,
    format: Format,
    out: &mut impl Write,
) -> Result<(), RenderError> {
    let mut offline = Offline::new(mapper, OfflineConfig { flags, ..OfflineConfig::default() });
    let mut refused = Vec::new();
    let (mut line, mut number, mut unnamed) = (Vec::new(), 0_u64, 0_u64);
    while input.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        if !offline.line(content) {
            if refused.len() < MAX_NAMED {
                let (reason, text) = (reason(content, flags), String::from_utf8_lossy(content));
                refused.push(format!("standard input, line {number}: {reason}: {text:?}"));
            } else {
                unnamed += 1;
            }
        }
        line.clear();
    }
    for frame in offline.frames(format, &ScrapeQuery::default()) {
        out.write_all(&frame)?;
    }
    if format == Format::OpenMetrics {
        out.write_all(b"# EOF\n")?;
    }
    out.flush()?;
    if unnamed > 0 {
        refused.push(format!("and {unnamed} more lines"));
    }
    if refused.is_empty() { Ok(()) } else { Err(RenderError::Refused(refused)) }
}

/// What the grammar says against a line; lines that it accepts were refused by the registry.
fn reason(line: &[u8], flags: ParserFlags) -> String {
    let mut reasons = Reasons::default();
    line::parse(line, flags, &mut reasons);
    let mut words: Vec<&str> = reasons.errors.into_iter().map(SampleError::as_str).collect();
    if reasons.tag_errors > 0 {
        words.push("malformed tags");
    }
    words.dedup();
    if words.is_empty() {
        "conflicts with an earlier line, or has no name, or is a counter that falls".to_owned()
    } else {
        words.join(", ")
    }
}

#[derive(Default)]
struct Reasons {
    errors: Vec<SampleError>,
    tag_errors: u64,
}

impl Sink for Reasons {
    fn event(&mut self, _: &Event<'_>) {}

    fn sample(&mut self) {}

    fn sample_error(&mut self, reason: SampleError, _: u64) {
        self.errors.push(reason);
    }

    fn tag_errors(&mut self, count: u64) {
        self.tag_errors += count;
    }

    fn tags(&mut self) {}

    fn dogstatsd_event(&mut self) {}

    fn dogstatsd_service_check(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(mapping: &str, input: &str) -> (String, Option<String>) {
        let mapper = Mapper::from_yaml(mapping).expect("mapping");
        let flags = ParserFlags { dogstatsd: true, ..ParserFlags::default() };
        let mut out = Vec::new();
        let result = render(mapper, flags, input.as_bytes(), Format::Text, &mut out);
        (String::from_utf8(out).expect("UTF-8"), result.err().map(|error| error.to_string()))
    }

    #[test]
    fn lines_are_mapped_and_added_up() {
        let mapping = "mappings:\n- {match: a.*, name: n, labels: {ll: \"$1\"}}\n";
        let (text, error) = rendered(mapping, "a.x:1|c\n\na.x:2|c\na.y:1|c|#t:u");
        assert_eq!(error, None);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples, ["n{ll=\"x\"} 3", "n{ll=\"y\",t=\"u\"} 1"]);
    }

    #[test]
    fn refused_lines_are_named_and_the_rest_is_printed() {
        let (text, error) = rendered("", "ok:1|c\nbad\nworse:x|c\nok:1|g\n");
        assert!(text.contains("ok 1\n"), "{text}");
        let error = error.expect("refused lines");
        let lines: Vec<&str> = error.lines().collect();
        assert!(lines[0].starts_with("standard input, line 2: malformed_line"), "{error}");
        assert!(lines[1].starts_with("standard input, line 3: malformed_value"), "{error}");
        assert!(lines[2].starts_with("standard input, line 4: conflicts"), "{error}");
    }
}
