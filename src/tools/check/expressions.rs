//! PromQL expressions of alerts, recording rules and dashboards that select the series of an exporter.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::compatibility::{KUBE_METRICS, STATSD_METRICS};
use super::inventory::{Inventory, MONITORING};
use super::report::{Outcome, Section};
use super::workload::{Workload, items};
use crate::cli::config::Name;
use crate::resources;

/// The maximum size of a compiled pattern of job names in bytes.
const MAX_PATTERN: usize = 1 << 16;

/// A selector with braces: the name of the metric and the matchers.
static SELECTOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"([A-Za-z_:][\w:]*)\s*\{((?:[^}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}"#).ok()
});

/// A matcher of the label `job`: operator and value.
static JOB: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?:^|[,\s])job\s*(=~|!~|!=|=)\s*["']([^"']*)["']"#).ok());

/// An expression, with its place.
struct Expression {
    place: String,
    text: String,
}

/// Checks that alerts, recording rules and dashboards select the series that kstatd has, under the values of `job` that
/// Prometheus gives its targets. Those that select only other workloads of the same program, which have all of `of_program`, are
/// not about this one.
pub(crate) fn check(
    workload: &Workload<'_>,
    inventory: &Inventory,
    (jobs, of_program): (&BTreeSet<String>, &BTreeSet<String>),
    section: &mut Section,
) {
    let own = match workload.program {
        Name::StatsdExporter => STATSD_METRICS,
        _ => KUBE_METRICS,
    };
    let own = own.rows();
    let families: BTreeSet<&str> = resources::registry()
        .iter()
        .flat_map(|resource| resource.families())
        .map(|family| family.name)
        .filter(|_| workload.program != Name::StatsdExporter)
        .collect();
    let (mut places, mut selectors) = (BTreeSet::new(), 0);
    for Expression { place, text } in expressions(inventory) {
        let Some(found) = SELECTOR.as_ref() else { return };
        for captures in found.captures_iter(&text) {
            let (metric, matchers) = (&captures[1], &captures[2]);
            let row = own.of(metric);
            let prefix = workload.program.as_str().replace('-', "_");
            let is_own = families.contains(metric) || row.is_some() && metric.starts_with(&prefix);
            let job = JOB.as_ref().and_then(|job| job.captures(matchers));
            let job = job.map(|job| (job[1].to_owned(), job[2].to_owned()));
            // A variable of a dashboard may have any value.
            let Some((operator, value)) = job.filter(|(_, value)| !value.contains('$')) else {
                selectors += usize::from(is_own);
                continue;
            };
            let names: Vec<&str> = match jobs.is_empty() {
                true => vec![workload.program.as_str()],
                false => jobs.iter().map(String::as_str).collect(),
            };
            let is_selected = names.iter().any(|job| matches(&operator, &value, job));
            if !is_selected && of_program.iter().any(|job| matches(&operator, &value, job)) {
                continue;
            }
            if let Some(row) = row.filter(|row| row.verdict == "absent" && is_selected) {
                let text = format!("{place}: {metric} is absent: {}", row.why);
                let hint = "remove it from the expression";
                section.add(Outcome::Warning, text, hint, &own.page);
            } else if is_own && !jobs.is_empty() && !is_selected {
                let text = format!(
                    "{place}: selects {metric} with job{operator}{value:?}, but the job is {}",
                    names.join(", ")
                );
                let hint = "correct the expression, or the job name (jobLabel, or the name of the Service)";
                section.add(Outcome::Failed, text, hint, "docs/migration.md#swap");
            }
            selectors += usize::from(is_own);
        }
        places.insert(place);
    }
    if places.is_empty() {
        section.ok("no PrometheusRule and no ConfigMap with a dashboard (label grafana_dashboard) was found");
    } else if section.is_clean() {
        let places = places.len();
        section
            .ok(format!("{places} rules and dashboards, with {selectors} selectors of its series"));
    }
}

fn matches(operator: &str, value: &str, job: &str) -> bool {
    let pattern = || {
        let pattern = RegexBuilder::new(&format!("^(?:{value})$")).size_limit(MAX_PATTERN).build();
        pattern.is_ok_and(|pattern| pattern.is_match(job))
    };
    match operator {
        "=" => value == job,
        "!=" => value != job,
        "=~" => pattern(),
        _ => !pattern(),
    }
}

/// Returns the expressions of all rules and dashboards.
fn expressions(inventory: &Inventory) -> Vec<Expression> {
    let mut all = Vec::new();
    for rules in inventory.of(MONITORING, "PrometheusRule") {
        let object = rules.name().1.unwrap_or_default();
        for group in items(&rules.object["spec"]["groups"]) {
            for rule in items(&group["rules"]) {
                let name = ["alert", "record"].iter().find_map(|field| rule[field].as_str());
                if let Some(text) = rule["expr"].as_str() {
                    let place = format!("PrometheusRule {object}, {}", name.unwrap_or_default());
                    all.push(Expression { place, text: text.to_owned() });
                }
            }
        }
    }
    for map in inventory.of("", "ConfigMap") {
        let object = map.name().1.unwrap_or_default();
        for (file, text) in map.object["data"].as_object().into_iter().flatten() {
            let text = text.as_str().filter(|_| file.ends_with(".json")).unwrap_or_default();
            let Ok(dashboard) = serde_json::from_str::<Value>(text) else { continue };
            let title = dashboard["title"].as_str().unwrap_or(file);
            queries(&dashboard, &format!("dashboard {title:?} of ConfigMap {object}"), &mut all);
        }
    }
    all
}

/// Adds the queries of a dashboard's panels.
fn queries(value: &Value, place: &str, into: &mut Vec<Expression>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| queries(item, place, into)),
        Value::Object(fields) => fields.iter().for_each(|(name, field)| match field.as_str() {
            Some(text) if name == "expr" => {
                into.push(Expression { place: place.to_owned(), text: text.to_owned() });
            }
            _ => queries(field, place, into),
        }),
        _ => {}
    }
}
