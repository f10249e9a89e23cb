//! The symbols of a deflate stream (RFC 1951, section 3.2.5): literals, and copies of what stands before.

/// The longest copy.
pub(super) const LONGEST: usize = 258;

/// Takes the symbols of a deflate stream.
pub(super) trait Symbols {
    /// These bytes as they are.
    fn literals(&mut self, bytes: &[u8]);

    /// `len` bytes (3 to 258) that stand `distance` (1 to 32,768) bytes back.
    fn copy(&mut self, len: usize, distance: usize);

    /// Literals whose bits are known in the code that is written with.
    fn known(&mut self, bits: Run<'_>);
}

impl<S: Symbols> Symbols for &mut S {
    #[inline]
    fn literals(&mut self, bytes: &[u8]) {
        S::literals(self, bytes);
    }

    #[inline]
    fn copy(&mut self, len: usize, distance: usize) {
        S::copy(self, len, distance);
    }

    #[inline]
    fn known(&mut self, bits: Run<'_>) {
        S::known(self, bits);
    }
}

/// Keeps the symbols of a whole stream.
pub(super) trait Stream: Symbols {
    /// Takes symbols for a moment.
    type Quick<'s>: Symbols
    where
        Self: 's;

    /// For symbols that stand for at most so many bytes of text, one right after the other. More than that
    /// may be lost.
    fn quick(&mut self, text: usize) -> Self::Quick<'_>;

    /// Whether what was taken is enough for now.
    fn full(&self) -> bool;
}

/// The bits of some literals: whole words, and the bits that are left over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// All but the last hold [`RUN_BITS`] bits each.
    pub(super) words: &'a [u64],
    /// How many bits the last word holds.
    pub(super) last: u32,
    /// Which of its page's runs this is.
    pub(super) place: u16,
}

/// Bits in a word of a [`Run`]: as many as fit beside those of an unfinished byte.
pub(super) const RUN_BITS: u32 = 56;

/// The symbol of a length, its number of extra bits and their value.
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

/// The symbol of a distance, its number of extra bits and their value.
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

/// Joins copies that go on where the last one ended: the rest of a line and the head of the next one are
/// often one piece of the text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Joined {
    len: usize,
    distance: usize,
}

impl Joined {
    /// Adds a copy of any length; it is written when something else comes.
    #[inline(always)]
    pub(super) fn copy(&mut self, len: usize, distance: usize, out: &mut impl Symbols) {
        if self.distance != distance {
            self.flush(out);
            self.distance = distance;
        }
        self.len += len;
    }

    /// How many bytes are held back.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Writes what is held back.
    #[inline(always)]
    pub(super) fn flush(&mut self, out: &mut impl Symbols) {
        let mut left = std::mem::take(&mut self.len);
        while left > LONGEST {
            // What is left over must be long enough to be a copy itself.
            let len = if left - LONGEST < 3 { LONGEST - 3 } else { LONGEST };
            out.copy(len, self.distance);
            left -= len;
        }
        if left > 0 {
            out.copy(left, self.distance);
        }
    }
}
