//! Validation of a configuration beyond its syntax: metrics that do not compile, invalid names, and values that
//! probably do not do what their author intended.

use std::collections::BTreeMap;

use crate::config_file::{Problem, ProblemClass, hint, nearest};
use crate::exposition::names;

use super::built_in;
use super::config::{Block, Config, Entry, LabelPaths, Metric, SourcePosition, copies_map};
use super::label;
use super::labels_check;
use super::metric::MetricType;
use super::path::{Path, SegmentError};
use super::program::COUNT_NAME_TAKEN;

/// The metric types, in canonical spelling.
const TYPES: [&str; 4] = ["Gauge", "Info", "StateSet", "Count"];

impl Config {
    /// Returns all problems, in the order of the file. Those that prevent metrics from being created are errors, the
    /// rest are warnings.
    pub fn problems(&self) -> Vec<Problem> {
        let built_in = built_in::families();
        let mut problems = Vec::new();
        let mut families: BTreeMap<String, (&str, SourcePosition)> = BTreeMap::new();
        for entry in &self.entries {
            group_problem(entry, &mut problems);
            if entry.metrics.is_empty() {
                problems.push(Problem::warning(
                    ProblemClass::Suspicious,
                    entry.position.0,
                    "a resource without metrics".to_owned(),
                    "list them below metrics",
                ));
            }
            for metric in &entry.metrics {
                metric_problems(entry, metric, &mut problems);
                let name = entry.family_name(metric);
                match families.get(&name) {
                    Some((kind, first)) if !kind.eq_ignore_ascii_case(&metric.kind) => {
                        problems.push(Problem::warning(
                            ProblemClass::Contradiction,
                            metric.positions.name.0,
                            format!(
                                "{name} is of type {} here and of type {kind} in {first}",
                                metric.kind
                            ),
                            "give one of them another name",
                        ));
                    }
                    Some(_) => {}
                    None if built_in.contains(name.as_str()) => {
                        problems.push(Problem::warning(
                            ProblemClass::Contradiction,
                            metric.positions.name.0,
                            format!("{name} is the name of a built-in family"),
                            "give it another name, or another metricNamePrefix",
                        ));
                    }
                    None => {
                        families.insert(name, (&metric.kind, metric.positions.name));
                    }
                }
            }
        }
        problems.extend(self.count_clashes().into_iter().map(|(metric, first)| {
            Problem::error(
                ProblemClass::Contradiction,
                metric.positions.name.0,
                format!("{COUNT_NAME_TAKEN}, and this is also that of {}", first.positions.name),
                "give one of them another name",
            )
        }));
        problems
    }
}

fn group_problem(entry: &Entry, problems: &mut Vec<Problem>) {
    let Entry { group, version, kind, .. } = entry;
    let (message, hint) = match built_in::misnamed(entry) {
        Some(kinds) => {
            let hint = match nearest(kind, kinds.iter().map(String::as_str)) {
                Some(kind) if kind != entry.kind => format!("write {kind}"),
                _ => "a kind of a definition of yours in this group has metrics, if there is one"
                    .to_owned(),
            };
            (format!("{group}/{version}, {kind} is no kind that Kubernetes has"), hint)
        }
        None if !entry.has_group() => (
            format!("group is {group:?}: the resource is left out"),
            "write the group in full; only version and kind may be *, and of the group without a \
             name the kind is needed"
                .to_owned(),
        ),
        None => return,
    };
    problems.push(Problem::warning(ProblemClass::InvalidOptions, entry.position.0, message, hint));
}

fn metric_problems(entry: &Entry, metric: &Metric, problems: &mut Vec<Problem>) {
    let name = entry.family_name(metric);
    if metric.name.is_empty() || !names::is_metric(name.as_bytes()) {
        problems.push(Problem::warning(
            ProblemClass::InvalidMetricName,
            metric.positions.name.0,
            format!("{name:?} is no name of a metric, no scrape takes it"),
            "use letters, digits, _ and :, not a digit first",
        ));
    }
    for labels in [&entry.common_labels, &metric.common_labels] {
        for label in labels.keys() {
            label_name(label, metric.positions.metric, problems);
        }
    }
    for paths in [&entry.labels_from_path, &metric.labels_from_path] {
        label_paths(paths, problems);
    }
    let Some(kind) = MetricType::of(&metric.kind) else {
        let hint = hint(&metric.kind, &TYPES, "types are");
        let message = format!("unknown metric type {:?}", metric.kind);
        let class = ProblemClass::InvalidMetricType;
        problems.push(Problem::error(class, metric.positions.kind.0, message, hint));
        return;
    };
    let block_name = kind.as_str();
    let Some(block) = kind.block(metric) else {
        problems.push(Problem::error(
            ProblemClass::InvalidOptions,
            metric.positions.kind.0,
            format!("type is {} and each.{block_name} is missing", metric.kind),
            format!("write {block_name}: {{path: [...]}} beside the type"),
        ));
        return;
    };
    block_problems(kind, block, metric, problems);
    labels_check::problems(entry, metric, (kind, block), problems);
}

fn block_problems(kind: MetricType, block: &Block, metric: &Metric, problems: &mut Vec<Problem>) {
    for path in [&block.path, &block.value_from] {
        path_problem(&path.segments, path.position, problems);
    }
    label_paths(&block.labels_from_path, problems);
    if !block.label_from_key.is_empty() {
        label_name(&block.label_from_key, block.path.position.or(metric.positions.kind), problems);
    }
    let mut warn = |message: &str, hint: &str| {
        let class = ProblemClass::Suspicious;
        problems.push(Problem::warning(class, metric.positions.kind.0, message.to_owned(), hint));
    };
    if kind == MetricType::StateSet {
        if block.list.is_empty() {
            warn("a state set without states has no series", "name the states in list");
        }
        let mut sorted = block.list.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            warn("a state is listed twice", "keep one of them");
        }
        label_name(&block.label_name, metric.positions.kind, problems);
    }
}

fn label_paths(paths: &LabelPaths, problems: &mut Vec<Problem>) {
    for (label, path) in paths {
        path_problem(&path.segments, path.position, problems);
        // The names of copied labels are not known in advance.
        if copies_map(label) || label::can_be_a_name(label) {
            continue;
        }
        let problem = Problem::warning(
            ProblemClass::InvalidLabelName,
            path.position.0,
            format!("{label:?} is no name of a label, it becomes {}", label::sanitised(label)),
            "use letters, digits and _, not a digit first",
        );
        labels_check::report(problems, problem);
    }
}

fn path_problem(segments: &[String], position: SourcePosition, problems: &mut Vec<Problem>) {
    if let Err(SegmentError(bad)) = Path::compile(segments) {
        let problem = Problem::error(
            ProblemClass::InvalidOptions,
            position.0,
            format!("{bad} is no lookup in a list"),
            "write [key=value], in quotes",
        );
        labels_check::report(problems, problem);
    }
}

fn label_name(label: &str, position: SourcePosition, problems: &mut Vec<Problem>) {
    if !names::is_label(label.as_bytes()) {
        problems.push(Problem::warning(
            ProblemClass::InvalidLabelName,
            position.0,
            format!("{label:?} is no name of a label, no scrape takes it"),
            "use letters, digits and _, not a digit first",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::load;

    #[test]
    fn every_problem_has_its_place_and_a_hint() {
        let text = "spec:\n  resources:\n  - groupVersionKind: {group: '*', kind: A}\n    metrics:\n\
                    \x20   - name: a b\n      each: {type: Guage, gauge: {}}\n\
                    \x20   - name: c\n      each: {type: Info, gauge: {}}\n\
                    \x20   - name: c\n      each:\n        type: Gauge\n        gauge:\n          path: [a, \"[b]\"]\n\
                    \x20   - name: d\n      commonLabels: {a-b: c}\n      each: {type: StateSet, stateSet: {labelName: x, path: [a]}}\n";
        let loaded = load(text);
        assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
        let problems = loaded.config.problems();
        assert!(problems.iter().all(|problem| !problem.hint.is_empty()), "{problems:?}");
        let positions: Vec<(u64, u64, &str)> = problems
            .iter()
            .map(|problem| (problem.line, problem.column, problem.class.as_str()))
            .collect();
        assert_eq!(
            positions,
            [
                (3, 5, "invalid_options"),
                (5, 13, "invalid_metric_name"),
                (6, 20, "invalid_metric_type"),
                (8, 20, "invalid_options"),
                (13, 17, "invalid_options"),
                (9, 13, "contradiction"),
                (14, 7, "invalid_label_name"),
                (16, 20, "suspicious"),
            ]
        );
        assert_eq!(problems[2].hint, "write Gauge");
    }
}
