//! Lookups in the mapper: kstatd's in this process, the original's with its benchmark in tests/peers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use kstatd::mapper::{Buffer, Mapper, MetricType};

use super::programs::Programs;

/// Measuring time for each case.
const WINDOW: Duration = Duration::from_millis(500);

/// Seconds for one lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookups {
    /// A glob rule matches.
    pub hit: f64,
    /// No glob rule matches.
    pub miss: f64,
    /// The last of the regex rules matches.
    pub regex: f64,
}

/// Measures kstatd.
pub fn ours(rules: usize) -> Result<Lookups> {
    let globs = mapper(rules, "glob", |rule| format!("metric{rule}.*"))?;
    let regexes = mapper(rules, "regex", |rule| format!("metric{rule}\\.([^.]*)"))?;
    Ok(Lookups {
        hit: time(&globs, &format!("metric{}.some_name", rules / 2)),
        miss: time(&globs, "unknown.some_name"),
        regex: time(&regexes, &format!("metric{}.some_name", rules - 1)),
    })
}

fn mapper(rules: usize, kind: &str, pattern: impl Fn(usize) -> String) -> Result<Mapper> {
    let mut text = format!("defaults: {{match_type: {kind}}}\nmappings:\n");
    for rule in 0..rules {
        let pattern = pattern(rule);
        writeln!(text, "- {{match: '{pattern}', name: metric_single, labels: {{name: $1}}}}")?;
    }
    Mapper::from_yaml(&text).map_err(|problems| anyhow!("{problems:?}"))
}

fn time(mapper: &Mapper, name: &str) -> f64 {
    let mut buffer = Buffer::default();
    let mut look_up = || {
        let mapped = mapper.map(black_box(name), MetricType::Counter, &mut buffer);
        let bytes = mapped.map_or(0, |mapped| {
            mapped.labels().map(|(name, value)| name.len() + value.len()).sum()
        });
        black_box(bytes);
    };
    let start = Instant::now();
    let mut count = 0_u32;
    while start.elapsed() < WINDOW {
        (0..1_000).for_each(|_| look_up());
        count += 1_000;
    }
    start.elapsed().as_secs_f64() / f64::from(count)
}

/// Measures the original, with and without its cache.
pub fn peer(programs: &Programs, rules: usize) -> Result<(Lookups, Lookups)> {
    let output = Command::new(&programs.mapper_bench).arg(rules.to_string()).output()?;
    if !output.status.success() {
        bail!("mapperbench: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let values: BTreeMap<&str, f64> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, value)| Some((name, value.parse::<f64>().ok()? * 1e-9)))
        .collect();
    let value =
        |name: &str| values.get(name).copied().with_context(|| format!("no {name} in {text}"));
    let regex = value("regex-last")?;
    let plain = Lookups { hit: value("glob-hit")?, miss: value("glob-miss")?, regex };
    let cached =
        Lookups { hit: value("glob-hit-cached")?, miss: value("glob-miss-cached")?, regex };
    Ok((plain, cached))
}
