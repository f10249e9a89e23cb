//! The mapping and the series as the model of a history knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;

use super::native_buckets::NativeOptions;
use super::{CHANGING, helps};

/// The bounds of buckets, or the quantiles, of one of the mappings.
const SHAPES: [&[&str]; 3] = [&["0.5", "0.9"], &["0.01", "0.1", "0.75"], &["0.99"]];

/// The time for which values are part of quantiles without `max_age`.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The number of the rule of special lines, after those of the kinds and one that drops lines.
const SPECIAL: usize = 4;
/// The number of the first rule that matches the names of a kind's lines, but is for lines of another type.
const TYPED: usize = 7;
/// The number of the rule of the lines of one user, after these.
const NARROW: usize = 13;
/// Its user.
const NARROW_USER: u32 = 1;
/// The number of the rule that no line matches.
const UNMATCHED: usize = 14;
/// The time to live, in seconds, of series whose rule has none. It is longer than any history.
pub(super) const FOREVER: u64 = 1_000_000_000;
/// A label of senders.
const WORKLOAD: &str = "workload";

/// One version of the mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// The label `user` is kept.
    pub(super) by_user: bool,
    /// The limit of values of `user`, if any.
    pub(super) values: Option<u64>,
    /// The limit of series of a metric, if any.
    pub(super) series: Option<u64>,
    /// The time to live in seconds; 0 means for ever in histories without one, and [`FOREVER`] in others.
    pub(super) ttl: u64,
    pub(super) histogram: bool,
    /// The factor of the values of each [kind](Kind).
    scales: [Option<f64>; 3],
    /// The bounds of buckets, or the quantiles.
    shape: &'static [&'static str],
    /// The time for which values are part of quantiles, if the mapping sets one.
    max_age: Option<Duration>,
    /// The match types of the kinds' rules.
    is_regex: [bool; 3],
    /// Regular expressions have another group before those of the labels.
    has_first_group: bool,
    /// The lines of this kind and service match a rule of their own, too.
    special: (Kind, u32),
    /// The order of the rules, with some that no line matches, and from [`TYPED`] on some that are for lines of another type.
    order: Vec<usize>,
    /// The rules of the kinds are for lines of their type.
    is_typed: [bool; 3],
    /// Rules with literals precede those with `*` there, whatever their order is.
    by_specificity: bool,
    /// The lines of this kind and of one user match a rule of their own, too.
    narrow: Option<Kind>,
    native: NativeOptions,
    /// The lines whose name begins like a rule that none matches.
    unmatched: Option<(Kind, u32)>,
    /// The rules of the kinds keep the first letter of a sender's workload only, so that several pods share series.
    cuts_workloads: bool,
    /// The label of users, which may have the name of a label of senders.
    user_label: &'static str,
}

impl Mapping {
    pub(super) fn random(rng: &mut Rng, ttl: bool, histogram: bool) -> Self {
        let mut order: Vec<usize> = (0..rng.usize(4..8)).collect();
        order.extend((TYPED..TYPED + 6).filter(|_| rng.u32(0..4) == 0));
        rng.shuffle(&mut order);
        Self {
            by_user: rng.u32(0..4) > 0,
            values: rng.bool().then(|| rng.u64(1..6)),
            series: rng.bool().then(|| rng.u64(2..12)),
            ttl: if ttl { rng.u64(2..9) } else { 0 },
            histogram,
            scales: std::array::from_fn(|_| [None, None, Some(2.0), Some(0.5)][rng.usize(0..4)]),
            shape: SHAPES[rng.usize(0..SHAPES.len())],
            has_first_group: order.first().is_some_and(|number| number.is_multiple_of(2)),
            max_age: order.len().is_multiple_of(2).then_some(Duration::from_secs(3_600)),
            is_regex: std::array::from_fn(|_| rng.u32(0..4) == 0),
            special: (Kind::ALL[rng.usize(0..3)], rng.u32(0..3)),
            order,
            is_typed: std::array::from_fn(|_| rng.u32(0..4) == 0),
            by_specificity: false,
            narrow: None,
            unmatched: None,
            native: NativeOptions::default(),
            cuts_workloads: false,
            user_label: "user",
        }
    }

    /// Adds what only some histories have, and other numbers determine.
    pub(super) fn vary(&mut self, rng: &mut Rng) {
        self.by_specificity = rng.bool();
        self.narrow = rng.bool().then(|| Kind::ALL[rng.usize(0..3)]);
        if self.narrow.is_some() {
            self.order.insert(rng.usize(0..=self.order.len()), NARROW);
        }
        self.native = NativeOptions::random(rng);
        self.cuts_workloads = rng.u32(0..3) == 0;
        if !self.cuts_workloads && rng.u32(0..3) == 0 {
            self.user_label = WORKLOAD;
        }
        self.unmatched = rng.bool().then(|| (Kind::ALL[rng.usize(0..3)], rng.u32(0..3)));
        if self.unmatched.is_some() {
            self.order.insert(rng.usize(0..=self.order.len()), UNMATCHED);
        }
        if self.ttl > 0 && rng.u32(0..4) == 0 {
            self.ttl = FOREVER;
        }
    }

    /// Returns the labels of a line. The first glob that matches it wins, or the most specific one, and before any regular expression.
    pub(super) fn labels(&self, kind: Kind, service: u32, user: u32) -> Labels {
        let globs = [
            (SPECIAL, self.special == (kind, service)),
            (NARROW, self.narrow == Some(kind) && user == NARROW_USER),
            (kind as usize, !self.is_regex[kind as usize]),
        ];
        let at = |rule: usize| self.order.iter().position(|other| *other == rule);
        let globs = globs.into_iter().filter(|(_, matches)| *matches);
        // From the most specific one on: a literal precedes `*` in the first part in which they differ.
        let mut globs = globs.filter_map(|(rule, _)| Some((at(rule)?, rule)));
        let first = if self.by_specificity { globs.next() } else { globs.min() };
        let only = match first {
            Some((_, SPECIAL)) => Some("special"),
            Some((_, NARROW)) => Some("narrow"),
            _ => None,
        };
        if let Some(only) = only {
            return Labels::from([("service".to_owned(), only.to_owned())]);
        }
        let mut labels = Labels::from([("service".to_owned(), format!("v{service}"))]);
        if self.by_user {
            labels.insert(self.user_label.to_owned(), format!("u{user}"));
        }
        labels
    }

    /// Adds the labels of a sender to those of a line. One of the line with the same name gets another name.
    pub(super) fn add_labels_of_sender(&self, labels: &mut Labels, mut own: Labels) {
        if let Some(workload) = own.get_mut(WORKLOAD).filter(|_| self.cuts_workloads) {
            workload.truncate(1);
        }
        if own.contains_key(WORKLOAD)
            && let Some(of_line) = labels.remove(WORKLOAD)
        {
            labels.insert(format!("exported_{WORKLOAD}"), of_line);
        }
        labels.extend(own);
    }

    pub(super) fn scale(&self, kind: Kind) -> f64 {
        self.scales[kind as usize].unwrap_or(1.0)
    }

    /// Returns the shape of a new observer.
    pub(super) fn shape(&self) -> Shape {
        let bounds = self.shape.iter().map(|bound| (*bound).to_owned());
        let bounds = bounds.chain(self.histogram.then(|| "inf".to_owned())).collect();
        Shape { bounds, max_age: self.max_age.unwrap_or(MAX_AGE), native: self.native }
    }

    pub(super) fn is_by_specificity(&self) -> bool {
        self.by_specificity
    }

    /// Returns its part of the defaults.
    pub(super) fn defaults(&self) -> &'static str {
        if self.by_specificity { "  glob_disable_ordering: true\n" } else { "" }
    }

    pub(super) fn yaml(&self) -> String {
        let user = match self.by_user {
            true => format!(", {}: $2", self.user_label),
            false => String::new(),
        };
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
        let bounds = self.shape.join(", ");
        let observer = if self.histogram {
            let native = self.native.yaml();
            format!(
                "  observer_type: histogram\n  histogram_options: {{buckets: [{bounds}]{native}}}\n"
            )
        } else {
            let quantiles =
                self.shape.iter().map(|rank| format!("{{quantile: {rank}, error: 0.01}}"));
            let quantiles = quantiles.collect::<Vec<_>>().join(", ");
            let max_age = self.max_age.map(|age| format!(", max_age: {}s", age.as_secs()));
            let max_age = max_age.unwrap_or_default();
            format!(
                "  observer_type: summary\n  summary_options: {{quantiles: [{quantiles}]{max_age}}}\n"
            )
        };
        let rule = |kind: Kind, number: usize| {
            let (letter, name) = (kind.letter(), kind.metric());
            let (pattern, match_type, labels) = if number == SPECIAL {
                let pattern = format!("{letter}.v{}.*", self.special.1);
                (pattern, "glob", "service: special".to_owned())
            } else if number == NARROW {
                let pattern = format!("'{letter}.*.u{NARROW_USER}'");
                (pattern, "glob", "service: narrow".to_owned())
            } else if self.is_regex[kind as usize] {
                let groups = r"\.([^.]*)\.([^.]*)";
                match self.has_first_group {
                    true => {
                        let user = user.replace("$2", "$3");
                        (format!("'({letter}){groups}'"), "regex", format!("service: $2{user}"))
                    }
                    false => (format!("'{letter}{groups}'"), "regex", format!("service: $1{user}")),
                }
            } else {
                (format!("'{letter}.*.*'"), "glob", format!("service: $1{user}"))
            };
            let scale = self.scales[kind as usize];
            let scale = scale.map_or(String::new(), |scale| format!("  scale: {scale}\n"));
            let observer = if kind == Kind::Observer { &*observer } else { "" };
            let cut = match self.cuts_workloads {
                true => "  normalise: {workload: {truncate: 1}}\n",
                false => "",
            };
            let metric_type = match self.is_typed[kind as usize] {
                true => format!("  match_metric_type: {}\n", kind.metric_type()),
                false => String::new(),
            };
            let help = helps::text(name, self.order.len());
            format!(
                "- match: {pattern}\n  match_type: {match_type}\n{metric_type}  name: {name}\n  help: {help}\n  ttl: {}s\n  labels: {{{labels}}}\n{limits}{scale}{cut}{observer}",
                self.ttl
            )
        };
        let of_other_type = |number: usize| {
            let (kind, other) =
                (Kind::ALL[number % 3], Kind::ALL[(number + 1 + number / 3 % 2) % 3]);
            let (letter, metric_type) = (kind.letter(), other.metric_type());
            let (pattern, match_type) = match number % 2 {
                0 => (format!("'{letter}.*.*'"), "glob"),
                _ => (format!(r"'{letter}\..*'"), "regex"),
            };
            format!(
                "- match: {pattern}\n  match_type: {match_type}\n  match_metric_type: {metric_type}\n  name: other{number}\n"
            )
        };
        let rules = self.order.iter().map(|number| match number {
            0..3 => rule(Kind::ALL[*number], *number),
            3 => "- match: drop.*\n  action: drop\n  name: d\n".to_owned(),
            &SPECIAL => rule(self.special.0, SPECIAL),
            &NARROW => rule(self.narrow.expect("a kind"), NARROW),
            &UNMATCHED => {
                let (kind, service) = self.unmatched.expect("a kind");
                format!("- match: {}.v{service}.nobody\n  name: unmatched\n", kind.letter())
            }
            &number if number >= TYPED => of_other_type(number),
            other => {
                format!("- match: other{other}.*\n  name: other{other}\n  scale: 3\n  ttl: 1s\n")
            }
        });
        let changing = format!("- match: {CHANGING}.*\n  name: {CHANGING}\n  ttl: {}s\n", self.ttl);
        format!("mappings:\n{}{changing}", rules.collect::<String>())
    }
}

/// The kinds of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Observer,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Counter, Self::Gauge, Self::Observer];

    /// Returns the type of the lines, as rules name it.
    fn metric_type(self) -> &'static str {
        ["counter", "gauge", "observer"][self as usize]
    }

    /// Returns the first part of a line's name.
    pub(super) fn letter(self) -> &'static str {
        ["c", "g", "t"][self as usize]
    }

    /// Returns the name of its metric.
    pub(super) fn metric(self) -> &'static str {
        ["requests_total", "level", "latency"][self as usize]
    }
}

/// The labels of a series.
pub(crate) type Labels = BTreeMap<String, String>;

/// The options of an observer, which stay as they are when it is created.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    /// The values of `le` or `quantile`.
    pub(super) bounds: BTreeSet<String>,
    /// The time for which values are part of quantiles.
    max_age: Duration,
    pub(super) native: NativeOptions,
}

/// The identity of a series.
pub(super) type Key = (Kind, Labels);

/// A series as the model knows it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) value: f64,
    pub(super) touched: Duration,
    /// The time to live that it was created with.
    pub(super) ttl: Duration,
    /// The options of an observer.
    pub(super) shape: Shape,
    /// The values of an observer.
    pub(super) observed: Vec<Observed>,
}

/// A value that an observer has got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) value: f64,
    pub(super) weight: f64,
    pub(super) at: Duration,
}

impl Known {
    /// Returns the series after a burst, which may have created it.
    pub(super) fn after(before: Option<&Self>, burst: &Burst) -> Self {
        let new = || Self {
            value: 0.0,
            touched: burst.at,
            ttl: burst.ttl,
            shape: burst.shape.clone(),
            observed: Vec::new(),
        };
        let mut known = before.cloned().unwrap_or_else(new);
        (known.value, known.touched) = (burst.applied_to(known.value), burst.at);
        known.observed.extend(&burst.observed);
        known
    }

    /// Compares the buckets or quantiles of a series with its values.
    ///
    /// # Errors
    /// Describes the difference.
    pub(super) fn check(&self, shown: &BTreeMap<String, f64>, now: Duration) -> Result<(), String> {
        let is_histogram = shown.contains_key("inf");
        // Values leave a fifth of the time early.
        let window = self.shape.max_age.mul_f64(0.8)..self.shape.max_age;
        let is_recent = |one: &&Observed| is_histogram || now - one.at < window.start;
        let weight = |is_counted: &dyn Fn(f64) -> bool| -> f64 {
            let counted =
                self.observed.iter().filter(is_recent).filter(|one| is_counted(one.value));
            counted.map(|one| one.weight).sum()
        };
        let all = weight(&|_| true);
        let is_certain = self.observed.iter().all(|one| !window.contains(&(now - one.at)));
        for (bound, value) in shown {
            let number: f64 = bound.parse().map_err(|_| format!("no number: {bound}"))?;
            let up_to = if is_histogram { number } else { *value };
            let (less, most) =
                (weight(&|observed| observed < up_to), weight(&|observed| observed <= up_to));
            if is_histogram && *value != most {
                return Err(format!("{value} up to {bound}, not {most}: {:?}", self.observed));
            }
            // The error of the mapping, and one value.
            let (rank, slack) = (number * all, 0.01 * all + 2.0);
            let is_quantile = match all {
                0.0 => value.is_nan(),
                _ => less - slack <= rank && rank <= most + slack,
            };
            if !is_histogram && is_certain && !is_quantile {
                return Err(format!("{value} is not the quantile {bound} of {:?}", self.observed));
            }
        }
        Ok(())
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
    /// The options of an observer.
    pub(super) shape: Shape,
    /// The values for an observer.
    pub(super) observed: Vec<Observed>,
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
    /// The series into which label sets were folded, while these are shown.
    pub(super) folded: BTreeMap<Key, Key>,
    /// The number of samples in the last scrape.
    pub(super) samples: usize,
    /// The accepted lines since the last scrape.
    pub(super) burst: Option<Burst>,
    /// The number of times that a series of each kind was beyond a budget.
    pub(super) violations: [u64; 3],
}
