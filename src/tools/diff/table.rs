//! The series of both sides in one table.
//!
//! Samples are added one side at a time. The table holds the text of each series once, regardless
//! of the side, with the last two values of each side, so memory depends on the number of series
//! and not on the number of samples.

use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use regex::Regex;

use super::known::{self, DifferenceKind};
use super::movement::{self, Counters, SampleKind};
use crate::exposition::labels;
use crate::exposition::reader::{Line, Sample};

/// The chunk size of the string arena, which grows without moving strings.
const CHUNK: usize = 4 * 1024 * 1024;

/// A string arena.
#[derive(Default)]
struct Texts(Vec<String>);

/// The position of a string in the arena.
#[derive(Clone, Copy, Default)]
struct Text {
    chunk: u32,
    start: u32,
    length: u32,
}

impl Texts {
    fn add(&mut self, text: &str) -> Text {
        let full = |last: &String| last.capacity() - last.len() < text.len();
        if self.0.last().is_none_or(full) {
            self.0.push(String::with_capacity(CHUNK.max(text.len())));
        }
        let chunk = self.0.len() - 1;
        let last = &mut self.0[chunk];
        let start = last.len();
        last.push_str(text);
        // A line is at most 16 MiB, and a chunk holds entire lines.
        Text { chunk: chunk as u32, start: start as u32, length: text.len() as u32 }
    }

    fn get(&self, text: Text) -> &str {
        let start = text.start as usize;
        &self.0[text.chunk as usize][start..start + text.length as usize]
    }
}

/// Bits for the values of a series that are present: one for each side, previous and current.
mod seen {
    pub(super) const BEFORE: [u8; 2] = [1, 2];
    pub(super) const NOW: [u8; 2] = [4, 8];
}

/// A series of one side or both.
#[derive(Default)]
struct Series {
    text: Text,
    family: u32,
    part: SampleKind,
    /// Bits of [`seen`].
    seen: u8,
    /// The current difference and the number of consecutive comparisons that had it.
    streak: u8,
    differs: Option<DifferenceKind>,
    /// Seconds from the start of the comparison to the first of these comparisons.
    since: u32,
    /// The confirmed difference, and the seconds when it was first and last seen.
    found: Option<DifferenceKind>,
    first: u32,
    last: u32,
    before: [f64; 2],
    now: [f64; 2],
    /// The values of the first two samples of each side, if only increases are comparable. A counter
    /// that appears later started at 0, of another series there is no such value.
    first_values: Option<Box<[[f64; 2]; 2]>>,
}

impl Series {
    fn has(&self, bit: u8) -> bool {
        self.seen & bit != 0
    }

    /// Compares two samples of each side. A series that appears or disappears meanwhile is not
    /// compared.
    fn compare(&self, counters: Option<Counters<'_>>) -> Option<DifferenceKind> {
        let steady = |side: usize| {
            let (before, now) = (self.has(seen::BEFORE[side]), self.has(seen::NOW[side]));
            (before == now).then_some(now)
        };
        match (steady(0)?, steady(1)?) {
            (true, true) => {
                let values = |side: usize| [self.before[side], self.now[side]];
                let since =
                    self.first_values.as_deref().map_or(Counters::Increases, Counters::Since);
                movement::differ(self.part, values(0), values(1), counters.unwrap_or(since))
            }
            // Nothing was sent for it since B started.
            (true, false) if counters.is_none() && self.is_unchanged_in_a() => None,
            (true, false) => Some(DifferenceKind::OnlyInA),
            (false, true) => Some(DifferenceKind::OnlyInB),
            (false, false) => None,
        }
    }

    /// Returns whether A has its value since its first sample.
    fn is_unchanged_in_a(&self) -> bool {
        self.first_values.as_deref().is_some_and(|first| movement::same(first[0][0], self.now[0]))
    }

    /// Records the value of a sample, given the number of complete samples before.
    fn record_first_value(&mut self, side: usize, value: f64, samples: u32) {
        let missing = if self.part == SampleKind::Counter { 0.0 } else { f64::NEG_INFINITY };
        let before = self.before[side];
        let first = &mut self.first_values.get_or_insert_with(|| Box::new([[missing; 2]; 2]))[side];
        match samples {
            0 => *first = [value; 2],
            1 => first[1] = value,
            // A reset continues the increase.
            _ if self.part == SampleKind::Counter && value < before => {
                first.iter_mut().for_each(|of| *of -= before);
            }
            _ => {}
        }
    }

    fn moves(&self) -> bool {
        (0..2).any(|side| {
            let both = seen::BEFORE[side] | seen::NOW[side];
            self.seen & both == both && !movement::same(self.before[side], self.now[side])
        })
    }
}

/// The metadata of a family on one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct About {
    /// The name in TYPE or HELP.
    pub announced: Option<String>,
    pub kind: Option<String>,
    pub help: Option<String>,
    /// The number of series.
    pub series: u64,
    /// The number of duplicate series.
    pub repeated: u64,
    /// True if a bound is written `1.0` rather than `1`.
    pub decimal: bool,
}

impl About {
    /// Returns whether the side has the family at all.
    pub(super) fn is_there(&self) -> bool {
        self.announced.is_some() || self.series > 0
    }
}

/// A family of one side or both.
pub(super) struct Family {
    pub name: String,
    /// The metadata by side.
    pub about: [About; 2],
    /// True if the family is ignored.
    pub ignored: bool,
    /// The metadata differences.
    pub found: Vec<FamilyDifference>,
}

/// A difference of family metadata.
pub(super) struct FamilyDifference {
    pub what: DifferenceKind,
    /// The value of each side.
    pub a: String,
    pub b: String,
    /// The number of consecutive comparisons that had it.
    streak: u8,
    pub is_confirmed: bool,
    /// Seconds from the start of the comparison.
    pub first: u32,
    pub last: u32,
}

impl FamilyDifference {
    /// Creates a difference that is confirmed after `streak` consecutive comparisons.
    pub(super) fn new(what: DifferenceKind, a: String, b: String, at: u32, streak: u8) -> Self {
        let is_confirmed = streak <= 1;
        Self { what, a, b, streak: 1, is_confirmed, first: at, last: at }
    }

    /// Records that another comparison has it.
    pub(super) fn again(&mut self, at: u32, streak: u8) {
        self.streak = self.streak.saturating_add(1);
        self.is_confirmed |= self.streak >= streak;
        self.last = at;
    }
}

/// A differing series.
pub(super) struct Found<'t> {
    pub family: usize,
    pub what: DifferenceKind,
    pub series: &'t str,
    /// The last value of each side, if any.
    pub values: [Option<f64>; 2],
    /// Seconds from the start of the comparison.
    pub first: u32,
    pub last: u32,
}

/// The result of one comparison.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableSummary {
    /// Series present on both sides.
    pub both: u64,
    /// Series whose value changed.
    pub moved: u64,
    /// Series with unexplained differences in this comparison.
    pub suspects: u64,
}

/// All series of both sides.
#[derive(Default)]
pub(super) struct Table {
    pub families: Vec<Family>,
    names: HashMap<String, u32>,
    series: Vec<Series>,
    index: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
    texts: Texts,
    ignore: Vec<Regex>,
    /// True if only the increases of counters are comparable.
    increases: bool,
    /// The number of complete samples of each side.
    samples: [u32; 2],
}

impl Table {
    /// Creates an empty table. Families that match one of the patterns are ignored.
    pub(super) fn new(ignore: Vec<Regex>, increases: bool) -> Self {
        Self { ignore, increases, ..Self::default() }
    }

    /// Starts a sample of a side; current values become previous ones.
    pub(super) fn read(&mut self, side: usize) -> Reading<'_> {
        self.pass(side, false);
        for family in &mut self.families {
            family.about[side] = About::default();
        }
        Reading { table: self, side, family: None, series: String::new() }
    }

    /// Repeats the last sample of a side.
    pub(super) fn repeat(&mut self, side: usize) {
        self.pass(side, true);
    }

    fn pass(&mut self, side: usize, stays: bool) {
        for series in &mut self.series {
            series.before[side] = series.now[side];
            let now = series.has(seen::NOW[side]);
            series.seen &= !(seen::BEFORE[side] | seen::NOW[side]);
            if now {
                series.seen |= seen::BEFORE[side] | if stays { seen::NOW[side] } else { 0 };
            }
        }
    }

    /// Compares the last two samples of each side, `at` seconds after the start. Increases are those
    /// between these samples, or with `since_start` those since the first ones.
    pub(super) fn compare(&mut self, since_start: bool, at: u32) -> TableSummary {
        let counters = match (self.increases, since_start) {
            (false, _) => Some(Counters::Values),
            (true, false) => Some(Counters::Increases),
            (true, true) => None,
        };
        let mut out = TableSummary::default();
        for series in &mut self.series {
            let family = &self.families[series.family as usize];
            if family.ignored {
                continue;
            }
            let both = seen::NOW[0] | seen::NOW[1];
            out.both += u64::from(series.seen & both == both);
            out.moved += u64::from(series.moves());
            let differs = series.compare(counters);
            series.streak = match differs {
                None => 0,
                Some(_) if differs == series.differs => series.streak.saturating_add(1),
                Some(_) => 1,
            };
            series.differs = differs;
            if series.streak == 1 {
                series.since = at;
            }
            if let Some(what) = differs
                && known::reason(&family.name, what).is_none()
            {
                out.suspects += 1;
            }
        }
        out
    }

    /// Confirms differences that occurred in `streak` consecutive comparisons; known ones need only
    /// one.
    pub(super) fn settle(&mut self, streak: u8, at: u32) {
        for series in &mut self.series {
            let Some(what) = series.differs else { continue };
            let name = &self.families[series.family as usize].name;
            if series.streak >= streak || known::reason(name, what).is_some() {
                if series.found.replace(what) != Some(what) {
                    series.first = series.since;
                }
                series.last = at;
            }
        }
    }

    /// Removes series that no side has any more, if there are many.
    pub(super) fn tidy(&mut self) {
        let is_kept = |series: &Series| series.seen != 0 || series.found.is_some();
        let kept = self.series.iter().filter(|series| is_kept(series)).count();
        if self.series.len() < 2 * kept + 1024 {
            return;
        }
        let (old, texts) = (std::mem::take(&mut self.series), std::mem::take(&mut self.texts));
        self.index.clear();
        for mut series in old.into_iter().filter(is_kept) {
            let text = texts.get(series.text);
            series.text = self.texts.add(text);
            self.push(series, self.hasher.hash_one(text));
        }
    }

    /// Adds a series whose text has this hash.
    fn push(&mut self, series: Series, hash: u64) -> u32 {
        let number = self.series.len() as u32;
        self.series.push(series);
        let (all, texts, hasher) = (&self.series, &self.texts, &self.hasher);
        let hash_of = |one: &u32| hasher.hash_one(texts.get(all[*one as usize].text));
        self.index.insert_unique(hash, number, hash_of);
        number
    }

    /// Returns whether there is a confirmed difference without a known reason.
    pub(super) fn has_found(&self) -> bool {
        let is_new = |family: &Family, what| known::reason(&family.name, what).is_none();
        let of_series = |series: &Series| {
            series.found.is_some_and(|what| is_new(&self.families[series.family as usize], what))
        };
        let of_family = |family: &Family| {
            family.found.iter().any(|found| found.is_confirmed && is_new(family, found.what))
        };
        self.series.iter().any(of_series) || self.families.iter().any(of_family)
    }

    /// Returns the series with confirmed differences, in the order they appeared.
    pub(super) fn found(&self) -> impl Iterator<Item = Found<'_>> {
        self.series.iter().filter_map(|series| {
            let value = |side: usize| {
                let value = match (series.has(seen::NOW[side]), series.has(seen::BEFORE[side])) {
                    (true, _) => series.now[side],
                    (false, true) => series.before[side],
                    (false, false) => return None,
                };
                Some(value)
            };
            Some(Found {
                family: series.family as usize,
                what: series.found?,
                series: self.texts.get(series.text),
                values: [value(0), value(1)],
                first: series.first,
                last: series.last,
            })
        })
    }

    /// Returns the numbers of families and series of a side.
    pub(super) fn size(&self, side: usize) -> (usize, u64) {
        let about = self.families.iter().map(|family| &family.about[side]);
        about
            .filter(|about| about.is_there())
            .fold((0, 0), |(families, series), one| (families + 1, series + one.series))
    }

    /// Returns the series that a side has or had, with their families.
    pub(super) fn of(&self, side: usize) -> impl Iterator<Item = (usize, &str)> {
        let any = seen::BEFORE[side] | seen::NOW[side];
        let of = self.series.iter().filter(move |series| series.has(any));
        of.map(|series| (series.family as usize, self.texts.get(series.text)))
    }

    fn family(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.families.len() as u32;
        let ignored = self.ignore.iter().any(|pattern| pattern.is_match(name));
        let about = Default::default();
        self.families.push(Family { name: name.to_owned(), about, ignored, found: Vec::new() });
        self.names.insert(name.to_owned(), number);
        number
    }

    /// Returns the series with this text, creating it if needed.
    fn series(&mut self, text: &str, family: u32, part: SampleKind) -> &mut Series {
        let hash = self.hasher.hash_one(text);
        let is_it = |one: &u32| self.texts.get(self.series[*one as usize].text) == text;
        let number = self.index.find(hash, is_it).copied().unwrap_or_else(|| {
            let text = self.texts.add(text);
            let new = Series { text, family, part, ..Series::default() };
            self.push(new, hash)
        });
        &mut self.series[number as usize]
    }
}

/// The family being read.
#[derive(Default)]
struct Current {
    name: String,
    kind: Option<String>,
    help: Option<String>,
    /// The index in the table, assigned with the first series.
    number: Option<u32>,
}

/// A sample of one side being read.
pub(super) struct Reading<'t> {
    table: &'t mut Table,
    side: usize,
    family: Option<Current>,
    series: String,
}

impl Reading<'_> {
    /// Processes the next line.
    pub(super) fn line(&mut self, line: Line<'_>) {
        match line {
            Line::Help { name, text } => {
                self.announced(name).help = Some(labels::plain_text(text).into_owned())
            }
            Line::Type { name, kind } => self.announced(name).kind = Some(kind.to_owned()),
            Line::Sample(sample) => self.sample(sample),
            Line::End => {}
        }
    }

    /// Completes the sample.
    pub(super) fn finish(mut self) {
        self.leave();
        self.table.samples[self.side] += 1;
    }

    /// Returns the family named by a comment.
    fn announced(&mut self, name: &str) -> &mut Current {
        let goes_on =
            self.family.as_ref().is_some_and(|one| one.name == name && one.number.is_none());
        if !goes_on {
            self.leave();
        }
        self.family.get_or_insert_with(|| Current { name: name.to_owned(), ..Current::default() })
    }

    /// Completes the current family, which may have no series.
    fn leave(&mut self) {
        if let Some(family) = self.family.take()
            && family.number.is_none()
        {
            self.enter(&family, &family.name);
        }
    }

    /// Stores the metadata of a family under the name of its series.
    fn enter(&mut self, family: &Current, name: &str) -> u32 {
        let number = self.table.family(name);
        let about = &mut self.table.families[number as usize].about[self.side];
        about.announced.get_or_insert_with(|| family.name.clone());
        about.kind = about.kind.take().or_else(|| family.kind.clone());
        about.help = about.help.take().or_else(|| family.help.clone());
        number
    }

    fn sample(&mut self, sample: Sample<'_>) {
        let Sample { name, mut labels, value } = sample;
        let suffix = self.family.as_ref().and_then(|family| {
            let kind = family.kind.as_deref().unwrap_or_default();
            name.strip_prefix(family.name.as_str()).filter(|rest| belongs(kind, rest))
        });
        let Some(suffix) = suffix else {
            // A new family without metadata.
            self.leave();
            let number = self.table.family(name);
            let family =
                Current { number: Some(number), name: name.to_owned(), ..Current::default() };
            self.family = Some(family);
            self.put(number, SampleKind::Gauge, name, &mut labels, value);
            return;
        };
        let Some(mut family) = self.family.take() else { return };
        let kind = family.kind.clone().unwrap_or_default();
        let number = match family.number {
            Some(number) => number,
            None => {
                // OpenMetrics omits the suffix of counters and infos from the family name.
                let shown = match (kind.as_str(), suffix) {
                    ("counter", "_total") | ("info", "_info") => name.to_owned(),
                    ("counter", "_created") => format!("{}_total", family.name),
                    _ => family.name.clone(),
                };
                let number = self.enter(&family, &shown);
                family.number = Some(number);
                number
            }
        };
        self.family = Some(family);
        self.put(number, part(&kind, suffix), name, &mut labels, value);
    }

    fn put(
        &mut self,
        family: u32,
        part: SampleKind,
        name: &str,
        labels: &mut Vec<(&str, &str)>,
        value: f64,
    ) {
        let side = self.side;
        if self.table.families[family as usize].ignored {
            return;
        }
        for (label, value) in labels.iter_mut() {
            // The formats write bounds differently; normalise them.
            if matches!(*label, "le" | "quantile")
                && let Some(short) = value.strip_suffix(".0")
            {
                *value = short;
                self.table.families[family as usize].about[side].decimal = true;
            }
        }
        if !labels.is_sorted() {
            labels.sort_unstable();
        }
        let mut text = std::mem::take(&mut self.series);
        text.clear();
        text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { "{" } else { "," };
            for piece in [before, label, "=\"", value, "\""] {
                text.push_str(piece);
            }
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let (increases, samples) = (self.table.increases, self.table.samples[side]);
        let series = self.table.series(&text, family, part);
        let family = series.family as usize;
        let again = series.has(seen::NOW[side]);
        if !again {
            if increases {
                series.record_first_value(side, value, samples);
            }
            series.seen |= seen::NOW[side];
            series.now[side] = value;
        }
        let about = &mut self.table.families[family].about[side];
        about.series += u64::from(!again);
        about.repeated += u64::from(again);
        self.series = text;
    }
}

/// Returns whether a sample with this suffix belongs to a family of this type.
fn belongs(kind: &str, suffix: &str) -> bool {
    let more: &[&str] = match kind {
        "counter" => &["_total", "_created"],
        "histogram" => &["_bucket", "_sum", "_count", "_created"],
        "gaugehistogram" => &["_bucket", "_gsum", "_gcount"],
        "summary" => &["_sum", "_count", "_created"],
        "info" => &["_info"],
        _ => &[],
    };
    suffix.is_empty() || more.contains(&suffix)
}

fn part(kind: &str, suffix: &str) -> SampleKind {
    match (kind, suffix) {
        (_, "_created") => SampleKind::Created,
        ("counter", _) | ("histogram" | "summary", "_sum" | "_count" | "_bucket") => {
            SampleKind::Counter
        }
        ("summary", _) => SampleKind::Quantile,
        _ => SampleKind::Gauge,
    }
}
