//! Writing deflate blocks, each with one Huffman code (RFC 1951, section 3.2.3).

use std::ops::Range;
use std::sync::Arc;

use super::huffman::{Bits, Code, DISTANCES, END, LITERALS};
use super::recorded::{Encoded, Gaps};
use super::symbols::{RUN_BITS, Run, Stream, Symbols, distance_symbol};
use super::tails::Tails;

/// A part is handed out when it has this many bytes.
const PART: usize = 32 * 1024;

/// Writes symbols as bits.
#[derive(Debug)]
pub(super) struct BitWriter {
    code: Arc<Code>,
    /// What was written, with room behind it.
    out: Vec<u8>,
    end: End,
    distances: Distances,
    /// What is left out of bits that are to be written again.
    gaps: Option<Gaps>,
    /// How many bytes are enough for a part.
    enough: usize,
}

/// Where bits go on.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// Where the next byte goes.
    at: usize,
    pending: u64,
    /// How many bits of `pending` are in use; below 8 between symbols.
    filled: u32,
}

/// Distances of the last copies with their bits, each where its low bits say: one line after the other copies from as far.
#[derive(Clone, Debug)]
struct Distances([(usize, Bits); NEAR]);

/// Distances that are kept.
const NEAR: usize = 16;

impl Default for Distances {
    fn default() -> Self {
        Self([(0, Bits::default()); NEAR])
    }
}

/// Writes on where there is room for all that comes. What every symbol changes is held here meanwhile, where it
/// need not be read and written in memory.
#[derive(Debug)]
pub(super) struct QuickWriter<'w> {
    code: &'w Code,
    out: &'w mut [u8],
    distances: &'w mut Distances,
    gaps: &'w mut Option<Gaps>,
    end: End,
    back: &'w mut End,
}

impl Drop for QuickWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.back = self.end;
    }
}

impl End {
    /// Adds bits; up to 56 between two flushes.
    #[inline(always)]
    fn put(&mut self, bits: u64, len: u32) {
        self.pending |= bits << self.filled;
        self.filled += len;
    }

    /// Moves what is complete to `out`, which must have room for eight bytes.
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

    /// How many bits were written.
    fn bits(&self) -> usize {
        self.at * 8 + self.filled as usize
    }
}

impl Symbols for QuickWriter<'_> {
    #[inline(always)]
    fn literals(&mut self, bytes: &[u8]) {
        for four in bytes.chunks(4) {
            for &byte in four {
                let Bits { bits, len } = self.code.literals[usize::from(byte)];
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
            let bits = Bits { bits: code.bits | value << code.len, len: code.len + extra as u8 };
            *known = (distance, bits);
        }
        let Bits { bits, len } = known.1;
        self.end.put(u64::from(bits), u32::from(len));
        self.end.flush(self.out);
    }

    #[inline(always)]
    fn known(&mut self, bits: Run<'_>) {
        if let Some(gaps) = &mut *self.gaps
            && gaps.leave_out(bits, self.end.bits())
        {
            return;
        }
        self.run(bits);
    }
}

impl QuickWriter<'_> {
    #[inline(always)]
    fn run(&mut self, bits: Run<'_>) {
        let Some((last, full)) = bits.words.split_last() else { return };
        for word in full {
            self.end.put(*word, RUN_BITS);
            self.end.flush(self.out);
        }
        self.end.put(*last, bits.last);
        self.end.flush(self.out);
    }

    /// These bits of `bytes`, behind which there must be eight bytes more.
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
    /// Begins a block that is not the last of its stream.
    pub(super) fn new(code: Arc<Code>) -> Self {
        let mut writer = Self { enough: PART, gaps: None, ..Self::apart(code) };
        writer.begin();
        writer
    }

    /// Begins bits that are to stand within a block, again and again.
    pub(super) fn apart(code: Arc<Code>) -> Self {
        Self {
            code,
            out: Vec::new(),
            end: End::default(),
            distances: Distances::default(),
            gaps: Some(Gaps::default()),
            enough: usize::MAX,
        }
    }

    /// The bits since [`BitWriter::apart`].
    pub(super) fn encoded(mut self) -> Encoded {
        let bits = self.end.bits();
        self.make_room(16);
        self.end.filled = 8;
        self.end.flush(&mut self.out);
        self.out.truncate(self.end.at + 8);
        Encoded::new(&self.code, (bits, self.out), self.gaps.unwrap_or_default())
    }

    /// Writes bits that were made before in the code at hand, and the runs that these tails have noted.
    pub(super) fn append(&mut self, text: &Encoded, tails: &Tails) {
        let out = &mut self.with_room(text.room());
        for (bits, place) in text.parts() {
            out.bits(text.bytes(), bits);
            if let Some(place) = place {
                out.run(tails.run(place));
            }
        }
    }

    /// Goes on with another code, in another block.
    pub(super) fn change(&mut self, code: Arc<Code>) {
        self.end();
        self.code = code;
        self.distances = Distances::default();
        self.begin();
    }

    fn begin(&mut self) {
        // Not final, dynamic code, all literal and distance symbols, all code length symbols.
        for (bits, len) in
            [(0b100, 3), (LITERALS as u32 - 257, 5), (DISTANCES as u32 - 1, 5), (15, 4)]
        {
            self.write(bits, len);
        }
        // The code for code lengths: none for the three repeats, which come first, and four bits for
        // each of the sixteen lengths, which makes a length its own code.
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

    /// The code that is written with.
    pub(super) fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// Whether there are enough bytes for a part.
    pub(super) fn is_full(&self) -> bool {
        self.end.at >= self.enough
    }

    /// Exchanges its buffer for another, whatever that holds; gives the old one, and how many of its bytes are
    /// complete.
    pub(super) fn exchange(&mut self, buffer: Vec<u8>) -> (Vec<u8>, usize) {
        (std::mem::replace(&mut self.out, buffer), std::mem::take(&mut self.end.at))
    }

    /// Ends the block and fills the last byte with an empty stored block.
    pub(super) fn finish(&mut self) {
        self.end();
        self.write(0, 3);
        // Up to the next byte; what is pending beyond `filled` is zero.
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

    /// Goes on where there is room for so many bytes.
    #[inline]
    fn with_room(&mut self, bytes: usize) -> QuickWriter<'_> {
        self.make_room(bytes + 8);
        let Self { code, out, end, distances, gaps, .. } = self;
        QuickWriter { code, out, distances, gaps, end: *end, back: end }
    }
}

impl Symbols for BitWriter {
    #[inline]
    fn literals(&mut self, bytes: &[u8]) {
        self.quick(bytes.len()).literals(bytes);
    }

    #[inline]
    fn copy(&mut self, len: usize, distance: usize) {
        self.quick(len).copy(len, distance);
    }

    #[inline]
    fn known(&mut self, bits: Run<'_>) {
        self.with_room(bits.words.len() * 8).known(bits);
    }
}

impl Stream for BitWriter {
    type Quick<'s> = QuickWriter<'s>;

    /// No symbol takes more than two bytes for each that it stands for.
    #[inline]
    fn quick(&mut self, text: usize) -> QuickWriter<'_> {
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
        let (mut bytes, len) = writer.exchange(Vec::new());
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn every_literal_length_and_distance_decodes() {
        let all: Vec<u8> = (0..=255u8).collect();
        for skewed in [false, true] {
            let histogram = if skewed { Histogram::skewed() } else { Histogram::new() };
            let (code, _) = Code::agreeing(&[&histogram]);
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

    /// Texts of different kinds in one stream, with the bits of literals noted once.
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
        let (all, codes) = Code::agreeing(&histograms.each_ref());
        let mut words = Vec::new();
        let last = all.run(b"feed-beef", &mut words);
        let mut writer = BitWriter::new(Arc::new(all));
        let mut text = vec![b'x'; 32_768];
        writer.literals(&text);
        for (code, (len, distance)) in codes.into_iter().zip([(3, 1), (40, 900), (258, 32_768)]) {
            let cost = |code: &Code, len: usize| code.lengths[len].len;
            assert!([3, 40, 258].iter().all(|&other| cost(&code, len) <= cost(&code, other)));
            writer.change(Arc::new(code));
            writer.known(Run { words: &words, last, place: 0 });
            text.extend_from_slice(b"feed-beef");
            writer.copy(len, distance);
            (0..len).for_each(|_| text.push(text[text.len() - distance]));
        }
        writer.finish();
        assert!(inflate(taken(&mut writer)) == text);
    }
}
