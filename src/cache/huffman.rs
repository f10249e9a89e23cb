//! Huffman codes for deflate (RFC 1951, sections 3.2.2 and 3.2.5 to 3.2.7).
//!
//! A [`Histogram`] counts the symbols of a sample, and [`Code`]s are made from some. Every symbol has a code,
//! whether the sample had it or not, so that a block can hold any text.

use std::sync::atomic::{AtomicU64, Ordering};

use super::symbols::{LONGEST, RUN_BITS, Run, Stream, Symbols, distance_symbol, length_symbol};

/// Literals, end of block and lengths.
pub(super) const LITERALS: usize = 286;
pub(super) const DISTANCES: usize = 30;
/// The symbol that ends a block.
pub(super) const END: usize = 256;
/// The longest code; deflate allows 15. With 14, four literals and the bits of an unfinished byte fit
/// into 64 bits, as does a length with its distance.
const MAX_BITS: u8 = 14;

/// What the head of a block costs, in bits.
pub(super) const HEAD_BITS: u64 = 3 + 14 + 19 * 3 + 4 * (LITERALS + DISTANCES) as u64;

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
        size(&self.literals, &code.literals[..]) + size(&self.distances, &code.distances[..])
    }

    /// How many extra bits what was counted takes in any code.
    pub(super) fn extra_bits(&self) -> u64 {
        // Two distances have as many extra bits each, four lengths, each time one more than those before.
        let distances =
            (0..).zip(&self.distances).map(|(at, n)| (at / 2u32).saturating_sub(1) * (n - 1));
        let lengths = (0..).zip(&self.literals[END + 1..LITERALS - 1]);
        let lengths = lengths.map(|(at, n)| (at / 4u32).saturating_sub(1) * (n - 1));
        distances.chain(lengths).map(u64::from).sum()
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

    /// Never asked for: bits are known in a code, and what is counted has none yet.
    fn known(&mut self, _: Run<'_>) {}
}

impl Stream for Histogram {
    type Quick<'s> = &'s mut Self;

    fn quick(&mut self, _: usize) -> &mut Self {
        self
    }

    fn full(&self) -> bool {
        self.text >= self.enough
    }
}

/// Bits to write: the bits themselves, first to be written lowest, and how many.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bits {
    pub(super) bits: u32,
    pub(super) len: u8,
}

/// A prefix code for literals, lengths and distances.
#[derive(Debug)]
pub(super) struct Code {
    pub(super) literals: Box<[Bits; LITERALS]>,
    pub(super) distances: Box<[Bits; DISTANCES]>,
    /// For each length from 0 to [`LONGEST`], its symbol's code and extra bits in one.
    pub(super) lengths: Box<[Bits; LONGEST + 1]>,
    /// Tells its literals from those of other codes of the process.
    id: u64,
    /// Tells it from every other code of the process.
    pub(super) serial: u64,
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
        let mut lengths = Box::new([Bits::default(); LONGEST + 1]);
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
            // What does not fit any more is not of this word.
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
fn canonical<const SYMBOLS: usize>(lengths: &[u8]) -> Box<[Bits; SYMBOLS]> {
    let mut next = [0u32; MAX_BITS as usize + 2];
    for &len in lengths {
        next[usize::from(len) + 1] += 1;
    }
    let mut code = 0;
    for entry in &mut next[1..] {
        code = (code + *entry) << 1;
        *entry = code;
    }
    let mut codes = Box::new([Bits::default(); SYMBOLS]);
    for (&len, bits) in lengths.iter().zip(codes.iter_mut()) {
        let code = next[usize::from(len)];
        next[usize::from(len)] += 1;
        *bits = Bits { bits: code.reverse_bits() >> (32 - u32::from(len)), len };
    }
    codes
}

#[cfg(test)]
impl Histogram {
    /// Fibonacci counts, which make the deepest possible tree.
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
