//! Budgets across reloads of the mapping file.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use kstatd::exposition::budget::Budget;
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::statsd::{Clock, Pipeline, PipelineConfig};
use proptest::prelude::*;

use crate::common::until;
use crate::histories::budget;
use crate::{enforced, offline, samples, text, total};

/// A pipeline with a mapping file, a TCP connection and a manual clock.
struct Reloading {
    pipeline: Pipeline,
    stream: TcpStream,
    mapping: PathBuf,
    sent: u64,
    _folder: tempfile::TempDir,
}

impl Reloading {
    fn start(mapping: &str, budget: &Budget) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mapping.yml");
        std::fs::write(&path, mapping).expect("written");
        let pipeline = Pipeline::start(PipelineConfig {
            tcp: Some("127.0.0.1:0".parse().expect("an address")),
            mapping_file: Some(path.clone()),
            budget: budget.clone(),
            self_metrics: kstatd::statsd::SelfMetrics::None,
            clock: Clock::manual(),
            ..PipelineConfig::default()
        })
        .expect("started");
        let stream = TcpStream::connect(pipeline.tcp_address().expect("bound")).expect("connected");
        Self { pipeline, stream, mapping: path, sent: 0, _folder: folder }
    }

    fn reload(&self, mapping: &str) {
        std::fs::write(&self.mapping, mapping).expect("written");
        self.pipeline.reload().expect("a valid mapping");
    }

    /// Sends lines and returns the exposition that includes them.
    fn send(&mut self, lines: &[String]) -> String {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.stream.write_all(text.as_bytes()).expect("sent");
        self.sent += lines.len() as u64;
        until("the lines count", || (self.pipeline.lines(None) >= self.sent).then_some(()));
        self.body()
    }

    fn body(&self) -> String {
        let frames = self.pipeline.frames(Format::Text, &ScrapeQuery::default());
        let body: Vec<u8> = frames.flat_map(|frame| frame.to_vec()).collect();
        String::from_utf8(body).expect("UTF-8")
    }
}

/// A limit added or lowered by a reload folds new series of metrics that can be added up.
#[test]
fn a_limit_lowered_by_a_reload_folds_new_series_and_loses_nothing() {
    let rules = |limits: &str| {
        let rule = |name: &str, options: &str| {
            format!("- {{match: {name}.*, name: {name}, labels: {{l: $1}}{options}{limits}}}\n")
        };
        let histogram = ", observer_type: histogram, histogram_options: {buckets: [1, 2]}";
        ["mappings:\n", &rule("c", ""), &rule("h", histogram), &rule("t", "")].concat()
    };
    let lines = |from: usize| -> Vec<String> {
        let of = |n: usize| [format!("c.{n}:1|c"), format!("h.{n}:1|h"), format!("t.{n}:1|ms")];
        (from..from + 100).flat_map(of).collect()
    };
    for (before, after) in
        [("", ", limits: {series: 10}"), (", limits: {series: 900}", ", limits: {series: 10}")]
    {
        let mut running = Reloading::start(&rules(before), &enforced());
        let body = running.send(&lines(0)[..150]);
        assert!(!body.contains("otel_metric_overflow"), "{body}");
        running.reload(&rules(after));
        let body = running.send(&lines(1_000));
        for name in ["c", "h_count", "t_count"] {
            assert_eq!(total(&body, name), 150.0, "{name} in {body}");
            let over = format!("{name}{{otel_metric_overflow=\"true\"}} 100\n");
            assert!(body.contains(&over), "{name} in {body}");
        }
    }
}

#[test]
fn two_rules_of_one_metric_with_different_limits_lose_nothing() {
    let mapping = "mappings:\n\
        - {match: a.*, name: m, labels: {l: $1}, limits: {series: 100}}\n\
        - {match: b.*, name: m, labels: {l: $1}, limits: {series: 10}}\n";
    let mut offline = offline(mapping, &enforced(), 1 << 10, &Clock::manual());
    for rule in ["a", "b"] {
        for number in 0..50 {
            assert_eq!(offline.line(format!("{rule}.{rule}{number}:1|c").as_bytes()), [""; 0]);
        }
    }
    assert_eq!(total(&text(&offline), "m"), 100.0);
}

/// Room is reserved for an overflow series of the narrow rule, but series of the wide rule are folded.
#[test]
fn a_wider_histogram_is_folded_into_the_reserved_room() {
    let buckets = |count: usize| (1..=count).map(|n| format!("{n}, ")).collect::<String>();
    let rule = |name: &str, count: usize| {
        format!(
            "- {{match: {name}.*, name: m, labels: {{l: $1}}, observer_type: histogram, \
             histogram_options: {{buckets: [{}]}}}}\n",
            buckets(count)
        )
    };
    let lines = |rule: &str, count: usize| -> Vec<String> {
        (0..count).map(|n| format!("{rule}.{rule}{n}:2|h")).collect()
    };
    let of_metric = Budget { series_per_metric: 60, ..enforced() };
    let of_all = Budget { series: 60, ..enforced() };
    let of_memory = Budget { memory: 60_000, ..enforced() };
    for budget in [of_metric, of_all, of_memory] {
        // Two rules of one mapping.
        let both = ["mappings:\n", &rule("narrow", 2), &rule("wide", 20)].concat();
        let mut running = Reloading::start(&both, &budget);
        running.send(&lines("narrow", 10));
        let body = running.send(&lines("wide", 20));
        assert_eq!(total(&body, "m_count"), 30.0, "{budget:?} {body}");
        assert_eq!(total(&body, "m_sum"), 60.0, "{body}");
        assert!(budget.memory > 0 || samples(&body).len() <= 60, "{body}");
        // More buckets by a reload.
        let mut running = Reloading::start(&["mappings:\n", &rule("x", 2)].concat(), &budget);
        running.send(&lines("x", 11));
        running.reload(&["mappings:\n", &rule("x", 20)].concat());
        let more: Vec<String> = (100..120).map(|n| format!("x.{n}:2|h")).collect();
        let body = running.send(&more);
        assert_eq!(total(&body, "m_count"), 31.0, "{budget:?} {body}");
        assert!(budget.memory > 0 || samples(&body).len() <= 60, "{body}");
    }
}

/// A mapping of [`Reload`]: the parts of two rules and the defaults that reloads change.
#[derive(Clone, Debug)]
struct Rules {
    limits: [Option<u8>; 2],
    values: Option<u8>,
    buckets: [u8; 2],
    quantiles: u8,
    timers: &'static str,
    normalise: bool,
    ttl: u8,
}

impl Rules {
    fn text(&self) -> String {
        let list = |count: u8, item: fn(u8) -> String| {
            (1..=count).map(item).collect::<Vec<_>>().join(", ")
        };
        let limits = |most: Option<u8>| {
            let series = most.map(|most| format!("series: {most}"));
            let values = self.values.map(|most| format!("values_per_label: {most}"));
            let all: Vec<String> = series.into_iter().chain(values).collect();
            format!("limits: {{{}}}", all.join(", "))
        };
        let normalise = if self.normalise { "normalise: {url: [url, number]}, " } else { "" };
        let mut text = format!("defaults: {{ttl: {}s}}\nmappings:\n", self.ttl);
        for (at, rule) in ["a", "b"].into_iter().enumerate() {
            let (limits, buckets) =
                (limits(self.limits[at]), list(self.buckets[at], |n| n.to_string()));
            text += &format!(
                "- {{match: c{rule}.*, name: c, labels: {{{rule}: $1}}, {normalise}{limits}}}\n\
                 - {{match: h{rule}.*, name: h, labels: {{l: $1}}, {normalise}{limits}, \
                    observer_type: histogram, histogram_options: {{buckets: [{buckets}]}}}}\n"
            );
        }
        let options = match self.timers {
            "summary" => format!(
                "summary_options: {{quantiles: [{}]}}",
                list(self.quantiles, |n| format!("{{quantile: 0.{n}, error: 0.01}}"))
            ),
            _ => format!(
                "histogram_options: {{buckets: [{}]}}",
                list(self.buckets[0], |n| n.to_string())
            ),
        };
        text += &format!(
            "- {{match: t.*, name: t, labels: {{l: $1}}, {}, observer_type: {}, {options}}}\n",
            limits(self.limits[0]),
            self.timers
        );
        text
    }
}

fn rules() -> impl Strategy<Value = Rules> {
    let limit = || prop_oneof![1 => Just(None), 2 => (1..30u8).prop_map(Some)];
    let timers = prop_oneof![2 => Just("summary"), 1 => Just("histogram")];
    let ttl = prop_oneof![2 => Just(0), 3 => 1..5u8];
    let values = prop_oneof![2 => Just(None), 1 => (1..8u8).prop_map(Some)];
    ([limit(), limit()], values, [1..20u8, 1..20u8], 1..9u8, timers, any::<bool>(), ttl).prop_map(
        |(limits, values, buckets, quantiles, timers, normalise, ttl)| Rules {
            limits,
            values,
            buckets,
            quantiles,
            timers,
            normalise,
            ttl,
        },
    )
}

#[derive(Clone, Debug)]
enum Event {
    /// Lines for one of the rules: the first number, the count, and the number of tag values.
    Lines(&'static str, u8, u8, u8),
    Reload(Rules),
    Wait(u8),
}

fn event() -> impl Strategy<Value = Event> {
    let rule = prop::sample::select(&["ca", "cb", "ha", "hb", "t", "plain", "g"][..]);
    let lines = (rule, any::<u8>(), 1..25u8, 0..5u8);
    prop_oneof![
        6 => lines.prop_map(|(rule, from, count, tags)| Event::Lines(rule, from, count, tags)),
        2 => rules().prop_map(Event::Reload),
        1 => (1..50u8).prop_map(Event::Wait),
    ]
}

/// Returns the metric of lines for a rule, its type and the samples with its totals.
fn metric_of(rule: &str, rules: &Rules) -> (&'static str, &'static str, &'static [&'static str]) {
    match rule {
        "ca" | "cb" => ("c", "counter", &["c"]),
        "ha" | "hb" => ("h", "histogram", &["h_count", "h_sum"]),
        "t" => ("t", rules.timers, &["t_count", "t_sum"]),
        "plain" => ("plain", "counter", &["plain"]),
        _ => ("g", "gauge", &[]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any reload and any expiry, an existing metric accepts every sample that can be added up, and its
    /// totals are exact.
    #[test]
    fn totals_are_exact_over_reloads_and_expiry(
        first in rules(),
        events in prop::collection::vec(event(), 1..60),
        budget in budget(),
    ) {
        let mut rules = first;
        let mut running = Reloading::start(&rules.text(), &budget);
        let mut body = String::new();
        for event in &events {
            match event {
                Event::Reload(new) => {
                    rules = new.clone();
                    running.reload(&rules.text());
                }
                Event::Wait(tenths) => {
                    running.pipeline.advance(Duration::from_millis(u64::from(*tenths) * 100));
                    let now = running.body();
                    let before: BTreeSet<&str> = body.lines().collect();
                    // A quantile may have lost its window, but totals do not change.
                    for line in now.lines().filter(|line| !line.contains("quantile=")) {
                        prop_assert!(before.contains(line), "{line} is not in {body}");
                    }
                    body = now;
                }
                Event::Lines(rule, from, count, tags) => {
                    let (metric, kind, totals) = metric_of(rule, &rules);
                    let line = |number: u8| {
                        let number = from.wrapping_add(number);
                        let tag = if *tags == 0 { String::new() } else { format!("|#tag:{}", number % tags) };
                        let value = 1 + number % 3;
                        match *rule {
                            "t" => format!("t.{number}:{value}000|ms{tag}"),
                            "ha" | "hb" => format!("{rule}./x/{number}:{value}|h{tag}"),
                            "plain" => format!("plain:{value}|c|#url:/{number}"),
                            "g" => format!("g:{value}|g|#l:{number}"),
                            rule => format!("{rule}./x/{number}:{value}|c{tag}"),
                        }
                    };
                    let worth = |name: &str, number: u8| match name.ends_with("_count") {
                        true => 1.0,
                        false => f64::from(1 + from.wrapping_add(number) % 3),
                    };
                    let lines: Vec<String> = (0..*count).map(line).collect();
                    let is_there = |body: &str| body.contains(&format!("# TYPE {metric} {kind}\n"));
                    // Sends line by line until the metric exists; another metric with its name leaves no room
                    // for it.
                    let mut known = 0;
                    while known < lines.len() && !is_there(&body) {
                        body = running.send(&lines[known..=known]);
                        known += 1;
                    }
                    let before = body;
                    body = running.send(&lines[known..]);
                    for name in totals.iter().filter(|_| is_there(&before)) {
                        let came: f64 = (known as u8..*count).map(|number| worth(name, number)).sum();
                        prop_assert_eq!(
                            total(&body, name) - total(&before, name), came, "{} after {:?}: {}", name, lines, body
                        );
                    }
                }
            }
            let lines = samples(&body).len() as u64;
            prop_assert!(budget.series == 0 || lines <= budget.series, "{lines} lines: {body}");
        }
    }
}
