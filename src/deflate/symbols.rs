//! The symbols of a deflate stream (RFC 1951, section 3.2.5): literals and copies.

/// Maximum length of a copy.
pub(super) const LONGEST: usize = 258;

/// A receiver of deflate symbols.
pub(super) trait SymbolSink {
    /// Writes these bytes as literals.
    fn literals(&mut self, bytes: &[u8]);

    /// Writes a copy of `len` bytes (3 to 258) from `distance` bytes back (1 to 32,768).
    fn copy(&mut self, len: usize, distance: usize);

    /// Writes literals with precomputed bits in the current code.
    fn literal_run(&mut self, bits: LiteralRun<'_>);
}

impl<S: SymbolSink> SymbolSink for &mut S {
    #[inline]
    fn literals(&mut self, bytes: &[u8]) {
        S::literals(self, bytes);
    }

    #[inline]
    fn copy(&mut self, len: usize, distance: usize) {
        S::copy(self, len, distance);
    }

    #[inline]
    fn literal_run(&mut self, bits: LiteralRun<'_>) {
        S::literal_run(self, bits);
    }
}

/// A receiver of a whole stream.
pub(super) trait SymbolStream: SymbolSink {
    /// A receiver with reserved space.
    type Reserved<'s>: SymbolSink
    where
        Self: 's;

    /// Reserves space for the symbols of at most `text` bytes. Symbols beyond that may be lost.
    fn reserve_text(&mut self, text: usize) -> Self::Reserved<'_>;

    /// Returns true if the receiver has enough for now.
    fn full(&self) -> bool;
}

/// The precomputed bits of a run of literals, as words.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiteralRun<'a> {
    /// Words; all but the last hold [`RUN_BITS`] bits.
    pub(super) words: &'a [u64],
    /// Number of bits in the last word.
    pub(super) last: u32,
    /// Index of the run in its page.
    pub(super) place: u16,
}

/// Number of bits in a word of a [`LiteralRun`]. They fit into 64 bits with those of an unfinished byte.
pub(super) const RUN_BITS: u32 = 56;

/// Returns the symbol of a length, the number of its extra bits and their value.
pub(super) fn length_symbol(len: usize) -> (usize, u32, u32) {
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

/// Returns the symbol of a distance, the number of its extra bits and their value.
#[inline]
pub(super) fn distance_symbol(distance: usize) -> (usize, u32, u32) {
    let offset = distance - 1;
    if offset < 4 {
        return (offset, 0, 0);
    }
    let extra = offset.ilog2() - 1;
    let symbol = 2 * (extra as usize + 1) + ((offset >> extra) & 1);
    (symbol, extra, (offset & ((1 << extra) - 1)) as u32)
}

/// A copy that is held back, so that adjacent copies can be merged: the rest of a line and the start of the next one
/// are often copied from adjacent text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingCopy {
    len: usize,
    distance: usize,
}

impl PendingCopy {
    /// Adds a copy of any length.
    #[inline(always)]
    pub(super) fn copy(&mut self, len: usize, distance: usize, out: &mut impl SymbolSink) {
        if self.distance != distance {
            self.flush(out);
            self.distance = distance;
        }
        self.len += len;
    }

    /// Returns the number of bytes held back.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Writes the copy that is held back.
    #[inline(always)]
    pub(super) fn flush(&mut self, out: &mut impl SymbolSink) {
        let mut left = std::mem::take(&mut self.len);
        while left > LONGEST {
            // The remainder must be long enough for a copy.
            let len = if left - LONGEST < 3 { LONGEST - 3 } else { LONGEST };
            out.copy(len, self.distance);
            left -= len;
        }
        if left > 0 {
            out.copy(left, self.distance);
        }
    }
}
