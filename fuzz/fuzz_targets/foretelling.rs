//! Any lines: `explain` predicts the effect of each line on the series, with and without budgets.
//!
//! The first byte selects mapping and flags.
#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;

use kstatd::exposition::budget::{Budget, BudgetMode};
use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::fuzzed;
use kstatd::statsd::line::ParserFlags;
use kstatd::mapper::Mapper;
use kstatd::statsd::{Clock, Offline, OfflineConfig, is_own_name};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const MAPPINGS: [&str; 4] = [
    "",
    "defaults: {observer_type: histogram, normalise: {id: number}}\n",
    "mappings:\n\
     - {match: a.*, name: m, labels: {kk: \"$1\"}, help: one}\n\
     - {match: b.*, name: m, labels: {other: \"$1\"}, observer_type: histogram, scale: 0.5, limits: {series: 3}}\n\
     - {match: c.*, name: \"m_$1\", honor_labels: true, labels: {kk: rule}, normalise: {kk: {truncate: 2}}}\n\
     - {match: d.*, name: gone, action: drop}\n\
     - {match: e.*, name: le, labels: {quantile: \"$1\", le: \"$1\"}}\n",
    "mappings:\n\
     - {match: \"^(.*)$\", match_type: regex, name: \"$1\", labels: {whole: \"${1}\"}}\n",
];

/// Returns all series of a scrape, without values; an observer is one series.
fn series(offline: &Offline) -> BTreeSet<String> {
    let body: Vec<u8> = offline.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    let text = String::from_utf8(body).expect("UTF-8");
    let names = text.lines().filter(|line| !line.starts_with('#'));
    names.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series.to_owned()).collect()
}

/// Returns whether a series exists; an observer is identified by its count.
fn has(among: &BTreeSet<String>, series: &str, kind: &str) -> bool {
    let (name, labels) = series.split_at(series.find('{').unwrap_or(series.len()));
    let suffix = if kind == "observer" { "_count" } else { "" };
    among.contains(&format!("{name}{suffix}{labels}"))
}

fuzz_target!(|data: &[u8]| {
    let Some((&bits, lines)) = data.split_first() else { return };
    let on = |bit: u8| bits & 1 << bit == 0;
    let mapper = Arc::new(Mapper::from_yaml(MAPPINGS[usize::from(bits >> 6)]).expect("a mapping"));
    let budget = Budget {
        mode: if on(4) { BudgetMode::Enforce } else { BudgetMode::Track },
        series: 12,
        series_per_metric: 5,
        values_per_label: 2,
        value_bytes: 8,
        name_bytes: 24,
        ..Budget::default()
    };
    let config = OfflineConfig {
        flags: ParserFlags {
            dogstatsd: on(0),
            influxdb: on(1),
            librato: on(2),
            signalfx: on(3),
            sets: true,
            origins: false,
        },
        budget: if on(5) { Budget::default() } else { budget },
        reserved: Arc::new(|name| name.starts_with("kube_") || is_own_name(name)),
        clock: Clock::manual(),
        ..OfflineConfig::default()
    };
    let mut offline = Offline::new(mapper, config);
    for line in lines.split(|byte| *byte == b'\n').take(32) {
        let (json, accepted) = fuzzed::foretold(&offline, line);
        let told: Value = serde_json::from_str(&json).expect("JSON");
        let before = series(&offline);
        let words = offline.line(line);
        let after = series(&offline);
        let parts = told["parts"].as_array().expect("parts");
        // Effects of a sample on later samples of the same line are not predicted.
        let mut samples = parts.iter().filter_map(|part| part.get("sample"));
        let (sample, others) = (samples.next(), samples.count());
        if others > 0 || told["further"] != 0 {
            continue;
        }
        let taken = words.iter().all(|word| *word == "tag_error");
        assert_eq!(accepted, taken, "{words:?}: {json}");
        let Some(sample) = sample else {
            assert_eq!(before, after, "{json}");
            continue;
        };
        if sample["metric"].is_null() {
            assert_eq!(before, after, "{json}");
            continue;
        }
        let landing = &sample["landing"];
        let shown = landing["series"].as_str();
        let kind = sample["type"].as_str().expect("a type");
        match landing["state"].as_str().expect("a state") {
            "refused" => {
                assert!(!taken, "{json}");
                assert_eq!(before, after, "{json}");
            }
            state if taken => {
                let shown = shown.unwrap_or_else(|| panic!("no series: {json}"));
                assert!(has(&after, shown, kind), "{shown} is not in {after:?}: {json}");
                assert_eq!(has(&before, shown, kind), state != "new", "{before:?}: {json}");
                if state != "new" {
                    // Summaries and histograms may have more buckets or quantiles than before, but the series are the
                    // same.
                    assert!(before.is_subset(&after), "{json}");
                }
            }
            _ => assert!(before.is_subset(&after), "{json}"),
        }
    }
});
