//! Property tests of budgets over random lines and expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kstatd::exposition::budget::Budget;
use kstatd::statsd::Clock;
use proptest::prelude::*;

use crate::{enforced, offline, samples, sums, text};

#[derive(Clone, Debug)]
enum Step {
    /// Metric, type (`r` is a counter whose rule has its own limits), label values and number.
    Line(u8, &'static str, Vec<(&'static str, u8)>, u8),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![6 => Just("c"), 1 => Just("g"), 2 => Just("h"), 1 => Just("ms"), 2 => Just("r")];
    let label = |name: &'static str, values: u8| prop_oneof![1 => Just(Vec::new()), 6 => (0..values).prop_map(move |value| vec![(name, value)])];
    let line = (0..4u8, kind, label("code", 3), label("url", 40), label("pod", 6), 1..9u8)
        .prop_map(|(metric, kind, code, url, pod, number)| {
            Step::Line(metric, kind, [code, url, pod].concat(), number)
        });
    prop_oneof![30 => line, 1 => (1..40u8).prop_map(Step::Wait)]
}

pub(crate) fn budget() -> impl Strategy<Value = Budget> {
    let most = |most: u64| prop_oneof![1 => Just(0), 3 => 1..most];
    (most(60), most(25), most(8), most(12), prop_oneof![2 => Just(0), 1 => 2_000..30_000u64])
        .prop_map(|(series, series_per_metric, values_per_label, value_bytes, memory)| Budget {
            series,
            series_per_metric,
            values_per_label,
            value_bytes,
            memory,
            ..enforced()
        })
}

/// The rules for the metrics of [`line`].
const RULES: &str = "mappings:\n\
    - {match: s.*, name: s_$1, observer_type: summary}\n\
    - {match: r.*, name: r_$1, limits: {series: 6, values_per_label: 2, value_bytes: 5}}\n";

/// Returns the budget of a metric.
fn budget_of(metric: &str, all: &Budget) -> Budget {
    if metric.starts_with("r_") {
        return Budget { series_per_metric: 6, values_per_label: 2, value_bytes: 5, ..all.clone() };
    }
    all.clone()
}

/// Returns the line of a step. Larger values are longer.
fn line((metric, kind, labels, number): (u8, &str, &[(&str, u8)], u8)) -> String {
    let tag =
        |(name, value): &(&str, u8)| format!("{name}:v{:0>1$}", value, 1 + usize::from(value / 4));
    let tags: Vec<String> = labels.iter().map(tag).collect();
    let (name, kind) = match kind {
        "ms" => (format!("s.m{metric}"), "ms"),
        "r" => (format!("r.m{metric}"), "c"),
        kind => (format!("m{metric}_{kind}"), kind),
    };
    format!("{name}:{number}|{kind}|#{}", tags.join(","))
}

/// Returns the sample that contains the sum of such lines, and the contribution of one line.
fn added(metric: u8, kind: &str, number: u8) -> Option<(String, f64)> {
    let number = f64::from(number);
    match kind {
        "g" => None,
        "h" => Some((format!("m{metric}_h_count"), 1.0)),
        "ms" => Some((format!("s_m{metric}_count"), 1.0)),
        "r" => Some((format!("r_m{metric}"), number)),
        kind => Some((format!("m{metric}_{kind}"), number)),
    }
}

fn check_bounds(body: &str, budget: &Budget) -> Result<(), TestCaseError> {
    let all = samples(body);
    let within = |count: usize, most: u64| most == 0 || count as u64 <= most;
    prop_assert!(within(all.len(), budget.series), "{} series: {body}", all.len());
    let family = |name: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name).to_owned()
    };
    let mut by_metric = BTreeMap::<String, usize>::new();
    let mut values = BTreeMap::<(String, String), BTreeSet<String>>::new();
    for sample in &all {
        *by_metric.entry(family(&sample.name)).or_default() += 1;
        let own = |(name, value): &(&String, &String)| {
            let written = ["le", "quantile", "otel_metric_overflow"];
            !written.contains(&name.as_str()) && **value != budget.fold_value
        };
        for (name, value) in sample.labels.iter().filter(own) {
            values.entry((family(&sample.name), name.clone())).or_default().insert(value.clone());
        }
    }
    for (metric, count) in by_metric {
        let most = budget_of(&metric, budget).series_per_metric;
        prop_assert!(within(count, most), "{metric}: {count}");
    }
    for ((metric, label), values) in values {
        let budget = budget_of(&metric, budget);
        prop_assert!(within(values.len(), budget.values_per_label), "{metric} {label} {values:?}");
        let longest = values.iter().map(String::len).max().unwrap_or(0);
        prop_assert!(within(longest, budget.value_bytes), "{metric} {label} {values:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Without expiry no accepted value is ever lost.
    #[test]
    fn totals_are_exact_and_every_bound_holds(
        steps in prop::collection::vec(step(), 1..250),
        budget in budget(),
    ) {
        let clock = Clock::manual();
        let defaults = "defaults: {observer_type: histogram, histogram_options: {buckets: [4]}}\n";
        let mut offline = offline(&[defaults, RULES].concat(), &budget, 1 << 10, &clock);
        let mut accepted = BTreeMap::<String, f64>::new();
        for step in &steps {
            let Step::Line(metric, kind, labels, number) = step else { continue };
            let words = offline.line(line((*metric, kind, labels, *number)).as_bytes());
            if let Some((name, number)) = added(*metric, kind, *number).filter(|_| words.is_empty()) {
                *accepted.entry(name).or_default() += number;
            }
        }
        let body = text(&offline);
        check_bounds(&body, &budget)?;
        for (name, sum) in &accepted {
            prop_assert_eq!(sums(&body, name, "").get("").copied().unwrap_or_default(), *sum, "{} in {}", name, body);
        }
    }

    /// With expiry every limit always holds, and a line with a cached key updates the same series as without
    /// the cache.
    #[test]
    fn bounds_hold_while_series_come_and_go(
        steps in prop::collection::vec(step(), 1..250),
        budget in budget(),
    ) {
        let clock = Clock::manual();
        let defaults = "defaults: {ttl: 2s, observer_type: histogram, histogram_options: {buckets: [4]}}\n";
        let mapping = &[defaults, RULES].concat();
        let mut known = offline(mapping, &budget, 1 << 10, &clock);
        let mut unknown = offline(mapping, &budget, 0, &clock);
        for step in &steps {
            match step {
                Step::Line(metric, kind, labels, number) => {
                    let line = line((*metric, kind, labels, *number));
                    prop_assert_eq!(known.line(line.as_bytes()), unknown.line(line.as_bytes()), "{}", line);
                }
                Step::Wait(tenths) => {
                    clock.advance(Duration::from_millis(u64::from(*tenths) * 100));
                    known.expire();
                    unknown.expire();
                    let body = text(&known);
                    check_bounds(&body, &budget)?;
                    prop_assert_eq!(&body, &text(&unknown));
                }
            }
        }
        // When all series have expired, all budgets are free again.
        clock.advance(Duration::from_secs(60));
        known.expire();
        prop_assert_eq!(text(&known), "");
        let mut fresh = offline(mapping, &budget, 0, &clock);
        for step in &steps {
            let Step::Line(metric, kind, labels, number) = step else { continue };
            let line = line((*metric, kind, labels, *number));
            prop_assert_eq!(known.line(line.as_bytes()), fresh.line(line.as_bytes()), "{}", line);
        }
        prop_assert_eq!(text(&known), text(&fresh));
    }
}
