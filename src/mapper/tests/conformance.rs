//! The recorded mappings of statsd_exporter.

use super::*;
use crate::recorded::number;

/// Converts integers of the corpus to doubles, so that 1 and 1.0 are equal.
fn doubles(value: &Value) -> Value {
    match value {
        Value::Number(n) => json!(n.as_f64()),
        Value::Array(items) => items.iter().map(doubles).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), doubles(value)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn summary(options: &SummaryOptions) -> Value {
    let quantiles: Vec<_> =
        options.quantiles.iter().map(|q| json!([number(q.quantile), number(q.error)])).collect();
    doubles(&json!({
        "age_buckets": options.age_buckets,
        "buf_cap": options.buf_cap,
        "max_age_ns": options.max_age.as_nanos() as u64,
        "quantiles": quantiles,
    }))
}

fn histogram(options: &HistogramOptions) -> Value {
    let buckets: Vec<_> = options.buckets.iter().copied().map(number).collect();
    doubles(&json!({
        "buckets": buckets,
        "native_histogram_bucket_factor": number(options.native_bucket_factor),
        "native_histogram_max_buckets": options.native_max_buckets,
    }))
}

fn observer_type(observer_type: Option<ObserverType>) -> &'static str {
    match observer_type {
        None => "",
        Some(ObserverType::Summary) => "summary",
        Some(ObserverType::Histogram) => "histogram",
    }
}

fn match_type(match_type: MatchType) -> &'static str {
    match match_type {
        MatchType::Glob => "glob",
        MatchType::Regex => "regex",
    }
}

fn look_up_json(mapper: &Mapper, name: &str, kind: MetricType, buffer: &mut Buffer) -> Value {
    let Some(mapped) = mapper.map(name, kind, buffer) else {
        return json!({"metric": name, "type": kind.as_str(), "matched": false});
    };
    let rule = mapped.rule;
    let mut result = json!({
        "metric": name,
        "type": kind.as_str(),
        "matched": true,
        "rule_index": rule.index,
        "name": mapped.unescaped_name,
        "escaped_name": mapped.name,
        "action": if rule.action == Action::Drop { "drop" } else { "map" },
        "match_type": match_type(rule.match_type),
    });
    let fields = result.as_object_mut().expect("object");
    let labels: Map<String, Value> =
        mapped.labels().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let optional = [
        ("labels", json!(labels), labels.is_empty()),
        ("observer_type", json!(observer_type(rule.observer_type)), rule.observer_type.is_none()),
        ("ttl_ns", json!(rule.ttl.as_nanos() as u64), rule.ttl.is_zero()),
        ("scale", rule.scale.map_or(Value::Null, number), rule.scale.is_none()),
        ("honor_labels", json!(true), !rule.honor_labels),
        ("help", json!(rule.help), rule.help == DEFAULT_HELP),
        (
            "summary_options",
            rule.summary_options.as_ref().map_or(Value::Null, summary),
            rule.summary_options.is_none(),
        ),
        (
            "histogram_options",
            rule.histogram_options.as_ref().map_or(Value::Null, histogram),
            rule.histogram_options.is_none(),
        ),
    ];
    for (key, value, absent) in optional {
        if !absent {
            fields.insert(key.to_owned(), value);
        }
    }
    doubles(&result)
}

/// Returns the expected result, with the deviations listed in `docs/compatibility.md`.
fn wanted(look_up: &Value) -> Value {
    let mut want = look_up.clone();
    let fields = want.as_object_mut().expect("object");
    if let Some(plain) = fields.remove("plain_expansion") {
        let labels = fields["labels"].as_object_mut().expect("labels");
        labels.extend(plain.as_object().expect("labels").clone());
    }
    // Without an observer type statsd_exporter fills in the quantiles when it creates the first series, not
    // when it loads the file.
    if fields.get("observer_type").is_none()
        && let Some(quantiles) =
            fields.get_mut("summary_options").map(|options| &mut options["quantiles"])
        && *quantiles == json!([])
    {
        *quantiles = summary(&Defaults::default().summary_options)["quantiles"].clone();
    }
    doubles(&want)
}

/// Cases with options that no summary or histogram can use. They are corrected at load, with a warning.
const REPAIRED: [&str; 4] = [
    "config/histogram_options/buckets: [1, 1]",
    "config/summary_options/quantiles: [{quantile: 1.5, error: 0.1}]",
    "config/summary_options/quantiles: [{quantile: -1, error: 0.1}]",
    "options/default-ttl/12/-5s",
];

/// Cases that reject a label name of one character. It is accepted here, because Prometheus allows it and the
/// community chart renders a mapping with one.
const SHORT_LABELS: [&str; 3] = ["config/label/00/a", "config/label/02/_", "config/label/15/A"];

#[test]
fn mapper_json() {
    let cases = crate::recorded::cases("statsd/mapper.json", 1);
    let mut failures = Vec::new();
    let mut repaired = 0;
    for case in &cases {
        let name = case["name"].as_str().expect("name");
        if let Err(reason) = check(case, name, &mut repaired) {
            failures.push(format!(
                "{name}: {reason}\n{}",
                case["mapping"].as_str().unwrap_or_default()
            ));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} fail\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
    assert_eq!(repaired, REPAIRED.len());
}

fn check(case: &Value, name: &str, repaired: &mut usize) -> Result<(), String> {
    let yaml = case["mapping"].as_str().expect("mapping");
    let loaded = Mapper::from_yaml(yaml);
    let internal = case["quirk"] == "internal_struct_field_accepted";
    if SHORT_LABELS.contains(&name) {
        let refused = |problems| format!("refused: {problems:?}");
        return loaded.map(drop).map_err(refused);
    }
    if case["error"] == json!(true) || internal {
        let want = if internal {
            "unknown_field"
        } else if name == "config/order/label-before-name" {
            // The first error of this case is a label name of one character.
            "missing_name"
        } else {
            case["error_class"].as_str().expect("class")
        };
        let problems = loaded.err().ok_or("accepted")?;
        let first = problems.first().ok_or("no problem")?;
        if first.line == 0 || first.column == 0 || first.hint.is_empty() {
            return Err(format!("no place or hint: {first:?}"));
        }
        let got = first.class.as_str();
        return if got == want { Ok(()) } else { Err(format!("{got}, not {want}: {first}")) };
    }
    let mapper = loaded.map_err(|problems| format!("refused: {problems:?}"))?;
    if REPAIRED.contains(&name) {
        *repaired += 1;
        let warned =
            mapper.warnings().iter().any(|warning| warning.class == ProblemClass::InvalidOptions);
        return if warned { Ok(()) } else { Err("not warned".to_owned()) };
    }
    if case["mappings_count"] != json!(mapper.rules().len()) {
        return Err(format!("{} rules", mapper.rules().len()));
    }
    let defaults = mapper.defaults();
    let got = json!({
        "glob_disable_ordering": defaults.glob_disable_ordering,
        "histogram_options": histogram(&defaults.histogram_options),
        "match_type": match_type(defaults.match_type),
        "observer_type": observer_type(defaults.observer_type),
        "summary_options": summary(&defaults.summary_options),
        "ttl_ns": defaults.ttl.as_nanos() as f64,
    });
    let want = doubles(&case["defaults"]);
    if got != want {
        return Err(format!("defaults\n  {got}\n  {want}"));
    }
    let mut buffer = Buffer::default();
    for look_up in case["lookups"].as_array().into_iter().flatten() {
        let metric = look_up["metric"].as_str().expect("metric");
        let kind = MetricType::ALL
            .into_iter()
            .find(|kind| look_up["type"] == kind.as_str())
            .expect("type");
        let got = look_up_json(&mapper, metric, kind, &mut buffer);
        if let Some(index) = look_up.get("first_match_rule_index") {
            let got = got.get("rule_index").cloned().unwrap_or(json!(-1.0));
            if got != doubles(index) {
                return Err(format!("{metric}: rule {got}, not {index}"));
            }
            continue;
        }
        let want = wanted(look_up);
        if got != want {
            return Err(format!("{metric}\n  {got}\n  {want}"));
        }
    }
    Ok(())
}
