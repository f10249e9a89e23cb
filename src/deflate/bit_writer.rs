//! Writes deflate blocks, each with its own Huffman code (RFC 1951, section 3.2.3).

use std::ops::Range;
use std::sync::Arc;

use super::encoded_segment::{EncodedSegment, Gaps};
use super::huffman::{Codeword, DISTANCES, END, HuffmanCode, LITERALS};
use super::identity_diff::IdentityDiffs;
use super::symbols::{LiteralRun, RUN_BITS, SymbolSink, SymbolStream, distance_symbol};

/// Minimum size of a complete piece of output, in bytes.
const PART: usize = 32 * 1024;

/// A writer of deflate symbols as bits.
#[derive(Debug)]
pub(super) struct BitWriter {
    code: Arc<HuffmanCode>,
    /// Output buffer; only the bytes before `end.at` are valid.
    out: Vec<u8>,
    end: BitPosition,
    distances: DistanceCache,
    /// Records the literal runs omitted from an encoded segment; `None` in a stream.
    gaps: Option<Gaps>,
    /// Number of bytes from which on the writer reports itself full.
    enough: usize,
}

/// The position of the next bit.
#[derive(Clone, Copy, Debug, Default)]
struct BitPosition {
    /// Index of the next byte.
    at: usize,
    pending: u64,
    /// Number of bits in `pending`; fewer than 8 between symbols.
    filled: u32,
}

/// A direct-mapped cache of distance codewords: consecutive lines mostly copy from the same distances.
#[derive(Clone, Debug)]
struct DistanceCache([(usize, Codeword); NEAR]);

/// Number of cached distances.
const NEAR: usize = 16;

impl Default for DistanceCache {
    fn default() -> Self {
        Self([(0, Codeword::default()); NEAR])
    }
}

/// A writer with enough reserved space for all symbols to come. It keeps the mutable state in registers and writes it
/// back when dropped.
#[derive(Debug)]
pub(super) struct ReservedWriter<'w> {
    code: &'w HuffmanCode,
    out: &'w mut [u8],
    distances: &'w mut DistanceCache,
    gaps: &'w mut Option<Gaps>,
    end: BitPosition,
    back: &'w mut BitPosition,
}

impl Drop for ReservedWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.back = self.end;
    }
}

impl BitPosition {
    /// Appends bits, at most 56 between two flushes.
    #[inline(always)]
    fn put(&mut self, bits: u64, len: u32) {
        self.pending |= bits << self.filled;
        self.filled += len;
    }

    /// Moves complete bytes to `out`, which must have room for eight bytes.
    #[inline(always)]
    fn flush(&mut self, out: &mut [u8]) {
        if let Some(room) = out.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *room = self.pending.to_le_bytes();
        }
        let bytes = self.filled / 8;
        self.at += bytes as usize;
        self.pending >>= bytes * 8;
        self.filled %= 8;
    }

    /// Returns the number of bits written.
    fn bits(&self) -> usize {
        self.at * 8 + self.filled as usize
    }
}

impl SymbolSink for ReservedWriter<'_> {
    #[inline(always)]
    fn literals(&mut self, bytes: &[u8]) {
        for four in bytes.chunks(4) {
            for &byte in four {
                let Codeword { bits, len } = self.code.literals[usize::from(byte)];
                self.end.put(u64::from(bits), u32::from(len));
            }
            self.end.flush(self.out);
        }
    }

    #[inline(always)]
    fn copy(&mut self, len: usize, distance: usize) {
        let length = self.code.lengths[len];
        self.end.put(u64::from(length.bits), u32::from(length.len));
        let known = &mut self.distances.0[distance % NEAR];
        if known.0 != distance {
            let (symbol, extra, value) = distance_symbol(distance);
            let code = self.code.distances[symbol];
            let bits =
                Codeword { bits: code.bits | value << code.len, len: code.len + extra as u8 };
            *known = (distance, bits);
        }
        let Codeword { bits, len } = known.1;
        self.end.put(u64::from(bits), u32::from(len));
        self.end.flush(self.out);
    }

    #[inline(always)]
    fn literal_run(&mut self, bits: LiteralRun<'_>) {
        if let Some(gaps) = &mut *self.gaps
            && gaps.leave_out(bits, self.end.bits())
        {
            return;
        }
        self.run(bits);
    }
}

impl ReservedWriter<'_> {
    #[inline(always)]
    fn run(&mut self, bits: LiteralRun<'_>) {
        let Some((last, full)) = bits.words.split_last() else { return };
        for word in full {
            self.end.put(*word, RUN_BITS);
            self.end.flush(self.out);
        }
        self.end.put(*last, bits.last);
        self.end.flush(self.out);
    }

    /// Appends a range of bits of `bytes`, which must continue for eight bytes after it.
    #[inline]
    fn bits(&mut self, bytes: &[u8], bits: Range<usize>) {
        let mut at = bits.start;
        while at < bits.end {
            let Some(eight) = bytes.get(at / 8..).and_then(<[u8]>::first_chunk) else { return };
            let len = (bits.end - at).min(RUN_BITS as usize);
            let word = u64::from_le_bytes(*eight) >> (at % 8) & ((1 << len) - 1);
            self.end.put(word, len as u32);
            self.end.flush(self.out);
            at += len;
        }
    }
}

impl BitWriter {
    /// Starts a non-final block.
    pub(super) fn new(code: Arc<HuffmanCode>) -> Self {
        let mut writer = Self { enough: PART, gaps: None, ..Self::fragment(code) };
        writer.begin();
        writer
    }

    /// Starts a bit sequence outside any block, for use as an [`EncodedSegment`].
    pub(super) fn fragment(code: Arc<HuffmanCode>) -> Self {
        Self {
            code,
            out: Vec::new(),
            end: BitPosition::default(),
            distances: DistanceCache::default(),
            gaps: Some(Gaps::default()),
            enough: usize::MAX,
        }
    }

    /// Returns the bits written since [`BitWriter::fragment`].
    pub(super) fn encoded(mut self) -> EncodedSegment {
        let bits = self.end.bits();
        self.make_room(16);
        self.end.filled = 8;
        self.end.flush(&mut self.out);
        self.out.truncate(self.end.at + 8);
        EncodedSegment::new(&self.code, (bits, self.out), self.gaps.unwrap_or_default())
    }

    /// Appends an encoded segment of the current code, with the literal runs of `diffs` in its gaps.
    pub(super) fn append(&mut self, text: &EncodedSegment, diffs: &IdentityDiffs) {
        let out = &mut self.with_room(text.room);
        for (bits, place) in text.parts() {
            out.bits(&text.bytes, bits);
            if let Some(place) = place {
                out.run(diffs.run(place));
            }
        }
    }

    /// Ends the block and starts one with another code.
    pub(super) fn switch_code(&mut self, code: Arc<HuffmanCode>) {
        self.end();
        self.code = code;
        self.distances = DistanceCache::default();
        self.begin();
    }

    fn begin(&mut self) {
        // BFINAL = 0, BTYPE = 10 (dynamic code), HLIT and HDIST for all symbols, HCLEN for all code length symbols.
        for (bits, len) in
            [(0b100, 3), (LITERALS as u32 - 257, 5), (DISTANCES as u32 - 1, 5), (15, 4)]
        {
            self.write(bits, len);
        }
        // The code for code lengths: no codeword for the three repeat symbols, which come first, and four bits for
        // each of the sixteen lengths, so that a length is its own codeword.
        for at in 0..19 {
            self.write(if at < 3 { 0 } else { 4 }, 3);
        }
        for at in 0..LITERALS + DISTANCES {
            let len = match at.checked_sub(LITERALS) {
                None => self.code.literals[at].len,
                Some(at) => self.code.distances[at].len,
            };
            self.write(u32::from(len.reverse_bits() >> 4), 4);
        }
    }

    fn end(&mut self) {
        let end = self.code.literals[END];
        self.write(end.bits, u32::from(end.len));
    }

    /// Returns the code of the current block.
    pub(super) fn code(&self) -> &Arc<HuffmanCode> {
        &self.code
    }

    /// Returns true if the output suffices for a piece.
    pub(super) fn is_full(&self) -> bool {
        self.end.at >= self.enough
    }

    /// Replaces the output buffer. Returns the old one and its number of complete bytes.
    pub(super) fn swap_buffer(&mut self, buffer: Vec<u8>) -> (Vec<u8>, usize) {
        (std::mem::replace(&mut self.out, buffer), std::mem::take(&mut self.end.at))
    }

    /// Ends the block and aligns the output to a byte with an empty stored block.
    pub(super) fn finish(&mut self) {
        self.end();
        self.write(0, 3);
        // Pads to a byte boundary; pending bits beyond `filled` are zero.
        self.write(0, (8 - self.end.filled) % 8);
        self.write(0, 16);
        self.write(0xffff, 16);
    }

    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if self.out.len() < self.end.at + bytes {
            self.out.resize((self.end.at + bytes) * 2, 0);
        }
    }

    fn write(&mut self, bits: u32, len: u32) {
        self.make_room(8);
        self.end.put(u64::from(bits), len);
        self.end.flush(&mut self.out);
    }

    /// Reserves `bytes` bytes of output.
    #[inline]
    fn with_room(&mut self, bytes: usize) -> ReservedWriter<'_> {
        self.make_room(bytes + 8);
        let Self { code, out, end, distances, gaps, .. } = self;
        ReservedWriter { code, out, distances, gaps, end: *end, back: end }
    }
}

impl SymbolSink for BitWriter {
    #[inline]
    fn literals(&mut self, bytes: &[u8]) {
        self.reserve_text(bytes.len()).literals(bytes);
    }

    #[inline]
    fn copy(&mut self, len: usize, distance: usize) {
        self.reserve_text(len).copy(len, distance);
    }

    #[inline]
    fn literal_run(&mut self, bits: LiteralRun<'_>) {
        self.with_room(bits.words.len() * 8).literal_run(bits);
    }
}

impl SymbolStream for BitWriter {
    type Reserved<'s> = ReservedWriter<'s>;

    /// A symbol takes at most two bytes for each byte of text it represents.
    #[inline]
    fn reserve_text(&mut self, text: usize) -> ReservedWriter<'_> {
        self.with_room(text * 2)
    }

    fn full(&self) -> bool {
        self.is_full()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::huffman::Histogram;
    use super::*;

    fn inflate(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend_from_slice(&[3, 0]);
        let mut text = Vec::new();
        flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
        text
    }

    fn taken(writer: &mut BitWriter) -> Vec<u8> {
        let (mut bytes, len) = writer.swap_buffer(Vec::new());
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn every_literal_length_and_distance_decodes() {
        let all: Vec<u8> = (0..=255u8).collect();
        for skewed in [false, true] {
            let histogram = if skewed { Histogram::skewed() } else { Histogram::new() };
            let (code, _) = HuffmanCode::with_shared_literals(&[&histogram]);
            let mut writer = BitWriter::new(Arc::new(code));
            let mut text: Vec<u8> = Vec::new();
            let mut random = 1u32;
            while text.len() < 70_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                writer.literals(&all[..(random >> 24) as usize]);
                text.extend_from_slice(&all[..(random >> 24) as usize]);
            }
            for len in 3..=258 {
                for distance in (0..15).flat_map(|bit| [1 << bit, (1 << bit) + 1]).chain([32_768]) {
                    writer.copy(len, distance);
                    for _ in 0..len {
                        text.push(text[text.len() - distance]);
                    }
                }
            }
            writer.finish();
            assert!(inflate(taken(&mut writer)) == text);
        }
    }

    /// A stream that switches between codes accepts the same precomputed bits of literals.
    #[test]
    fn agreeing_codes_share_the_bits_of_literals() {
        let histograms = [(3, 1), (40, 900), (258, 32_768)].map(|(len, distance)| {
            let mut histogram = Histogram::new();
            for _ in 0..100 {
                histogram.literals(b"0123456789abcdef-");
                histogram.copy(len, distance);
            }
            histogram
        });
        let (all, codes) = HuffmanCode::with_shared_literals(&histograms.each_ref());
        let mut words = Vec::new();
        let last = all.run(b"feed-beef", &mut words);
        let mut writer = BitWriter::new(Arc::new(all));
        let mut text = vec![b'x'; 32_768];
        writer.literals(&text);
        for (code, (len, distance)) in codes.into_iter().zip([(3, 1), (40, 900), (258, 32_768)]) {
            let cost = |code: &HuffmanCode, len: usize| code.lengths[len].len;
            assert!([3, 40, 258].iter().all(|&other| cost(&code, len) <= cost(&code, other)));
            writer.switch_code(Arc::new(code));
            writer.literal_run(LiteralRun { words: &words, last, place: 0 });
            text.extend_from_slice(b"feed-beef");
            writer.copy(len, distance);
            (0..len).for_each(|_| text.push(text[text.len() - distance]));
        }
        writer.finish();
        assert!(inflate(taken(&mut writer)) == text);
    }
}
