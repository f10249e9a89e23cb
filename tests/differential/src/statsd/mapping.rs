//! Random mapping files.

use std::fmt::Write as _;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use serde_json::json;

use crate::shrink::{Shrink, lists};

/// Segments of patterns and of the names that lines have.
pub const SEGMENTS: &[&str] =
    &["web", "jobs", "queue", "a", "b", "dd", "e-1", "latency", "x", "200"];

/// Names of metrics that rules map to. The options of a metric are a function of its name, because kstatd and the
/// original differ on purpose if they change, or if two rules of one name do not agree.
const METRICS: usize = 6;

/// A mapping file.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    pub defaults: Vec<String>,
    pub rules: Vec<Rule>,
}

/// A rule of a mapping file.
#[derive(Clone, Debug)]
pub struct Rule {
    pub pattern: String,
    pub is_regex: bool,
    /// The types that it maps, all if there is none.
    pub metric_type: Option<&'static str>,
    name: String,
    pub labels: Vec<(String, String)>,
    options: Vec<String>,
}

/// What all mapping files of a case have in common.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub unordered: bool,
    pub regexes: bool,
    pub histograms: bool,
    pub native: bool,
    /// True if series expire.
    pub ttl: bool,
}

fn pick<'a>(rng: &mut StdRng, values: &[&'a str]) -> &'a str {
    values.choose(rng).copied().unwrap_or_default()
}

impl Mapping {
    /// Creates a mapping with up to ten rules.
    pub fn random(rng: &mut StdRng, style: Style) -> Self {
        let mut defaults = Vec::new();
        if style.unordered {
            defaults.push("glob_disable_ordering: true".to_owned());
        }
        if style.histograms {
            defaults.push("observer_type: histogram".to_owned());
        }
        if style.native {
            defaults.push("histogram_options: {native_histogram_bucket_factor: 1.1}".to_owned());
        }
        if style.ttl {
            defaults.push(format!("ttl: {}s", super::TTL.as_secs()));
        }
        let count = rng.random_range(0..10);
        let mut mapping = Self { defaults, rules: Vec::new() };
        for _ in 0..count {
            mapping.add(rng, style);
        }
        mapping
    }

    fn add(&mut self, rng: &mut StdRng, style: Style) {
        let rule = Rule::random(rng, style);
        if super::deviations::is_comparable(&self.rules, &rule) {
            self.rules.push(rule);
        }
    }

    /// Creates the next version of a file: without some rules, with others, in another order.
    pub fn edited(&self, rng: &mut StdRng, style: Style) -> Self {
        let mut edited = Self { defaults: self.defaults.clone(), rules: Vec::new() };
        let mut rules = self.rules.clone();
        if rng.random() {
            rules.shuffle(rng);
        }
        for mut rule in rules {
            if rng.random_bool(0.2) {
                rule.labels =
                    Rule::random_labels(rng, rule.is_regex, captures(&rule.pattern, rule.is_regex));
            }
            if rng.random_bool(0.8) && super::deviations::is_comparable(&edited.rules, &rule) {
                edited.rules.push(rule);
            }
        }
        for _ in 0..rng.random_range(0..3) {
            edited.add(rng, style);
        }
        edited
    }

    /// Returns the file.
    pub fn yaml(&self) -> String {
        let mut out = String::new();
        if !self.defaults.is_empty() {
            let _ = writeln!(out, "defaults:");
            for line in &self.defaults {
                let _ = writeln!(out, "  {line}");
            }
        }
        let list = if self.rules.is_empty() { "mappings: []" } else { "mappings:" };
        let _ = writeln!(out, "{list}");
        for rule in &self.rules {
            let _ = writeln!(out, "- {{{}}}", rule.fields().join(", "));
        }
        out
    }
}

impl Shrink for Mapping {
    fn smaller(&self) -> Vec<Self> {
        let mut out: Vec<Self> =
            lists(&self.rules).into_iter().map(|rules| Self { rules, ..self.clone() }).collect();
        out.extend(
            lists(&self.defaults).into_iter().map(|defaults| Self { defaults, ..self.clone() }),
        );
        for (at, rule) in self.rules.iter().enumerate() {
            let fewer_labels =
                lists(&rule.labels).into_iter().map(|labels| Rule { labels, ..rule.clone() });
            let fewer_options =
                lists(&rule.options).into_iter().map(|options| Rule { options, ..rule.clone() });
            for rule in fewer_labels.chain(fewer_options) {
                let mut smaller = self.clone();
                if let Some(place) = smaller.rules.get_mut(at) {
                    *place = rule;
                    out.push(smaller);
                }
            }
        }
        out
    }
}

/// Returns the number of captures of a pattern.
fn captures(pattern: &str, is_regex: bool) -> usize {
    pattern.matches(if is_regex { '(' } else { '*' }).count()
}

impl Rule {
    fn random(rng: &mut StdRng, style: Style) -> Self {
        let is_regex = style.regexes && rng.random_bool(0.4);
        let pattern = if is_regex {
            pick(
                rng,
                &[
                    r"^web\.(?P<host>[a-z]+)\.(latency|x)",
                    r"jobs\.([^.]*)\.(.*)$",
                    r"(q)(u)?e",
                    r"(?i)LATENCY$",
                    r"\.(\d+)",
                    r"^[abd]+$",
                    r"(a|dd)\.(b|x)?",
                    r"j.*s",
                    r"(?:web|queue)\.([^.]+)",
                ],
            )
            .to_owned()
        } else {
            let mut segments: Vec<&str> = (0..rng.random_range(1..5))
                .map(|_| if rng.random_bool(0.45) { "*" } else { pick(rng, SEGMENTS) })
                .collect();
            // A pattern must not begin with a digit.
            if segments.first() == Some(&"200") && rng.random_bool(0.95) {
                segments.insert(0, "a");
            }
            segments.join(".")
        };
        let captures = captures(&pattern, is_regex);
        let metric = rng.random_range(0..METRICS);
        let name = match rng.random_range(0..6) {
            0 => format!("m{metric}_$1"),
            1 => format!("m{metric}_${{1}}_of_$2"),
            2 if captures > 0 => format!("m{metric}_${captures}"),
            _ => format!("m{metric}"),
        };
        let mut options = options_of(metric, style);
        if style.ttl && rng.random_bool(0.4) {
            options.push(format!("ttl: {}", pick(rng, &["1h", "3s", "90m"])));
        }
        if rng.random_bool(0.15) {
            options.push(format!("scale: {}", pick(rng, &["0.5", "4", "0.125", "0", "-1", "1e2"])));
        }
        if rng.random_bool(0.1) {
            options.push("honor_labels: true".to_owned());
        }
        if rng.random_bool(0.08) {
            options.push("action: drop".to_owned());
        }
        let metric_type = [None, None, None, Some("counter"), Some("gauge"), Some("observer")]
            .choose(rng)
            .copied()
            .flatten();
        let labels = Self::random_labels(rng, is_regex, captures);
        Self { pattern, is_regex, metric_type, name, labels, options }
    }

    fn random_labels(rng: &mut StdRng, is_regex: bool, captures: usize) -> Vec<(String, String)> {
        let mut labels: Vec<(String, String)> = Vec::new();
        for _ in 0..rng.random_range(0..4) {
            let reference = rng.random_range(1..captures.max(1) + 2);
            let value = match rng.random_range(0..8) {
                0 => "fixed".to_owned(),
                1 => format!("${{{reference}}}-x"),
                2 => format!("pre ${reference}"),
                3 => String::new(),
                4 if is_regex => "[$0]".to_owned(),
                5 if is_regex => "$host".to_owned(),
                6 => r#"quo"te\ é"#.to_owned(),
                _ => format!("${reference}"),
            };
            let name = pick(rng, &["env", "host", "code", "queue", "Weird_Key"]);
            if labels.iter().all(|(known, _)| known != name) {
                labels.push((name.to_owned(), value));
            }
        }
        labels
    }

    fn fields(&self) -> Vec<String> {
        let mut out =
            vec![format!("match: {}", json!(self.pattern)), format!("name: {}", json!(self.name))];
        if self.is_regex {
            out.push("match_type: regex".to_owned());
        }
        if let Some(metric_type) = self.metric_type {
            out.push(format!("match_metric_type: {metric_type}"));
        }
        if !self.labels.is_empty() {
            let labels: Vec<String> = self
                .labels
                .iter()
                .map(|(name, value)| format!("{name}: {}", json!(value)))
                .collect();
            out.push(format!("labels: {{{}}}", labels.join(", ")));
        }
        out.extend(self.options.iter().cloned());
        out
    }
}

/// Returns the options of a metric, which are always the same.
fn options_of(metric: usize, style: Style) -> Vec<String> {
    let options: &[&str] = match metric {
        0 => {
            &["observer_type: histogram", "histogram_options: {buckets: [0.125, 0.5, 1, 2.5, 100]}"]
        }
        1 => &[
            "observer_type: summary",
            "summary_options: {quantiles: [{quantile: 0.25, error: 0.05}, {quantile: 0.99, error: 0.001}], max_age: 50m, age_buckets: 3, buf_cap: 100}",
        ],
        2 if style.native => &[
            "observer_type: histogram",
            "histogram_options: {native_histogram_bucket_factor: 1.5, native_histogram_max_buckets: 4}",
        ],
        3 if style.native => &[
            "observer_type: histogram",
            "histogram_options: {buckets: [1, 2], native_histogram_bucket_factor: 2}",
        ],
        4 if style.native => &[
            "observer_type: histogram",
            "histogram_options: {native_histogram_bucket_factor: 1.005, native_histogram_max_buckets: 30}",
        ],
        5 => &["help: Things that wait."],
        _ => &[],
    };
    options.iter().map(|option| (*option).to_owned()).collect()
}

/// Files that both programs reject.
pub const BROKEN: &[&str] = &[
    "mappings: [{match: 'a..b', name: }]",
    "mappings: [{match: '*.a', name: '1$'}]\nx: y",
    "mappings:\n- {match: '(', match_type: regex, name: a}\n",
    "mappings:\n- {match: a, name: b, ttl: later}\n",
    "mappings:\n- {match: a, name: b, labels: {'0x': y}}\n",
    "mappings:\n- {match: a, name: b, match_metric_type: timer}\n",
    "defaults: [",
    "mappings:\n- {name: b}\n",
];
