//! Segments: columns with one piece of text per object of a page.

use std::ops::Range;
use std::sync::Arc;

/// Maximum number of objects in a page.
pub const PAGE: usize = 64;

/// A column with one piece of text per object of a page, in a single allocation.
///
/// A piece equal to the previous one is not stored again. Phases, restart policies and tolerations are equal for most
/// neighbours, and a segment of such a family shrinks to one piece.
///
/// Layout: the number of pieces (1 byte), the width of a length in bytes (1, 2 or 4), a bit mask of repeated pieces (8
/// bytes), then the lengths and the texts of the stored pieces. Numbers are little-endian.
#[derive(Clone, Debug)]
pub(crate) struct Segment(Arc<[u8]>);

/// Returns `len` pieces of a segment, padded with empty ones for objects added after it.
pub(crate) fn padded(segment: Option<&Segment>, len: usize) -> impl Iterator<Item = &[u8]> {
    let pieces = segment.into_iter().flat_map(Segment::iter);
    pieces.chain(std::iter::repeat(&[][..])).take(len)
}

/// Returns the width in bytes of a length.
fn width(longest: usize) -> u8 {
    match longest {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// Size of the header in bytes.
const HEAD: usize = 10;

impl Segment {
    /// Creates a segment of at most [`PAGE`] pieces. Returns `None` if there is no text.
    pub(crate) fn new<'p>(
        pieces: impl Iterator<Item = &'p [u8]>,
        scratch: &mut Scratch,
    ) -> Option<Self> {
        let Scratch { lens, text, bytes } = scratch;
        lens.clear();
        text.clear();
        let (mut count, mut repeats, mut longest) = (0u8, 0u64, 0);
        let mut last: Option<&[u8]> = None;
        for piece in pieces.take(PAGE) {
            if last == Some(piece) {
                repeats |= 1 << count;
            } else {
                lens.push(piece.len() as u32);
                text.extend_from_slice(piece);
                longest = longest.max(piece.len());
                last = Some(piece);
            }
            count += 1;
        }
        if text.is_empty() {
            return None;
        }
        let width = width(longest);
        bytes.clear();
        bytes.extend_from_slice(&[count, width]);
        bytes.extend_from_slice(&repeats.to_le_bytes());
        for len in lens {
            bytes.extend_from_slice(&len.to_le_bytes()[..usize::from(width)]);
        }
        bytes.extend_from_slice(text);
        Some(Self(Arc::from(&bytes[..])))
    }

    /// Overwrites the piece of `slot` with another one of the same length. Returns false if the layout would change, or if
    /// the segment is shared.
    fn overwrite(&mut self, slot: usize, piece: &[u8]) -> bool {
        let (count, repeats) = (self.pieces(), self.repeats());
        // The piece of this slot is stored for this slot alone, and differs from its neighbours.
        if slot >= count
            || repeats >> slot & 1 == 1
            || slot > 0 && self.piece(slot - 1) == piece
            || slot + 1 < count && (repeats >> (slot + 1) & 1 == 1 || self.piece(slot + 1) == piece)
        {
            return false;
        }
        let stored = self.stored(slot);
        let (start, len) = (self.start(stored), self.len(stored));
        let bytes = Arc::get_mut(&mut self.0).filter(|_| len == piece.len());
        bytes.is_some_and(|bytes| {
            bytes[start..start + len].copy_from_slice(piece);
            true
        })
    }

    /// Returns the segment with another piece in `slot`, copying the bytes before and after it. Returns `None` if the
    /// piece does not fit into the layout.
    fn replaced(&self, slot: usize, piece: &[u8], scratch: &mut Scratch) -> Option<Option<Self>> {
        let (count, width, repeats) = (self.pieces(), self.width(), self.repeats());
        if slot >= count || usize::from(self::width(piece.len())) > width {
            return None;
        }
        let next = (slot + 1 < count).then(|| self.piece(slot + 1));
        let repeated = slot > 0 && self.piece(slot - 1) == piece;
        let next_repeated = next == Some(piece);
        // The stored pieces of the two slots, and the indexes of their neighbours.
        let stored = [(!repeated).then_some(piece), next.filter(|_| !next_repeated)];
        let (before, behind) = (self.stored(slot), self.stored((slot + 2).min(count)));
        let mut bits = repeats & !(0b11 << slot);
        bits |= u64::from(repeated) << slot;
        if next_repeated {
            bits |= 1 << (slot + 1);
        }
        let body = self.body();
        let bytes = &mut scratch.bytes;
        bytes.clear();
        bytes.extend_from_slice(&self.0[..2]);
        bytes.extend_from_slice(&bits.to_le_bytes());
        bytes.extend_from_slice(&self.0[HEAD..HEAD + before * width]);
        for piece in stored.into_iter().flatten() {
            bytes.extend_from_slice(&piece.len().to_le_bytes()[..width]);
        }
        bytes.extend_from_slice(&self.0[HEAD + behind * width..body]);
        let text = bytes.len();
        bytes.extend_from_slice(&self.0[body..self.start(before)]);
        stored.into_iter().flatten().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.extend_from_slice(&self.0[self.start(behind)..]);
        Some((bytes.len() > text).then(|| Self(Arc::from(&bytes[..]))))
    }

    /// Returns the number of pieces stored for the slots before `slot`.
    fn stored(&self, slot: usize) -> usize {
        let before = u64::MAX.checked_shr((PAGE - slot) as u32).unwrap_or(0);
        slot - (self.repeats() & before).count_ones() as usize
    }

    /// Returns the start of stored piece `stored`.
    fn start(&self, stored: usize) -> usize {
        let before: usize = match self.width() {
            1 => self.0[HEAD..HEAD + stored].iter().map(|&len| usize::from(len)).sum(),
            2 => {
                let (lens, _) = self.0[HEAD..HEAD + 2 * stored].as_chunks();
                lens.iter().map(|&len| usize::from(u16::from_le_bytes(len))).sum()
            }
            _ => (0..stored).map(|stored| self.len(stored)).sum(),
        };
        self.body() + before
    }

    pub(crate) fn pieces(&self) -> usize {
        usize::from(self.0[0])
    }

    fn width(&self) -> usize {
        usize::from(self.0[1])
    }

    fn repeats(&self) -> u64 {
        self.0[2..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Returns the length of stored piece `stored`.
    #[inline]
    fn len(&self, stored: usize) -> usize {
        let lens = &self.0[HEAD..];
        match self.width() {
            1 => usize::from(lens[stored]),
            2 => usize::from(u16::from_le_bytes([lens[2 * stored], lens[2 * stored + 1]])),
            _ => {
                let bytes = lens[4 * stored..].first_chunk();
                bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
            }
        }
    }

    /// Returns the start of the texts.
    fn body(&self) -> usize {
        HEAD + (self.pieces() - self.repeats().count_ones() as usize) * self.width()
    }

    /// Returns the piece of `slot`; empty for an object added after the segment.
    pub(crate) fn piece(&self, slot: usize) -> &[u8] {
        if slot >= self.pieces() {
            return &[];
        }
        // Repeated pieces up to this one are not stored.
        let stored = self.stored(slot + 1) - 1;
        let start = self.start(stored);
        &self.0[start..start + self.len(stored)]
    }

    /// Returns all pieces in order, including empty and repeated ones.
    #[inline]
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.iter_from(0)
    }

    /// Returns the pieces from `slot` on, like [`Self::iter`].
    #[inline]
    pub(crate) fn iter_from(&self, slot: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let (mut end, mut stored, repeats) = (self.body(), 0, self.repeats());
        let mut piece: &[u8] = &[];
        let slot = slot.min(self.pieces());
        if slot > 0 {
            stored = self.stored(slot);
            end = self.start(stored);
            piece = self.piece(slot - 1);
        }
        (slot..self.pieces()).map(move |slot| {
            if repeats >> slot & 1 == 0 {
                let start = end;
                end += self.len(stored);
                stored += 1;
                piece = &self.0[start..end];
            }
            piece
        })
    }

    /// Returns the runs of equal pieces in order, with their slots.
    #[inline]
    pub(crate) fn runs(&self) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        let (mut end, mut slot, repeats) = (self.body(), 0, self.repeats());
        let pieces = self.pieces();
        (0..).map_while(move |stored| {
            let first = (slot < pieces).then_some(slot)?;
            let start = end;
            end += self.len(stored);
            // A shift by all bits yields none.
            let again = repeats.checked_shr(first as u32 + 1).unwrap_or(0).trailing_ones();
            slot = (first + 1 + again as usize).min(pieces);
            Some((first..slot, &self.0[start..end]))
        })
    }

    /// Returns the first slot with lines, the last one, and its lines.
    pub(crate) fn ends(&self) -> Option<(usize, usize, &[u8])> {
        let mut present = self.runs().filter(|(_, lines)| !lines.is_empty());
        let first = present.next()?;
        let start = first.0.start;
        let (last, lines) = present.last().unwrap_or(first);
        Some((start, last.end - 1, lines))
    }

    /// Returns the number of lines stored, and the number of objects with lines.
    pub(crate) fn own_lines(&self) -> (usize, usize) {
        let present = self.runs().filter(|(_, lines)| !lines.is_empty());
        let present = present.map(|(slots, _)| slots.len()).sum();
        (memchr::memchr_iter(b'\n', &self.0[self.body()..]).count(), present)
    }

    /// Returns the size of the allocation in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }
}

/// Buffers reused by updates.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    lens: Vec<u32>,
    text: Vec<u8>,
    bytes: Vec<u8>,
}

/// Sets the piece of `slot` in a segment of a page with `len` objects. Returns true if it has changed.
pub(crate) fn set(
    segment: &mut Option<Segment>,
    len: usize,
    slot: usize,
    piece: &[u8],
    scratch: &mut Scratch,
) -> bool {
    let Some(old) = segment else {
        if piece.is_empty() {
            return false;
        }
        let mut pieces = [&[][..]; PAGE];
        pieces[slot] = piece;
        *segment = Segment::new(pieces.into_iter().take(len), scratch);
        return true;
    };
    let before = old.piece(slot);
    if before == piece {
        return false;
    }
    if before.len() == piece.len() && old.overwrite(slot, piece) {
        return true;
    }
    if let Some(replaced) = old.replaced(slot, piece, scratch) {
        *segment = replaced;
        return true;
    }
    // The segment may be shorter than the page.
    let mut pieces = [&[][..]; PAGE];
    for (place, old) in pieces.iter_mut().zip(old.iter()) {
        *place = old;
    }
    pieces[slot] = piece;
    *segment = Segment::new(pieces.into_iter().take(len), scratch);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Setting pieces one at a time, in any order, gives the same segment as creating it at once.
    #[test]
    fn a_segment_is_what_was_put_last_into_each_slot() {
        let mut random = 1u32;
        let mut next = |below: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) as usize % below
        };
        let texts = ["", "a", "bb", "a\n", &"long".repeat(80), &"longer".repeat(20_000)];
        for common in [1, 2, 4, 5, 6] {
            let mut segment = None;
            let mut pieces: Vec<&[u8]> = Vec::new();
            let mut scratch = Scratch::default();
            for _ in 0..3_000 {
                let slot = next((pieces.len() + 1).min(PAGE));
                let piece = texts[next(common)].as_bytes();
                if slot == pieces.len() {
                    pieces.push(b"");
                }
                let other = pieces[slot] != piece;
                pieces[slot] = piece;
                assert_eq!(set(&mut segment, pieces.len(), slot, piece, &mut scratch), other);
                let Some(segment) = &segment else {
                    assert!(pieces.iter().all(|piece| piece.is_empty()));
                    continue;
                };
                let missing = std::iter::repeat_n(&[][..], pieces.len() - segment.pieces());
                let held: Vec<&[u8]> = segment.iter().chain(missing).collect();
                assert!(held == pieces);
                assert!((0..pieces.len()).all(|slot| segment.piece(slot) == pieces[slot]));
                for slot in 0..=pieces.len() {
                    assert!(segment.iter_from(slot).eq(segment.iter().skip(slot)));
                }
                let mut runs = segment.runs().peekable();
                let mut end = 0;
                while let Some((slots, piece)) = runs.next() {
                    assert!(slots.start == end && !slots.is_empty());
                    assert!(pieces[slots.clone()].iter().all(|other| *other == piece));
                    assert!(runs.peek().is_none_or(|(_, next)| *next != piece));
                    end = slots.end;
                }
                assert!(end == segment.pieces());
            }
        }
    }
}
