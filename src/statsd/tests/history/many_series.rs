//! A counter with hundreds of series, of which many begin and end at once.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;

use super::History;
use super::features::Feature;
use super::model::{Labels, Mapping};
use crate::exposition::tests::samples::Samples;

/// The metric with these series.
pub(super) const METRIC: &str = "visits_total";

/// The size of a history's metric.
#[derive(Clone, Copy)]
struct Size {
    /// The number of label sets.
    series: u32,
    /// More than the largest number of lines at once.
    lines: u32,
}

const USUAL: Size = Size { series: 900, lines: 200 };
/// In a few histories. A scrape buffers the values of 12,000 series in several chunks: those that are no whole numbers take ten bytes
/// each.
const LARGE: Size = Size { series: 12_000, lines: 12_000 };
/// One of so many histories with these series has the large size.
const LARGE_OF: u32 = 4;
/// The largest number of lines that are sent at once: as many as the socket of a relay's target can hold.
const AT_ONCE: usize = 200;
/// The values of lines are multiples of this part, so that their sums are exact.
const PART: f64 = 0.125;

/// A series.
#[derive(Debug)]
struct Known {
    value: f64,
    touched: Duration,
    ttl: Duration,
}

/// The series of a history. Only some histories have them, because they make each scrape long.
pub(super) struct ManySeries {
    rng: Rng,
    are_used: bool,
    size: Size,
    ttl: Duration,
    known: BTreeMap<Labels, Known>,
}

impl ManySeries {
    /// Returns the series of a history, which has none if `is_limited`, or if its lines come from pods.
    pub(super) fn new(seed: u64, mapping: &Mapping, is_limited: bool) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x629a_292a_367c_d507);
        let are_used = rng.u32(0..3) == 0 && !is_limited;
        let mut sizes = Rng::with_seed(seed ^ 0x9216_d5d9_8979_fb1b);
        let size = if sizes.u32(0..LARGE_OF) == 0 { LARGE } else { USUAL };
        let ttl = Duration::from_secs(mapping.ttl);
        Self { rng, are_used, size, ttl, known: BTreeMap::new() }
    }

    pub(super) fn reload(&mut self, mapping: &Mapping) {
        self.ttl = Duration::from_secs(mapping.ttl);
    }

    /// Returns true if the next lines are those of such series.
    pub(super) fn are_next(&mut self) -> bool {
        self.are_used && self.rng.u32(0..8) == 0
    }

    /// Returns the part of the usual number of steps that the history has: a scrape takes as long as its series are many.
    pub(super) fn steps(&self, usual: usize) -> usize {
        if self.are_large() { usual / 4 } else { usual }
    }

    /// Returns true if there are so many that each scrape is to be compared with another format.
    pub(super) fn are_large(&self) -> bool {
        self.are_used && self.size.series > USUAL.series
    }

    pub(super) fn yaml(&self) -> String {
        let ttl = self.ttl.as_secs();
        format!(
            "- match: m.*.*\n  name: {METRIC}\n  ttl: {ttl}s\n  labels: {{page: $1, site: $2}}\n"
        )
    }
}

/// Returns the parts of a name.
fn parts(number: u32) -> [String; 2] {
    // Neighbours differ in their first label too.
    [format!("p{:03}", number / 7), format!("s{}", number % 7)]
}

impl History {
    /// Sends a line for each of many series.
    pub(super) fn lines_of_many_series(&mut self) -> Result<(), String> {
        let (now, Size { series, lines }) = (self.now, self.many_series.size);
        let rng = &mut self.many_series.rng;
        let (first, step) = (rng.u32(0..series), [1, 1, 3, 40][rng.usize(0..4)]);
        let count = rng.u32(1..lines);
        let numbers = (0..count).map(|at| (first + at * step) % series);
        let numbers: Vec<(u32, f64)> =
            numbers.map(|number| (number, PART * f64::from(rng.u32(1..30)))).collect();
        let sender = rng.usize(0..self.senders.len());
        let lines: Vec<String> = numbers
            .iter()
            .map(|(number, value)| format!("m.{}:{value}|c", parts(*number).join(".")))
            .collect();
        self.used(Feature::ManySeries);
        self.outcome.lines += lines.len();
        for lines in lines.chunks(AT_ONCE) {
            let (reasons, _) = self.send(Some(self.senders[sender]), lines)?;
            if !reasons.is_empty() {
                return Err(format!("lines of many series are rejected for {reasons:?}"));
            }
        }
        let all = &mut self.many_series;
        for (number, value) in numbers {
            let names = ["page", "site"].map(str::to_owned);
            let labels = names.into_iter().zip(parts(number)).collect();
            let new = Known { value: 0.0, touched: now, ttl: all.ttl };
            let known = all.known.entry(labels).or_insert(new);
            known.value += value;
            known.touched = now;
        }
        Ok(())
    }

    /// Compares these series of a scrape with the model.
    pub(super) fn check_many_series(&mut self, samples: &Samples) -> Result<(), String> {
        if !self.many_series.are_used {
            return Ok(());
        }
        let shown: BTreeMap<&Labels, f64> = samples
            .iter()
            .filter(|((name, _), _)| name == METRIC)
            .map(|((_, labels), value)| (labels, value.0))
            .collect();
        if let Some(labels) = shown.keys().find(|at| !self.many_series.known.contains_key(**at)) {
            return Err(format!("{METRIC}{labels:?} was never sent"));
        }
        let mut ended = Vec::new();
        for (labels, known) in &self.many_series.known {
            let end = known.touched + known.ttl;
            let wrong = match shown.get(labels) {
                None if self.may_have_ended(labels, end) => {
                    ended.push(labels.clone());
                    continue;
                }
                None => "missing".to_owned(),
                Some(_) if self.must_have_ended(labels, end) => "still there".to_owned(),
                Some(value) if *value == known.value => continue,
                Some(value) => value.to_string(),
            };
            return Err(format!("{METRIC}{labels:?} is {wrong}: {known:?}, now {:?}", self.now));
        }
        for labels in ended {
            self.many_series.known.remove(&labels);
        }
        Ok(())
    }
}
