//! Writing deflate blocks, each with one Huffman code (RFC 1951, sections 3.2.2 to 3.2.7).
//!
//! A [`Histogram`] counts the symbols of a sample, [`Code`]s are made from some, and a [`BitWriter`] writes
//! symbols with that code. Every symbol has a code, whether the sample had it or not, so that a block can
//! hold any text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Takes the symbols of a deflate stream.
pub(super) trait Symbols {
    /// These bytes as they are.
    fn literals(&mut self, bytes: &[u8]);

    /// `len` bytes (3 to 258) that stand `distance` (1 to 32,768) bytes back.
    fn copy(&mut self, len: usize, distance: usize);

    /// The same as `literals(bytes)`, where the bits of these are known.
    fn known(&mut self, bits: Run<'_>, bytes: &[u8]);

    /// Whether what was taken is enough for now.
    fn full(&self) -> bool {
        false
    }
}

/// The bits of some literals: whole words, and the bits that are left over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// All but the last hold 48 bits each.
    pub(super) words: &'a [u64],
    /// How many bits the last word holds.
    pub(super) last: u32,
}

/// All the bits of a text in one code, which copies from nothing before it.
#[derive(Debug)]
pub(super) struct Encoded {
    code: u64,
    bits: usize,
    /// The bits, first ones lowest, and eight bytes more.
    bytes: Box<[u8]>,
}

impl Encoded {
    /// Whether the bits are of this very code.
    pub(super) fn is_in(&self, code: &Code) -> bool {
        self.code == code.serial
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A part is handed out when it has this many bytes.
const PART: usize = 32 * 1024;
/// The longest copy.
const LONGEST: usize = 258;
/// Literals, end of block and lengths.
const LITERALS: usize = 286;
const DISTANCES: usize = 30;
/// The symbol that ends a block.
const END: usize = 256;
/// The longest code; deflate allows 15. With 14, four literals and the bits of an unfinished byte fit
/// into 64 bits, as does a length with its distance.
const MAX_BITS: u8 = 14;

/// What the head of a block costs, in bits.
pub(super) const HEAD_BITS: u64 = 3 + 14 + 19 * 3 + 4 * (LITERALS + DISTANCES) as u64;

/// The symbol of a length, its number of extra bits and their value.
fn length_symbol(len: usize) -> (usize, u32, u32) {
    let offset = len - 3;
    match offset {
        0..8 => (257 + offset, 0, 0),
        255 => (285, 0, 0),
        _ => {
            let extra = offset.ilog2() - 2;
            let symbol = 257 + 4 * (extra as usize + 1) + ((offset >> extra) & 3);
            (symbol, extra, (offset & ((1 << extra) - 1)) as u32)
        }
    }
}

/// The symbol of a distance, its number of extra bits and their value.
#[inline]
fn distance_symbol(distance: usize) -> (usize, u32, u32) {
    let offset = distance - 1;
    if offset < 4 {
        return (offset, 0, 0);
    }
    let extra = offset.ilog2() - 1;
    let symbol = 2 * (extra as usize + 1) + ((offset >> extra) & 1);
    (symbol, extra, (offset & ((1 << extra) - 1)) as u32)
}

/// How often each symbol occurs.
#[derive(Debug)]
pub(super) struct Histogram {
    literals: [u32; LITERALS],
    distances: [u32; DISTANCES],
    /// Bytes of text that the symbols stand for.
    text: usize,
    /// Enough text for now.
    enough: usize,
}

impl Histogram {
    pub(super) fn new() -> Self {
        // Once at least: a code must have every symbol.
        let (literals, distances) = ([1; LITERALS], [1; DISTANCES]);
        Self { literals, distances, text: 0, enough: usize::MAX }
    }
}

impl Histogram {
    /// How many bits what was counted takes in `code`, apart from extra bits, which are the same in any.
    pub(super) fn size_in(&self, code: &Code) -> u64 {
        // Each count is one too high.
        let size = |counts: &[u32], bits: &[Bits]| -> u64 {
            counts.iter().zip(bits).map(|(&n, bits)| u64::from(n - 1) * u64::from(bits.len)).sum()
        };
        size(&self.literals, &code.literals) + size(&self.distances, &code.distances)
    }

    /// Bytes of text that were counted.
    pub(super) fn text(&self) -> usize {
        self.text
    }

    /// Is full when so many bytes more were counted.
    pub(super) fn take_on(&mut self, text: usize) {
        self.enough = self.text.saturating_add(text);
    }

    /// How many symbols were counted.
    pub(super) fn weight(&self) -> u64 {
        self.literals.iter().map(|&count| u64::from(count - 1)).sum()
    }

    /// The same with about `weight` symbols, if there are more.
    pub(super) fn scaled(&self, weight: u64) -> Self {
        let own = self.weight().max(weight).max(1);
        let scale = |count: &mut u32| {
            *count = 1 + (u64::from(*count - 1) * weight.max(1) / own) as u32;
        };
        let mut scaled = Self { literals: self.literals, distances: self.distances, ..*self };
        scaled.literals.iter_mut().chain(&mut scaled.distances).for_each(scale);
        scaled
    }

    /// Counts of copy lengths (and the end of a block), most frequent first, each with its symbol.
    fn ranked_lengths(&self) -> Vec<(u32, usize)> {
        let mut ranked: Vec<_> = (END..LITERALS).map(|at| (self.literals[at], at)).collect();
        ranked.sort_by_key(|&(count, symbol)| (std::cmp::Reverse(count), symbol));
        ranked
    }

    fn add(&mut self, other: &Self) {
        let sum = |into: &mut [u32], from: &[u32]| {
            into.iter_mut().zip(from).for_each(|(into, from)| *into = into.saturating_add(*from));
        };
        sum(&mut self.literals, &other.literals);
        sum(&mut self.distances, &other.distances);
    }
}

impl Symbols for Histogram {
    fn literals(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.literals[usize::from(byte)] += 1;
        }
        self.text += bytes.len();
    }

    fn copy(&mut self, len: usize, distance: usize) {
        self.text += len;
        self.literals[length_symbol(len).0] += 1;
        self.distances[distance_symbol(distance).0] += 1;
    }

    fn known(&mut self, _: Run<'_>, bytes: &[u8]) {
        self.literals(bytes);
    }

    fn full(&self) -> bool {
        self.text >= self.enough
    }
}

/// Bits to write: the bits themselves, first to be written lowest, and how many.
#[derive(Clone, Copy, Debug, Default)]
struct Bits {
    bits: u32,
    len: u8,
}

/// A prefix code for literals, lengths and distances.
#[derive(Debug)]
pub(super) struct Code {
    literals: Vec<Bits>,
    distances: Vec<Bits>,
    /// For each length from 0 to 258, its symbol's code and extra bits in one.
    lengths: Vec<Bits>,
    /// Tells its literals from those of other codes of the process.
    id: u64,
    /// Tells it from every other code of the process.
    serial: u64,
}

impl Code {
    /// A good code for each of these kinds of text, and one for all of them together. They agree on every
    /// literal, so that the bits of a text without copies are the same in all of them.
    ///
    /// In a canonical code the bits of a symbol depend on how many symbols have each code length, not on
    /// which: so the codes may give the same code lengths to different copy lengths.
    pub(super) fn agreeing(histograms: &[&Histogram]) -> (Self, Vec<Self>) {
        let mut sum = Histogram::new();
        histograms.iter().for_each(|histogram| sum.add(histogram));
        // What is shared are the code lengths of the most frequent copy length of each, the next one of
        // each, and so on.
        let mut ranks = vec![0u32; LITERALS - END];
        for histogram in histograms {
            for (rank, (count, _)) in ranks.iter_mut().zip(histogram.ranked_lengths()) {
                *rank = rank.saturating_add(count);
            }
        }
        let mut counts = sum.literals;
        for (count, rank) in counts[END..].iter_mut().zip(ranks) {
            *count = rank.max(1);
        }
        let lengths = code_lengths(&counts);
        let id = next_id();
        let adapted = |histogram: &Histogram| Self::adapted(&lengths, histogram, id);
        (adapted(&sum), histograms.iter().map(|histogram| adapted(histogram)).collect())
    }

    /// The best code for one kind of text, which agrees with no other.
    pub(super) fn alone(histogram: &Histogram) -> Self {
        Self::adapted(&code_lengths(&histogram.literals), histogram, next_id())
    }

    /// A code with these literals, and with the other code lengths given out anew.
    fn adapted(lengths: &[u8], histogram: &Histogram, id: u64) -> Self {
        let mut shortest_first = lengths[END..].to_vec();
        shortest_first.sort_unstable();
        let mut all = lengths.to_vec();
        for (len, (_, symbol)) in shortest_first.into_iter().zip(histogram.ranked_lengths()) {
            all[symbol] = len;
        }
        let literals = canonical(&all);
        let distances = canonical(&code_lengths(&histogram.distances));
        let mut lengths = vec![Bits::default(); 259];
        for (len, bits) in lengths.iter_mut().enumerate().skip(3) {
            let (symbol, extra, value) = length_symbol(len);
            let code = literals[symbol];
            *bits = Bits { bits: code.bits | value << code.len, len: code.len + extra as u8 };
        }
        Self { literals, distances, lengths, id, serial: next_id() }
    }

    /// A number that codes of the process have in common if they agree on every literal.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Appends the words of a [`Run`] of `bytes`; tells how many bits the last one holds.
    pub(super) fn run(&self, bytes: &[u8], words: &mut Vec<u64>) -> u32 {
        let (mut word, mut filled) = (0u64, 0);
        for &byte in bytes {
            let Bits { bits, len } = self.literals[usize::from(byte)];
            word |= u64::from(bits) << filled;
            filled += u32::from(len);
            if filled >= 48 {
                words.push(word & 0xffff_ffff_ffff);
                word >>= 48;
                filled -= 48;
            }
        }
        words.push(word);
        filled
    }
}

/// A number that no code of the process has yet; 0 is none's.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Code lengths of a Huffman code (Huffman 1952) over `counts`, none longer than [`MAX_BITS`].
fn code_lengths(counts: &[u32]) -> Vec<u8> {
    let mut counts: Vec<u64> = counts.iter().map(|&count| u64::from(count)).collect();
    loop {
        let lengths = unlimited_lengths(&counts);
        if lengths.iter().all(|&len| len <= MAX_BITS) {
            return lengths;
        }
        // Evening the counts out shortens the longest codes and costs little: they are rare.
        for count in &mut counts {
            *count = count.div_ceil(2);
        }
    }
}

fn unlimited_lengths(counts: &[u64]) -> Vec<u8> {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    // Nodes 0..n are symbols, later ones their joins; a parent always comes after its children.
    let mut parents = vec![0usize; counts.len() * 2 - 1];
    let mut heap: BinaryHeap<_> =
        counts.iter().enumerate().map(|(node, &count)| Reverse((count, node))).collect();
    for join in counts.len()..parents.len() {
        let mut sum = 0;
        for _ in 0..2 {
            if let Some(Reverse((count, node))) = heap.pop() {
                parents[node] = join;
                sum += count;
            }
        }
        heap.push(Reverse((sum, join)));
    }
    let mut depths = vec![0u8; parents.len()];
    for node in (0..parents.len() - 1).rev() {
        depths[node] = depths[parents[node]].saturating_add(1);
    }
    depths.truncate(counts.len());
    depths
}

/// The canonical code with these lengths, bit-reversed as deflate packs it.
fn canonical(lengths: &[u8]) -> Vec<Bits> {
    let mut next = [0u32; MAX_BITS as usize + 2];
    for &len in lengths {
        next[usize::from(len) + 1] += 1;
    }
    let mut code = 0;
    for entry in &mut next[1..] {
        code = (code + *entry) << 1;
        *entry = code;
    }
    let mut codes = Vec::with_capacity(lengths.len());
    for &len in lengths {
        let code = next[usize::from(len)];
        next[usize::from(len)] += 1;
        codes.push(Bits { bits: code.reverse_bits() >> (32 - u32::from(len)), len });
    }
    codes
}

/// Writes symbols as bits.
#[derive(Debug)]
pub(super) struct BitWriter {
    code: Arc<Code>,
    /// What was written, with room behind it.
    out: Vec<u8>,
    /// Where in `out` the next byte goes.
    at: usize,
    pending: u64,
    /// How many bits of `pending` are in use; below 8 between calls.
    filled: u32,
    /// The distance of the last copy and its bits: one copy after the other has the same.
    distance: (usize, Bits),
    /// How many bytes are enough for a part.
    enough: usize,
}

/// Joins copies that go on where the last one ended: the rest of a line and the head of the next one are
/// often one piece of the text.
#[derive(Debug, Default)]
pub(super) struct Joined {
    len: usize,
    distance: usize,
}

impl Joined {
    /// Adds a copy of any length; it is written when something else comes.
    #[inline]
    pub(super) fn copy(&mut self, len: usize, distance: usize, out: &mut impl Symbols) {
        if self.distance != distance {
            self.flush(out);
            self.distance = distance;
        }
        self.len += len;
    }

    /// Writes what is held back.
    #[inline]
    pub(super) fn flush(&mut self, out: &mut impl Symbols) {
        while self.len > 0 {
            let mut len = self.len.min(LONGEST);
            // What is left over must be none or long enough to be a copy itself.
            if (1..3).contains(&(self.len - len)) {
                len -= 3;
            }
            out.copy(len, self.distance);
            self.len -= len;
        }
    }
}

impl BitWriter {
    /// Begins a block that is not the last of its stream.
    pub(super) fn new(code: Arc<Code>) -> Self {
        let mut writer = Self { enough: PART, ..Self::apart(code) };
        writer.begin();
        writer
    }

    /// Begins bits that are to stand within a block.
    pub(super) fn apart(code: Arc<Code>) -> Self {
        let distance = (0, Bits::default());
        let (pending, filled, enough) = (0, 0, usize::MAX);
        Self { code, out: Vec::new(), at: 0, pending, filled, distance, enough }
    }

    /// The bits since [`BitWriter::apart`].
    pub(super) fn encoded(mut self) -> Encoded {
        let bits = self.at * 8 + self.filled as usize;
        self.make_room(16);
        self.filled = 8;
        self.flush();
        self.out.truncate(self.at + 8);
        Encoded { code: self.code.serial, bits, bytes: self.out.into() }
    }

    /// Writes bits that were made before in the code at hand.
    pub(super) fn append(&mut self, text: &Encoded) {
        /// Bytes that fit beside the bits of an unfinished one.
        const STEP: usize = 7;
        self.make_room(text.bytes.len() + 16);
        let (mut left, mut rest) = (text.bits, &text.bytes[..]);
        while let Some(eight) = rest.first_chunk().filter(|_| left > 0) {
            let bits = left.min(STEP * 8);
            self.pending |= (u64::from_le_bytes(*eight) & ((1 << bits) - 1)) << self.filled;
            self.filled += bits as u32;
            self.flush();
            left -= bits;
            rest = &rest[STEP..];
        }
    }

    /// Goes on with another code, in another block.
    pub(super) fn change(&mut self, code: Arc<Code>) {
        self.end();
        self.code = code;
        self.distance.0 = 0;
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
        self.at >= self.enough
    }

    /// Takes the bytes that are complete.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let room = self.out.len();
        let mut bytes = std::mem::take(&mut self.out);
        bytes.truncate(std::mem::take(&mut self.at));
        self.out.resize(room, 0);
        bytes
    }

    /// Ends the block and fills the last byte with an empty stored block.
    pub(super) fn finish(&mut self) {
        self.end();
        self.write(0, 3);
        // Up to the next byte; what is pending beyond `filled` is zero.
        self.write(0, (8 - self.filled) % 8);
        self.write(0, 16);
        self.write(0xffff, 16);
    }

    /// Adds bits; up to 56 between two flushes.
    #[inline]
    fn put(&mut self, bits: u32, len: u32) {
        self.pending |= u64::from(bits) << self.filled;
        self.filled += len;
    }

    /// Moves what is complete to `out`, which must have room for eight bytes.
    #[inline]
    fn flush(&mut self) {
        if let Some(room) = self.out.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut) {
            *room = self.pending.to_le_bytes();
        }
        let bytes = self.filled / 8;
        self.at += bytes as usize;
        self.pending >>= bytes * 8;
        self.filled %= 8;
    }

    #[inline]
    fn make_room(&mut self, bytes: usize) {
        if self.out.len() < self.at + bytes {
            self.out.resize((self.at + bytes) * 2, 0);
        }
    }

    fn write(&mut self, bits: u32, len: u32) {
        self.make_room(8);
        self.put(bits, len);
        self.flush();
    }
}

impl Symbols for BitWriter {
    #[inline]
    fn literals(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len() * 2 + 8);
        for four in bytes.chunks(4) {
            for &byte in four {
                let Bits { bits, len } = self.code.literals[usize::from(byte)];
                self.put(bits, u32::from(len));
            }
            self.flush();
        }
    }

    #[inline]
    fn copy(&mut self, len: usize, distance: usize) {
        self.make_room(8);
        let length = self.code.lengths[len];
        self.put(length.bits, u32::from(length.len));
        if self.distance.0 != distance {
            let (symbol, extra, value) = distance_symbol(distance);
            let code = self.code.distances[symbol];
            let bits = Bits { bits: code.bits | value << code.len, len: code.len + extra as u8 };
            self.distance = (distance, bits);
        }
        let Bits { bits, len } = self.distance.1;
        self.put(bits, u32::from(len));
        self.flush();
    }

    #[inline]
    fn known(&mut self, bits: Run<'_>, _: &[u8]) {
        let Some((last, full)) = bits.words.split_last() else { return };
        self.make_room(bits.words.len() * 8 + 8);
        for word in full {
            self.pending |= word << self.filled;
            self.filled += 48;
            self.flush();
        }
        self.pending |= last << self.filled;
        self.filled += bits.last;
        self.flush();
    }

    fn full(&self) -> bool {
        self.is_full()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn inflate(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend_from_slice(&[3, 0]);
        let mut text = Vec::new();
        flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn every_literal_length_and_distance_decodes() {
        let all: Vec<u8> = (0..=255u8).collect();
        for skewed in [false, true] {
            let mut histogram = Histogram::new();
            if skewed {
                // Fibonacci counts make the deepest possible tree.
                let (mut a, mut b) = (1u32, 1u32);
                for count in &mut histogram.literals[..40] {
                    *count = a;
                    (a, b) = (b, a + b);
                }
            }
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
            assert!(inflate(writer.take()) == text);
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
            writer.known(Run { words: &words, last }, b"feed-beef");
            text.extend_from_slice(b"feed-beef");
            writer.copy(len, distance);
            (0..len).for_each(|_| text.push(text[text.len() - distance]));
        }
        writer.finish();
        assert!(inflate(writer.take()) == text);
    }
}
