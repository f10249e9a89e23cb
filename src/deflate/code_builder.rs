//! Builds the Huffman codes of a resource from a sample of its pages.
//!
//! All families of a resource share the codewords of literals, so the bits of an identity are computed once. A family
//! with much text has its own block, with its own codewords for copies. A family with very different text, such as
//! user-defined labels and annotations, has a separate code with its own literals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::huffman::{HEAD_BITS, Histogram, HuffmanCode};
use super::identity_diff::IdentityDiffs;
use super::line_encoder::{EncodingParams, LineEncoder};
use super::line_matcher::Rows;
use super::segment::{PAGE, Segment};

/// Number of pages to sample of a large resource.
const SAMPLE: usize = 8;
/// Maximum sampling interval for a resource with fewer pages than [`SAMPLE`] times as many: sampling a page takes several
/// times as long as encoding it.
const SMALL_STEP: usize = 4;
/// Minimum number of pages to sample.
const FEWEST: usize = 3;
/// Number of pages from which segments are matched page by page and memoized. This costs 2% of size, which smaller
/// resources would notice more than the saved time.
const MEMOIZE_FROM: usize = 12;
/// Maximum amount of text to sample per family, in bytes.
const SAMPLE_TEXT: usize = 1 << 20;
/// Amount of text to sample in one step, in bytes: about 1 ms with match search.
const STEP_TEXT: usize = 64 * 1024;
/// Amount of text whose sampling takes as long as building a code, in bytes.
const CODE_COST: usize = 4 * 1024;
/// Divisor of the text size that bounds the memory for memoized segments of unsearched families. With 40, a gzip scrape
/// takes a seventh less CPU and the memory after scrapes is 1.09 instead of 1.05 times that before; with none of them
/// memoized, a fifth more CPU.
const MEMOIZED_SHARE: usize = 100;
/// Estimated bits per byte of a long literal run, which mostly has hexadecimal digits.
const HEX_DIGIT_BITS: usize = 5;
/// Size in bytes of the record of an omitted run.
const GAP_BYTES: usize = 4;
/// Maximum compressed size of a family with match search, relative to the size without, for the search to be used: it
/// is several times slower on new pages, and its result is memoized.
const WORTH_SEARCHING: f64 = 0.92;
/// Minimum saving by match search, relative to the compressed size of the whole resource.
const WORTH_SEARCHING_AT_ALL: f64 = 0.01;
/// Maximum relative size with match search for a family with a separate code.
const WORTH_NOTING: f64 = 1.03;
/// Maximum relative size with a separate code, in which precomputed identities cannot be used.
const WORTH_A_CODE: f64 = 0.97;

/// The encoding of one family.
#[derive(Clone, Debug)]
pub(super) struct FamilyCode {
    /// Code of its blocks.
    pub(super) code: Arc<HuffmanCode>,
    /// Enables match search for text that is not predicted by the previous objects.
    pub(super) search: bool,
    /// Enables memoization with each page: of the whole segment with match search, otherwise of all objects after the
    /// first.
    pub(super) memoized: bool,
}

/// The codes of a resource.
#[derive(Debug)]
pub(crate) struct CodeSet {
    /// Number of pages of the resource when the codes were built.
    pages: usize,
    /// Fallback code for text of any family.
    pub(super) any: Arc<HuffmanCode>,
    pub(super) families: Vec<FamilyCode>,
    /// Compressed bits per 1,024 bytes of text in the first complete scrape; 0 before it.
    initial_size: AtomicU64,
    /// Set when the compression ratio has deteriorated.
    outdated: AtomicBool,
}

impl CodeSet {
    /// Builds codes from samples of all families, taken from every `every`-th page.
    fn new(samples: &[Sample], pages: usize, every: usize, memoized: bool) -> Self {
        let (any, codes) = agreeing(samples);
        let any = Arc::new(any);
        let families = samples.iter().zip(codes).map(|(sample, code)| {
            let counts = sample.counts();
            let code = if sample.separate {
                Arc::new(HuffmanCode::optimal(counts))
            } else if worth_a_block(counts.size_in(&any), counts.size_in(&code), every) {
                Arc::new(code)
            } else {
                Arc::clone(&any)
            };
            let memoized = memoized && (sample.search || sample.memoized);
            FamilyCode { code, search: sample.search, memoized }
        });
        let families = families.collect();
        Self { pages, any, families, initial_size: AtomicU64::new(0), outdated: false.into() }
    }

    /// Returns true if the codes are still good for a resource with `pages` pages.
    pub(crate) fn fits(&self, pages: usize) -> bool {
        (self.pages / 2..=self.pages * 2).contains(&pages) && !self.outdated.load(Ordering::Relaxed)
    }

    /// Records the size of a complete scrape. The codes become outdated if it exceeds the first one's ratio by more
    /// than 1/16.
    pub(super) fn record_size(&self, compressed: u64, text_len: u64) {
        let bits = (compressed * 8 * 1024).checked_div(text_len).unwrap_or(0);
        let first =
            self.initial_size.compare_exchange(0, bits, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|initial_size| bits > initial_size + initial_size / 16) {
            self.outdated.store(true, Ordering::Relaxed);
        }
    }
}

/// The sampled symbols of a family.
#[derive(Debug)]
struct Sample {
    /// Symbol counts without and with match search.
    histograms: [Histogram; 2],
    /// Compressed sizes of the two in optimal codes, in bits.
    sizes: [u64; 2],
    search: bool,
    /// Selects a separate code that shares no codewords with other families.
    separate: bool,
    /// Selects memoization of a family without match search.
    memoized: bool,
    /// Number of sampled pages.
    pages: usize,
    /// Number of lines that differ from the previous object's, and number of objects with lines.
    own: (usize, usize),
}

impl Sample {
    fn new() -> Self {
        let histograms = [Histogram::new(), Histogram::new()];
        let (search, separate, memoized) = (false, false, false);
        Self { histograms, sizes: [0; 2], search, separate, memoized, pages: 0, own: (0, 0) }
    }

    fn is_searched_in(&self, part: f64) -> bool {
        (self.sizes[1] as f64) < self.sizes[0] as f64 * part
    }

    /// Returns the symbol counts of the chosen encoding.
    fn counts(&self) -> &Histogram {
        &self.histograms[usize::from(self.search)]
    }
}

/// Chooses the families with match search and those with separate codes.
fn choose_searched(samples: &mut [Sample], every: usize, memoized: bool) {
    let all: u64 = samples.iter().map(|sample| sample.sizes[0]).sum();
    let worth = |sample: &&mut Sample| sample.is_searched_in(WORTH_SEARCHING);
    let saved = samples.iter_mut().filter(worth);
    let saved: u64 = saved.map(|sample| sample.sizes[0] - sample.sizes[1]).sum();
    // Match search is not used at all if the resource as a whole gains little.
    if saved as f64 > all as f64 * WORTH_SEARCHING_AT_ALL {
        samples.iter_mut().filter(worth).for_each(|sample| sample.search = true);
    }
    // Limits the weight of large families to the upper quartile. Otherwise one of them would dominate the shared code,
    // and many others would need separate ones.
    let mut weights: Vec<u64> = samples.iter().map(|sample| sample.counts().weight()).collect();
    weights.sort_unstable();
    let enough = weights.get(weights.len() * 3 / 4).copied().unwrap_or(0);
    let alike: Vec<_> = samples.iter().map(|sample| sample.counts().scaled(enough)).collect();
    let (_, codes) = HuffmanCode::with_shared_literals(&alike.iter().collect::<Vec<_>>());
    for (sample, code) in samples.iter_mut().zip(codes) {
        let common = sample.counts().size_in(&code);
        let alone = sample.sizes[usize::from(sample.search)];
        sample.separate =
            worth_a_block(common, alone, every) && (alone as f64) < common as f64 * WORTH_A_CODE;
        // Precomputed identities cannot be used in a separate code. Memoizing the whole segment avoids that cost if it
        // does not increase the size.
        sample.search |= memoized && sample.separate && sample.is_searched_in(WORTH_NOTING);
    }
}

/// Chooses families to memoize without match search: those with the most distinct lines per memoized byte, up to a
/// fraction of the text.
fn choose_memoized(samples: &mut [Sample], sampled: &[(PageSample, IdentityDiffs)]) {
    let objects: usize = sampled.iter().map(|(table, _)| table.len).sum();
    let left_out: usize = sampled.iter().map(|(_, diffs)| diffs.long_runs()).sum();
    let left_out =
        (left_out * HEX_DIGIT_BITS / 8).saturating_sub(objects * GAP_BYTES) / objects.max(1);
    // Fewer pages were sampled of families with much text.
    let all = |sample: &Sample, of: usize| of * sampled.len() / sample.pages.max(1);
    let text = samples.iter().map(|sample| all(sample, sample.histograms[0].text()));
    let mut room = text.sum::<usize>() / MEMOIZED_SHARE;
    let mut worth: Vec<_> = samples
        .iter_mut()
        .filter(|sample| !sample.search && !sample.separate)
        .map(|sample| {
            let (lines, objects) = sample.own;
            let bits = sample.sizes[0] + sample.histograms[0].extra_bits();
            let bytes = (bits as usize / 8).saturating_sub(objects * left_out).max(1);
            (lines as f64 / bytes as f64, all(sample, bytes), sample)
        })
        .collect();
    worth.sort_by(|one, other| other.0.total_cmp(&one.0));
    for (_, bytes, sample) in worth {
        sample.memoized = bytes <= room;
        room -= if sample.memoized { bytes } else { 0 };
    }
}

/// One page as input for sampling.
#[derive(Debug)]
pub(crate) struct PageSample {
    /// Number of objects in the page.
    pub(crate) len: usize,
    /// Identities of the objects.
    pub(crate) identities: Option<Segment>,
    /// Lines of the objects, for each family.
    pub(crate) families: Vec<Option<Segment>>,
}

/// A builder of the codes of one resource. It works in bounded steps, so that other tasks can run in between.
#[derive(Debug)]
pub(crate) struct CodeBuilder {
    names: Vec<String>,
    /// Number of pages of the resource, and the sampling interval.
    pages: usize,
    every: usize,
    sampled: Vec<(PageSample, IdentityDiffs)>,
    /// Samples of completed families, and of the current one.
    samples: Vec<Sample>,
    sample: Sample,
    lines: LineEncoder,
    /// State of the current family: pass (with or without match search), page, and next object.
    search: bool,
    page: usize,
    from: usize,
    decided: bool,
}

impl CodeBuilder {
    /// Returns the sampling interval for a resource with `pages` pages.
    pub(crate) fn sampling_step(pages: usize) -> usize {
        (pages / SAMPLE).max((pages / FEWEST).min(SMALL_STEP)).max(1)
    }

    /// Starts with samples taken from every [`CodeBuilder::sampling_step`]-th page. `names` are the names of the
    /// families.
    pub(crate) fn new(
        names: Vec<String>,
        pages: usize,
        sampled: impl Iterator<Item = PageSample>,
    ) -> Self {
        let sampled = sampled.map(|table| {
            let identities = table.identities.iter().flat_map(Segment::iter);
            let diffs = IdentityDiffs::new(None, identities);
            (table, diffs)
        });
        Self {
            names,
            pages,
            every: Self::sampling_step(pages),
            sampled: sampled.collect(),
            samples: Vec::new(),
            sample: Sample::new(),
            lines: LineEncoder::default(),
            search: false,
            page: 0,
            from: 0,
            decided: false,
        }
    }

    /// Does a bounded amount of work. Returns the codes when they are complete.
    pub(crate) fn step(&mut self) -> Option<CodeSet> {
        let mut left = STEP_TEXT;
        while self.samples.len() < self.names.len() {
            left = left.checked_sub(self.sample_next(left)).filter(|left| *left > 0)?;
        }
        if !std::mem::replace(&mut self.decided, true) {
            let memoized = self.is_memoized();
            choose_searched(&mut self.samples, self.every, memoized);
            choose_memoized(&mut self.samples, &self.sampled);
            return None;
        }
        Some(CodeSet::new(&self.samples, self.pages, self.every, self.is_memoized()))
    }

    fn is_memoized(&self) -> bool {
        self.pages >= MEMOIZE_FROM
    }

    /// Samples the rest of a page of the current family, up to a limit. Returns the amount of text, in bytes.
    fn sample_next(&mut self, at_most: usize) -> usize {
        let (family, memoized) = (self.samples.len(), self.is_memoized());
        let histogram = &mut self.sample.histograms[usize::from(self.search)];
        let before = histogram.text();
        let page = self.sampled.get(self.page).filter(|_| before < SAMPLE_TEXT);
        if let Some((table, diffs)) = page {
            histogram.limit_text(at_most);
            if memoized && self.search && self.from == 0 {
                self.lines.reset();
            }
            let params = EncodingParams { diffs, code: 0, search: self.search };
            let lines = table.families.get(family).and_then(Option::as_ref);
            if !self.search && self.from == 0 {
                let (lines, objects) = lines.map_or((0, 0), Segment::own_lines);
                self.sample.own = (self.sample.own.0 + lines, self.sample.own.1 + objects);
                self.sample.pages += 1;
            }
            let name = self.names[family].as_bytes();
            let rest = lines.and_then(|lines| {
                let rows = Rows { name, family, identities: table.identities.as_ref(), lines };
                self.lines.segment(rows, self.from..PAGE, params, &mut *histogram)
            });
            self.page += usize::from(rest.is_none());
            self.from = rest.unwrap_or(0);
            // A page without text costs time, too.
            return (histogram.text() - before).max(64);
        }
        self.lines.flush(histogram);
        self.sample.sizes[usize::from(self.search)] = histogram.optimal_size();
        (self.page, self.from) = (0, 0);
        if self.search {
            self.samples.push(std::mem::replace(&mut self.sample, Sample::new()));
        }
        self.search = !self.search;
        self.lines.reset();
        CODE_COST
    }
}

fn worth_a_block(without: u64, with: u64, every: usize) -> bool {
    // A separate block costs its own header and that of the next block.
    without > with && (without - with) * every as u64 > 2 * HEAD_BITS
}

/// Returns a code for all families together and one for each family; all of them share the codewords of literals.
fn agreeing(samples: &[Sample]) -> (HuffmanCode, Vec<HuffmanCode>) {
    let none = Histogram::new();
    let samples: Vec<&Histogram> = samples
        .iter()
        .map(|sample| if sample.separate { &none } else { sample.counts() })
        .collect();
    HuffmanCode::with_shared_literals(&samples)
}
