//! Diffs between the identities of a page's objects.
//!
//! An identity is encoded as literals and copies from earlier identities of the same page. The diff is the same for
//! every family, so it is computed once and memoized with the page, including the bits of its literals in the code of
//! the resource.

use std::cell::RefCell;

use super::huffman::HuffmanCode;
use super::segment::PAGE;
use super::symbols::{LiteralRun, RUN_BITS};
use crate::util::short_search::common_prefix;

/// Minimum length of a copy, which costs about as much as four literals.
const SHORTEST: usize = 4;
/// Minimum length of a copy from an unaligned position, whose distance costs more.
const SHORTEST_FOUND: usize = 7;
const HASH_BITS: u32 = 11;

/// The diffs of a page's identities.
#[derive(Debug)]
pub(super) struct IdentityDiffs {
    /// Code of the literal bits, by [`HuffmanCode::id`]; 0 for none.
    code: u64,
    words: Box<[u64]>,
    entries: Box<[DiffEntry]>,
    summaries: Box<[DiffSummary]>,
    /// Length of the longest identity in bytes.
    pub(super) longest: usize,
}

/// The diff of one identity.
#[derive(Clone, Copy, Debug)]
struct DiffSummary {
    /// Bit mask of the slots it copies from and the previous slot; 0 if a copy is too short for deflate.
    from: u64,
    /// End of its range in `entries`.
    end: u16,
    /// Length of the identity in bytes.
    len: u16,
}

/// Literals, followed by a copy from an earlier identity.
#[derive(Clone, Copy, Debug)]
struct DiffEntry {
    own: u16,
    /// End of the literals' bits in `words`, and number of bits in the last word.
    own_end: u16,
    own_last: u8,
    /// Distance in slots to the identity copied from.
    back: u8,
    /// Length of the copy, and its start in that identity.
    len: u16,
    from: u16,
}

/// A diff whose copies are all long enough for deflate, and which starts with a copy that includes at least
/// [`SHORTEST`] bytes of the metric name.
#[derive(Clone, Debug)]
pub(super) struct SimpleDiff<'a> {
    /// Bit mask of the slots it copies from and the previous slot.
    pub(super) from: u64,
    /// Length of the identity in bytes.
    pub(super) len: usize,
    /// Parts; the first one has no literals.
    pub(super) parts: DiffParts<'a>,
}

/// An iterator over the parts of a diff.
#[derive(Clone, Debug)]
pub(super) struct DiffParts<'a> {
    entries: std::slice::Iter<'a, DiffEntry>,
    /// Index of the next entry in the page.
    place: u16,
    words: &'a [u64],
    /// Start of the next part's bits in `words`.
    word: usize,
}

/// A part of a diff: literals, then a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiffPart<'a> {
    /// Number of literals before the copy.
    pub(super) own: usize,
    /// Bits of the literals, if the diffs have a code.
    pub(super) bits: LiteralRun<'a>,
    /// Distance in slots to the identity copied from.
    pub(super) back: usize,
    /// Start of the copy in that identity.
    pub(super) from: usize,
    /// Length of the copy.
    pub(super) len: usize,
}

impl<'a> Iterator for DiffParts<'a> {
    type Item = DiffPart<'a>;

    #[inline]
    fn next(&mut self) -> Option<DiffPart<'a>> {
        let piece = self.entries.next()?;
        let from = std::mem::replace(&mut self.word, usize::from(piece.own_end));
        let words = self.words.get(from..self.word).unwrap_or_default();
        let place = self.place;
        self.place += 1;
        Some(DiffPart {
            own: usize::from(piece.own),
            bits: LiteralRun { words, last: u32::from(piece.own_last), place },
            back: usize::from(piece.back),
            from: usize::from(piece.from),
            len: usize::from(piece.len),
        })
    }
}

impl DiffParts<'_> {
    /// Returns the distance in slots to the identity that the first part copies from.
    #[inline]
    pub(super) fn back(&self) -> Option<usize> {
        self.entries.as_slice().first().map(|piece| usize::from(piece.back))
    }
}

impl IdentityDiffs {
    /// Computes the diffs of `identities`. Stops at the first identity that is too long. Without a code there are no
    /// literal bits.
    pub(super) fn new<'p>(
        code: Option<&HuffmanCode>,
        identities: impl Iterator<Item = &'p [u8]>,
    ) -> Self {
        let id = code.map_or(0, HuffmanCode::id);
        let mut builder = DiffBuilder { code, words: Vec::new(), entries: Vec::new() };
        let (mut summaries, mut longest) = (Vec::new(), 0);
        let mut known: Vec<&[u8]> = Vec::new();
        POSITIONS.with_borrow_mut(|positions| {
            positions.clear();
            for identity in identities.take(PAGE) {
                let start = builder.entries.len();
                if builder.identity(identity, &known, positions).is_none() {
                    break;
                }
                let (Ok(end), Ok(len)) =
                    (builder.entries.len().try_into(), identity.len().try_into())
                else {
                    break;
                };
                let from = simple_sources(&builder.entries[start..], known.len());
                summaries.push(DiffSummary { from, end, len });
                longest = longest.max(identity.len());
                known.push(identity);
            }
        });
        let DiffBuilder { words, entries, .. } = builder;
        let (words, entries, summaries) = (words.into(), entries.into(), summaries.into());
        Self { code: id, words, entries, summaries, longest }
    }

    /// Returns true if the literal bits are valid in `code`.
    pub(super) fn are_of(&self, code: &HuffmanCode) -> bool {
        self.code == code.id()
    }

    /// Returns true if the literal bits are valid in the code with this id, which is not 0.
    pub(super) fn are_in(&self, code: u64) -> bool {
        code == self.code && code != 0
    }

    /// Returns the diff of the identity in `slot`, if there is one.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<DiffParts<'_>> {
        let end = self.summaries.get(slot)?.end;
        let place = slot.checked_sub(1).map_or(0, |before| self.summaries[before].end);
        let entries = self.entries.get(usize::from(place)..usize::from(end))?.iter();
        Some(DiffParts { entries, place, words: &self.words, word: self.word(usize::from(place)) })
    }

    /// Returns the start of an entry's bits in `words`.
    #[inline]
    fn word(&self, place: usize) -> usize {
        place.checked_sub(1).map_or(0, |before| usize::from(self.entries[before].own_end))
    }

    /// Returns the literal run with this index.
    #[inline]
    pub(super) fn run(&self, place: u16) -> LiteralRun<'_> {
        let piece = self.entries[usize::from(place)];
        let words = &self.words[self.word(usize::from(place))..usize::from(piece.own_end)];
        LiteralRun { words, last: u32::from(piece.own_last), place }
    }

    /// Returns the diff of the identity in `slot`, if it is simple.
    #[inline]
    pub(super) fn simple(&self, slot: usize) -> Option<SimpleDiff<'_>> {
        let DiffSummary { from, len, .. } =
            *self.summaries.get(slot).filter(|shape| shape.from != 0)?;
        Some(SimpleDiff { from, len: usize::from(len), parts: self.get(slot)? })
    }

    /// Returns the number of bytes in runs that take several words.
    pub(super) fn long_runs(&self) -> usize {
        let own = self.entries.iter().map(|piece| usize::from(piece.own));
        own.filter(|own| *own > RUN_BITS as usize / 5).sum()
    }

    /// Returns the length of an identity in bytes, if it has a diff.
    #[inline]
    pub(super) fn len(&self, slot: usize) -> Option<usize> {
        self.summaries.get(slot).map(|shape| usize::from(shape.len))
    }
}

struct DiffBuilder<'c> {
    code: Option<&'c HuffmanCode>,
    words: Vec<u64>,
    entries: Vec<DiffEntry>,
}

impl DiffBuilder<'_> {
    /// Adds the diff of `new` against the earlier identities, `known`.
    fn identity(
        &mut self,
        new: &[u8],
        known: &[&[u8]],
        positions: &mut PositionTable,
    ) -> Option<()> {
        // Prefers the previous identity, unless another one has a longer common prefix: objects may be in any order.
        let (mut back, mut i) = (1, known.last().map_or(0, |old| common_prefix(new, old)));
        for (at, old) in known.iter().rev().enumerate().skip(1) {
            let same = common_prefix(new, old);
            if same > i + SHORTEST {
                (back, i) = (at + 1, same);
            }
        }
        let old = known.len().checked_sub(back).map_or(&[][..], |slot| known[slot]);
        // The first copy includes the preceding metric name, so it is recorded even if it is short.
        self.piece(b"", (back, 0), i)?;
        let mut j = i;
        while i < new.len() {
            let start = i;
            let mut written = i;
            // Up to the next quote, where both continue with a label name or value.
            let stop = quote(new, i).unwrap_or(new.len());
            while i < stop {
                let found = positions.find(&new[i..], known);
                positions.insert(&new[i..], known.len(), i);
                match found {
                    Some((slot, from, len)) => {
                        self.piece(&new[written..i], (known.len() - slot, from), len)?;
                        (1..len)
                            .for_each(|at| positions.insert(&new[i + at..], known.len(), i + at));
                        i += len;
                        written = i;
                    }
                    None => i += 1,
                }
            }
            let passed = memchr::memchr_iter(b'"', &new[start..i]).count();
            if i < new.len() && new[i] != b'"' {
                // A match ended within a later label.
                self.piece(&new[written..i], (0, 0), 0)?;
                j = skip(old, j, passed).unwrap_or(old.len());
                continue;
            }
            j = skip(old, j, passed).unwrap_or(old.len());
            let again = common_prefix(&new[i..], &old[j..]);
            if again < SHORTEST {
                let end = (i + again.max(1)).min(new.len());
                self.piece(&new[written..end], (0, 0), 0)?;
                (i, j) = (end, j + again);
            } else {
                self.piece(&new[written..i], (back, j), again)?;
                (i, j) = (i + again, j + again);
            }
        }
        Some(())
    }

    fn piece(&mut self, own: &[u8], (back, from): (usize, usize), len: usize) -> Option<()> {
        if own.is_empty() && len == 0 && back == 0 {
            return Some(());
        }
        let own_last = match self.code {
            Some(code) if !own.is_empty() => code.run(own, &mut self.words) as u8,
            _ => 0,
        };
        self.entries.push(DiffEntry {
            own: own.len().try_into().ok()?,
            own_end: self.words.len().try_into().ok()?,
            own_last,
            back: back.try_into().ok()?,
            len: len.try_into().ok()?,
            from: from.try_into().ok()?,
        });
        Some(())
    }
}

/// Returns the mask of slots that these entries copy from, and the previous slot; 0 if the diff is not simple.
fn simple_sources(entries: &[DiffEntry], slot: usize) -> u64 {
    let Some((first, others)) = entries.split_first() else { return 0 };
    let is_copy = |piece: &DiffEntry| piece.len == 0 || usize::from(piece.len) >= SHORTEST;
    if slot == 0 || first.own > 0 || !others.iter().all(is_copy) {
        return 0;
    }
    let copies = others.iter().filter(|piece| piece.len > 0).chain([first]);
    copies.fold(1 << (slot - 1), |from, piece| from | 1 << (slot - usize::from(piece.back)))
}

fn quote(text: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(b'"', &text[from..]).map(|at| from + at)
}

/// Returns the position of quote number `passed` (from 0) at or after `from`.
fn skip(text: &[u8], from: usize, passed: usize) -> Option<usize> {
    memchr::memchr_iter(b'"', &text[from..]).nth(passed).map(|at| from + at)
}

/// A hash table of positions in the identities of a page, for text that the aligned identity does not predict.
struct PositionTable(Vec<Option<(u8, u16)>>);

thread_local! {
    static POSITIONS: RefCell<PositionTable> = const { RefCell::new(PositionTable(Vec::new())) };
}

impl PositionTable {
    fn clear(&mut self) {
        self.0.clear();
        self.0.resize(1 << HASH_BITS, None);
    }

    fn hash(text: &[u8]) -> Option<usize> {
        let word = u64::from_le_bytes(*text.first_chunk()?) << 8;
        Some((word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS)) as usize)
    }

    fn insert(&mut self, text: &[u8], slot: usize, at: usize) {
        if let (Some(hash), Ok(slot), Ok(at)) = (Self::hash(text), slot.try_into(), at.try_into()) {
            self.0[hash] = Some((slot, at));
        }
    }

    /// Returns the slot, the position and the length of a match for `text` in the `known` identities.
    fn find(&self, text: &[u8], known: &[&[u8]]) -> Option<(usize, usize, usize)> {
        let (slot, at) = self.0[Self::hash(text)?]?;
        let (slot, at) = (usize::from(slot), usize::from(at));
        let len = common_prefix(text, known.get(slot)?.get(at..)?);
        (len >= SHORTEST_FOUND).then_some((slot, at, len))
    }
}
