//! Budgets contain exploding labels: every limit holds and every total stays exact.

mod common;
#[path = "statsd_budgets/histories.rs"]
mod histories;
#[path = "statsd_budgets/programs.rs"]
mod programs;
#[path = "statsd_budgets/reloads.rs"]
mod reloads;

use std::collections::BTreeMap;
use std::time::Duration;

use kstatd::exposition::budget::{Budget, BudgetMode};
use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::mapper::Mapper;
use kstatd::statsd::{Clock, Offline, OfflineConfig};

/// A sample of an exposition whose label values need no escapes.
#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').expect("an end");
    let pair = |label: &str| {
        let (name, value) = label.split_once('=').expect("a label");
        (name.to_owned(), value.trim_matches('"').to_owned())
    };
    Sample {
        name: name.to_owned(),
        labels: labels.split(',').filter(|label| !label.is_empty()).map(pair).collect(),
        value: value.parse().expect("a number"),
    }
}

fn samples(body: &str) -> Vec<Sample> {
    body.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// Returns the exposition of an offline registry.
fn text(offline: &Offline) -> String {
    let frames = offline.frames(Format::Text, &ScrapeQuery::default());
    String::from_utf8(frames.flatten().collect()).expect("UTF-8")
}

fn offline(mapping: &str, budget: &Budget, key_cache_size: usize, clock: &Clock) -> Offline {
    let (budget, clock) = (budget.clone(), clock.clone());
    let config = OfflineConfig { key_cache_size, budget, clock, ..OfflineConfig::default() };
    Offline::new(Mapper::from_yaml(mapping).expect("a mapping"), config)
}

fn enforced() -> Budget {
    Budget { mode: BudgetMode::Enforce, ..Budget::default() }
}

/// Returns the sums of a metric by the values of `label`.
fn sums(body: &str, metric: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for sample in samples(body).iter().filter(|sample| sample.name == metric) {
        let value = sample.labels.get(label).cloned().unwrap_or_default();
        *sums.entry(value).or_default() += sample.value;
    }
    sums
}

/// Returns the sum of a metric over all of its series.
fn total(body: &str, name: &str) -> f64 {
    samples(body).iter().filter(|sample| sample.name == name).map(|sample| sample.value).sum()
}

#[test]
fn only_the_exploding_label_is_folded() {
    let budget = Budget { values_per_label: 3, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    for url in 0..100 {
        for code in ["200", "404"] {
            assert!(
                offline.line(format!("hits:1|c|#url:/{url},code:{code}").as_bytes()).is_empty()
            );
        }
    }
    let body = text(&offline);
    let urls: Vec<String> = sums(&body, "hits", "url").into_keys().collect();
    assert_eq!(urls, ["/0", "/1", "/2", "other"]);
    let by_code = sums(&body, "hits", "code");
    assert_eq!(by_code, BTreeMap::from([("200".to_owned(), 100.0), ("404".to_owned(), 100.0)]));
    // Known values still count, also with another code.
    offline.line(b"hits:1|c|#url:/1,code:500");
    assert!(text(&offline).contains("hits{code=\"500\",url=\"/1\"} 1\n"));
}

#[test]
fn a_metric_with_too_many_label_sets_gets_an_overflow_series() {
    let budget = Budget { series_per_metric: 5, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    for number in 0..100 {
        let line = format!("hits:1|c|#a:{},b:{}", number % 10, number / 10);
        assert!(offline.line(line.as_bytes()).is_empty());
    }
    let body = text(&offline);
    assert!(body.contains("hits{otel_metric_overflow=\"true\"} 96\n"), "{body}");
    assert_eq!(samples(&body).len(), 5);
}

/// A sender may invent label names as well as values.
#[test]
fn unbounded_label_names_are_contained() {
    let budget = Budget { series_per_metric: 300, values_per_label: 10, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    for number in 0..2_000 {
        assert!(offline.line(format!("hits:1|c|#label{number}:x").as_bytes()).is_empty());
    }
    let body = text(&offline);
    assert!(body.contains("hits{otel_metric_overflow=\"true\"} 1701\n"), "{body}");
    assert_eq!(samples(&body).len(), 300);
}

#[test]
fn series_that_cannot_be_folded_are_rejected_and_counted() {
    let budget = Budget { values_per_label: 1, name_bytes: 10, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    assert!(offline.line(b"level:1|g|#who:a").is_empty());
    for _ in 0..3 {
        assert_eq!(offline.line(b"level:2|g|#who:b"), ["label_limit"]);
    }
    assert_eq!(offline.line(b"level,who=b:1|g:2|g:3|g:4|g"), ["label_limit"]);
    assert!(offline.line(b"level:5|g|#who:a").is_empty());
    assert_eq!(offline.line(b"much.too.long:1|c"), ["name_limit"]);
    assert_eq!(offline.line(b"c:1|c|#much_too_long:1"), ["name_limit"]);
    assert_eq!(samples(&text(&offline)).len(), 1);
    let own: Vec<u8> = offline.self_metrics().flatten().collect();
    let own = String::from_utf8(own).expect("UTF-8");
    for line in [
        "kstatd_statsd_over_budget_total{action=\"refused\",label=\"who\",limit=\"values-per-label\",metric_name=\"level\"} 7",
        "kstatd_statsd_over_budget_total{action=\"refused\",label=\"much_too_long\",limit=\"name-bytes\",metric_name=\"c\"} 1",
        "kstatd_statsd_rejected_samples_total{reason=\"label_limit\"} 7",
    ] {
        assert!(own.contains(line), "{line} in {own}");
    }
}

#[test]
fn folded_label_sets_stay_folded_and_expiry_frees_room() {
    let clock = Clock::manual();
    let budget = Budget { values_per_label: 2, ..enforced() };
    for key_cache_size in [0, 1 << 10] {
        let mut offline = offline("defaults: {ttl: 10s}", &budget, key_cache_size, &clock);
        let mut send =
            |value: &str| assert!(offline.line(format!("m:1|c|#v:{value}").as_bytes()).is_empty());
        ["a", "b", "c"].into_iter().for_each(&mut send);
        clock.advance(Duration::from_secs(8));
        send("c");
        clock.advance(Duration::from_secs(4));
        offline.expire();
        // There is room for two; `c` still counts where it did.
        for value in ["c", "d", "e", "f"] {
            assert!(offline.line(format!("m:1|c|#v:{value}").as_bytes()).is_empty());
        }
        let expected = [("d", 1.0), ("e", 1.0), ("other", 4.0)];
        let expected = expected.map(|(value, sum)| (value.to_owned(), sum));
        assert_eq!(sums(&text(&offline), "m", "v"), BTreeMap::from(expected));
        clock.advance(Duration::from_secs(11));
        offline.expire();
        offline.line(b"m:1|c|#v:c");
        assert_eq!(sums(&text(&offline), "m", "v"), BTreeMap::from([("c".to_owned(), 1.0)]));
    }
}

#[test]
fn a_rule_overrides_the_limits_of_its_metric() {
    let mapping = "mappings:\n\
        - {match: few.*, name: few, labels: {l: $1}, limits: {values_per_label: 1}}\n\
        - {match: many.*, name: many, labels: {l: $1}, limits: {values_per_label: 0, series: 0}}\n\
        - {match: long.*, name: long, labels: {l: $1}, limits: {value_bytes: 3}}\n";
    let budget =
        Budget { values_per_label: 2, series_per_metric: 4, value_bytes: 10, ..enforced() };
    let mut offline = offline(mapping, &budget, 1 << 10, &Clock::manual());
    for metric in ["few", "many", "long", "usual"] {
        for value in ["v1", "v2", "v3333", "v4"] {
            let line = match metric {
                "usual" => format!("usual:1|c|#l:{value}"),
                metric => format!("{metric}.{value}:1|c"),
            };
            assert!(offline.line(line.as_bytes()).is_empty());
        }
    }
    let body = text(&offline);
    let values = |metric: &str| sums(&body, metric, "l").into_keys().collect::<Vec<_>>();
    assert_eq!(values("few"), ["other", "v1"]);
    assert_eq!(values("many"), ["v1", "v2", "v3333", "v4"]);
    assert_eq!(values("long"), ["other", "v1", "v2"]);
    assert_eq!(values("usual"), ["other", "v1", "v2"]);
}

#[test]
fn tracking_counts_and_changes_nothing() {
    let budget = Budget {
        mode: BudgetMode::Track,
        values_per_label: 2,
        series_per_metric: 3,
        value_bytes: 4,
        name_bytes: 4,
        series: 5,
        memory: 1,
        ..Budget::default()
    };
    let clock = Clock::manual();
    let (mut tracked, mut free) =
        (offline("", &budget, 64, &clock), offline("", &Budget::default(), 64, &clock));
    for number in 0..50 {
        for line in [format!("hits:1|c|#url:/{number}"), format!("level{number}:1|g|#l:longer")] {
            assert_eq!(tracked.line(line.as_bytes()), free.line(line.as_bytes()));
        }
    }
    assert_eq!(text(&tracked), text(&free));
    let own: Vec<u8> = tracked.self_metrics().flatten().collect();
    let own = String::from_utf8(own).expect("UTF-8");
    assert!(
        own.contains(
            "{action=\"tracked\",label=\"url\",limit=\"values-per-label\",metric_name=\"hits\"} 48"
        ),
        "{own}"
    );
}
