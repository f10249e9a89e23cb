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

use super::crc::Checksum;
use super::huffman::Code;
use super::recorded::Encoded;
use super::schema::{Family, Rendered, Size};
use super::segment::{Scratch, Segment, padded, set};
pub use super::tails::PAGE;
use super::tails::Tails;

/// The longest segment, in bytes, whose bits are noted: to search it takes a millisecond or two.
const NOTED: usize = 128 * 1024;

/// Families that share a mark.
const GROUP: usize = 8;

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
    /// What they know of families that cost them most: their bits.
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

    /// Namespaces, and of how many neighbours each is that of.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let runs = self.namespaces.iter().flat_map(Segment::runs);
        // The last ones may have none.
        let noted = self.namespaces.as_ref().map_or(0, Segment::pieces);
        let rest = (self.len > noted).then_some((&[][..], self.len - noted));
        runs.map(|(slots, namespace)| (namespace, slots.len())).chain(rest)
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

    /// Puts an object into the place of the one in `slot`; tells whether it has another text.
    pub(super) fn put(&mut self, slot: usize, object: &Rendered, scratch: &mut Scratch) -> bool {
        set(&mut self.namespaces, self.len, slot, &object.namespace, scratch);
        let mut changed = set(&mut self.identities, self.len, slot, &object.identity, scratch);
        if changed {
            self.forget();
        }
        let first = self.marks_of(slot).start;
        for (group, mark) in marks(object).enumerate() {
            match self.marks.get_mut(first + group) {
                Some(old) if *old != mark => *old = mark,
                _ => continue,
            }
            self.put_group(group, slot, object, scratch);
            changed = true;
        }
        changed
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
