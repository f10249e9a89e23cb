//! The Huffman codes that scrapes are written with, made from a sample of the pages.
//!
//! They fit the cluster at hand. The families of a resource agree on literals, so that the bits of an
//! identity can be noted once, and each family with much text has a block of its own, whose code differs
//! from those of the others in what copies cost. A family whose text is of another kind (labels and
//! annotations that people wrote) has a code that agrees with nobody.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::catalog::Resource;
use super::crc::Checksum;
use super::huffman::{Code, HEAD_BITS, Histogram};
use super::lines::{Lines, Manner};

/// Pages of a resource that its codes are made from.
const SAMPLE: usize = 8;
/// A resource whose text is shorter (in bytes) is left to a general compressor.
const SHORT: usize = 256 * 1024;
/// So is one with so few pages and at most so much text: as a family of it fits into deflate's window, the
/// text of an object can be found in the family before.
const FEW: usize = 5;
const FEW_OBJECTS_TEXT: usize = 3 * 1024 * 1024;
/// What searching must leave of the size of a family, at most: it takes several times the time.
const WORTH_SEARCHING: f64 = 0.92;
/// What searching must save of the size of a resource, at least.
const WORTH_SEARCHING_AT_ALL: f64 = 0.03;
/// What a code must leave of it with which no noted bits can be written.
const WORTH_A_CODE: f64 = 0.97;

/// How a family is written.
#[derive(Clone, Debug)]
pub(super) struct FamilyCode {
    /// The code of its block.
    pub(super) code: Arc<Code>,
    /// Whether text that the template does not foretell is searched for.
    pub(super) search: bool,
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
    /// From a sample of the pages.
    fn new(resource: &Resource) -> Self {
        let every = (pages(resource) / SAMPLE).max(1);
        let every_page = resource.stores.iter().flat_map(|store| store.pages.iter());
        let sampled_pages: Vec<_> =
            every_page.step_by(every).map(|page| (page, page.shape())).collect();
        let mut samples = Vec::with_capacity(resource.schema.families.len());
        let (mut all, mut saved) = (0, 0);
        for (family, head) in resource.schema.families.iter().enumerate() {
            let sampled = |search: bool| {
                let mut histogram = Histogram::new();
                let mut lines = Lines::default();
                for (page, tails) in &sampled_pages {
                    let manner = Manner { tails, code: 0, search };
                    lines.segment(head.name.as_bytes(), page, (family, 0), manner, &mut histogram);
                }
                lines.flush(&mut histogram);
                histogram
            };
            let (plain, searched) = (sampled(false), sampled(true));
            let sizes = [&plain, &searched].map(|sample| sample.size_in(&Code::alone(sample)));
            all += sizes[0];
            let worth = (sizes[1] as f64) < sizes[0] as f64 * WORTH_SEARCHING;
            if worth {
                saved += sizes[0] - sizes[1];
            }
            samples.push((plain, worth.then_some(searched)));
        }
        // Where little is to be had from the resource as a whole, none of it is searched.
        let search = saved as f64 > all as f64 * WORTH_SEARCHING_AT_ALL;
        let samples: Vec<(Histogram, bool)> = samples
            .into_iter()
            .map(|(plain, searched)| match searched.filter(|_| search) {
                Some(searched) => (searched, true),
                None => (plain, false),
            })
            .collect();
        // Whoever is better off with a code of its own has no say in the common one.
        let mut apart = vec![false; samples.len()];
        let (mut any, mut codes) = agreeing(&samples, &apart);
        for (at, (sample, _)) in samples.iter().enumerate() {
            let alone = sample.size_in(&Code::alone(sample));
            apart[at] = worth_a_block(sample.size_in(&codes[at]), alone, every)
                && (alone as f64) < sample.size_in(&codes[at]) as f64 * WORTH_A_CODE;
        }
        if apart.contains(&true) {
            (any, codes) = agreeing(&samples, &apart);
        }
        let any = Arc::new(any);
        let families =
            samples.iter().zip(codes).zip(apart).map(|(((sample, search), code), apart)| {
                let code = if apart {
                    Arc::new(Code::alone(sample))
                } else if worth_a_block(sample.size_in(&any), sample.size_in(&code), every) {
                    Arc::new(code)
                } else {
                    Arc::clone(&any)
                };
                FamilyCode { code, search: *search }
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

fn worth_a_block(without: u64, with: u64, every: usize) -> bool {
    // Its own head and that of the block behind it.
    without > with && (without - with) * every as u64 > 2 * HEAD_BITS
}

/// A code for each family, and one for all of them that are not `apart`.
fn agreeing(samples: &[(Histogram, bool)], apart: &[bool]) -> (Code, Vec<Code>) {
    let none = Histogram::new();
    let samples: Vec<&Histogram> = samples
        .iter()
        .zip(apart)
        .map(|((own, _), apart)| if *apart { &none } else { own })
        .collect();
    Code::agreeing(&samples)
}

fn pages(resource: &Resource) -> usize {
    resource.stores.iter().map(|store| store.pages.len()).sum()
}

/// Whether the wanted families of a resource have little text.
fn is_small(resource: &Resource, wanted: impl Fn(&str) -> bool) -> bool {
    let small = if pages(resource) <= FEW { FEW_OBJECTS_TEXT } else { SHORT };
    let mut text = 0;
    for (at, family) in resource.schema.families.iter().enumerate() {
        if !wanted(&family.name) {
            continue;
        }
        for page in resource.stores.iter().flat_map(|store| store.pages.iter()) {
            text += page.text_len(&family.name, at);
            if text >= small {
                return false;
            }
        }
    }
    true
}

/// The codes of resources by their names, with the number of pages that they were made for.
#[derive(Debug, Default)]
pub(super) struct Codes(Mutex<HashMap<String, (usize, Arc<ResourceCodes>)>>);

impl Codes {
    /// The codes of each resource; none for one that has too little text to be worth codes.
    pub(super) fn of(
        &self,
        resources: &[Resource],
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<Option<Arc<ResourceCodes>>> {
        let get = |resource: &Resource| {
            let pages = pages(resource);
            let known = self.kept().get(&resource.schema.resource).cloned();
            let fits = |made_of: usize| (made_of / 2..=made_of * 2).contains(&pages);
            if let Some((made_of, codes)) = known
                && fits(made_of)
                && !codes.outdated.load(Ordering::Relaxed)
            {
                return codes;
            }
            // Without the lock: other scrapes need not wait for the sample.
            let codes = Arc::new(ResourceCodes::new(resource));
            let entry = (pages, Arc::clone(&codes));
            self.kept().insert(resource.schema.resource.clone(), entry);
            codes
        };
        let codes = |resource| (!is_small(resource, &wanted)).then(|| get(resource));
        resources.iter().map(codes).collect()
    }

    /// The resource has other families from here on, or is gone.
    pub(super) fn forget(&self, resource: &str) {
        self.kept().remove(resource);
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<String, (usize, Arc<ResourceCodes>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
