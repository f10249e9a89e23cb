//! `kstatd overhead`: samples the resource usage of processes on this host and compares it with a
//! baseline.

mod rank;
mod reading;

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use self::reading::{Reading, Used, read};
use crate::cli::native::OverheadArgs;
use crate::status::Writer;
use crate::tools::Result;

/// The significance level of a comparison. With a Bonferroni correction for the eight rows of a
/// table, one in a hundred comparisons of identical processes reports a difference by chance.
const CHANCE: f64 = 0.01 / ROWS.len() as f64;

/// The name of each row with its unit, and the number of decimals.
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

/// The samples of a run.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Samples {
    /// The interval in seconds.
    every: f64,
    /// The values of each row, one per sample.
    rows: Vec<(String, Vec<f64>)>,
}

impl Samples {
    /// Loads saved samples.
    ///
    /// # Errors
    ///
    /// When the file is unreadable or malformed.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let samples = serde_json::from_slice(&text);
        samples.map_err(|error| {
            format!("{}: not a samples file of kstatd overhead: {error}", path.display()).into()
        })
    }

    /// Formats the samples as JSON.
    pub(crate) fn json(&self) -> String {
        let text = serde_json::to_string(self);
        text.unwrap_or_default() + "\n"
    }

    fn row(&self, name: &str) -> &[f64] {
        let row = self.rows.iter().find(|(of, _)| of == name);
        row.map_or(&[], |(_, values)| values)
    }
}

/// Samples the processes of these flags.
///
/// # Errors
///
/// When no such process, or it ends meanwhile, or the system does not provide the figures.
pub(crate) fn sample(args: &OverheadArgs) -> Result<Samples> {
    let OverheadArgs { every, total, .. } = *args;
    let mut before = read(args)?;
    if before.processes == 0 {
        return Err("no such process".into());
    }
    let begun = Instant::now();
    let (mut last, mut values) = (begun, vec![Vec::new(); ROWS.len()]);
    let steps = (total.as_secs_f64() / every.as_secs_f64()).round().max(1.0) as u32;
    for step in 1..=steps {
        std::thread::sleep((begun + every * step).saturating_duration_since(Instant::now()));
        let (mut reading, now) = (read(args)?, Instant::now());
        if reading.processes == 0 {
            let seconds = (every * step).as_secs_f64();
            return Err(format!("the processes have ended within {seconds} s").into());
        }
        let seconds = now.duration_since(last).as_secs_f64();
        for (row, value) in values.iter_mut().zip(rates(&before, &reading, seconds)) {
            row.push(value);
        }
        reading.missed = std::mem::take(&mut before.used);
        reading.missed.retain(|who, _| !reading.used.contains_key(who));
        (before, last) = (reading, now);
    }
    let names = ROWS.iter().map(|(name, _)| (*name).to_owned());
    Ok(Samples { every: every.as_secs_f64(), rows: names.zip(values).collect() })
}

/// Returns the rows for the interval between two readings.
fn rates(before: &Reading, after: &Reading, seconds: f64) -> [f64; ROWS.len()] {
    let mut sum = Used::default();
    for (who, now) in &after.used {
        // A new process started at zero; the last interval of one that ended is lost.
        let then = before.used.get(who).or_else(|| before.missed.get(who));
        let then = then.copied().unwrap_or_default();
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

/// Returns minimum, median and maximum.
fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let half = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        f64::midpoint(sorted[half - 1], sorted[half])
    };
    Some([first, median, last])
}

/// Formats the samples as a table, compared with the baseline if there is one.
pub(crate) fn table(samples: &Samples, baseline: Option<&Samples>) -> String {
    let mut out = Writer::default();
    let count = |of: &Samples| of.rows.first().map_or(0, |(_, values)| values.len());
    let taken = |of: &Samples| format!("{} samples, one every {} s", count(of), of.every);
    out.line(0, &taken(samples));
    let mut heads = vec!["", ">MIN", ">MEDIAN", ">MAX"];
    if let Some(baseline) = baseline {
        out.line(0, &format!("compared with {}", taken(baseline)));
        heads.extend([">BASELINE", ">DIFFERENCE", ">P-VALUE", ""]);
    }
    let mut rows = Vec::new();
    for (name, digits) in ROWS {
        let values = samples.row(name);
        let Some(of) = spread(values) else { continue };
        let number = |value: f64| format!("{value:.digits$}");
        let mut row = vec![name.to_owned()];
        row.extend(of.map(number));
        if let Some(before) = baseline.map(|baseline| baseline.row(name)) {
            row.extend(match spread(before) {
                Some([_, median, _]) => {
                    let chance = rank::chance(values, before);
                    let verdict = if chance < CHANCE { "significant" } else { "not significant" };
                    let is_tiny = chance < 1e-6;
                    let shown = if is_tiny { "<0.000001" } else { &format!("{chance:.6}") };
                    let apart = format!("{:+.digits$}", of[1] - median);
                    vec![number(median), apart, shown.to_owned(), verdict.to_owned()]
                }
                None => vec!["-".to_owned(); 4],
            });
        }
        rows.push(row);
    }
    out.table(1, &heads, rows);
    out.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some([1.0, 2.0, 3.0]));
        assert_eq!(spread(&[4.0, 1.0]), Some([1.0, 2.5, 4.0]));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn processes_that_start_or_exit_between_samples() {
        let used = |cpu| Used { cpu, ..Used::default() };
        let reading = |all, of: &[(&str, f64)]| Reading {
            all,
            busy: all / 2.0,
            used: of.iter().map(|(who, cpu)| ((*who).to_owned(), used(*cpu))).collect(),
            ..Reading::default()
        };
        let before = reading(10.0, &[("stays", 1.0), ("goes", 5.0)]);
        let after = reading(12.0, &[("stays", 1.5), ("comes", 0.25)]);
        let found = rates(&before, &after, 1.0);
        assert_eq!((found[0], found[2]), (50.0, 75.0));
        // One that this reading has overlooked did not start at the next one.
        let mut gap = reading(12.0, &[("stays", 1.5)]);
        gap.missed = [("missed".to_owned(), used(100.0))].into();
        let after = reading(14.0, &[("stays", 1.5), ("missed", 100.5)]);
        assert_eq!(rates(&gap, &after, 1.0)[2], 50.0);
    }
}
