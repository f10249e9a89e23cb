//! Counts series by metric and label in one scan.
//!
//! Memory is bounded: it holds the largest families, a [`HyperLogLog`] for each of [`MAX_LABELS`]
//! label names, and the frequent label pairs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::countable::Snapshot;
use crate::exposition::family::Kind;
use crate::exposition::labels;
use crate::exposition::series_visitor::{FamilySize, ObjectSeries, Series, SeriesVisitor};
use crate::util::hyper_log_log::HyperLogLog;
use crate::util::misra_gries::MisraGries;
use crate::util::per_minute::MINUTES;
use crate::util::words::words;

/// The maximum number of label names whose values are counted.
const MAX_LABELS: usize = 4_096;
/// The maximum number of labels of one family whose values are counted.
pub(super) const MAX_FAMILY_LABELS: usize = 256;
/// The capacity for frequent label pairs: every pair that makes up more than 1/8,192 of all pairs
/// is found.
const PAIRS: usize = 8_192;
/// The maximum length of a label name whose values are counted.
const MAX_LABEL_NAME: usize = 1 << 10;
/// The maximum bytes of a label value in a report.
const SHOWN_VALUE: usize = 256;
/// The number of example values per label.
const EXAMPLES: usize = 3;

/// A random key per process, so that clients cannot construct label collisions.
static HASHER: LazyLock<foldhash::quality::RandomState> = LazyLock::new(Default::default);

/// The parameters of a report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    /// The maximum length of each list.
    pub(crate) limit: usize,
    /// The sort order of metrics.
    pub(crate) order: Order,
    /// The only metric to report; `None` for all.
    pub(crate) metric: Option<String>,
}

impl Question {
    /// Returns a question for the metrics with the most series.
    pub(crate) const fn of(limit: usize) -> Self {
        Self { limit, order: Order::Series, metric: None }
    }
}

words! {
    /// The sort order of metrics.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) enum Order {
        /// By number of series.
        #[default]
        Series = "series",
        /// By series created in the last 60 minutes.
        Growth = "growth",
        /// By memory.
        Bytes = "bytes",
    }
}

/// The `limit` entries with the highest values, and of equal values the first names.
#[derive(Default)]
pub(super) struct Top<T> {
    limit: usize,
    /// The first entry is the highest. A number makes the keys unique.
    entries: BTreeMap<(Reverse<u64>, String, usize), T>,
    offered: usize,
}

impl<T> Top<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, entries: BTreeMap::new(), offered: 0 }
    }

    pub(super) fn offer(&mut self, value: u64, name: &str, about: impl FnOnce() -> T) {
        self.offered += 1;
        if self.entries.len() >= self.limit {
            let last = self.entries.last_key_value().map(|((value, name, _), _)| (value, &**name));
            if last.is_none_or(|last| (&Reverse(value), name) >= last) {
                return;
            }
            self.entries.pop_last();
        }
        self.entries.insert((Reverse(value), name.to_owned(), self.offered), about());
    }

    /// Returns the entries, the highest first.
    pub(super) fn into_vec(self) -> Vec<(String, u64, T)> {
        let entries = self.entries.into_iter();
        entries.map(|((Reverse(value), name, _), about)| (name, value, about)).collect()
    }
}

impl Top<()> {
    pub(super) fn stats(self) -> Vec<Stat> {
        self.into_vec().into_iter().map(|(name, value, ())| Stat { name, value }).collect()
    }
}

/// A name and a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Stat {
    pub(super) name: String,
    pub(super) value: u64,
}

/// The values of one label.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) different: HyperLogLog,
    /// The total bytes of the values of all series.
    pub(super) bytes: u64,
    pub(super) examples: Vec<String>,
    /// The hash of the last value, because neighbours often have the same.
    last: Option<u64>,
}

impl Values {
    /// Counts a label of this many series. Returns false if its value is known.
    fn note(&mut self, label: &Label<'_>, series: u64) -> bool {
        self.bytes += label.value.len() as u64 * series;
        self.last.replace(label.hash) != Some(label.hash) && self.different.insert(label.hash)
    }

    /// Keeps the value as an example, unless it is one already.
    fn show(&mut self, value: &[u8]) {
        if self.examples.len() < EXAMPLES {
            let value = shown(value);
            if !self.examples.contains(&value) {
                self.examples.push(value);
            }
        }
    }
}

/// Formats a rendered value for a report.
fn shown(value: &[u8]) -> String {
    let plain = labels::plain(value.get(..value.len().min(4 * SHOWN_VALUE)).unwrap_or(value));
    let text = String::from_utf8_lossy(&plain);
    if text.len() <= SHOWN_VALUE {
        return text.into_owned();
    }
    let end = text.floor_char_boundary(SHOWN_VALUE);
    format!("{}…", text.get(..end).unwrap_or_default())
}

/// A label with the hash of its name and value.
#[derive(Clone, Copy)]
struct Label<'a> {
    name: &'a [u8],
    value: &'a [u8],
    hash: u64,
}

/// Returns the labels of a rendered set.
fn hashed(text: &[u8]) -> impl Iterator<Item = Label<'_>> {
    let hash = |name, value| HASHER.hash_one((name, value));
    labels::iter(text).map(move |(name, value)| Label { name, value, hash: hash(name, value) })
}

/// Returns the sample names of a family's series, with the number of series of each.
fn names_of(kind: Kind, name: &str, label_sets: u64, samples: u64) -> Vec<(String, u64)> {
    let rest = samples.saturating_sub(2 * label_sets);
    let counts = match kind {
        Kind::Histogram => vec![("_bucket", rest), ("_sum", label_sets), ("_count", label_sets)],
        Kind::Summary => vec![("", rest), ("_sum", label_sets), ("_count", label_sets)],
        _ => vec![("", samples)],
    };
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts.map(|(suffix, count)| (format!("{name}{suffix}"), count)).collect()
}

/// The counts of a family.
#[derive(Default)]
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) label_sets: u64,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    /// Series created per minute; `None` if creation times are unknown.
    pub(super) growth: Option<[u64; MINUTES]>,
    pub(super) labels: Vec<(Vec<u8>, Values)>,
}

impl About {
    /// Counts a label of this many series, which is probably at index `at`.
    fn note(&mut self, at: usize, label: &Label<'_>, series: u64) {
        let known = match self.labels.get(at) {
            Some((known, _)) if *known == label.name => Some(at),
            _ => self.labels.iter().position(|(known, _)| *known == label.name),
        };
        if known.is_none() {
            if label.name.len() > MAX_LABEL_NAME || self.labels.len() >= MAX_FAMILY_LABELS {
                return;
            }
            self.labels.push((label.name.to_owned(), Values::default()));
        }
        let at = known.unwrap_or(self.labels.len() - 1);
        let (_, values) = &mut self.labels[at];
        if values.note(label, series) {
            values.show(label.value);
        }
    }
}

/// The labels of all families.
pub(super) struct LabelValues {
    pub(super) labels: HashMap<Vec<u8>, Values, foldhash::fast::RandomState>,
    /// Label names beyond [`MAX_LABELS`] or [`MAX_LABEL_NAME`].
    pub(super) further_labels: HyperLogLog,
    pub(super) pairs: MisraGries,
}

impl Default for LabelValues {
    fn default() -> Self {
        let (labels, further_labels) = (HashMap::default(), HyperLogLog::default());
        Self { labels, further_labels, pairs: MisraGries::new(PAIRS) }
    }
}

impl LabelValues {
    /// Counts a label of this many series.
    fn note(&mut self, label: &Label<'_>, series: u64) {
        self.pairs.add(label.hash, series);
        if let Some(values) = self.labels.get_mut(label.name) {
            values.note(label, series);
        } else if label.name.len() <= MAX_LABEL_NAME && self.labels.len() < MAX_LABELS {
            self.labels.entry(label.name.to_owned()).or_default().note(label, series);
        } else {
            self.further_labels.insert(HASHER.hash_one(label.name));
        }
    }
}

/// Counts the series of all sides in one scan.
#[derive(Default)]
pub(super) struct Census {
    question: Question,
    pub(super) now: Duration,
    /// The families being scanned.
    current: Vec<(String, About)>,
    pub(super) families: Top<About>,
    pub(super) names: Top<()>,
    /// The labels of all families.
    pub(super) values: LabelValues,
    pub(super) family_count: u64,
    pub(super) name_count: u64,
    pub(super) name_bytes: u64,
    pub(super) label_sets: u64,
    pub(super) samples: u64,
    pub(super) bytes: u64,
    pub(super) oldest: Option<Duration>,
}

impl Census {
    /// Counts everything but the labels of each family, whose memory would be a multiple of all else.
    pub(super) fn of_labels(sides: &[Snapshot], question: &Question) -> Self {
        Self::count(sides, question, 0)
    }

    /// Counts everything.
    pub(super) fn of(sides: &[Snapshot], question: &Question) -> Self {
        Self::count(sides, question, question.limit)
    }

    /// Counts the labels of each family if `families`, the number of families to keep, is not 0.
    fn count(sides: &[Snapshot], question: &Question, families: usize) -> Self {
        let mut census = Self {
            question: question.clone(),
            now: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            families: Top::new(families),
            names: Top::new(question.limit),
            ..Self::default()
        };
        for side in sides {
            (side.visit)(&mut census);
            census.finish();
        }
        census
    }

    /// Completes the current families.
    fn finish(&mut self) {
        for (name, about) in std::mem::take(&mut self.current) {
            self.add_family(&name, about);
        }
    }

    fn add_family(&mut self, name: &str, mut about: About) {
        let About { kind, label_sets, samples, bytes, .. } = about;
        self.bytes += bytes;
        if label_sets == 0 {
            return;
        }
        self.family_count += 1;
        self.label_sets += label_sets;
        self.samples += samples;
        for (name, count) in names_of(kind, name, label_sets, samples) {
            self.name_count += 1;
            self.name_bytes += name.len() as u64 * count;
            self.names.offer(count, &name, || ());
        }
        if self.question.metric.as_ref().is_some_and(|only| only != name) {
            return;
        }
        let rank = match self.question.order {
            Order::Series => samples,
            Order::Growth => about.growth.iter().flatten().sum(),
            Order::Bytes => bytes,
        };
        let limit = self.question.limit;
        self.families.offer(rank, name, move || {
            about.labels.sort_by_cached_key(|(_, values)| Reverse(values.different.count()));
            about.labels.truncate(limit);
            about
        });
    }

    /// Returns the number of distinct label pairs, metric names included.
    pub(super) fn pair_count(&self) -> u64 {
        let values = self.values.labels.values().map(|values| values.different.count());
        values.sum::<u64>() + self.name_count
    }
}

impl SeriesVisitor for Census {
    fn families(&mut self, families: &[FamilySize<'_>]) {
        self.finish();
        let begin = |&FamilySize { name, kind, bytes }: &FamilySize<'_>| {
            (name.to_owned(), About { kind, bytes, ..About::default() })
        };
        self.current = families.iter().map(begin).collect();
    }

    fn series(&mut self, series: &Series<'_>) {
        let keeps_families = self.families.limit > 0;
        let Some((_, current)) = self.current.last_mut() else { return };
        let Series { labels: text, samples, bytes, created } = *series;
        current.label_sets += 1;
        current.samples += samples;
        current.bytes += bytes;
        if let Some(created) = created {
            let minutes = self.now.saturating_sub(created).as_secs() / 60;
            let minutes = usize::try_from(minutes).unwrap_or(MINUTES);
            let growth = current.growth.get_or_insert([0; MINUTES]);
            if let Some(count) = growth.get_mut(minutes) {
                *count += 1;
            }
            self.oldest = Some(self.oldest.map_or(created, |oldest| oldest.min(created)));
        }
        for (at, label) in hashed(text).enumerate() {
            if keeps_families {
                // Series of one family usually have the same labels.
                current.note(at, &label, 1);
            }
            self.values.note(&label, 1);
        }
    }

    fn objects(&mut self, objects: &ObjectSeries<'_>) {
        let own: Vec<Vec<Label<'_>>> =
            objects.objects.iter().map(|text| hashed(text).collect()).collect();
        let keeps_families = self.families.limit > 0;
        for ((_, current), family) in self.current.iter_mut().zip(&objects.families) {
            let present = own.iter().zip(&family.counts).filter(|(_, series)| **series > 0);
            for (labels, series) in present {
                current.label_sets += series;
                current.samples += series;
                for (at, label) in labels.iter().enumerate().filter(|_| keeps_families) {
                    current.note(at, label, *series);
                }
            }
            if !keeps_families {
                continue;
            }
            let before = own.first().map_or(0, Vec::len);
            for (text, series) in &family.labels {
                for (at, label) in hashed(text).enumerate() {
                    current.note(before + at, &label, *series);
                }
            }
        }
        for (text, series) in objects.labels().filter(|(_, series)| *series > 0) {
            hashed(text).for_each(|label| self.values.note(&label, series));
        }
    }
}

/// Counts label pairs exactly, for a given set of hashes.
pub(super) struct Pairs(pub(super) HashMap<u64, (u64, String), foldhash::fast::FixedState>);

impl Pairs {
    fn add(&mut self, text: &[u8], series: u64) {
        for label in hashed(text) {
            if let Some((count, text)) = self.0.get_mut(&label.hash) {
                *count += series;
                if text.is_empty() {
                    let name = String::from_utf8_lossy(label.name);
                    *text = format!("{name}={}", shown(label.value));
                }
            }
        }
    }
}

impl SeriesVisitor for Pairs {
    fn families(&mut self, _: &[FamilySize<'_>]) {}

    fn series(&mut self, series: &Series<'_>) {
        self.add(series.labels, series.samples);
    }

    fn objects(&mut self, objects: &ObjectSeries<'_>) {
        objects.labels().for_each(|(text, series)| self.add(text, series));
    }
}
