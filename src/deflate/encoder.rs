//! The encoder of a resource's deflate streams.

use std::sync::Arc;

use super::bit_writer::BitWriter;
use super::code_builder::CodeSet;
use super::crc32::Checksum;
use super::line_encoder::{EncodingParams, LineEncoder};
use super::line_matcher::Rows;
use super::memo::PageMemo;
use super::segment::PAGE;

/// Maximum size of a memoized segment, in bytes: match search takes 1 to 2 ms for it.
const MAX_MEMOIZED: usize = 128 * 1024;

/// The encoder of a resource's deflate stream.
#[derive(Debug)]
pub(crate) struct Encoder {
    codes: Arc<CodeSet>,
    writer: BitWriter,
    lines: LineEncoder,
    /// Checksum of the text since the last piece, and length of the whole text.
    sum: Checksum,
    text_len: u64,
    compressed: u64,
}

/// The size of one or several streams of a resource.
#[derive(Debug)]
pub(crate) struct StreamSize {
    /// `None` if they are not all written in the same codes.
    codes: Option<Arc<CodeSet>>,
    compressed: u64,
    text_len: u64,
}

impl StreamSize {
    /// Adds the size of another stream.
    pub(crate) fn add(&mut self, other: &Self) {
        let is_same = |codes: &Arc<CodeSet>| {
            other.codes.as_ref().is_some_and(|other| Arc::ptr_eq(codes, other))
        };
        self.codes = self.codes.take().filter(is_same);
        self.compressed += other.compressed;
        self.text_len += other.text_len;
    }

    /// Records the size of a complete resource with its codes.
    pub(crate) fn record(&self) {
        if let Some(codes) = &self.codes {
            codes.record_size(self.compressed, self.text_len);
        }
    }
}

impl Encoder {
    pub(crate) fn new(codes: Arc<CodeSet>) -> Self {
        Self {
            writer: BitWriter::new(Arc::clone(&codes.any)),
            codes,
            lines: LineEncoder::default(),
            sum: Checksum::default(),
            text_len: 0,
            compressed: 0,
        }
    }

    fn add(&mut self, sum: Checksum) {
        self.sum.append(sum);
        self.text_len += sum.len;
    }

    /// Returns true if the output suffices for a piece.
    pub(crate) fn is_full(&self) -> bool {
        self.writer.is_full()
    }

    /// Takes the output: replaces the buffer and returns the old one, its number of complete bytes, and the checksum
    /// of the text since the last call.
    pub(crate) fn take(&mut self, buffer: Vec<u8>) -> (Vec<u8>, usize, Checksum) {
        let (buffer, len) = self.writer.swap_buffer(buffer);
        self.compressed += len as u64;
        (buffer, len, std::mem::take(&mut self.sum))
    }

    /// Ends the stream; the last piece remains to be taken.
    pub(crate) fn finish(&mut self) {
        self.lines.flush(&mut self.writer);
        self.writer.finish();
    }

    /// Returns the size of the stream, after its last piece was taken.
    pub(crate) fn size(self) -> StreamSize {
        StreamSize { codes: Some(self.codes), compressed: self.compressed, text_len: self.text_len }
    }

    /// Writes text that is no series line, such as a family header.
    pub(crate) fn raw(&mut self, text: &[u8]) {
        self.lines.raw(text, &mut self.writer);
        self.add(Checksum::of(text));
    }

    /// Writes the lines of a family of a page, starting at object `from`. `checksum` computes the checksum of the
    /// whole text. Returns the next object if the output became full before the end.
    pub(crate) fn segment(
        &mut self,
        rows: Rows<'_>,
        memo: &PageMemo,
        from: usize,
        checksum: impl FnOnce() -> Checksum,
    ) -> Option<usize> {
        let codes = &self.codes;
        let own = codes.families.get(rows.family);
        let (code, search) = own.map_or((&codes.any, false), |own| (&own.code, own.search));
        let memoized = own.is_some_and(|own| own.memoized) && rows.lines.size() <= MAX_MEMOIZED;
        // A family without its own code can use any code with the same literals.
        let at_hand = self.writer.code();
        let agrees = !memoized && Arc::ptr_eq(code, &codes.any) && at_hand.id() == code.id();
        if !agrees && !Arc::ptr_eq(code, at_hand) {
            self.lines.flush(&mut self.writer);
            self.writer.switch_code(Arc::clone(code));
        }
        if memoized && self.writer.is_full() {
            // The table of the new code has filled the output, and a memoized segment is not divided.
            return Some(from);
        }
        let sum = || memo.checksum(rows.family, checksum);
        let diffs = memo.diffs(&codes.any, rows.identities);
        if memoized {
            let sum = sum();
            let Self { lines, writer, .. } = self;
            let params = EncodingParams { diffs: &diffs, code: code.id(), search };
            // A segment with match search copies from nothing before the page. Otherwise only the first object refers
            // to the page before, and the bits of the others do not depend on their position in the stream.
            let ends = rows.lines.ends().filter(|_| !search);
            let first = ends.map_or(0, |(first, ..)| first + 1);
            let end = lines.at() + sum.len;
            lines.segment(rows, 0..first, params, writer);
            lines.flush(writer);
            let encoded = memo.encoded(rows.family, code, || {
                let mut fragment = LineEncoder::default();
                let mut discarded = BitWriter::fragment(Arc::clone(code));
                fragment.segment(rows, 0..first, params, &mut discarded);
                fragment.flush(&mut discarded);
                let mut writer = BitWriter::fragment(Arc::clone(code));
                fragment.segment(rows, first..PAGE, params, &mut writer);
                fragment.flush(&mut writer);
                writer.encoded()
            });
            writer.append(&encoded, &diffs);
            match ends {
                Some((_, last, rest)) => lines.skip_rows(&rows, (last, rest), end),
                None => lines.advance(sum.len),
            }
            self.add(sum);
            return None;
        }
        let params = EncodingParams { diffs: &diffs, code: self.writer.code().id(), search };
        let rest = self.lines.segment(rows, from..PAGE, params, &mut self.writer);
        if rest.is_none() {
            self.add(sum());
        }
        rest
    }
}
