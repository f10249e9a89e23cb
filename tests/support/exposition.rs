//! Parsers of scrapes: validity of the text formats, and the protobuf messages.
//!
//! They follow the format specifications, not the code under test.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use serde_json::Value;

#[path = "metrics_messages.rs"]
mod metrics_messages;
use metrics_messages::{Metric, MetricFamily, SpanMessage};

fn is_metric_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || b"_:".contains(&first))
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
}

fn is_label_name(name: &str) -> bool {
    is_metric_name(name) && !name.contains(':')
}

/// A sample line: name, labels in order, value.
type Sample = (String, Vec<(String, String)>, f64);

fn parse_sample(line: &str) -> Result<Sample, String> {
    let bad = |what: &str| format!("{what} in {line:?}");
    let end = line.find(['{', ' ']).ok_or_else(|| bad("no end of the name"))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or_else(|| bad("no label"))?;
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().ok_or_else(|| bad("an open value"))? {
                    (at, '"') => break at,
                    (_, '\\') => match characters.next().map(|(_, escaped)| escaped) {
                        Some('n') => value.push('\n'),
                        Some(escaped @ ('\\' | '"')) => value.push(escaped),
                        _ => return Err(bad("a wrong escape")),
                    },
                    (_, other) => value.push(other),
                }
            };
            labels.push((label.to_owned(), value));
            rest = after.get(end + 1..).unwrap_or_default();
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').ok_or_else(|| bad("an open brace"))?;
    }
    let value = rest.strip_prefix(' ').ok_or_else(|| bad("no value"))?;
    let value = value.parse().map_err(|_| bad("no number"))?;
    Ok((name.to_owned(), labels, value))
}

/// One family as printed.
struct Family {
    name: String,
    kind: String,
    samples: Vec<Sample>,
}

fn families(text: &str) -> Result<Vec<Family>, String> {
    let mut families: Vec<Family> = Vec::new();
    let mut announced = None;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap_or_default();
            announced = Some(name.to_owned());
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) =
                kind.split_once(' ').ok_or_else(|| format!("no type in {line:?}"))?;
            if announced.take().as_deref() != Some(name) {
                return Err(format!("TYPE without its HELP: {line:?}"));
            }
            if !is_metric_name(name) {
                return Err(format!("invalid name in {line:?}"));
            }
            families.push(Family {
                name: name.to_owned(),
                kind: kind.to_owned(),
                samples: Vec::new(),
            });
        } else {
            let sample = parse_sample(line)?;
            let family =
                families.last_mut().ok_or_else(|| format!("sample without family: {line:?}"))?;
            family.samples.push(sample);
        }
    }
    Ok(families)
}

fn suffixes(kind: &str, open_metrics: bool) -> &'static [&'static str] {
    match kind {
        "counter" if open_metrics => &["_total", "_created"],
        "info" if open_metrics => &["_info"],
        "summary" if open_metrics => &["", "_sum", "_count", "_created"],
        "summary" => &["", "_sum", "_count"],
        "histogram" if open_metrics => &["_bucket", "_sum", "_count", "_created"],
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    }
}

fn check(text: &str, open_metrics: bool) -> Result<Vec<Family>, String> {
    let families = families(text)?;
    let mut names = BTreeSet::new();
    let mut series = BTreeSet::new();
    for family in &families {
        if !names.insert(family.name.clone()) {
            return Err(format!("family {} comes twice", family.name));
        }
        if family.samples.is_empty() {
            return Err(format!("family {} is empty", family.name));
        }
        for (name, labels, _) in &family.samples {
            let suffix = name.strip_prefix(&family.name);
            let own =
                suffix.is_some_and(|suffix| suffixes(&family.kind, open_metrics).contains(&suffix));
            if !own {
                return Err(format!("sample {name} in {} {}", family.kind, family.name));
            }
            let mut seen = BTreeSet::new();
            for (label, _) in labels {
                if !is_label_name(label) || label.starts_with("__") || !seen.insert(label) {
                    return Err(format!("label {label:?} of {name}"));
                }
            }
            let mut labels = labels.clone();
            labels.sort();
            if !series.insert((name.clone(), labels)) {
                return Err(format!("{name} comes twice with the same labels"));
            }
        }
        if family.kind == "histogram" {
            check_buckets(family)?;
        }
    }
    Ok(families)
}

fn check_buckets(family: &Family) -> Result<(), String> {
    type Labels = Vec<(String, String)>;
    let mut by_series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, labels, value) in &family.samples {
        if name.ends_with("_bucket") {
            let mut labels = labels.clone();
            let (label, bound) = labels.pop().ok_or("a bucket without a bound")?;
            if label != "le" {
                return Err(format!("{name} ends with label {label}"));
            }
            let bound = bound.parse().map_err(|_| format!("bound {bound:?} of {name}"))?;
            by_series.entry(labels).or_default().push((bound, *value));
        }
    }
    for buckets in by_series.values() {
        if buckets.last().is_none_or(|last| last.0 != f64::INFINITY) {
            return Err(format!("{} has no last bucket", family.name));
        }
        let ascend =
            buckets.windows(2).all(|pair| !(pair[0].0 >= pair[1].0) && pair[0].1 <= pair[1].1);
        // A NaN bound is valid in the original and has no place in the order.
        if !ascend && buckets.iter().all(|bucket| !bucket.0.is_nan()) {
            return Err(format!("buckets of {} do not ascend: {buckets:?}", family.name));
        }
    }
    Ok(())
}

/// Checks that a body is valid text 0.0.4 with families sorted by name.
pub fn check_text(text: &str) -> Result<(), String> {
    let families = check(text, false)?;
    let names: Vec<_> = families.iter().map(|family| &family.name).collect();
    if !names.is_sorted() {
        return Err(format!("families are not sorted: {names:?}"));
    }
    // Sample names of different families must not collide either.
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for family in &families {
        for (name, _, _) in &family.samples {
            let owner = owners.entry(name).or_insert(&family.name);
            if *owner != family.name {
                return Err(format!("{name} is in {owner} and in {}", family.name));
            }
        }
    }
    Ok(())
}

/// Checks a `# HELP` line of OpenMetrics: quotes are escaped, as in label values.
fn check_help(line: &str) -> Result<(), String> {
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let fine = match character {
            '"' => false,
            '\\' => matches!(characters.next(), Some('\\' | '"' | 'n')),
            _ => true,
        };
        if !fine {
            return Err(format!("a quote or an escape in {line:?}"));
        }
    }
    Ok(())
}

/// Checks that the series of one metric are adjacent.
fn check_groups(family: &Family) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let mut present = None;
    for (name, labels, _) in &family.samples {
        let own = match (family.kind.as_str(), name.strip_prefix(&family.name)) {
            ("histogram", Some("_bucket")) => "le",
            ("summary", Some("")) => "quantile",
            _ => "",
        };
        let mut group: Vec<_> = labels.iter().filter(|(label, _)| label != own).collect();
        group.sort();
        if present.as_ref() != Some(&group) {
            if !seen.insert(group.clone()) {
                return Err(format!("the series of {} are mixed up", family.name));
            }
            present = Some(group);
        }
    }
    Ok(())
}

/// Checks the sum of an OpenMetrics histogram: absent with buckets below 0, otherwise present together with its
/// count.
fn check_sums(family: &Family) -> Result<(), String> {
    type Parts = (bool, bool, bool);
    let mut metrics: BTreeMap<Vec<&(String, String)>, Parts> = BTreeMap::new();
    for (name, labels, _) in &family.samples {
        let mut group: Vec<_> = labels.iter().filter(|(label, _)| label != "le").collect();
        group.sort();
        let (below, sum, count) = metrics.entry(group).or_default();
        match name.strip_prefix(&family.name) {
            Some("_sum") => *sum = true,
            Some("_count") => *count = true,
            Some("_created") => {}
            _ => {
                let bound = labels.iter().find(|(label, _)| label == "le");
                let bound: f64 = bound
                    .and_then(|(_, bound)| bound.parse().ok())
                    .filter(|bound: &f64| !bound.is_nan())
                    .ok_or_else(|| format!("a bucket of {} without a bound", family.name))?;
                *below |= bound < 0.0;
            }
        }
    }
    for (below, sum, count) in metrics.into_values() {
        if sum != count {
            return Err(format!("{} has a sum ({sum}) or a count ({count}) alone", family.name));
        }
        if below && sum {
            return Err(format!("{} has a sum beside buckets below 0", family.name));
        }
    }
    Ok(())
}

/// Checks that a body is valid OpenMetrics, except for the trailer, which the server adds. The rules are those of the
/// specification and of `prometheus_client.openmetrics.parser`, its reference implementation.
pub fn check_open_metrics(text: &str) -> Result<(), String> {
    let families = check(text, true)?;
    text.lines().filter_map(|line| line.strip_prefix("# HELP ")).try_for_each(check_help)?;
    let mut owned: BTreeMap<String, &str> = BTreeMap::new();
    for family in &families {
        let reserved: &[&str] = match family.kind.as_str() {
            "counter" => &["", "_total", "_created"],
            "summary" => &["", "_count", "_sum", "_created"],
            "histogram" => &["", "_count", "_sum", "_bucket", "_created"],
            "info" => &["", "_info"],
            "gauge" | "unknown" => &[""],
            other => return Err(format!("type {other}")),
        };
        for suffix in reserved {
            if let Some(other) = owned.insert(format!("{}{suffix}", family.name), &family.name) {
                return Err(format!(
                    "{} and {other} both own {}{suffix}",
                    family.name, family.name
                ));
            }
        }
        check_groups(family)?;
        if family.kind == "histogram" {
            check_sums(family)?;
        }
        for (name, labels, value) in &family.samples {
            let suffix = name.strip_prefix(&family.name).unwrap_or_default();
            let counts = ["_total", "_sum", "_count", "_bucket"].contains(&suffix);
            if counts && !(*value >= 0.0) {
                return Err(format!("{name} is {value}"));
            }
            if ["_count", "_bucket"].contains(&suffix) && value.fract() != 0.0 {
                return Err(format!("{name} is {value}"));
            }
            if family.kind == "summary" && suffix.is_empty() {
                let rank = labels.iter().find(|(label, _)| label == "quantile");
                let rank: Option<f64> = rank.and_then(|(_, rank)| rank.parse().ok());
                if *value < 0.0 || !rank.is_some_and(|rank| (0.0..=1.0).contains(&rank)) {
                    return Err(format!("quantile {rank:?} of {name} is {value}"));
                }
            }
            let bound = labels.iter().find(|(label, _)| {
                (label == "le" && family.kind == "histogram")
                    || (label == "quantile" && family.kind == "summary")
            });
            if let Some((label, bound)) = bound
                && !bound.contains(['.', 'e', 'N', 'I'])
            {
                return Err(format!("{label} {bound:?} of {name} is not canonical"));
            }
        }
    }
    Ok(())
}

/// A histogram in the form of the recording. Numbers are texts, so that NaN equals NaN.
#[derive(Debug, PartialEq)]
pub struct Histogram {
    name: String,
    labels: BTreeMap<String, String>,
    count: u64,
    sum: String,
    buckets: Vec<(String, u64)>,
    native: Option<Native>,
}

#[derive(Debug, PartialEq)]
struct Native {
    schema: i64,
    zero_threshold: String,
    zero_count: u64,
    negative_spans: Vec<(i64, u64)>,
    negative_deltas: Vec<i64>,
    positive_spans: Vec<(i64, u64)>,
    positive_deltas: Vec<i64>,
}

fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(number) => number.to_string(),
        None => value.as_str().unwrap_or_default().to_owned(),
    }
}

fn pairs(value: &Value) -> Vec<(i64, u64)> {
    let pairs = value.as_array().map(Vec::as_slice).unwrap_or_default();
    pairs.iter().filter_map(|pair| Some((pair[0].as_i64()?, pair[1].as_u64()?))).collect()
}

fn integers(value: &Value) -> Vec<i64> {
    let integers = value.as_array().map(Vec::as_slice).unwrap_or_default();
    integers.iter().filter_map(Value::as_i64).collect()
}

impl Histogram {
    /// Reads a histogram of the recorded cases.
    pub fn from_recording(value: &Value) -> Self {
        let labels = value["labels"].as_object().into_iter().flatten();
        let buckets = value["classic_buckets"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            labels: labels
                .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            count: value["sample_count"].as_u64().unwrap_or_default(),
            sum: number(&value["sample_sum"]),
            buckets: buckets
                .iter()
                .map(|bucket| (number(&bucket[0]), bucket[1].as_u64().unwrap_or_default()))
                .collect(),
            native: (value["has_native"] == true).then(|| Native {
                schema: value["schema"].as_i64().unwrap_or_default(),
                zero_threshold: number(&value["zero_threshold"]),
                zero_count: value["zero_count"].as_u64().unwrap_or_default(),
                negative_spans: pairs(&value["negative_spans"]),
                negative_deltas: integers(&value["negative_deltas"]),
                positive_spans: pairs(&value["positive_spans"]),
                positive_deltas: integers(&value["positive_deltas"]),
            }),
        }
    }

    fn from_message(name: &str, metric: Metric) -> Option<Self> {
        let message = metric.histogram?;
        assert!(
            message.created.as_ref().is_some_and(|time| time.seconds > 1_600_000_000),
            "no creation time"
        );
        let spans = |spans: &[SpanMessage]| {
            spans.iter().map(|span| (span.offset().into(), span.length().into())).collect()
        };
        Some(Self {
            name: name.to_owned(),
            labels: metric
                .labels
                .iter()
                .map(|label| (label.name().to_owned(), label.value().to_owned()))
                .collect(),
            count: message.count(),
            sum: message.sum().to_string(),
            buckets: message
                .buckets
                .iter()
                .map(|bucket| (bucket.bound().to_string(), bucket.cumulative()))
                .collect(),
            native: message.schema.map(|schema| Native {
                schema: schema.into(),
                zero_threshold: message.zero_threshold.unwrap_or_default().to_string(),
                zero_count: message.zero_count.unwrap_or_default(),
                negative_spans: spans(&message.negative_spans),
                negative_deltas: message.negative_deltas.clone(),
                positive_spans: spans(&message.positive_spans),
                positive_deltas: message.positive_deltas.clone(),
            }),
        })
    }
}

fn messages(mut body: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !body.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut body).expect("a message"));
    }
    families
}

/// Returns the users' histograms of a protobuf body.
pub fn histograms(body: &[u8]) -> Vec<Histogram> {
    messages(body)
        .into_iter()
        .flat_map(|family| {
            let name = family.name().to_owned();
            family
                .metrics
                .into_iter()
                .filter_map(move |metric| Histogram::from_message(&name, metric))
        })
        .collect()
}

/// Returns a key for a sample that is the same in both formats: name and labels, bounds as plain numbers.
fn key<'a>(name: &str, labels: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let labels: Vec<_> = labels.map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// Returns the value of a bound label in the same notation for every format. Families of type `unknown` have such
/// labels too, from an observer or from their sender.
fn plain_bound(label: &str, value: &str) -> String {
    match value.parse::<f64>() {
        Ok(number) if label == "quantile" || label == "le" => number.to_string(),
        _ => value.to_owned(),
    }
}

/// Returns every sample of a text body in either format.
pub fn text_samples(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut out = BTreeMap::new();
    for family in families(text)? {
        for (name, labels, value) in family.samples {
            let labels: Vec<(String, String)> = labels
                .into_iter()
                .map(|(label, value)| {
                    let value = plain_bound(&label, &value);
                    (label, value)
                })
                .collect();
            let labels = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            out.insert(key(&name, labels), value.to_string());
        }
    }
    Ok(out)
}

/// Returns every sample of a protobuf body of StatsD series and own metrics.
pub fn protobuf_samples(body: &[u8]) -> BTreeMap<String, String> {
    for family in messages(body) {
        let prefixes = ["statsd_", "kstatd_", "promhttp_", "process_", "http_", "go_", "kube_"];
        let other = prefixes.iter().any(|prefix| family.name().starts_with(prefix));
        let mut counters = family.metrics.iter().filter_map(|metric| metric.counter.as_ref());
        assert!(other || counters.all(|counter| counter.created.is_some()), "no creation time");
    }
    any_protobuf_samples(body)
}

/// Returns every sample of a protobuf body.
pub fn any_protobuf_samples(body: &[u8]) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut names = BTreeSet::new();
    for family in messages(body) {
        assert!(family.help.is_some() && family.kind.is_some());
        assert!(names.insert(family.name().to_owned()), "{} twice", family.name());
        for metric in &family.metrics {
            let mut add = |suffix: &str, bound: Option<(&str, f64)>, value: f64| {
                let bound = bound.map(|(name, value)| (name, value.to_string()));
                let labels: Vec<(&str, String)> = metric
                    .labels
                    .iter()
                    .map(|label| (label.name(), plain_bound(label.name(), label.value())))
                    .collect();
                let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
                let bound = bound.iter().map(|(name, value)| (*name, value.as_str()));
                let name = format!("{}{suffix}", family.name());
                // The text formats have one zero.
                out.insert(key(&name, labels.chain(bound)), (value + 0.0).to_string());
            };
            if let Some(single) = metric.gauge.as_ref().or(metric.counter.as_ref()) {
                add("", None, single.value());
            }
            assert_eq!(metric.counter.is_some(), family.kind == Some(0));
            if let Some(summary) = &metric.summary {
                assert!(summary.created.is_some(), "no creation time");
                for quantile in &summary.quantiles {
                    add("", Some(("quantile", quantile.quantile())), quantile.value());
                }
                add("_sum", None, summary.sum());
                add("_count", None, summary.count() as f64);
            }
            if let Some(histogram) = &metric.histogram {
                let last = (f64::INFINITY, histogram.count());
                let buckets =
                    histogram.buckets.iter().map(|bucket| (bucket.bound(), bucket.cumulative()));
                for (bound, cumulative) in buckets.chain([last]) {
                    add("_bucket", Some(("le", bound)), cumulative as f64);
                }
                add("_sum", None, histogram.sum());
                add("_count", None, histogram.count() as f64);
            }
        }
    }
    out
}
