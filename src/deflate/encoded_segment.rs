//! The encoded bits of a segment, computed once and reused by later scrapes.

use std::ops::Range;

use super::huffman::HuffmanCode;
use super::symbols::LiteralRun;

/// The encoded bits of a segment in one code. It copies from no text outside the segment. Long literal runs of
/// identities are omitted, because the page's [`IdentityDiffs`](super::identity_diff::IdentityDiffs) has them.
#[derive(Debug)]
pub(super) struct EncodedSegment {
    code: u64,
    bits: usize,
    /// The bits, first bit lowest, and eight more bytes.
    pub(super) bytes: Box<[u8]>,
    gaps: Box<[Gap]>,
    /// Upper bound of the output size, in bytes.
    pub(super) room: usize,
}

/// An omitted literal run.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// Number of bits since the previous gap.
    behind: u16,
    place: u16,
}

/// The gaps of a segment being encoded.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    found: Vec<Gap>,
    /// Bit position of the last gap.
    last: usize,
    /// Total words of the omitted runs.
    words: usize,
}

impl Gaps {
    /// Omits a run at bit position `bits` if it has several words. Returns true if it was omitted.
    pub(super) fn leave_out(&mut self, run: LiteralRun<'_>, bits: usize) -> bool {
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

impl EncodedSegment {
    /// Creates a segment of `bits` bits; `bytes` has eight more bytes.
    pub(super) fn new(code: &HuffmanCode, (bits, bytes): (usize, Vec<u8>), gaps: Gaps) -> Self {
        let room = bytes.len() + gaps.words * size_of::<u64>();
        let (bytes, gaps) = (bytes.into(), gaps.found.into());
        Self { code: code.serial, bits, bytes, gaps, room }
    }

    /// Returns true if the bits are of this code.
    pub(super) fn is_in(&self, code: &HuffmanCode) -> bool {
        self.code == code.serial
    }

    /// Returns the ranges of bits, each with the index of the literal run that follows it; the last one has none.
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

    /// Returns the memory size in bytes.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.gaps)
    }
}
