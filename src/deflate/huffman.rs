//! Huffman codes for deflate (RFC 1951, sections 3.2.2 and 3.2.5 to 3.2.7).
//!
//! A [`Histogram`] counts the symbols of a sample, and a [`HuffmanCode`] is built from histograms. Every symbol has a
//! codeword, even if the sample lacks it, so a block can encode any text.

use std::sync::atomic::{AtomicU64, Ordering};

use super::symbols::{
    LONGEST, LiteralRun, RUN_BITS, SymbolSink, SymbolStream, distance_symbol, length_symbol,
};

/// Number of literal, end-of-block and length symbols.
pub(super) const LITERALS: usize = 286;
pub(super) const DISTANCES: usize = 30;
/// The symbol that ends a block.
pub(super) const END: usize = 256;
/// Maximum codeword length; deflate allows 15. With 14, the bits of an unfinished byte and four literals, or a length
/// and a distance, fit into 64 bits.
const MAX_BITS: u8 = 14;

/// Size of a block header in bits.
pub(super) const HEAD_BITS: u64 = 3 + 14 + 19 * 3 + 4 * (LITERALS + DISTANCES) as u64;

/// Counts of deflate symbols.
#[derive(Debug)]
pub(super) struct Histogram {
    literals: [u32; LITERALS],
    distances: [u32; DISTANCES],
    /// Bytes of text represented by the symbols.
    text: usize,
    /// Amount of text from which on the histogram reports itself full, in bytes.
    enough: usize,
}

impl Histogram {
    pub(super) fn new() -> Self {
        // Every count starts at 1, because a code must have every symbol.
        let (literals, distances) = ([1; LITERALS], [1; DISTANCES]);
        Self { literals, distances, text: 0, enough: usize::MAX }
    }

    /// Returns the size in bits of the counted symbols in `code`, without extra bits, which are equal in all codes.
    pub(super) fn size_in(&self, code: &HuffmanCode) -> u64 {
        let size =
            |counts: &[u32], bits: &[Codeword]| size(counts, bits.iter().map(|bits| bits.len));
        size(&self.literals, &code.literals[..]) + size(&self.distances, &code.distances[..])
    }

    /// Returns the size in bits of the counted symbols in their optimal code, without extra bits.
    pub(super) fn optimal_size(&self) -> u64 {
        let size = |counts: &[u32]| size(counts, code_lengths(counts));
        size(&self.literals) + size(&self.distances)
    }

    /// Returns the number of extra bits of the counted symbols.
    pub(super) fn extra_bits(&self) -> u64 {
        // The number of extra bits increases with every second distance symbol and every fourth length symbol.
        let distances =
            (0..).zip(&self.distances).map(|(at, n)| (at / 2u32).saturating_sub(1) * (n - 1));
        let lengths = (0..).zip(&self.literals[END + 1..LITERALS - 1]);
        let lengths = lengths.map(|(at, n)| (at / 4u32).saturating_sub(1) * (n - 1));
        distances.chain(lengths).map(u64::from).sum()
    }

    /// Returns the counted text in bytes.
    pub(super) fn text(&self) -> usize {
        self.text
    }

    /// Reports full after `text` more bytes.
    pub(super) fn limit_text(&mut self, text: usize) {
        self.enough = self.text.saturating_add(text);
    }

    /// Returns the number of literals and copies counted.
    pub(super) fn weight(&self) -> u64 {
        self.literals.iter().map(|&count| u64::from(count - 1)).sum()
    }

    /// Returns a copy scaled down to about `weight` symbols.
    pub(super) fn scaled(&self, weight: u64) -> Self {
        let own = self.weight().max(weight).max(1);
        let scale = |count: &mut u32| {
            *count = 1 + (u64::from(*count - 1) * weight.max(1) / own) as u32;
        };
        let mut scaled = Self { literals: self.literals, distances: self.distances, ..*self };
        scaled.literals.iter_mut().chain(&mut scaled.distances).for_each(scale);
        scaled
    }

    /// Returns the counts of the length symbols and of end-of-block, most frequent first.
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

impl SymbolSink for Histogram {
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

    /// Never called: bits are precomputed in a code, and counting needs none.
    fn literal_run(&mut self, _: LiteralRun<'_>) {}
}

impl SymbolStream for Histogram {
    type Reserved<'s> = &'s mut Self;

    fn reserve_text(&mut self, _: usize) -> &mut Self {
        self
    }

    fn full(&self) -> bool {
        self.text >= self.enough
    }
}

/// A codeword or a combination of codeword and extra bits; the first bit to write is the lowest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Codeword {
    pub(super) bits: u32,
    pub(super) len: u8,
}

/// A prefix code for literals, lengths and distances.
#[derive(Debug)]
pub(super) struct HuffmanCode {
    pub(super) literals: Box<[Codeword; LITERALS]>,
    pub(super) distances: Box<[Codeword; DISTANCES]>,
    /// Codeword and extra bits for each copy length from 0 to [`LONGEST`].
    pub(super) lengths: Box<[Codeword; LONGEST + 1]>,
    /// Identifies the codewords of its literals in the process.
    id: u64,
    /// Identifies the code in the process.
    pub(super) serial: u64,
}

impl HuffmanCode {
    /// Builds a code for each histogram and one for their sum. All of them share the codewords of literals, so
    /// precomputed literals are valid in each.
    ///
    /// In a canonical code, codewords depend on how many symbols have each length, not on which. The codes can
    /// therefore assign the same code lengths to different copy lengths.
    pub(super) fn with_shared_literals(histograms: &[&Histogram]) -> (Self, Vec<Self>) {
        let mut sum = Histogram::new();
        histograms.iter().for_each(|histogram| sum.add(histogram));
        // The shared code lengths are those of the most frequent copy length of each histogram, of the second most
        // frequent, and so on.
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

    /// Builds the optimal code for one histogram, with its own literals.
    pub(super) fn optimal(histogram: &Histogram) -> Self {
        Self::adapted(&code_lengths(&histogram.literals), histogram, next_id())
    }

    /// Builds a code with the given lengths of literals, and assigns the lengths of copies by frequency.
    fn adapted(lengths: &[u8], histogram: &Histogram, id: u64) -> Self {
        let mut shortest_first = lengths[END..].to_vec();
        shortest_first.sort_unstable();
        let mut all = lengths.to_vec();
        for (len, (_, symbol)) in shortest_first.into_iter().zip(histogram.ranked_lengths()) {
            all[symbol] = len;
        }
        let literals = canonical(&all);
        let distances = canonical(&code_lengths(&histogram.distances));
        let mut lengths = Box::new([Codeword::default(); LONGEST + 1]);
        for (len, bits) in lengths.iter_mut().enumerate().skip(3) {
            let (symbol, extra, value) = length_symbol(len);
            let code = literals[symbol];
            *bits = Codeword { bits: code.bits | value << code.len, len: code.len + extra as u8 };
        }
        Self { literals, distances, lengths, id, serial: next_id() }
    }

    /// Returns a number that is equal for all codes with the same codewords of literals.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Appends the encoded words of a [`LiteralRun`]. Returns the number of bits in the last word.
    pub(super) fn run(&self, bytes: &[u8], words: &mut Vec<u64>) -> u32 {
        let (mut word, mut filled) = (0u64, 0);
        for &byte in bytes {
            let Codeword { bits, len } = self.literals[usize::from(byte)];
            // Bits that do not fit go into the next word.
            word |= u64::from(bits) << filled;
            filled += u32::from(len);
            if let Some(over) = filled.checked_sub(RUN_BITS) {
                words.push(word & ((1 << RUN_BITS) - 1));
                word = u64::from(bits) >> (u32::from(len) - over);
                filled = over;
            }
        }
        words.push(word);
        filled
    }
}

/// Returns a number that is unique in the process and not 0.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the size in bits of counted symbols with these code lengths. Each count is one too high.
#[inline]
fn size(counts: &[u32], lengths: impl IntoIterator<Item = u8>) -> u64 {
    counts.iter().zip(lengths).map(|(&n, len)| u64::from(n - 1) * u64::from(len)).sum()
}

/// Computes the code lengths of a Huffman code (Huffman 1952) over `counts`, limited to [`MAX_BITS`].
fn code_lengths(counts: &[u32]) -> Vec<u8> {
    let mut counts: Vec<u64> = counts.iter().map(|&count| u64::from(count)).collect();
    loop {
        let lengths = unlimited_lengths(&counts);
        if lengths.iter().all(|&len| len <= MAX_BITS) {
            return lengths;
        }
        // Halving the counts shortens the longest codewords. This costs little, because they are rare.
        for count in &mut counts {
            *count = count.div_ceil(2);
        }
    }
}

/// Joins the two rarest nodes until one is left. The counts of inner nodes never decrease, so the rarest node is the first
/// of the sorted symbols or of the inner nodes (J. van Leeuwen, "On the construction of Huffman trees", 1976).
fn unlimited_lengths(counts: &[u64]) -> Vec<u8> {
    // Nodes 0..n are symbols, later ones are inner nodes; a parent always follows its children.
    let mut parents = vec![0usize; counts.len() * 2 - 1];
    // In one number each, count before symbol, which sorts faster.
    let mut symbols: Vec<u64> = (0..).zip(counts).map(|(at, count)| count << 16 | at).collect();
    symbols.sort_unstable();
    let mut inner: Vec<(u64, usize)> = Vec::with_capacity(counts.len());
    let (mut next_symbol, mut next_inner) = (0, 0);
    for join in counts.len()..parents.len() {
        let mut sum = 0;
        for _ in 0..2 {
            let symbol = symbols.get(next_symbol).map(|symbol| (symbol >> 16, *symbol as u16));
            let symbol = symbol.map(|(count, symbol)| (count, usize::from(symbol)));
            let node = inner.get(next_inner).copied();
            // Of equal counts, that of a symbol is first.
            let is_symbol = symbol.is_some_and(|symbol| node.is_none_or(|node| symbol < node));
            next_symbol += usize::from(is_symbol);
            next_inner += usize::from(!is_symbol);
            if let Some((count, node)) = if is_symbol { symbol } else { node } {
                parents[node] = join;
                sum += count;
            }
        }
        inner.push((sum, join));
    }
    let mut depths = vec![0u8; parents.len()];
    for node in (0..parents.len() - 1).rev() {
        depths[node] = depths[parents[node]].saturating_add(1);
    }
    depths.truncate(counts.len());
    depths
}

/// Returns the canonical code with these lengths, bit-reversed as in deflate.
fn canonical<const SYMBOLS: usize>(lengths: &[u8]) -> Box<[Codeword; SYMBOLS]> {
    let mut next = [0u32; MAX_BITS as usize + 2];
    for &len in lengths {
        next[usize::from(len) + 1] += 1;
    }
    let mut code = 0;
    for entry in &mut next[1..] {
        code = (code + *entry) << 1;
        *entry = code;
    }
    let mut codes = Box::new([Codeword::default(); SYMBOLS]);
    for (&len, bits) in lengths.iter().zip(codes.iter_mut()) {
        let code = next[usize::from(len)];
        next[usize::from(len)] += 1;
        *bits = Codeword { bits: code.reverse_bits() >> (32 - u32::from(len)), len };
    }
    codes
}

#[cfg(test)]
impl Histogram {
    /// Returns Fibonacci counts, which produce the deepest tree.
    pub(super) fn skewed() -> Self {
        let mut histogram = Self::new();
        let (mut a, mut b) = (1u32, 1u32);
        for count in &mut histogram.literals[..40] {
            *count = a;
            (a, b) = (b, a + b);
        }
        histogram
    }
}
