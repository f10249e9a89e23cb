//! The Huffman codes that scrapes are written with, made from a sample of the pages.
//!
//! They fit the cluster at hand. The families of a resource agree on literals, so that the bits of an
//! identity can be noted once, and each family with much text has a block of its own, whose code differs
//! from those of the others in what copies cost. A family whose text is of another kind (labels and
//! annotations that people wrote) has a code that agrees with nobody.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::crc::Checksum;
use super::huffman::{Code, HEAD_BITS, Histogram};
use super::lines::{Lines, Manner};
use super::page::{PAGE, Page};
use super::resource::Resource;
use super::segment::Segment;
use super::tails::Tails;

/// Pages of a resource that its codes are made from.
const SAMPLE: usize = 8;
/// From so many pages on, a family is searched page by page and noted: it takes two hundredths of size, which
/// those with few pages need for their codes, and saves the time that only many pages cost.
const MANY: usize = 12;
/// Text of a family (in bytes) that is enough of a sample.
const SAMPLE_TEXT: usize = 1 << 20;
/// Text that is sampled in one step: a millisecond or so when it is searched.
const STEP: usize = 64 * 1024;
/// Text whose sampling takes about as long as to make a code.
const CODE: usize = 4 * 1024;
/// A resource whose text is shorter (in bytes) is left to a general compressor.
const SHORT: usize = 256 * 1024;
/// So is one with so few pages and at most so much text: as a family of it fits into deflate's window, the
/// text of an object can be found in the family before.
const FEW: usize = 5;
const FEW_OBJECTS_TEXT: usize = 3 * 1024 * 1024;
/// One of so many bytes of text may be noted as bits of families that are not searched.
const KEPT: usize = 40;
/// What a byte of a long run of literals takes, about: hexadecimal digits mostly.
const HEX_BITS: usize = 5;
/// Bytes of the note of a run that is left out.
const GAP: usize = 4;
/// What searching must leave of the size of a family, at most: it takes several times the time when a page
/// is new, and the memory of its bits until it changes.
const WORTH_SEARCHING: f64 = 0.92;
/// What searching must save of the size of a resource, at least.
const WORTH_SEARCHING_AT_ALL: f64 = 0.01;
/// What it may leave of one whose code agrees with no other.
const WORTH_NOTING: f64 = 1.03;
/// What a code must leave of it with which no noted bits can be written.
const WORTH_A_CODE: f64 = 0.97;

/// How a family is written.
#[derive(Clone, Debug)]
pub(super) struct FamilyCode {
    /// The code of its block.
    pub(super) code: Arc<Code>,
    /// Whether text that the template does not foretell is searched for.
    pub(super) search: bool,
    /// Whether its bits are noted with each page: all of them where it is searched, else those behind the first object.
    pub(super) noted: bool,
}

/// The codes of a resource.
#[derive(Debug)]
pub(super) struct ResourceCodes {
    /// For text of any of its families.
    pub(super) any: Arc<Code>,
    pub(super) families: Vec<FamilyCode>,
    /// Compressed bits for each 1,024 bytes of text when the codes were new; 0 if that is not known yet.
    fresh: AtomicU64,
    /// Whether the text has changed so much that other codes would do better.
    outdated: AtomicBool,
}

impl ResourceCodes {
    /// From samples of all families; one for each of `every` pages was taken.
    fn new(samples: &[Sample], every: usize, noted: bool) -> Self {
        let (any, codes) = agreeing(samples);
        let any = Arc::new(any);
        let families = samples.iter().zip(codes).map(|(sample, code)| {
            let counts = sample.counts();
            let code = if sample.apart {
                Arc::new(Code::alone(counts))
            } else if worth_a_block(counts.size_in(&any), counts.size_in(&code), every) {
                Arc::new(code)
            } else {
                Arc::clone(&any)
            };
            let noted = noted && (sample.search || sample.kept);
            FamilyCode { code, search: sample.search, noted }
        });
        let families = families.collect();
        Self { any, families, fresh: AtomicU64::new(0), outdated: false.into() }
    }

    /// Notes what the whole resource came to. Codes that were made for other text are made anew the next
    /// time.
    pub(super) fn came_to(&self, compressed: u64, text: Checksum) {
        let bits = (compressed * 8 * 1024).checked_div(text.len).unwrap_or(0);
        let first = self.fresh.compare_exchange(0, bits, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|fresh| bits > fresh + fresh / 16) {
            self.outdated.store(true, Ordering::Relaxed);
        }
    }
}

/// A family's part of the sampled pages.
#[derive(Debug)]
struct Sample {
    /// As the template foretells it, and by search.
    histograms: [Histogram; 2],
    /// What these come to in codes of their own.
    sizes: [u64; 2],
    search: bool,
    /// Whether its code agrees with no other.
    apart: bool,
    /// Whether its bits are noted all the same.
    kept: bool,
    /// How many pages it is of.
    pages: usize,
    /// Lines that are not those of the object before, and objects with lines.
    own: (usize, usize),
}

impl Sample {
    fn new() -> Self {
        let histograms = [Histogram::new(), Histogram::new()];
        let (search, apart, kept) = (false, false, false);
        Self { histograms, sizes: [0; 2], search, apart, kept, pages: 0, own: (0, 0) }
    }

    fn is_searched_in(&self, part: f64) -> bool {
        (self.sizes[1] as f64) < self.sizes[0] as f64 * part
    }

    /// What there is to write.
    fn counts(&self) -> &Histogram {
        &self.histograms[usize::from(self.search)]
    }
}

/// Decides which families are searched, and which get codes that agree with no other.
fn decide(samples: &mut [Sample], every: usize, noted: bool) {
    let all: u64 = samples.iter().map(|sample| sample.sizes[0]).sum();
    let worth = |sample: &&mut Sample| sample.is_searched_in(WORTH_SEARCHING);
    let saved = samples.iter_mut().filter(worth);
    let saved: u64 = saved.map(|sample| sample.sizes[0] - sample.sizes[1]).sum();
    // Where little is to be had from the resource as a whole, none of it is searched.
    if saved as f64 > all as f64 * WORTH_SEARCHING_AT_ALL {
        samples.iter_mut().filter(worth).for_each(|sample| sample.search = true);
    }
    // Those with much text count for no more than others here: else one of them would bend the common code,
    // and the many would leave it. A quarter of the families have more, mostly a line for each object or more.
    let mut weights: Vec<u64> = samples.iter().map(|sample| sample.counts().weight()).collect();
    weights.sort_unstable();
    let enough = weights.get(weights.len() * 3 / 4).copied().unwrap_or(0);
    let alike: Vec<_> = samples.iter().map(|sample| sample.counts().scaled(enough)).collect();
    let (_, codes) = Code::agreeing(&alike.iter().collect::<Vec<_>>());
    for (sample, code) in samples.iter_mut().zip(codes) {
        let common = sample.counts().size_in(&code);
        let alone = sample.sizes[usize::from(sample.search)];
        sample.apart =
            worth_a_block(common, alone, every) && (alone as f64) < common as f64 * WORTH_A_CODE;
        // In such a code no noted identities can be used: noting all saves that time, if it costs no size.
        sample.search |= noted && sample.apart && sample.is_searched_in(WORTH_NOTING);
    }
}

/// Chooses families whose bits are noted though the template foretells them: those with most lines of their own for each
/// byte that is noted, until that comes to a part of the text.
fn keep(samples: &mut [Sample], sampled: &[(Arc<Page>, Tails)]) {
    let objects: usize = sampled.iter().map(|(page, _)| page.len()).sum();
    let left_out: usize = sampled.iter().map(|(_, tails)| tails.long_runs()).sum();
    let left_out = (left_out * HEX_BITS / 8).saturating_sub(objects * GAP) / objects.max(1);
    // Of a family with much text few pages were taken.
    let all = |sample: &Sample, of: usize| of * sampled.len() / sample.pages.max(1);
    let text = samples.iter().map(|sample| all(sample, sample.histograms[0].text()));
    let mut room = text.sum::<usize>() / KEPT;
    let mut worth: Vec<_> = samples
        .iter_mut()
        .filter(|sample| !sample.search && !sample.apart)
        .map(|sample| {
            let (lines, objects) = sample.own;
            let bits = sample.sizes[0] + sample.histograms[0].extra_bits();
            let bytes = (bits as usize / 8).saturating_sub(objects * left_out).max(1);
            (lines as f64 / bytes as f64, all(sample, bytes), sample)
        })
        .collect();
    worth.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (_, bytes, sample) in worth {
        sample.kept = bytes <= room;
        room -= if sample.kept { bytes } else { 0 };
    }
}

/// The making of the codes of a resource, in steps: others have their turn in between.
#[derive(Debug)]
pub(super) struct Making {
    resource: String,
    names: Vec<String>,
    /// Pages of the resource, and one of how many is sampled.
    pages: usize,
    every: usize,
    sampled: Vec<(Arc<Page>, Tails)>,
    /// Those of families that are done, and the one at hand.
    samples: Vec<Sample>,
    sample: Sample,
    lines: Lines,
    /// Whether the family at hand is being searched, the page at hand, and the object to go on with.
    search: bool,
    page: usize,
    from: usize,
    decided: bool,
}

impl Making {
    pub(super) fn new(resource: &Resource) -> Self {
        let pages = pages(resource);
        let every = (pages / SAMPLE).max(1);
        let every_page = resource.stores.iter().flat_map(|store| store.pages.iter());
        Self {
            resource: resource.schema.resource.clone(),
            names: resource.schema.families.iter().map(|family| family.name.clone()).collect(),
            pages,
            every,
            sampled: every_page
                .step_by(every)
                .map(|page| (Arc::clone(page), page.shape()))
                .collect(),
            samples: Vec::new(),
            sample: Sample::new(),
            lines: Lines::default(),
            search: false,
            page: 0,
            from: 0,
            decided: false,
        }
    }

    /// A bounded piece of the work; the codes when it is done, which are kept.
    pub(super) fn go_on(&mut self, codes: &Codes) -> Option<Arc<ResourceCodes>> {
        let mut left = STEP;
        while self.samples.len() < self.names.len() {
            left = left.checked_sub(self.part(left)).filter(|left| *left > 0)?;
        }
        if !std::mem::replace(&mut self.decided, true) {
            let noted = self.is_noted();
            decide(&mut self.samples, self.every, noted);
            keep(&mut self.samples, &self.sampled);
            return None;
        }
        let made = Arc::new(ResourceCodes::new(&self.samples, self.every, self.is_noted()));
        codes.keep(&self.resource, self.pages, Arc::clone(&made));
        Some(made)
    }

    fn is_noted(&self) -> bool {
        self.pages >= MANY
    }

    /// The next page of the family at hand, or some of it; tells how much text that was.
    fn part(&mut self, at_most: usize) -> usize {
        let (family, noted) = (self.samples.len(), self.is_noted());
        let histogram = &mut self.sample.histograms[usize::from(self.search)];
        let before = histogram.text();
        let page = self.sampled.get(self.page).filter(|_| before < SAMPLE_TEXT);
        if let Some((page, tails)) = page {
            histogram.take_on(at_most);
            if noted && self.search && self.from == 0 {
                self.lines.part();
            }
            let manner = Manner { tails, code: 0, search: self.search };
            if !self.search && self.from == 0 {
                let (lines, objects) = page.family(family).map_or((0, 0), Segment::own_lines);
                self.sample.own = (self.sample.own.0 + lines, self.sample.own.1 + objects);
                self.sample.pages += 1;
            }
            let name = self.names[family].as_bytes();
            let rest =
                self.lines.segment(name, page, (family, self.from..PAGE), manner, &mut *histogram);
            self.page += usize::from(rest.is_none());
            self.from = rest.unwrap_or(0);
            // A page without text is work, too.
            return (histogram.text() - before).max(64);
        }
        self.lines.flush(histogram);
        self.sample.sizes[usize::from(self.search)] = histogram.size_in(&Code::alone(histogram));
        (self.page, self.from) = (0, 0);
        if self.search {
            self.samples.push(std::mem::replace(&mut self.sample, Sample::new()));
        }
        self.search = !self.search;
        self.lines.part();
        CODE
    }
}

fn worth_a_block(without: u64, with: u64, every: usize) -> bool {
    // Its own head and that of the block behind it.
    without > with && (without - with) * every as u64 > 2 * HEAD_BITS
}

/// A code for each family, and one for all of them that are not apart.
fn agreeing(samples: &[Sample]) -> (Code, Vec<Code>) {
    let none = Histogram::new();
    let samples: Vec<&Histogram> =
        samples.iter().map(|sample| if sample.apart { &none } else { sample.counts() }).collect();
    Code::agreeing(&samples)
}

fn pages(resource: &Resource) -> usize {
    resource.stores.iter().map(|store| store.pages.len()).sum()
}

/// How much text (in bytes) the wanted families of a resource have, if that is so little that it is worth no codes.
pub(super) fn little_text(resource: &Resource, wanted: impl Fn(&str) -> bool) -> Option<usize> {
    let small = if pages(resource) <= FEW { FEW_OBJECTS_TEXT } else { SHORT };
    let mut text = 0;
    for (at, family) in resource.schema.families.iter().enumerate() {
        if !wanted(&family.name) {
            continue;
        }
        for page in resource.stores.iter().flat_map(|store| store.pages.iter()) {
            text += page.text_len(&family.name, at);
            if text >= small {
                return None;
            }
        }
    }
    Some(text)
}

/// The codes of resources by their names, with the number of pages that they were made for.
#[derive(Debug, Default)]
pub(super) struct Codes(Mutex<HashMap<String, (usize, Arc<ResourceCodes>)>>);

impl Codes {
    /// The codes of a resource, if some were made that still fit.
    pub(super) fn known(&self, resource: &Resource) -> Option<Arc<ResourceCodes>> {
        let (made_of, codes) = self.kept().get(&resource.schema.resource).cloned()?;
        let fits = (made_of / 2..=made_of * 2).contains(&pages(resource));
        (fits && !codes.outdated.load(Ordering::Relaxed)).then_some(codes)
    }

    fn keep(&self, resource: &str, pages: usize, codes: Arc<ResourceCodes>) {
        self.kept().insert(resource.to_owned(), (pages, codes));
    }

    /// The resource has other families from here on, or is gone.
    pub(super) fn forget(&self, resource: &str) {
        self.kept().remove(resource);
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, (usize, Arc<ResourceCodes>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
