//! Lines as they arrive and what is wrong with them, for `--log.level=debug`.
//!
//! Called only while that level is on, with what a listener has received, before it is counted. Lines are parsed a
//! second time for it, so that the way that every line takes has nothing to do with logging. What the mapping and the
//! registry refuse is logged where it is refused.

use super::line::{self, Event, ParserFlags, SampleError};
use super::metrics::Listener;

/// Logs one line, without its line feed, and the reasons for what is refused of it.
pub(crate) fn line(listener: Listener, line: &[u8], flags: ParserFlags) {
    let text = String::from_utf8_lossy(line);
    tracing::debug!(proto = listener.as_str(), line = &*text, "Incoming line");
    line::parse(line, flags, &mut Reasons { line: &text });
}

/// Logs all lines of a datagram.
pub(crate) fn datagram(listener: Listener, bytes: &[u8], flags: ParserFlags) {
    for bytes in bytes.split(|byte| *byte == b'\n') {
        line(listener, bytes, flags);
    }
}

struct Reasons<'a> {
    line: &'a str,
}

impl line::Sink for Reasons<'_> {
    fn event(&mut self, _: &Event<'_>) {}

    fn sample(&mut self) {}

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        let what = match reason {
            SampleError::MalformedLine => "bad line",
            SampleError::MixedTaggingStyles => "bad line: tags in the name and behind the value",
            SampleError::NotEnoughPartsAfterColon => "bad line: no type behind the value",
            SampleError::InvalidExtendedAggregateType => {
                "bad line: several values of a type that has one"
            }
            SampleError::MalformedComponent => "bad component",
            SampleError::MalformedValue => "bad value",
            SampleError::InvalidSampleFactor => "bad sampling factor or unknown section",
            SampleError::MalformedContainerId => "bad container ID",
            SampleError::IllegalEvent => "Error building event: bad metric type",
        };
        tracing::debug!(line = self.line, reason = reason.as_str(), count, "{what}");
    }

    fn tag_errors(&mut self, count: u64) {
        tracing::debug!(line = self.line, count, "Empty or malformed tags");
    }

    fn tags(&mut self) {}

    fn dogstatsd_event(&mut self) {
        tracing::debug!(line = self.line, "DogStatsD events are counted, not kept");
    }

    fn dogstatsd_service_check(&mut self) {
        tracing::debug!(line = self.line, "DogStatsD service checks are counted, not kept");
    }
}
