//! How the identities of a page's objects differ from each other: the same in every family, and the bulk
//! of what is new in most.
//!
//! An identity is written as bytes of its own and copies from identities of the same page. That is worked
//! out once and noted with the page, along with the bits of the bytes of its own in the code of the
//! resource.

use std::cell::RefCell;

use super::huffman::Code;
use super::search::common;
use super::symbols::{RUN_BITS, Run};

/// Objects in a page.
pub const PAGE: usize = 64;

/// A copy costs about as much as four literals.
const SHORTEST: usize = 4;
/// From any other place than the one at hand, a copy costs as much as six.
const SHORTEST_FOUND: usize = 7;
const HASH_BITS: u32 = 11;

/// For each object of a page, how its identity is written.
#[derive(Debug)]
pub(super) struct Tails {
    /// The code that the bits are of.
    code: u64,
    words: Box<[u64]>,
    pieces: Box<[Piece]>,
    shapes: Box<[Shape]>,
    /// The length of the longest identity.
    longest: usize,
}

/// An identity as a whole.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// The slots that it copies from, and that before it, a bit each; none if a copy of it is too short to be one.
    from: u64,
    /// Where its pieces end.
    end: u16,
    /// Its length in bytes.
    len: u16,
}

/// Bytes of an identity's own, then bytes that an identity before it has too.
#[derive(Clone, Copy, Debug)]
struct Piece {
    own: u16,
    /// Where in `words` the bits of these end, and how many bits the last word holds.
    own_end: u16,
    own_last: u8,
    /// How many objects before.
    back: u8,
    /// How many bytes are copied, and where in that identity they begin.
    len: u16,
    from: u16,
}

/// An identity of which every copy is long enough to be one, the first with at least [`SHORTEST`] bytes before it.
#[derive(Clone, Debug)]
pub(super) struct Plain<'a> {
    /// The slots that it copies from, and that before it, a bit each.
    pub(super) from: u64,
    /// Its length in bytes.
    pub(super) len: usize,
    /// Its parts, of which the first has no bytes of its own.
    pub(super) parts: Parts<'a>,
}

/// How the identity of an object is written, part by part.
#[derive(Clone, Debug)]
pub(super) struct Parts<'a> {
    pieces: std::slice::Iter<'a, Piece>,
    /// Which piece of the page comes next.
    place: u16,
    words: &'a [u64],
    /// Where in `words` the bits of the next part begin.
    word: usize,
}

/// A part of an identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    /// Number of bytes of its own.
    pub(super) own: usize,
    /// The bits of these in the code of the tails, if they have one.
    pub(super) bits: Run<'a>,
    /// How many objects before the one is whose identity goes on like this one.
    pub(super) back: usize,
    /// Where in that identity.
    pub(super) from: usize,
    /// For how many bytes.
    pub(super) len: usize,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    #[inline]
    fn next(&mut self) -> Option<Part<'a>> {
        let piece = self.pieces.next()?;
        let from = std::mem::replace(&mut self.word, usize::from(piece.own_end));
        let words = self.words.get(from..self.word).unwrap_or_default();
        let place = self.place;
        self.place += 1;
        Some(Part {
            own: usize::from(piece.own),
            bits: Run { words, last: u32::from(piece.own_last), place },
            back: usize::from(piece.back),
            from: usize::from(piece.from),
            len: usize::from(piece.len),
        })
    }
}

impl Parts<'_> {
    /// How many objects before the one is with which the first part begins.
    #[inline]
    pub(super) fn back(&self) -> Option<usize> {
        self.pieces.as_slice().first().map(|piece| usize::from(piece.back))
    }
}

impl Tails {
    /// Of these identities; those too long to be noted are left out with all behind them. Without a code
    /// no bits are noted.
    pub(super) fn new<'p>(code: Option<&Code>, identities: impl Iterator<Item = &'p [u8]>) -> Self {
        let id = code.map_or(0, Code::id);
        let mut noted = Noted { code, words: Vec::new(), pieces: Vec::new() };
        let (mut shapes, mut longest) = (Vec::new(), 0);
        let mut known: Vec<&[u8]> = Vec::new();
        PLACES.with_borrow_mut(|places| {
            places.clear();
            for identity in identities.take(PAGE) {
                let start = noted.pieces.len();
                if noted.identity(identity, &known, places).is_none() {
                    break;
                }
                let (Ok(end), Ok(len)) = (noted.pieces.len().try_into(), identity.len().try_into())
                else {
                    break;
                };
                let from = plain(&noted.pieces[start..], known.len());
                shapes.push(Shape { from, end, len });
                longest = longest.max(identity.len());
                known.push(identity);
            }
        });
        let Noted { words, pieces, .. } = noted;
        let (words, pieces, shapes) = (words.into(), pieces.into(), shapes.into());
        Self { code: id, words, pieces, shapes, longest }
    }

    /// Whether the bits are of this code.
    pub(super) fn are_of(&self, code: &Code) -> bool {
        self.code == code.id()
    }

    /// Whether bits are known in the code with this number, which is not 0.
    pub(super) fn are_in(&self, code: u64) -> bool {
        code == self.code && code != 0
    }

    /// The identity of `slot`, which there is only if it was noted.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<Parts<'_>> {
        let end = self.shapes.get(slot)?.end;
        let place = slot.checked_sub(1).map_or(0, |before| self.shapes[before].end);
        let pieces = self.pieces.get(usize::from(place)..usize::from(end))?.iter();
        Some(Parts { pieces, place, words: &self.words, word: self.word(usize::from(place)) })
    }

    /// Where in `words` the bits of a piece begin.
    #[inline]
    fn word(&self, place: usize) -> usize {
        place.checked_sub(1).map_or(0, |before| usize::from(self.pieces[before].own_end))
    }

    /// The run with this place.
    #[inline]
    pub(super) fn run(&self, place: u16) -> Run<'_> {
        let piece = self.pieces[usize::from(place)];
        let words = &self.words[self.word(usize::from(place))..usize::from(piece.own_end)];
        Run { words, last: u32::from(piece.own_last), place }
    }

    /// The identity of `slot`, if it is plain.
    #[inline]
    pub(super) fn plain(&self, slot: usize) -> Option<Plain<'_>> {
        let Shape { from, len, .. } = *self.shapes.get(slot).filter(|shape| shape.from != 0)?;
        Some(Plain { from, len: usize::from(len), parts: self.get(slot)? })
    }

    /// Bytes of runs that take several words.
    pub(super) fn long_runs(&self) -> usize {
        let own = self.pieces.iter().map(|piece| usize::from(piece.own));
        own.filter(|own| *own > RUN_BITS as usize / 5).sum()
    }

    /// The length of an identity in bytes, if it was noted.
    #[inline]
    pub(super) fn len(&self, slot: usize) -> Option<usize> {
        self.shapes.get(slot).map(|shape| usize::from(shape.len))
    }

    /// The length of the longest identity in bytes.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }
}

struct Noted<'c> {
    code: Option<&'c Code>,
    words: Vec<u64>,
    pieces: Vec<Piece>,
}

impl Noted<'_> {
    /// Notes how `new` is written, which comes behind the identities that are `known`.
    fn identity(&mut self, new: &[u8], known: &[&[u8]], places: &mut Places) -> Option<()> {
        // The one before, unless another begins with more of it: objects may stand in any order.
        let (mut back, mut i) = (1, known.last().map_or(0, |old| common(new, old)));
        for (at, old) in known.iter().rev().enumerate().skip(1) {
            let same = common(new, old);
            if same > i + SHORTEST {
                (back, i) = (at + 1, same);
            }
        }
        let old = known.len().checked_sub(back).map_or(&[][..], |slot| known[slot]);
        // The first copy takes the name before the identity with it and is noted whatever its length.
        self.piece(b"", (back, 0), i)?;
        let mut j = i;
        while i < new.len() {
            let start = i;
            let mut written = i;
            // Up to the next quote, at which both begin a name or a value again.
            let stop = quote(new, i).unwrap_or(new.len());
            while i < stop {
                let found = places.find(&new[i..], known);
                places.insert(&new[i..], known.len(), i);
                match found {
                    Some((slot, from, len)) => {
                        self.piece(&new[written..i], (known.len() - slot, from), len)?;
                        (1..len).for_each(|at| places.insert(&new[i + at..], known.len(), i + at));
                        i += len;
                        written = i;
                    }
                    None => i += 1,
                }
            }
            let passed = memchr::memchr_iter(b'"', &new[start..i]).count();
            if i < new.len() && new[i] != b'"' {
                // In the middle of a later label.
                self.piece(&new[written..i], (0, 0), 0)?;
                j = skip(old, j, passed).unwrap_or(old.len());
                continue;
            }
            j = skip(old, j, passed).unwrap_or(old.len());
            let again = common(&new[i..], &old[j..]);
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
        self.pieces.push(Piece {
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

/// The slots that these pieces of the identity in `slot` copy from, and that before it; none if they are not plain.
fn plain(pieces: &[Piece], slot: usize) -> u64 {
    let Some((first, others)) = pieces.split_first() else { return 0 };
    let is_copy = |piece: &Piece| piece.len == 0 || usize::from(piece.len) >= SHORTEST;
    if slot == 0 || first.own > 0 || !others.iter().all(is_copy) {
        return 0;
    }
    let copies = others.iter().filter(|piece| piece.len > 0).chain([first]);
    copies.fold(1 << (slot - 1), |from, piece| from | 1 << (slot - usize::from(piece.back)))
}

fn quote(text: &[u8], from: usize) -> Option<usize> {
    memchr::memchr(b'"', &text[from..]).map(|at| from + at)
}

/// The place of quote number `passed` (0 for the first) of `text` from `from` on.
fn skip(text: &[u8], from: usize, passed: usize) -> Option<usize> {
    memchr::memchr_iter(b'"', &text[from..]).nth(passed).map(|at| from + at)
}

/// Where, in the identities of a page, the text is that no neighbour foretold.
struct Places(Vec<Option<(u8, u16)>>);

thread_local! {
    static PLACES: RefCell<Places> = const { RefCell::new(Places(Vec::new())) };
}

impl Places {
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

    /// Which of the `known` identities goes on like `text`, where in it, and for how long.
    fn find(&self, text: &[u8], known: &[&[u8]]) -> Option<(usize, usize, usize)> {
        let (slot, at) = self.0[Self::hash(text)?]?;
        let (slot, at) = (usize::from(slot), usize::from(at));
        let len = common(text, known.get(slot)?.get(at..)?);
        (len >= SHORTEST_FOUND).then_some((slot, at, len))
    }
}
