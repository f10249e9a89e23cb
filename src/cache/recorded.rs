//! The bits of a whole text, which are made once and written again and again.

use std::ops::Range;

use super::huffman::Code;
use super::symbols::Run;

/// All the bits of a text in one code, which copies from nothing before it. Runs of literals that the page has noted
/// anyway are left out.
#[derive(Debug)]
pub(super) struct Encoded {
    code: u64,
    bits: usize,
    /// The bits, first ones lowest, and eight bytes more.
    bytes: Box<[u8]>,
    gaps: Box<[Gap]>,
    /// Bytes that are enough for all of it.
    room: usize,
}

/// A run that is left out.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// How many bits come between the one before and it.
    behind: u16,
    place: u16,
}

/// The gaps of a text that is being made.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    found: Vec<Gap>,
    /// How many bits there were at the last one.
    last: usize,
    /// Words of all runs.
    words: usize,
}

impl Gaps {
    /// Leaves out a run of several words that comes behind so many bits; tells whether it did.
    pub(super) fn leave_out(&mut self, run: Run<'_>, bits: usize) -> bool {
        let Ok(behind) = (bits - self.last).try_into() else { return false };
        if run.words.len() < 2 {
            return false;
        }
        self.found.push(Gap { behind, place: run.place });
        self.last = bits;
        self.words += run.words.len();
        true
    }
}

impl Encoded {
    /// So many bits, behind which there are eight bytes more.
    pub(super) fn new(code: &Code, (bits, bytes): (usize, Vec<u8>), gaps: Gaps) -> Self {
        let room = bytes.len() + gaps.words * size_of::<u64>();
        let (bytes, gaps) = (bytes.into(), gaps.found.into());
        Self { code: code.serial, bits, bytes, gaps, room }
    }

    /// Whether the bits are of this very code.
    pub(super) fn is_in(&self, code: &Code) -> bool {
        self.code == code.serial
    }

    /// Bytes that are enough for all of it.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// The bytes that hold the bits, and eight more.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Which bits come next, each time with the place of the run behind them; the last ones have none.
    #[inline]
    pub(super) fn parts(&self) -> impl Iterator<Item = (Range<usize>, Option<u16>)> {
        let (mut at, bits) = (0, self.bits);
        let gaps = self.gaps.iter().map(|gap| (usize::from(gap.behind), Some(gap.place)));
        gaps.chain([(usize::MAX, None)]).map(move |(len, place)| {
            let start = at;
            at = place.map_or(bits, |_| start + len);
            (start..at, place)
        })
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.gaps)
    }
}
