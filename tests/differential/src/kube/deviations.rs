//! The deliberate differences between kube-state-metrics and kstatd, as far as random objects and flags meet them.

use std::collections::HashSet;

use serde_json::Value;

use crate::program::Treatment;

/// Rows of docs/compatibility.md by the beginning of their first cell.
pub const ROWS: &[(&str, Treatment)] = &[
    ("An object that repeats an entry", Treatment::Rewritten),
    ("An autoscaler metric without the source that its type names", Treatment::LeftOut),
    ("Allow-list flag with non-ASCII characters", Treatment::NotGenerated),
    ("A list with one object that cannot be decoded", Treatment::NotGenerated),
    ("`--object-limit`", Treatment::NotGenerated),
    ("An invalid quantity in a field without a metric", Treatment::NotGenerated),
    ("A namespace given twice in `--namespaces`", Treatment::NotGenerated),
    ("HELP texts", Treatment::Rewritten),
    ("A label from `labelsFromPath`", Treatment::NotGenerated),
    ("A cluster-scoped custom resource with `--namespaces`", Treatment::NotGenerated),
    ("Two entries for one kind in a custom resource file", Treatment::Rewritten),
];

/// Removes what crashes the original.
pub fn avoid(resource: &str, object: &mut Value) {
    match resource {
        "horizontalpodautoscalers" => {
            for list in ["/spec/metrics", "/status/currentMetrics"] {
                if let Some(Value::Array(metrics)) = object.pointer_mut(list) {
                    metrics.retain(|metric| {
                        let kind = metric["type"].as_str().unwrap_or_default();
                        let source = match kind {
                            "Object" => "object",
                            "Pods" => "pods",
                            "Resource" => "resource",
                            "ContainerResource" => "containerResource",
                            "External" => "external",
                            _ => return true,
                        };
                        metric[source].is_object()
                    });
                }
            }
        }
        "ingresses" => {
            if let Some(Value::Array(rules)) = object.pointer_mut("/spec/rules") {
                for rule in rules {
                    if let Some(Value::Array(paths)) = rule.pointer_mut("/http/paths") {
                        let has = |path: &Value, kind: &str| path["backend"][kind].is_object();
                        paths.retain(|path| has(path, "service") || has(path, "resource"));
                    }
                }
            }
        }
        _ => {}
    }
}

/// Removes the lines that repeat the series of an earlier line, also where they differ only by labels with an empty value.
pub fn distinct(lines: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    lines.into_iter().filter(|line| line.starts_with('#') || seen.insert(series(line))).collect()
}

/// Returns the name and the labels that are not empty.
fn series(line: &str) -> Vec<String> {
    let (series, _) = line.rsplit_once(' ').unwrap_or((line, ""));
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let mut out = Vec::new();
    let (mut label, mut in_value, mut escaped) = (String::new(), false, false);
    for character in labels.chars() {
        let is_quote = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        if !in_value && matches!(character, ',' | '}') {
            out.push(std::mem::take(&mut label));
        } else {
            label.push(character);
        }
        in_value ^= is_quote;
    }
    out.retain(|label| !label.ends_with("=\"\""));
    out.sort();
    out.push(name.to_owned());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_one_of_the_documentation() {
        let page = include_str!("../../../../docs/compatibility.md");
        for (row, _) in ROWS {
            assert!(page.contains(&format!("\n| {row}")), "{row}");
        }
    }

    #[test]
    fn repeated_series_are_removed() {
        let lines =
            ["a{b=\"c,\\\"}\"} 1", "a{b=\"c,\\\"}\",d=\"\"} 2", "a{b=\"c\"} 1", "b{b=\"c\"} 1"];
        let kept = distinct(lines.iter().map(|line| (*line).to_owned()).collect());
        assert_eq!(kept, [lines[0], lines[2], lines[3]]);
    }
}
