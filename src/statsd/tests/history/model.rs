//! The mapping and the series as the model of a history knows them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;

/// One version of the mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// The label `user` is kept.
    pub(super) by_user: bool,
    /// The limit of values of `user`, if any.
    pub(super) values: Option<u64>,
    /// The limit of series of a metric, if any.
    pub(super) series: Option<u64>,
    /// The time to live in seconds; 0 means for ever.
    pub(super) ttl: u64,
    pub(super) histogram: bool,
}

impl Mapping {
    pub(super) fn random(rng: &mut Rng, ttl: bool, histogram: bool) -> Self {
        Self {
            by_user: rng.u32(0..4) > 0,
            values: rng.bool().then(|| rng.u64(1..6)),
            series: rng.bool().then(|| rng.u64(2..12)),
            ttl: if ttl { rng.u64(2..9) } else { 0 },
            histogram,
        }
    }

    pub(super) fn yaml(&self) -> String {
        let user = if self.by_user { ", user: $2" } else { "" };
        let mut limits = String::new();
        if let Some(series) = self.series {
            let _ = write!(limits, " series: {series},");
        }
        if let Some(values) = self.values {
            let _ = write!(limits, " values_per_label: {values},");
        }
        let limits = match limits.trim_end_matches(',') {
            "" => String::new(),
            limits => format!("  limits: {{{limits} }}\n"),
        };
        let observer = if self.histogram { "histogram" } else { "summary" };
        let rule = |kind: &str, name: &str| {
            format!(
                "- match: {kind}.*.*\n  name: {name}\n  ttl: {}s\n  labels: {{service: $1{user}}}\n{limits}",
                self.ttl
            )
        };
        format!(
            "mappings:\n{}{}{}  observer_type: {observer}\n- match: drop.*\n  action: drop\n  name: d\n",
            rule("c", "requests_total"),
            rule("g", "level"),
            rule("t", "latency"),
        )
    }
}

/// The kinds of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Observer,
}

/// The labels of a series.
pub(crate) type Labels = BTreeMap<String, String>;

/// The identity of a series.
pub(super) type Key = (Kind, Labels);

/// A series as the model knows it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) value: f64,
    pub(super) touched: Duration,
    /// The time to live that it was created with.
    pub(super) ttl: Duration,
}

impl Known {
    /// Returns the series after a burst, which may have created it.
    pub(super) fn after(before: Option<&Self>, burst: &Burst) -> Self {
        let (value, ttl) = before.map_or((0.0, burst.ttl), |before| (before.value, before.ttl));
        Self { value: burst.applied_to(value), touched: burst.at, ttl }
    }
}

/// Lines with one key that were sent at once.
#[derive(Debug)]
pub(super) struct Burst {
    pub(super) kind: Kind,
    pub(super) labels: Labels,
    pub(super) values: Vec<Value>,
    pub(super) at: Duration,
    /// The time to live of the rule.
    pub(super) ttl: Duration,
}

/// The effect of a line on the value of its series.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Set(f64),
    Add(f64),
}

impl Burst {
    pub(super) fn applied_to(&self, value: f64) -> f64 {
        self.values.iter().fold(value, |value, change| match change {
            Value::Set(new) => *new,
            Value::Add(amount) => value + amount,
        })
    }
}

/// What must be exposed.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The series that were created under their own labels, if nothing folds.
    pub(super) series: BTreeMap<Key, Known>,
    /// The accepted sum of each family without the series that ended with their sender, while nothing expires.
    pub(super) sums: BTreeMap<&'static str, f64>,
    /// A series has ended with its sender.
    pub(super) has_ended: bool,
    /// The series of the last scrape.
    pub(super) shown: BTreeMap<Key, Known>,
    /// The number of samples in the last scrape.
    pub(super) samples: usize,
    /// The accepted lines since the last scrape.
    pub(super) burst: Option<Burst>,
}
