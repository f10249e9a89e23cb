//! Logs lines as they arrive, with the reasons for rejections, for `--log.level=debug`.
//!
//! Each line produces one record regardless of its length and its errors, so the log grows in proportion to
//! the input. Lines are parsed a second time for the log, which keeps logging off the fast path. Rejections
//! by the mapping and the registry are logged there.

use super::line::{self, DogstatsdMessage, Event, ParserFlags, SampleError};
use super::metrics::Listener;

/// The maximum number of bytes logged per line.
const MAX_TEXT: usize = 512;
/// The maximum number of lines logged per datagram. Only datagrams with lines shorter than 60 bytes can have
/// more.
const MAX_LINES: usize = 1_000;

/// Logs one line, without its line feed, and the reasons for rejections.
pub(crate) fn line(listener: Listener, line: &[u8], flags: ParserFlags) {
    let mut reasons = Reasons::default();
    line::parse(line, flags, &mut reasons);
    let refused = reasons.text();
    let shown = String::from_utf8_lossy(line.get(..MAX_TEXT).unwrap_or(line));
    let cut = (line.len() > MAX_TEXT).then_some(line.len());
    let refused = (!refused.is_empty()).then_some(refused.as_str());
    tracing::debug!(
        proto = listener.as_str(),
        line = &*shown,
        bytes = cut,
        refused,
        "Incoming line"
    );
}

/// Logs the non-empty lines of a datagram.
pub(crate) fn datagram(listener: Listener, bytes: &[u8], flags: ParserFlags) {
    let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for bytes in lines.by_ref().take(MAX_LINES) {
        line(listener, bytes, flags);
    }
    let further = lines.count();
    if further > 0 {
        tracing::debug!(
            proto = listener.as_str(),
            lines = further,
            "Further lines of the datagram"
        );
    }
}

/// The number of times each reason applies to a line.
#[derive(Default)]
struct Reasons {
    errors: [u64; SampleError::ALL.len()],
    tag_errors: u64,
    message: Option<DogstatsdMessage>,
}

impl Reasons {
    /// Formats the reasons, with counts other than 1: `malformed_value:2,tag_error`.
    fn text(&self) -> String {
        let errors = SampleError::ALL.into_iter().map(SampleError::as_str).zip(self.errors);
        let others = [("tag_error", self.tag_errors)].into_iter();
        let message = self.message.map(|message| (message.as_str(), 1));
        let counted = errors.chain(others).chain(message).filter(|(_, count)| *count > 0);
        let texts = counted.map(|(reason, count)| match count {
            1 => reason.to_owned(),
            _ => format!("{reason}:{count}"),
        });
        texts.collect::<Vec<_>>().join(",")
    }
}

impl line::Sink for Reasons {
    fn event(&mut self, _: &Event<'_>) {}

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        self.errors[reason as usize] += count;
    }

    fn tag_errors(&mut self, count: u64) {
        self.tag_errors += count;
    }

    fn dogstatsd(&mut self, message: DogstatsdMessage) {
        self.message = Some(message);
    }
}
