//! Pages: the templated text of up to 64 objects, laid out by family.
//!
//! A scrape walks objects × families pieces. With the pieces of 64 objects in one segment it reads memory
//! sequentially. One allocation per object would cost a cache miss for each piece: measured with 100,000 pods and 60
//! families, seven times the time of a copy. Larger pages would make updates more expensive, because these rebuild
//! segments.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use super::schema::{Family, Rendered, Size};
pub use crate::deflate::PAGE;
use crate::deflate::{PageMemo, PageSample, Rows, Scratch, Segment, padded, set};

/// Number of families per fingerprint.
const GROUP: usize = 8;

/// A hash of an object's text in [`GROUP`] families. Most updates change a few families. The fingerprints of an
/// object are contiguous, so unchanged families are skipped without reading their segments, which would cost one or
/// two cache misses each. The hash is seeded per process, and two texts collide with a probability of 2^-64.
type Fingerprint = u64;

static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// Returns the fingerprints of an object, one per group of families.
fn fingerprints(object: &Rendered) -> impl Iterator<Item = Fingerprint> {
    let mut start = 0;
    object.ends.chunks(GROUP).map(move |ends| {
        let mut hasher = HASHER.build_hasher();
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
    /// Number of objects in the page.
    len: usize,
    /// Namespaces of the objects.
    namespaces: Option<Segment>,
    /// Text between the name and the rest of each object's lines.
    identities: Option<Segment>,
    /// Lines of the objects, for each family.
    families: Vec<Option<Segment>>,
    /// Fingerprints of the objects, for each group of families.
    fingerprints: Vec<Fingerprint>,
    /// Memoized size of the text.
    size: OnceLock<Size>,
    /// Memoized results of gzip scrapes.
    memo: PageMemo,
}

impl Page {
    pub(super) fn new(families: usize) -> Self {
        Self { families: vec![None; families], memo: PageMemo::new(families), ..Self::default() }
    }

    /// Returns the memoized results of gzip scrapes.
    pub(super) fn memo(&self) -> &PageMemo {
        &self.memo
    }

    /// Returns the lines of a family as input of the encoder.
    pub(super) fn rows<'a>(&'a self, name: &'a str, family: usize) -> Option<Rows<'a>> {
        let (name, identities) = (name.as_bytes(), self.identities.as_ref());
        Some(Rows { name, family, identities, lines: self.family(family)? })
    }

    /// Returns the text as input of the code builder.
    pub(super) fn sample(&self) -> PageSample {
        let (identities, families) = (self.identities.clone(), self.families.clone());
        PageSample { len: self.len, identities, families }
    }

    /// Returns the size of a family's text.
    pub(super) fn family_size(&self, name: &str, family: usize) -> Size {
        let mut size = Size::default();
        let mut identities = self.identities.iter().flat_map(Segment::iter);
        // Neighbours mostly share the same text in memory.
        let (mut last, mut series): (&[u8], u64) = (&[], 0);
        for lines in self.family(family).into_iter().flat_map(Segment::iter) {
            let head = name.len() + identities.next().map_or(0, <[u8]>::len);
            if !std::ptr::eq(last, lines) {
                (last, series) = (lines, memchr::memchr_iter(b'\n', lines).count() as u64);
            }
            size.series += series;
            size.bytes += lines.len() as u64 + series * head as u64;
        }
        size
    }

    /// Returns the size of the text of all `families`, memoized until an object changes.
    pub(super) fn size(&self, families: &[Family]) -> Size {
        *self.size.get_or_init(|| {
            let mut sum = Size::default();
            for (at, family) in families.iter().enumerate() {
                let Size { series, bytes } = self.family_size(&family.name, at);
                sum.series += series;
                sum.bytes += bytes;
            }
            sum
        })
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the segment of a family.
    #[inline]
    pub(super) fn family(&self, family: usize) -> Option<&Segment> {
        self.families.get(family)?.as_ref()
    }

    /// Returns the lines of an object in a family.
    pub(super) fn lines(&self, family: usize, slot: usize) -> &[u8] {
        self.family(family).map_or(&[], |segment| segment.piece(slot))
    }

    /// Returns the memory of a family's segment in bytes.
    pub(super) fn family_bytes(&self, family: usize) -> usize {
        self.family(family).map_or(0, Segment::size)
    }

    /// Returns the memory of namespaces, identities and fingerprints in bytes.
    pub(super) fn other_bytes(&self) -> usize {
        let texts = [&self.namespaces, &self.identities].into_iter().flatten();
        texts.map(Segment::size).sum::<usize>() + size_of_val(&*self.fingerprints)
    }

    /// Returns the namespaces, each with the number of consecutive objects.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (&[u8], usize)> {
        let runs = self.namespaces.iter().flat_map(Segment::runs);
        // The last objects may have none.
        let noted = self.namespaces.as_ref().map_or(0, Segment::pieces);
        let rest = (self.len > noted).then_some((&[][..], self.len - noted));
        runs.map(|(slots, namespace)| (namespace, slots.len())).chain(rest)
    }

    /// Returns the identities, if any object has one.
    pub(super) fn identities(&self) -> Option<&Segment> {
        self.identities.as_ref()
    }

    /// Returns the identity of an object; empty if it has none.
    pub(super) fn identity(&self, slot: usize) -> &[u8] {
        self.identities.as_ref().map_or(&[], |identities| identities.piece(slot))
    }

    /// Returns the slot for an object with this identity.
    pub(super) fn slot_for(&self, identity: &[u8]) -> usize {
        padded(self.identities.as_ref(), self.len).take_while(|other| *other <= identity).count()
    }

    /// Replaces the object in `slot`. Returns true if the text has changed.
    pub(super) fn put(&mut self, slot: usize, object: &Rendered, scratch: &mut Scratch) -> bool {
        set(&mut self.namespaces, self.len, slot, &object.namespace, scratch);
        let mut changed = set(&mut self.identities, self.len, slot, &object.identity, scratch);
        if changed {
            self.forget();
        }
        let first = self.fingerprints_of(slot).start;
        for (group, fingerprint) in fingerprints(object).enumerate() {
            match self.fingerprints.get_mut(first + group) {
                Some(old) if *old != fingerprint => *old = fingerprint,
                _ => continue,
            }
            self.put_group(group, slot, object, scratch);
            changed = true;
        }
        changed
    }

    /// Inserts an object before the one in `slot`.
    pub(super) fn insert(&mut self, slot: usize, object: &Rendered, scratch: &mut Scratch) {
        let (len, first) = (self.len, self.fingerprints_of(slot).start);
        self.len += 1;
        self.forget();
        self.fingerprints.splice(first..first, fingerprints(object));
        let families = (0..).map(|family| object.family(family));
        let pieces = [&object.namespace[..], &object.identity].into_iter().chain(families);
        for (segment, piece) in self.segments_mut().zip(pieces) {
            let old = segment.as_ref();
            // A segment may omit empty pieces at its end.
            if !piece.is_empty() || old.is_some_and(|old| old.pieces() > slot) {
                let (before, behind) = (padded(old, slot), padded(old, len).skip(slot));
                *segment = Segment::new(before.chain([piece]).chain(behind), scratch);
            }
        }
    }

    /// Removes the object in `slot`.
    pub(super) fn remove(&mut self, slot: usize, scratch: &mut Scratch) {
        self.len -= 1;
        self.forget();
        self.fingerprints.drain(self.fingerprints_of(slot));
        for segment in self.segments_mut() {
            if let Some(old) = segment.as_ref().filter(|old| old.pieces() > slot) {
                let others = old.iter().enumerate().filter(|(at, _)| *at != slot);
                *segment = Segment::new(others.map(|(_, piece)| piece), scratch);
            }
        }
    }

    /// Splits off the objects from slot `at` on as another page.
    pub(super) fn split_off(&mut self, at: usize, scratch: &mut Scratch) -> Self {
        let lower = (1 << at) - 1;
        let upper = Self::packed(&[(&*self, self.all_slots() & !lower)], scratch);
        *self = Self::packed(&[(&*self, lower)], scratch);
        upper
    }

    /// Appends the objects of another page.
    pub(super) fn append(&mut self, other: &Self, scratch: &mut Scratch) {
        let parts = [(&*self, self.all_slots()), (other, other.all_slots())];
        *self = Self::packed(&parts, scratch);
    }

    /// Returns namespaces, identities and families, in this order.
    fn segments_mut(&mut self) -> impl Iterator<Item = &mut Option<Segment>> {
        [&mut self.namespaces, &mut self.identities].into_iter().chain(&mut self.families)
    }

    /// Returns the same as [`Self::segments_mut`].
    fn segments(&self) -> impl Iterator<Item = &Option<Segment>> {
        [&self.namespaces, &self.identities].into_iter().chain(&self.families)
    }

    /// Returns a bit mask of the slots whose objects belong to these namespaces.
    pub(super) fn slots_of(&self, namespaces: &BTreeSet<Vec<u8>>) -> u64 {
        let (mut slots, mut wanted): (u64, bool) = (0, false);
        let mut last: &[u8] = &[];
        for (slot, namespace) in self.namespaces.iter().flat_map(Segment::iter).enumerate() {
            // Neighbours mostly share the same text in memory.
            if !std::ptr::eq(last, namespace) {
                (last, wanted) = (namespace, namespaces.contains(namespace));
            }
            slots |= u64::from(wanted) << slot;
        }
        slots
    }

    /// Returns the bit mask of all objects.
    pub(super) fn all_slots(&self) -> u64 {
        u64::MAX.checked_shr((PAGE - self.len) as u32).unwrap_or(0)
    }

    /// Returns true if the mask includes all objects.
    pub(super) fn is_all(&self, slots: u64) -> bool {
        slots.count_ones() as usize == self.len
    }

    /// Returns a page of the objects in the masks of several pages, at most [`PAGE`], without memoized results.
    pub(super) fn packed(parts: &[(&Self, u64)], scratch: &mut Scratch) -> Self {
        let families = parts.first().map_or(0, |(page, _)| page.families.len());
        let mut packed = Self::new(families);
        for (page, slots) in parts {
            packed.len += slots.count_ones() as usize;
            for slot in (0..page.len).filter(|slot| slots >> slot & 1 == 1) {
                packed
                    .fingerprints
                    .extend_from_slice(&page.fingerprints[page.fingerprints_of(slot)]);
            }
        }
        let mut columns: Vec<_> =
            parts.iter().map(|(page, slots)| (page.segments(), page.len, *slots)).collect();
        let mut column = Vec::new();
        for segment in packed.segments_mut() {
            column.clear();
            for (segments, len, slots) in &mut columns {
                column.push((segments.next().and_then(Option::as_ref), *len, *slots));
            }
            if column.iter().all(|(segment, ..)| segment.is_none()) {
                continue;
            }
            let pieces = column.iter().flat_map(|&(segment, len, slots)| {
                let pieces = padded(segment, len).enumerate();
                pieces.filter(move |(slot, _)| slots >> slot & 1 == 1).map(|(_, piece)| piece)
            });
            *segment = Segment::new(pieces, scratch);
        }
        packed
    }

    /// Returns a page of the same objects for one scrape, in which each family has the lines of the given family of
    /// this page.
    pub(super) fn with_families(&self, numbers: &[Option<usize>]) -> Self {
        let mut page = Self::new(numbers.len());
        page.len = self.len;
        page.namespaces.clone_from(&self.namespaces);
        page.identities.clone_from(&self.identities);
        page.fingerprints = vec![Fingerprint::default(); page.fingerprints_of(self.len).start];
        for (segment, number) in page.families.iter_mut().zip(numbers) {
            *segment = number.and_then(|number| self.family(number).cloned());
        }
        page
    }

    /// Returns the range of the fingerprints of the object in `slot`.
    fn fingerprints_of(&self, slot: usize) -> Range<usize> {
        let groups = self.families.len().div_ceil(GROUP);
        slot * groups..(slot + 1) * groups
    }

    /// Drops memoized results, after a change of the text.
    fn forget(&mut self) {
        self.memo.clear();
        self.size = OnceLock::new();
    }

    fn put_group(&mut self, group: usize, slot: usize, object: &Rendered, scratch: &mut Scratch) {
        let start = group * GROUP;
        let families: Range<usize> = start..(start + GROUP).min(self.families.len());
        for family in families {
            let segment = &mut self.families[family];
            if set(segment, self.len, slot, object.family(family), scratch) {
                self.size = OnceLock::new();
                self.memo.forget(family);
            }
        }
    }

    /// Copies an object out of the page, without its uid.
    pub(super) fn copy_out(&self, slot: usize, object: &mut Rendered) {
        object.clear();
        let namespace = self.namespaces.as_ref().map_or(&[][..], |all| all.piece(slot));
        object.namespace.extend_from_slice(namespace);
        object.identity.extend_from_slice(self.identity(slot));
        for family in 0..self.families.len() {
            object.lines.extend_from_slice(self.lines(family, slot));
            object.ends.push(object.lines.len() as u32);
        }
    }
}

/// Builds a page from consecutive objects, with one pass per segment.
#[derive(Debug)]
pub(super) struct PageBuilder {
    len: usize,
    /// Lengths and text of namespaces, identities and families.
    columns: Vec<(Vec<u32>, Vec<u8>)>,
    fingerprints: Vec<Fingerprint>,
    scratch: Scratch,
}

impl PageBuilder {
    pub(super) fn new(families: usize) -> Self {
        Self {
            len: 0,
            columns: vec![Default::default(); families + 2],
            fingerprints: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Adds an object. The caller takes the page when it has [`PAGE`] objects.
    pub(super) fn push(&mut self, object: &Rendered) {
        self.len += 1;
        self.fingerprints.extend(fingerprints(object));
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

    /// Returns the page, leaving the builder empty.
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
        let memo = PageMemo::new(families.len());
        let len = std::mem::take(&mut self.len);
        let fingerprints = self.fingerprints.to_vec();
        self.fingerprints.clear();
        Page { len, namespaces, identities, families, fingerprints, memo, ..Page::default() }
    }
}
