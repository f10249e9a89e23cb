//! A page of adjacent series: the text of their labels in one buffer, with their common prefix stored once.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::exposition::labels::{self, ParsedLabels, SplitLabels};
use crate::statsd::series::cell::Handle;
use crate::statsd::series::family::Family;
use crate::util::short_search::common_prefix;
use crate::util::work_counter;

/// The maximum number of series per page. An insertion moves half a page of text; a look-up compares with a
/// few entries.
pub(super) const MAX_ENTRIES: usize = 160;
/// The size of the text above which a page is split early. It is a size class of the allocator, so a full
/// page has no slack.
const MAX_TEXT: usize = 10 * 1024;
/// The maximum length of the common prefix. It bounds how much a page grows when the prefix becomes shorter.
const MAX_PREFIX: usize = 128;

/// One series of a page.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) family: Arc<Family>,
    pub(crate) handle: Handle,
    /// The end of its text in the page.
    end: u32,
    label_count: u16,
    /// The registry's index of the time to live.
    pub(crate) ttl: u16,
}

/// A page of adjacent series.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(super) entries: Vec<Entry>,
    /// The common prefix of all label texts, followed by the rest of each.
    pub(super) text: Vec<u8>,
    /// The length of the common prefix.
    prefix: usize,
}

/// Reassembles the label texts of a page.
#[derive(Debug, Default)]
pub(crate) struct LabelAssembler {
    text: Vec<u8>,
    prefix: usize,
}

impl LabelAssembler {
    /// Takes the prefix of a page, whose series follow.
    pub(crate) fn begin(&mut self, page: &Page) {
        self.text.clear();
        self.text.extend_from_slice(page.prefix());
        self.prefix = self.text.len();
    }

    /// Returns the label text of a series of the page, from its rest.
    #[inline]
    pub(crate) fn labels(&mut self, rest: &[u8]) -> &[u8] {
        self.text.truncate(self.prefix);
        self.text.extend_from_slice(rest);
        &self.text
    }
}

/// The key of a series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a> {
    /// The family name.
    pub(crate) name: &'a str,
    /// The rendered labels.
    pub(crate) labels: &'a [u8],
    pub(crate) label_count: u16,
}

/// A key that is searched for.
pub(super) struct Target<'a> {
    pub(super) key: &'a Key<'a>,
    pub(super) labels: &'a ParsedLabels<'a>,
    /// Its family, if it exists.
    pub(super) family: Option<&'a Family>,
}

/// The series at a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeriesRef {
    pub(crate) handle: Handle,
    /// The registry's index of the time to live.
    pub(crate) ttl: u16,
}

impl Page {
    /// Returns the common prefix of all label texts.
    pub(super) fn prefix(&self) -> &[u8] {
        self.text.get(..self.prefix).unwrap_or_default()
    }

    /// Returns the series in order, each with the rest of its label text. A [`LabelAssembler`] restores the full
    /// text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let mut start = self.prefix;
        self.entries.iter().map(move |entry| {
            let end = entry.end as usize;
            let text = self.text.get(start..end).unwrap_or_default();
            start = end;
            (entry, text)
        })
    }

    /// Returns one series with the rest of its label text.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<(&Entry, &[u8])> {
        let entry = self.entries.get(index)?;
        Some((entry, self.text.get(self.start_of(index)..entry.end as usize)?))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the page has no room for a series with these labels.
    pub(super) fn is_full(&self, labels: &[u8]) -> bool {
        self.len() >= MAX_ENTRIES || (self.len() > 1 && self.text.len() + labels.len() > MAX_TEXT)
    }

    /// Returns whether both pages together fill at most half a page.
    pub(super) fn can_absorb(&self, next: &Page) -> bool {
        self.len() + next.len() <= MAX_ENTRIES / 2
            && self.text.len() + next.text.len() <= MAX_TEXT / 2
    }

    fn start_of(&self, index: usize) -> usize {
        match index.checked_sub(1).and_then(|before| self.entries.get(before)) {
            Some(before) => before.end as usize,
            None => self.prefix,
        }
    }

    /// Rewrites the text with a common prefix of `length` bytes.
    fn set_prefix(&mut self, length: usize) {
        if length == self.prefix {
            return;
        }
        let returned = self.text.get(length..self.prefix).unwrap_or_default();
        let taken = length.saturating_sub(self.prefix);
        let rests = self.text.len() - self.prefix + self.entries.len() * returned.len();
        let size = length + rests - self.entries.len() * taken;
        let mut text = Vec::with_capacity(size);
        // The rest of the first series follows the prefix, so a longer prefix is contiguous here.
        text.extend_from_slice(self.text.get(..length).unwrap_or_default());
        let mut start = self.prefix;
        for entry in &mut self.entries {
            let end = entry.end as usize;
            text.extend_from_slice(returned);
            text.extend_from_slice(self.text.get(start + taken..end).unwrap_or_default());
            entry.end = text.len() as u32;
            start = end;
        }
        self.text = text;
        self.prefix = length;
    }

    /// Extends the common prefix as far as possible.
    fn extend_prefix(&mut self) {
        let first = self.iter().next().map(|(_, rest)| rest).unwrap_or_default();
        let common = self.iter().fold(first.len(), |common, (_, rest)| {
            common_prefix(first.get(..common).unwrap_or_default(), rest)
        });
        self.set_prefix((self.prefix + common).min(MAX_PREFIX));
    }

    /// Compares the series at `index` with the one that is searched for. `common` is the length of the text that the latter
    /// shares with the prefix, if it is known.
    pub(super) fn compare(
        &self,
        index: usize,
        Target { key, labels, family }: &Target<'_>,
        common: Option<usize>,
    ) -> Ordering {
        let Some(entry) = self.entries.get(index) else {
            return Ordering::Greater;
        };
        let names = match family {
            Some(family) if family.id == entry.family.id => Ordering::Equal,
            _ => {
                let (own, other) = (entry.family.name.as_bytes(), key.name.as_bytes());
                let equal = common_prefix(own, other);
                own.get(equal).cmp(&other.get(equal))
            }
        };
        names.then_with(|| entry.label_count.cmp(&key.label_count)).then_with(|| {
            let rest = self.text.get(self.start_of(index)..entry.end as usize);
            let (prefix, rest) = (self.prefix(), rest.unwrap_or_default());
            let text = SplitLabels { prefix, rest, common };
            labels::compare_split(labels, text).reverse()
        })
    }

    pub(super) fn search(&self, target: &Target<'_>) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        let common = Some(common_prefix(target.labels.text(), self.prefix()));
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(middle, target, common) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    pub(super) fn insert(
        &mut self,
        index: usize,
        family: Arc<Family>,
        series_ref: SeriesRef,
        key: &Key<'_>,
    ) {
        if self.entries.is_empty() {
            self.text.clear();
            self.text.extend(key.labels.iter().take(MAX_PREFIX));
            self.prefix = self.text.len();
        } else {
            self.set_prefix(common_prefix(self.prefix(), key.labels));
        }
        let rest = key.labels.get(self.prefix..).unwrap_or_default();
        let start = self.start_of(index);
        // Grows in small steps, because pages live long and their slack costs memory for every series.
        let count = self.entries.len();
        if count == self.entries.capacity() {
            let room = MAX_ENTRIES.saturating_sub(count);
            self.entries.reserve_exact((count / 8).min(room).max(1));
        }
        let length = self.text.len();
        if length + rest.len() > self.text.capacity() {
            let room = MAX_TEXT.saturating_sub(length);
            self.text.reserve_exact((length / 8).min(room).max(rest.len()));
        }
        self.text.resize(length + rest.len(), 0);
        self.text.copy_within(start..length, start + rest.len());
        if let Some(place) = self.text.get_mut(start..start + rest.len()) {
            place.copy_from_slice(rest);
        }
        for entry in self.entries.iter_mut().skip(index) {
            entry.end += rest.len() as u32;
        }
        self.entries.insert(
            index,
            Entry {
                family,
                handle: series_ref.handle,
                ttl: series_ref.ttl,
                end: (start + rest.len()) as u32,
                label_count: key.label_count,
            },
        );
    }

    /// Moves the entries from `index` on into a new page.
    pub(super) fn split_off(&mut self, index: usize) -> Page {
        let start = self.start_of(index);
        let mut entries = self.entries.split_off(index);
        for entry in &mut entries {
            entry.end = entry.end - start as u32 + self.prefix as u32;
        }
        let rests = self.text.split_off(start);
        let mut tail =
            Page { entries, text: [self.prefix(), rests.as_slice()].concat(), prefix: self.prefix };
        tail.extend_prefix();
        self.extend_prefix();
        self.shrink();
        tail
    }

    /// Frees the room that is left for further series.
    pub(super) fn shrink(&mut self) {
        self.entries.shrink_to_fit();
        self.text.shrink_to_fit();
    }

    /// Returns a page with the series that are `alive`, and calls `removed` with the others and their labels.
    pub(super) fn filtered(
        &self,
        alive: impl Fn(&Entry) -> bool,
        mut removed: impl FnMut(&Entry, &[u8]),
    ) -> Page {
        work_counter::add(self.len());
        let prefix = self.prefix();
        let mut kept = Page { text: prefix.to_vec(), prefix: prefix.len(), ..Page::default() };
        let mut assembler = LabelAssembler::default();
        assembler.begin(self);
        for (entry, rest) in self.iter() {
            if alive(entry) {
                kept.text.extend_from_slice(rest);
                kept.entries.push(Entry { end: kept.text.len() as u32, ..entry.clone() });
            } else {
                removed(entry, assembler.labels(rest));
            }
        }
        kept.extend_prefix();
        kept.shrink();
        kept
    }

    /// Appends the entries of `next`.
    pub(super) fn append(&mut self, next: &Page) {
        let common = common_prefix(self.prefix(), next.prefix());
        self.set_prefix(common);
        for (entry, rest) in next.iter() {
            self.text.extend_from_slice(next.prefix().get(common..).unwrap_or_default());
            self.text.extend_from_slice(rest);
            self.entries.push(Entry { end: self.text.len() as u32, ..entry.clone() });
        }
    }
}
