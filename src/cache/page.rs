//! Pages: the templated text of up to 64 objects, laid out by family.
//!
//! Objects × families is the number of pieces a scrape walks. With the pieces of 64 objects behind one
//! another it walks memory in order, where a blob for each object costs a cache miss for each piece
//! (measured at 100,000 pods × 60 families: seven times the time of a copy, whichever way a blob is
//! laid out). A larger page makes an update, which rebuilds a segment, dearer.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwapOption;

use super::bits::Encoded;
use super::crc::Checksum;
use super::huffman::Code;
use super::schema::{Family, Rendered, Size};
pub use super::tails::PAGE;
use super::tails::Tails;

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
fn padded(segment: Option<&Segment>, len: usize) -> impl Iterator<Item = &[u8]> {
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
    fn new<'p>(pieces: impl Iterator<Item = &'p [u8]>, scratch: &mut Scratch) -> Option<Self> {
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
            _ => (0..stored).map(|stored| self.len(stored)).sum(),
        };
        self.body() + before
    }

    fn pieces(&self) -> usize {
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
    fn piece(&self, slot: usize) -> &[u8] {
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

    /// Bytes of the allocation.
    fn size(&self) -> usize {
        self.0.len()
    }
}

/// The longest segment, in bytes, whose bits are noted: to search it takes a millisecond or two.
const NOTED: usize = 128 * 1024;

/// Families that share a mark.
const GROUP: usize = 4;

/// Tells an object's text in [`GROUP`] families from any other. Most updates change a few families; with
/// the marks of an object side by side, the others are known to be the same without a look at their
/// segments, each of which is a cache miss or two. Two texts share a mark with a probability of 2^-64,
/// seeded by the process.
type Mark = u64;

static MARKS: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// The marks of an object, one for each group of its families.
fn marks(object: &Rendered) -> impl Iterator<Item = Mark> {
    let mut start = 0;
    object.ends.chunks(GROUP).map(move |ends| {
        let mut hasher = MARKS.build_hasher();
        for end in ends {
            hasher.write_u32(end - start);
        }
        let end = ends.last().copied().unwrap_or(start);
        hasher.write(&object.lines[start as usize..end as usize]);
        start = end;
        hasher.finish()
    })
}

/// The text of up to [`PAGE`] objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    /// How many objects there are.
    len: usize,
    /// The namespace of each object.
    namespaces: Option<Segment>,
    /// What each object's lines have between name and rest.
    identities: Option<Segment>,
    /// For each family, each object's lines.
    families: Vec<Option<Segment>>,
    /// For each object, the marks of its groups of families.
    marks: Vec<Mark>,
    /// For each family, what is known of the checksum of its text.
    sums: Vec<KnownSum>,
    /// What is known of the size of all text.
    size: KnownSize,
    /// What gzip scrapes know of the identities: their tails in some code.
    tails: Known<Tails>,
    /// What they know of families that are searched: all of their bits.
    encoded: Known<Vec<(usize, Arc<Encoded>)>>,
}

/// What scrapes note with a page; nothing at first.
#[derive(Debug)]
struct Known<T>(ArcSwapOption<T>);

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> Clone for Known<T> {
    fn clone(&self) -> Self {
        Self(ArcSwapOption::new(self.0.load_full()))
    }
}

impl Known<Vec<(usize, Arc<Encoded>)>> {
    fn forget(&mut self, family: usize) {
        let old = self.0.load_full();
        if let Some(old) = old.filter(|old| old.iter().any(|(other, _)| *other == family)) {
            let mut kept = Vec::clone(&old);
            kept.retain(|(other, _)| *other != family);
            self.0.store((!kept.is_empty()).then(|| Arc::new(kept)));
        }
    }
}

/// The checksum of a segment's text: CRC above, length below; 0 while unknown.
#[derive(Debug, Default)]
struct KnownSum(AtomicU64);

impl Clone for KnownSum {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// Series above, bytes below; 0 while unknown.
#[derive(Debug, Default)]
struct KnownSize(AtomicU64);

/// Bits of the bytes of a [`KnownSize`]: a terabyte, and 16 million series. A larger page is looked at each time.
const SIZE_BITS: u32 = 40;

impl Clone for KnownSize {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl KnownSize {
    fn get(&self) -> Option<Size> {
        let known = self.0.load(Ordering::Relaxed);
        let size = Size { series: known >> SIZE_BITS, bytes: known & ((1 << SIZE_BITS) - 1) };
        (known != 0).then_some(size)
    }

    fn note(&self, Size { series, bytes }: Size) {
        if bytes >> SIZE_BITS == 0 && series >> (u64::BITS - SIZE_BITS) == 0 {
            self.0.store(series << SIZE_BITS | bytes, Ordering::Relaxed);
        }
    }
}

impl Page {
    pub(super) fn new(families: usize) -> Self {
        let (families, sums) = (vec![None; families], vec![KnownSum::default(); families]);
        Self { families, sums, ..Self::default() }
    }

    /// The identities' tails in `code`.
    pub(super) fn tails(&self, code: &Code) -> Arc<Tails> {
        match self.tails.0.load_full() {
            Some(tails) if tails.are_of(code) => tails,
            _ => {
                let identities = self.identities.iter().flat_map(Segment::iter);
                let tails = Arc::new(Tails::new(Some(code), identities));
                self.tails.0.store(Some(Arc::clone(&tails)));
                tails
            }
        }
    }

    /// Whether the text of a family is short enough to be made into bits in one go.
    pub(super) fn is_noted(&self, family: usize) -> bool {
        self.family(family).is_some_and(|segment| segment.size() <= NOTED)
    }

    /// The bits of a whole family in `code`: the noted ones, or else what `encode` makes of it.
    pub(super) fn encoded(
        &self,
        family: usize,
        code: &Code,
        encode: impl FnOnce() -> Encoded,
    ) -> Arc<Encoded> {
        let noted = self.encoded.0.load();
        let noted = noted.iter().flat_map(|noted| noted.iter());
        let known = noted.clone().find(|(other, known)| *other == family && known.is_in(code));
        if let Some((_, known)) = known {
            return Arc::clone(known);
        }
        let new = Arc::new(encode());
        self.encoded.0.rcu(|noted| {
            let others = noted.iter().flat_map(|noted| noted.iter());
            let others = others.filter(|(other, _)| *other != family).cloned();
            Some(Arc::new(others.chain([(family, Arc::clone(&new))]).collect()))
        });
        new
    }

    /// Bytes of the noted bits.
    #[cfg(test)]
    pub(super) fn noted(&self) -> usize {
        let noted = self.encoded.0.load();
        noted.iter().flat_map(|noted| noted.iter()).map(|(_, encoded)| encoded.len()).sum()
    }

    /// The identities' tails without the bits of any code, which is not noted.
    pub(super) fn shape(&self) -> Tails {
        Tails::new(None, self.identities.iter().flat_map(Segment::iter))
    }

    /// The length in bytes of a family's text.
    pub(super) fn text_len(&self, name: &str, family: usize) -> usize {
        let Some(segment) = self.family(family) else { return 0 };
        let mut identities = self.identities.iter().flat_map(Segment::iter);
        let lens = segment.iter().map(|lines| {
            let head = name.len() + identities.next().map_or(0, <[u8]>::len);
            lines.len() + head * memchr::memchr_iter(b'\n', lines).count()
        });
        lens.sum()
    }

    /// The size of the text of all families, which are these; what is found is noted until an object changes.
    pub(super) fn size(&self, families: &[Family]) -> Size {
        if let Some(size) = self.size.get() {
            return size;
        }
        let mut size = Size::default();
        for (family, segment) in families.iter().zip(&self.families) {
            let Some(segment) = segment else { continue };
            let mut identities = self.identities.iter().flat_map(Segment::iter);
            // Neighbours mostly have the same lines, then also in memory.
            let (mut last, mut series): (&[u8], u64) = (&[], 0);
            for lines in segment.iter() {
                let head = family.name.len() + identities.next().map_or(0, <[u8]>::len);
                if !std::ptr::eq(last, lines) {
                    (last, series) = (lines, memchr::memchr_iter(b'\n', lines).count() as u64);
                }
                size.series += series;
                size.bytes += lines.len() as u64 + series * head as u64;
            }
        }
        self.size.note(size);
        size
    }

    /// The checksum of a family's text: the known one, or else what `compute` tells.
    pub(super) fn checksum(
        &self,
        family: usize,
        compute: impl FnOnce(&Self) -> Checksum,
    ) -> Checksum {
        let Some(KnownSum(known)) = self.sums.get(family) else { return compute(self) };
        match known.load(Ordering::Relaxed) {
            0 => {
                let sum = compute(self);
                // A text of 4 GiB or more is not noted; nothing else depends on the note.
                if let Ok(len) = u32::try_from(sum.len) {
                    known.store(u64::from(sum.crc) << 32 | u64::from(len), Ordering::Relaxed);
                }
                sum
            }
            known => Checksum { crc: (known >> 32) as u32, len: known & 0xffff_ffff },
        }
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The lines of `family`, object by object.
    #[inline]
    pub(super) fn family(&self, family: usize) -> Option<&Segment> {
        self.families.get(family)?.as_ref()
    }

    /// The lines of `family` of the object in `slot`.
    pub(super) fn lines(&self, family: usize, slot: usize) -> &[u8] {
        self.family(family).map_or(&[], |segment| segment.piece(slot))
    }

    /// Bytes that the text of `family` takes.
    pub(super) fn family_bytes(&self, family: usize) -> usize {
        self.family(family).map_or(0, Segment::size)
    }

    /// Bytes that everything else takes: namespaces, identities, marks.
    pub(super) fn other_bytes(&self) -> usize {
        let texts = [&self.namespaces, &self.identities].into_iter().flatten();
        texts.map(Segment::size).sum::<usize>() + size_of_val(&*self.marks)
    }

    /// The namespace of each object.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &[u8]> {
        padded(self.namespaces.as_ref(), self.len)
    }

    /// The identities, in the order of the objects; empty for a page whose objects have none.
    pub(super) fn identities(&self) -> Option<&Segment> {
        self.identities.as_ref()
    }

    /// The identity of the object in `slot`; empty if there is none.
    pub(super) fn identity(&self, slot: usize) -> &[u8] {
        self.identities.as_ref().map_or(&[], |identities| identities.piece(slot))
    }

    /// The slot behind those whose identities come before this one.
    pub(super) fn slot_for(&self, identity: &[u8]) -> usize {
        padded(self.identities.as_ref(), self.len).take_while(|other| *other <= identity).count()
    }

    /// Puts an object into the place of the one in `slot`.
    pub(super) fn put(&mut self, slot: usize, object: &Rendered, scratch: &mut Scratch) {
        set(&mut self.namespaces, self.len, slot, &object.namespace, scratch);
        if set(&mut self.identities, self.len, slot, &object.identity, scratch) {
            self.forget();
        }
        let first = self.marks_of(slot).start;
        for (group, mark) in marks(object).enumerate() {
            match self.marks.get_mut(first + group) {
                Some(old) if *old != mark => *old = mark,
                _ => continue,
            }
            self.put_group(group, slot, object, scratch);
        }
    }

    /// Inserts an object before the one in `slot`.
    pub(super) fn insert(&mut self, slot: usize, object: &Rendered, scratch: &mut Scratch) {
        let (len, first) = (self.len, self.marks_of(slot).start);
        self.len += 1;
        self.forget();
        self.marks.splice(first..first, marks(object));
        let families = (0..).map(|family| object.family(family));
        let pieces = [&object.namespace[..], &object.identity].into_iter().chain(families);
        for (segment, piece) in self.segments_mut().zip(pieces) {
            let old = segment.as_ref();
            // A segment need not have the empty pieces at its end.
            if !piece.is_empty() || old.is_some_and(|old| old.pieces() > slot) {
                let (before, behind) = (padded(old, slot), padded(old, len).skip(slot));
                *segment = Segment::new(before.chain([piece]).chain(behind), scratch);
            }
        }
    }

    /// Takes the object in `slot` away.
    pub(super) fn remove(&mut self, slot: usize, scratch: &mut Scratch) {
        self.len -= 1;
        self.forget();
        self.marks.drain(self.marks_of(slot));
        for segment in self.segments_mut() {
            if let Some(old) = segment.as_ref().filter(|old| old.pieces() > slot) {
                let others = old.iter().enumerate().filter(|(at, _)| *at != slot);
                *segment = Segment::new(others.map(|(_, piece)| piece), scratch);
            }
        }
    }

    /// Takes the objects from slot `at` on out, as another page.
    pub(super) fn split_off(&mut self, at: usize, scratch: &mut Scratch) -> Self {
        let mut upper = Self::new(self.families.len());
        upper.len = self.len - at;
        upper.marks = self.marks.split_off(self.marks_of(at).start);
        self.len = at;
        self.forget();
        for (segment, upper) in self.segments_mut().zip(upper.segments_mut()) {
            if let Some(old) = segment.as_ref().filter(|old| old.pieces() > at) {
                *upper = Segment::new(old.iter().skip(at), scratch);
                *segment = Segment::new(old.iter().take(at), scratch);
            }
        }
        upper
    }

    /// Adds the objects of another page behind those of this one.
    pub(super) fn append(&mut self, other: &Self, scratch: &mut Scratch) {
        let len = self.len;
        self.len += other.len;
        self.forget();
        self.marks.extend_from_slice(&other.marks);
        for (segment, other) in self.segments_mut().zip(other.segments()) {
            if let Some(other) = other {
                let pieces = padded(segment.as_ref(), len).chain(other.iter());
                *segment = Segment::new(pieces, scratch);
            }
        }
    }

    /// Namespaces first, then identities, then the families.
    fn segments_mut(&mut self) -> impl Iterator<Item = &mut Option<Segment>> {
        [&mut self.namespaces, &mut self.identities].into_iter().chain(&mut self.families)
    }

    /// The same.
    fn segments(&self) -> impl Iterator<Item = &Option<Segment>> {
        [&self.namespaces, &self.identities].into_iter().chain(&self.families)
    }

    /// Which objects are of these namespaces: a bit for each slot.
    pub(super) fn slots_of(&self, namespaces: &BTreeSet<Vec<u8>>) -> u64 {
        let (mut slots, mut wanted): (u64, bool) = (0, false);
        let mut last: &[u8] = &[];
        for (slot, namespace) in self.namespaces.iter().flat_map(Segment::iter).enumerate() {
            // Neighbours mostly share it, then also in memory.
            if !std::ptr::eq(last, namespace) {
                (last, wanted) = (namespace, namespaces.contains(namespace));
            }
            slots |= u64::from(wanted) << slot;
        }
        slots
    }

    /// Whether these bits are all of its objects.
    pub(super) fn is_all(&self, slots: u64) -> bool {
        slots.count_ones() as usize == self.len
    }

    /// A page of some of its objects, of which nothing is noted.
    pub(super) fn only(&self, slots: u64, scratch: &mut Scratch) -> Self {
        let is_kept = |slot: usize| slots >> slot & 1 == 1;
        let mut page = Self::new(self.families.len());
        page.len = slots.count_ones() as usize;
        for slot in (0..self.len).filter(|slot| is_kept(*slot)) {
            page.marks.extend_from_slice(&self.marks[self.marks_of(slot)]);
        }
        for (segment, whole) in page.segments_mut().zip(self.segments()) {
            let pieces = padded(whole.as_ref(), self.len).enumerate();
            let kept = pieces.filter(|(slot, _)| is_kept(*slot)).map(|(_, piece)| piece);
            *segment = Segment::new(kept, scratch);
        }
        page
    }

    /// Where the marks of the object in `slot` are: one for each group of families.
    fn marks_of(&self, slot: usize) -> Range<usize> {
        let groups = self.families.len().div_ceil(GROUP);
        slot * groups..(slot + 1) * groups
    }

    /// Forgets what scrapes noted: the objects are no longer those of before.
    fn forget(&mut self) {
        (self.tails, self.encoded) = Default::default();
        self.size = KnownSize::default();
        self.sums.fill(KnownSum::default());
    }

    fn put_group(&mut self, group: usize, slot: usize, object: &Rendered, scratch: &mut Scratch) {
        let start = group * GROUP;
        let families: Range<usize> = start..(start + GROUP).min(self.families.len());
        for family in families {
            let segment = &mut self.families[family];
            if set(segment, self.len, slot, object.family(family), scratch) {
                self.sums[family] = KnownSum::default();
                self.size = KnownSize::default();
                self.encoded.forget(family);
            }
        }
    }

    /// Copies the object in `slot` out, as it was put in (without its uid).
    pub(super) fn copy_out(&self, slot: usize, object: &mut Rendered) {
        object.clear();
        if let Some(namespaces) = &self.namespaces {
            object.namespace.extend_from_slice(namespaces.piece(slot));
        }
        if let Some(identities) = &self.identities {
            object.identity.extend_from_slice(identities.piece(slot));
        }
        for segment in &self.families {
            if let Some(segment) = segment {
                object.lines.extend_from_slice(segment.piece(slot));
            }
            object.ends.push(object.lines.len() as u32);
        }
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
fn set(
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

/// Fills a page from objects that come one after the other, building each segment once.
#[derive(Debug)]
pub(super) struct PageBuilder {
    len: usize,
    /// Namespaces first, then identities, then the families: lengths and text.
    columns: Vec<(Vec<u32>, Vec<u8>)>,
    marks: Vec<Mark>,
    scratch: Scratch,
}

impl PageBuilder {
    pub(super) fn new(families: usize) -> Self {
        Self {
            len: 0,
            columns: vec![Default::default(); families + 2],
            marks: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Adds an object; the caller takes the page when [`PAGE`] are in.
    pub(super) fn push(&mut self, object: &Rendered) {
        self.len += 1;
        self.marks.extend(marks(object));
        let Some((about, families)) = self.columns.split_first_chunk_mut::<2>() else {
            return;
        };
        for ((lens, text), piece) in about.iter_mut().zip([&object.namespace, &object.identity]) {
            lens.push(piece.len() as u32);
            text.extend_from_slice(piece);
        }
        for (at, (lens, text)) in families.iter_mut().enumerate() {
            let lines = object.family(at);
            lens.push(lines.len() as u32);
            text.extend_from_slice(lines);
        }
    }

    /// The page of what was added, leaving the builder empty.
    pub(super) fn take(&mut self) -> Page {
        let mut segments = self.columns.iter_mut().map(|(lens, text)| {
            let mut rest = &text[..];
            let pieces = lens.iter().map(|&len| {
                let (piece, behind) = rest.split_at(len as usize);
                rest = behind;
                piece
            });
            let segment = Segment::new(pieces, &mut self.scratch);
            lens.clear();
            text.clear();
            segment
        });
        let namespaces = segments.next().flatten();
        let identities = segments.next().flatten();
        let families: Vec<_> = segments.collect();
        let sums = vec![KnownSum::default(); families.len()];
        let len = std::mem::take(&mut self.len);
        let marks = self.marks.to_vec();
        self.marks.clear();
        Page { len, namespaces, identities, families, marks, sums, ..Page::default() }
    }
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
