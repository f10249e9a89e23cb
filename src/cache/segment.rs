//! Segments: a piece of text for each object of a page, one allocation.

use std::ops::Range;
use std::sync::Arc;

use super::tails::PAGE;

/// One piece of text for each object of a page, in one allocation.
///
/// A piece that equals the one before it is not stored again: phases, restart policies, tolerations and
/// the like are the same for most objects that stand side by side, and a segment of such a family
/// shrinks to one piece.
///
/// Layout: the number of pieces, the width in bytes of a length (1, 2 or 4), a bit for each piece that
/// repeats the one before (8 bytes), and of the pieces that do not: lengths and texts. Numbers are in
/// little endian.
#[derive(Clone, Debug)]
pub(super) struct Segment(Arc<[u8]>);

/// The pieces of a segment for so many objects, of which the last ones may have come after it.
pub(super) fn padded(segment: Option<&Segment>, len: usize) -> impl Iterator<Item = &[u8]> {
    let pieces = segment.into_iter().flat_map(Segment::iter);
    pieces.chain(std::iter::repeat(&[][..])).take(len)
}

/// The width in bytes of a length.
fn width(longest: usize) -> u8 {
    match longest {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// Bytes before the lengths.
const HEAD: usize = 10;

impl Segment {
    /// A segment of these pieces, at most [`PAGE`]; `None` if there is no text.
    pub(super) fn new<'p>(
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

    /// The same segment with another piece in `slot`, from the bytes of this one: what stands before and
    /// behind is copied as it is. `None` if the piece does not fit into the layout.
    fn replaced(&self, slot: usize, piece: &[u8], scratch: &mut Scratch) -> Option<Option<Self>> {
        let (count, width, repeats) = (self.pieces(), self.width(), self.repeats());
        if slot >= count || usize::from(self::width(piece.len())) > width {
            return None;
        }
        let next = (slot + 1 < count).then(|| self.piece(slot + 1));
        let repeated = slot > 0 && self.piece(slot - 1) == piece;
        let next_repeated = next == Some(piece);
        // What is stored of the two, and where the stored ones before and behind them end and begin.
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

    /// How many pieces are stored for the slots before `slot`.
    fn stored(&self, slot: usize) -> usize {
        let before = u64::MAX.checked_shr((PAGE - slot) as u32).unwrap_or(0);
        slot - (self.repeats() & before).count_ones() as usize
    }

    /// Where the text of stored piece number `stored` begins.
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

    pub(super) fn pieces(&self) -> usize {
        usize::from(self.0[0])
    }

    fn width(&self) -> usize {
        usize::from(self.0[1])
    }

    fn repeats(&self) -> u64 {
        self.0[2..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The length of stored piece number `stored`.
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

    /// Where the texts begin.
    fn body(&self) -> usize {
        HEAD + (self.pieces() - self.repeats().count_ones() as usize) * self.width()
    }

    /// The piece of `slot`, empty for an object that came after the segment.
    pub(super) fn piece(&self, slot: usize) -> &[u8] {
        if slot >= self.pieces() {
            return &[];
        }
        // Of the pieces up to this one, those that repeat are not stored.
        let stored = self.stored(slot + 1) - 1;
        let start = self.start(stored);
        &self.0[start..start + self.len(stored)]
    }

    /// The pieces in order, empty ones and repeated ones too.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (mut end, mut stored, repeats) = (self.body(), 0, self.repeats());
        let mut piece: &[u8] = &[];
        (0..self.pieces()).map(move |slot| {
            if repeats >> slot & 1 == 0 {
                let start = end;
                end += self.len(stored);
                stored += 1;
                piece = &self.0[start..end];
            }
            piece
        })
    }

    /// Neighbours with the same piece, in order, and that.
    #[inline]
    pub(super) fn runs(&self) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        let (mut end, mut slot, repeats) = (self.body(), 0, self.repeats());
        let pieces = self.pieces();
        (0..).map_while(move |stored| {
            let first = (slot < pieces).then_some(slot)?;
            let start = end;
            end += self.len(stored);
            // A shift by all bits leaves none.
            let again = repeats.checked_shr(first as u32 + 1).unwrap_or(0).trailing_ones();
            slot = (first + 1 + again as usize).min(pieces);
            Some((first..slot, &self.0[start..end]))
        })
    }

    /// The first slot with lines, the last one, and the lines of that.
    pub(super) fn ends(&self) -> Option<(usize, usize, &[u8])> {
        let mut present = self.runs().filter(|(_, lines)| !lines.is_empty());
        let first = present.next()?;
        let start = first.0.start;
        let (last, lines) = present.last().unwrap_or(first);
        Some((start, last.end - 1, lines))
    }

    /// How many lines there are that do not repeat the object before, and how many objects have lines.
    pub(super) fn own_lines(&self) -> (usize, usize) {
        let present = self.runs().filter(|(_, lines)| !lines.is_empty());
        let present = present.map(|(slots, _)| slots.len()).sum();
        (memchr::memchr_iter(b'\n', &self.0[self.body()..]).count(), present)
    }

    /// Bytes of the allocation.
    pub(super) fn size(&self) -> usize {
        self.0.len()
    }
}

/// Buffers that updates share.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    lens: Vec<u32>,
    text: Vec<u8>,
    bytes: Vec<u8>,
}

/// Makes `piece` the piece of `slot` in a segment of a page of `len` objects; tells whether it was
/// another before.
pub(super) fn set(
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
    if old.piece(slot) == piece {
        return false;
    }
    if let Some(replaced) = old.replaced(slot, piece, scratch) {
        *segment = replaced;
        return true;
    }
    // A segment that came to be before the page's later objects has no piece for them yet.
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

    /// Pieces put one at a time, in any order, give the segment that they give at once.
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
