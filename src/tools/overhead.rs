//! `kstatd overhead`: what processes cost the host they run on, sampled for a while, and whether that is more than in
//! samples from before.

mod rank;
mod reading;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub(crate) use self::reading::Subject;
use self::reading::{Reading, Used};
use crate::status::Writer;

/// Below this a difference is taken for more than chance: with the eight rows of a table, one in a hundred comparisons of
/// the same thing with itself shows one by mistake.
const CHANCE: f64 = 0.01 / ROWS.len() as f64;

/// What a row is called, with its unit, and how many digits its numbers have.
const ROWS: [(&str, usize); 8] = [
    ("host: CPU busy, % of all", 2),
    ("host: context switches/s", 0),
    ("CPU, % of one core", 3),
    ("context switches/s", 1),
    ("wake-ups/s", 1),
    ("read from disks, kB/s", 1),
    ("written to disks, kB/s", 1),
    ("memory, MB", 2),
];

/// All samples of a run.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Samples {
    /// Seconds between two of them.
    every: f64,
    /// For each row, by its name, one value for each sample.
    rows: Vec<(String, Vec<f64>)>,
}

impl Samples {
    /// Reads those that were written before.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is none.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let samples = serde_json::from_slice(&text);
        samples
            .map_err(|error| format!("{}: no samples of kstatd overhead: {error}", path.display()))
    }

    /// The same as JSON.
    pub(crate) fn json(&self) -> String {
        let text = serde_json::to_string(self);
        text.unwrap_or_default() + "\n"
    }

    fn row(&self, name: &str) -> &[f64] {
        let row = self.rows.iter().find(|(of, _)| of == name);
        row.map_or(&[], |(_, values)| values)
    }
}

/// Samples for so long.
///
/// # Errors
///
/// Nothing of that name is there, or the system does not tell.
pub(crate) fn sample(
    subject: &Subject,
    every: Duration,
    total: Duration,
) -> Result<Samples, String> {
    let mut before = subject.read()?;
    if before.processes == 0 {
        return Err("there is no such process".to_owned());
    }
    let begun = Instant::now();
    let (mut last, mut values) = (begun, vec![Vec::new(); ROWS.len()]);
    let steps = (total.as_secs_f64() / every.as_secs_f64()).round().max(1.0) as u32;
    for step in 1..=steps {
        std::thread::sleep((begun + every * step).saturating_duration_since(Instant::now()));
        let (reading, now) = (subject.read()?, Instant::now());
        let seconds = now.duration_since(last).as_secs_f64();
        for (row, value) in values.iter_mut().zip(rates(&before, &reading, seconds)) {
            row.push(value);
        }
        (before, last) = (reading, now);
    }
    let names = ROWS.iter().map(|(name, _)| (*name).to_owned());
    Ok(Samples { every: every.as_secs_f64(), rows: names.zip(values).collect() })
}

/// The rows for the time between two readings.
fn rates(before: &Reading, after: &Reading, seconds: f64) -> [f64; ROWS.len()] {
    let mut sum = Used::default();
    for (who, now) in &after.used {
        // Who came meanwhile had nothing before; who went has taken the last of it along.
        let then = before.used.get(who).copied().unwrap_or_default();
        let more = |of: fn(&Used) -> f64| (of(now) - of(&then)).max(0.0);
        sum.cpu += more(|of| of.cpu);
        sum.switches += more(|of| of.switches);
        sum.wakes += more(|of| of.wakes);
        sum.read += more(|of| of.read);
        sum.written += more(|of| of.written);
    }
    let all = after.all - before.all;
    let busy = if all > 0.0 { 100.0 * (after.busy - before.busy) / all } else { 0.0 };
    [
        busy,
        (after.switches - before.switches) / seconds,
        100.0 * sum.cpu / seconds,
        sum.switches / seconds,
        sum.wakes / seconds,
        sum.read / seconds / 1e3,
        sum.written / seconds / 1e3,
        after.memory / 1e6,
    ]
}

/// Smallest, middle and largest.
fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let half = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    };
    Some([first, median, last])
}

/// The samples as a table, held against those from before where there are any.
pub(crate) fn table(samples: &Samples, baseline: Option<&Samples>) -> String {
    let mut out = Writer::default();
    let count = |of: &Samples| of.rows.first().map_or(0, |(_, values)| values.len());
    let taken = |of: &Samples| format!("{} samples, one each {} s", count(of), of.every);
    out.line(0, &taken(samples));
    let mut head = ["", "MIN", "MEDIAN", "MAX"].map(str::to_owned).to_vec();
    let mut right = vec![false, true, true, true];
    if let Some(baseline) = baseline {
        out.line(0, &format!("held against {}", taken(baseline)));
        head.extend(["BASELINE", "DIFFERENCE", "BY CHANCE", ""].map(str::to_owned));
        right.extend([true, true, true, false]);
    }
    let mut rows = vec![head];
    for (name, digits) in ROWS {
        let values = samples.row(name);
        let Some(of) = spread(values) else { continue };
        let number = |value: f64| format!("{value:.digits$}");
        let mut row = vec![name.to_owned()];
        row.extend(of.map(number));
        if let Some(before) = baseline.map(|baseline| baseline.row(name)) {
            row.extend(match spread(before) {
                Some([_, median, _]) => {
                    compared(values, before, of[1] - median, digits, number(median))
                }
                None => vec!["-".to_owned(); 4],
            });
        }
        rows.push(row);
    }
    out.table(&right, &rows);
    out.text()
}

fn compared(
    values: &[f64],
    before: &[f64],
    apart: f64,
    digits: usize,
    median: String,
) -> Vec<String> {
    let chance = rank::chance(values, before);
    let verdict = if chance < CHANCE { "more than noise" } else { "noise" };
    let shown = if chance < 1e-6 { "<0.000001".to_owned() } else { format!("{chance:.6}") };
    vec![median, format!("{apart:+.digits$}"), shown, verdict.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_samples() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(spread(&[4.0, 1.0]), Some([1.0, 2.5, 4.0]));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn who_comes_and_goes_between_readings() {
        let used = |cpu| Used { cpu, ..Used::default() };
        let reading = |all, of: &[(&str, f64)]| Reading {
            all,
            busy: all / 2.0,
            used: of.iter().map(|(who, cpu)| ((*who).to_owned(), used(*cpu))).collect(),
            ..Reading::default()
        };
        let before = reading(10.0, &[("stays", 1.0), ("goes", 5.0)]);
        let after = reading(12.0, &[("stays", 1.5), ("comes", 0.25)]);
        let rates = rates(&before, &after, 1.0);
        assert_eq!((rates[0], rates[2]), (50.0, 75.0));
    }
}
