//! A streaming parser of expositions: chunks of bytes go in, parsed lines come out.
//!
//! One grammar covers text 0.0.4 and OpenMetrics, which differ in what may follow the value of a line. The caller
//! interprets types and suffixes. A line borrows from the buffer; nothing of it is kept.

use std::io::{self, Write};

use memchr::{memchr, memchr2};

use super::names;

/// The maximum length of a line, in bytes.
const MAX_LINE: usize = 16 * 1024 * 1024;

const BLANK: [char; 2] = [' ', '\t'];

/// A line with content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line<'a> {
    /// `# HELP name text`, the text still escaped.
    Help {
        /// The family name.
        name: &'a str,
        /// The description.
        text: &'a str,
    },
    /// `# TYPE name kind`.
    Type {
        /// The family name.
        name: &'a str,
        /// The metric type.
        kind: &'a str,
    },
    /// A sample line.
    Sample(Sample<'a>),
    /// `# EOF`.
    End,
}

/// A series and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    /// The name before the labels.
    pub name: &'a str,
    /// Names and escaped values.
    pub labels: Vec<(&'a str, &'a str)>,
    /// The sample value.
    pub value: f64,
}

/// A parse error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub(crate) struct ReadError {
    /// Line number, from 1.
    pub line: u64,
    /// Description of the error.
    pub reason: String,
}

/// An incremental parser of the exposition that is written to it. It passes the lines on.
pub(crate) struct LineWriter<F> {
    sink: F,
    /// The unfinished last line.
    rest: Vec<u8>,
    /// The number of lines read.
    line: u64,
    ended: bool,
}

impl<F: FnMut(Line<'_>)> LineWriter<F> {
    pub(crate) fn new(sink: F) -> Self {
        Self { sink, rest: Vec::new(), line: 0, ended: false }
    }

    /// Parses the next chunk.
    ///
    /// # Errors
    /// The first malformed line.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ReadError> {
        while let Some(end) = memchr(b'\n', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.rest.is_empty() {
                self.read(line)?;
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.read(&whole)?;
                whole.clear();
                self.rest = whole;
            }
        }
        self.rest.extend_from_slice(bytes);
        if self.rest.len() > MAX_LINE {
            return Err(self.error(format!("longer than {MAX_LINE} bytes")));
        }
        Ok(())
    }

    /// Ends the input; returns true if `# EOF` was read.
    ///
    /// # Errors
    /// The last line is not terminated.
    pub(crate) fn finish(self) -> Result<bool, ReadError> {
        if self.rest.is_empty() {
            return Ok(self.ended);
        }
        Err(self.error("the exposition ends in the middle of it".to_owned()))
    }

    /// Returns an error at the unfinished line.
    fn error(&self, reason: String) -> ReadError {
        ReadError { line: self.line + 1, reason }
    }

    fn read(&mut self, line: &[u8]) -> Result<(), ReadError> {
        let text = std::str::from_utf8(line).map_err(|_| self.error("not UTF-8".to_owned()))?;
        if self.ended {
            return Err(self.error("something behind # EOF".to_owned()));
        }
        let read = parse(text).map_err(|reason| {
            let shown: String = text.chars().take(200).collect();
            self.error(format!("{reason}: {shown}"))
        })?;
        self.line += 1;
        if let Some(line) = read {
            self.ended = line == Line::End;
            (self.sink)(line);
        }
        Ok(())
    }
}

impl<F: FnMut(Line<'_>)> Write for LineWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.feed(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Parses a line without its terminator; `None` for a comment or an empty line.
fn parse(text: &str) -> Result<Option<Line<'_>>, &'static str> {
    let text = text.strip_suffix('\r').unwrap_or(text);
    if let Some(comment) = text.strip_prefix('#') {
        return Ok(parse_comment(comment.trim_start_matches(BLANK)));
    }
    if text.trim_matches(BLANK).is_empty() {
        return Ok(None);
    }
    sample(text.trim_start_matches(BLANK)).map(Line::Sample).map(Some)
}

/// Parses the text after `#`.
fn parse_comment(comment: &str) -> Option<Line<'_>> {
    if comment == "EOF" {
        return Some(Line::End);
    }
    let (word, rest) = comment.split_once(BLANK)?;
    let rest = rest.trim_start_matches(BLANK);
    let (name, text) = rest.split_once(BLANK).unwrap_or((rest, ""));
    match word {
        "HELP" => Some(Line::Help { name, text }),
        "TYPE" => Some(Line::Type { name, kind: text.trim_matches(BLANK) }),
        _ => None,
    }
}

fn sample(text: &str) -> Result<Sample<'_>, &'static str> {
    let end = text.find(['{', ' ', '\t']).ok_or("a sample without a value")?;
    let (name, rest) = text.split_at(end);
    if !names::is_metric(name.as_bytes()) {
        return Err("no name of a metric");
    }
    let mut rest = rest.trim_start_matches(BLANK);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        labels.reserve(8);
        rest = inner.trim_start_matches(BLANK);
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once('=').ok_or("a label without a value")?;
            let label = label.trim_end_matches(BLANK);
            if !names::is_label(label.as_bytes()) {
                return Err("no name of a label");
            }
            let after = after.trim_start_matches(BLANK);
            let after = after.strip_prefix('"').ok_or("a label value without quotes")?;
            let end = closing_quote(after).ok_or("a label value without an end")?;
            labels.push((label, &after[..end]));
            rest = after[end + 1..].trim_start_matches(BLANK);
            match rest.strip_prefix(',') {
                Some(more) => rest = more.trim_start_matches(BLANK),
                None if rest.starts_with('}') => {}
                None => return Err("labels without a comma between them"),
            }
        }
        rest = rest[1..].trim_start_matches(BLANK);
    }
    let (value, behind) = rest.split_once(BLANK).unwrap_or((rest, ""));
    let value = value.parse().map_err(|_| "no number for a value")?;
    let behind = behind.trim_start_matches(BLANK);
    let (time, behind) = behind.split_once(BLANK).unwrap_or((behind, ""));
    let is_time = |text: &str| text.is_empty() || text.parse::<f64>().is_ok();
    // A timestamp, an exemplar, or both.
    if !time.starts_with('#') && !(is_time(time) && (behind.is_empty() || behind.starts_with('#')))
    {
        return Err("something behind the value");
    }
    Ok(Sample { name, labels, value })
}

/// Returns the position of the quote that ends a value.
fn closing_quote(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the entire text in chunks of `piece` bytes.
    fn read(text: &str, piece: usize) -> Result<(Vec<String>, bool), ReadError> {
        let mut lines = Vec::new();
        let mut reader = LineWriter::new(|line: Line<'_>| lines.push(format!("{line:?}")));
        for bytes in text.as_bytes().chunks(piece) {
            reader.feed(bytes)?;
        }
        reader.finish().map(|ended| (lines, ended))
    }

    #[test]
    fn lines_of_both_formats_in_any_pieces() {
        let text = "# HELP a Some \\\\ words.\n# TYPE a counter\n\n# a comment\n# UNIT a seconds\n\
                    a{x=\"1\",y=\"q\\\"\\\\é}\",} 5\na_total 1e3 1395066363000\nb { x = \"\" } NaN\n\
                    c_bucket{le=\"+Inf\"} 17 # {trace_id=\"k\"} 0.67 12\nc 1 2 # {} 3\nd\t-Inf\n# EOF\n";
        let (lines, ended) = read(text, usize::MAX).expect("valid");
        assert!(ended);
        assert_eq!(lines.len(), 9, "{lines:#?}");
        assert!(lines[2].contains(r#"labels: [("x", "1"), ("y", "q\\\"\\\\é}")], value: 5.0"#));
        assert!(lines[4].contains(r#"labels: [("x", "")], value: NaN"#), "{}", lines[4]);
        for piece in [1, 2, 3, 7, 64] {
            assert_eq!(read(text, piece).expect("valid").0, lines);
        }
        assert_eq!(read("a 1\n", 1), Ok((vec![lines_of("a", 1.0)], false)));
        assert_eq!(read("", 1), Ok((Vec::new(), false)));
    }

    fn lines_of(name: &str, value: f64) -> String {
        format!("{:?}", Line::Sample(Sample { name, labels: Vec::new(), value }))
    }

    #[test]
    fn errors_name_the_malformed_line() {
        for (text, line, part) in [
            ("a 1\nb", 2, "ends in the middle"),
            ("a\n", 1, "without a value: a"),
            ("<html>\n", 1, "without a value"),
            ("<html> <b>\n", 1, "no name of a metric"),
            ("a{x=\"1\n", 1, "without an end"),
            ("a{x=\"1\\\n", 1, "without an end"),
            ("a{x=1} 1\n", 1, "without quotes"),
            ("a{x} 1\n", 1, "without a value"),
            ("a{x=\"1\"y=\"2\"} 1\n", 1, "without a comma"),
            ("a{1=\"1\"} 1\n", 1, "no name of a label"),
            ("a{x=\"1\"}\n", 1, "no number"),
            ("\n\na x\n", 3, "no number"),
            ("a 1 x\n", 1, "something behind the value"),
            ("a 1 2 3\n", 1, "something behind the value"),
            ("# EOF\na 1\n", 2, "behind # EOF"),
        ] {
            let error = read(text, 5).expect_err(text);
            assert_eq!(error.line, line, "{text:?}: {error}");
            assert!(error.reason.contains(part), "{text:?}: {error}");
        }
        let mut reader = LineWriter::new(|_: Line<'_>| {});
        assert!(reader.feed(b"a{x=\"\xff\"} 1\n").is_err());
    }
}
