//! Validation of labels: duplicate sources, and labels with too many values.

use std::collections::{BTreeMap, BTreeSet};

use crate::config_file::{Problem, ProblemClass};

use super::config::{Block, Entry, LabelPaths, Metric, PathText, SourcePosition, copies_map};
use super::label::sanitised;
use super::metric::MetricType;

/// Returns the problems of a metric's labels.
pub(super) fn problems(
    entry: &Entry,
    metric: &Metric,
    (kind, block): (MetricType, &Block),
    problems: &mut Vec<Problem>,
) {
    let mut labels = Labels { seen: BTreeMap::new(), problems };
    let position = metric.positions.name;
    for name in ["customresource_group", "customresource_version", "customresource_kind"] {
        labels.seen.insert(name.to_owned(), "kstatd itself");
    }
    let fixed = entry.common_labels.keys().chain(metric.common_labels.keys());
    for name in fixed.collect::<BTreeSet<_>>() {
        labels.add(name, "commonLabels", position);
    }
    // A Count does not have the labels of its resource.
    let of_entry = entry.labels_from_path.iter().filter(|_| kind != MetricType::Count);
    let mut paths: BTreeMap<&String, &PathText> = of_entry.collect();
    paths.extend(&metric.labels_from_path);
    for (name, path) in &paths {
        labels.add(name, "labelsFromPath", path.position);
    }
    for (name, path) in &block.labels_from_path {
        // The same path within the whole object gives the same value again, which protects it from a copied map.
        let is_repeated = block.path.segments.is_empty()
            && paths.get(name).is_some_and(|other| other.segments == path.segments);
        if !is_repeated {
            labels.add(name, "labelsFromPath of the value", path.position);
        }
    }
    for (name, source) in
        [(&block.label_from_key, "labelFromKey"), (&block.label_name, "labelName")]
    {
        if !name.is_empty() {
            labels.add(name, source, metric.positions.kind);
        }
    }
    let is_count = kind == MetricType::Count;
    let all = paths.into_iter().chain(&block.labels_from_path);
    for (label, path) in all {
        if let Some((message, hint)) = cardinality(label, path, is_count) {
            let class = ProblemClass::HighCardinality;
            report(labels.problems, Problem::warning(class, path.position.0, message, hint));
        }
    }
    defaults(entry, metric, block, labels.problems);
}

/// Reports defaults of labels that do not exist.
fn defaults(entry: &Entry, metric: &Metric, block: &Block, problems: &mut Vec<Problem>) {
    let levels: [(_, Vec<&LabelPaths>, _); 3] = [
        (&entry.label_defaults, vec![&entry.labels_from_path], entry.position),
        (
            &metric.label_defaults,
            vec![&entry.labels_from_path, &metric.labels_from_path],
            metric.positions.name,
        ),
        (&block.label_defaults, vec![&block.labels_from_path], metric.positions.kind),
    ];
    for (texts, paths, position) in levels {
        // The defaults of an entry may be for labels of its metrics.
        let known = |label: &String| {
            paths.iter().any(|paths| paths.contains_key(label))
                || std::ptr::eq(texts, &entry.label_defaults)
                    && entry.metrics.iter().any(|one| one.labels_from_path.contains_key(label))
        };
        for label in texts.keys().filter(|label| !known(label)) {
            let problem = Problem::warning(
                ProblemClass::Suspicious,
                position.0,
                format!("labelDefaults: {label} has no effect"),
                "name a label of labelsFromPath beside it",
            );
            report(problems, problem);
        }
    }
}

struct Labels<'p> {
    /// The source of each label seen so far.
    seen: BTreeMap<String, &'static str>,
    problems: &'p mut Vec<Problem>,
}

impl Labels<'_> {
    fn add(&mut self, name: &str, source: &'static str, position: SourcePosition) {
        if copies_map(name) {
            return;
        }
        let is_path = source.starts_with("labelsFromPath");
        let printed = if is_path { sanitised(name).into_owned() } else { name.to_owned() };
        if let Some(other) = self.seen.insert(printed.clone(), source) {
            let message = format!("label {printed} comes from {other} and from {source}");
            let hint =
                "give one of them another name: the later of the two wins where it has a value";
            let class = ProblemClass::DuplicateLabel;
            report(self.problems, Problem::warning(class, position.0, message, hint));
        }
    }
}

/// Adds a problem, once. Those of a resource's labels occur again for each of its metrics.
pub(super) fn report(problems: &mut Vec<Problem>, problem: Problem) {
    if !problems.contains(&problem) {
        problems.push(problem);
    }
}

/// True if the path has too many distinct values for a label, such as a timestamp.
pub(crate) fn too_many_values(path: &PathText) -> bool {
    cardinality("", path, false).is_some()
}

/// Warns about a label whose path has too many distinct values.
pub(super) fn cardinality(
    label: &str,
    path: &PathText,
    is_count: bool,
) -> Option<(String, String)> {
    let last = path.segments.last().map_or("", String::as_str);
    let of_metadata = path.segments.first().is_some_and(|first| first == "metadata");
    let copies = copies_map(label);
    let what = match last {
        "annotations" if copies && of_metadata => {
            let message = format!("{label} copies all annotations, whatever anybody writes there");
            return Some((message, "name the annotations that you want, one by one".to_owned()));
        }
        _ if copies => return None,
        "uid" => "is another for each object, and for one that is made again",
        "resourceVersion" | "managedFields" | "generation" | "observedGeneration" => {
            "changes with the object: each change begins a new series"
        }
        "creationTimestamp" => "is another for each object",
        "message" | "description" => "is free text: each wording is a series of its own",
        "name" if is_count && of_metadata => {
            "is another for each object: a series for each of them"
        }
        last if last.ends_with("Timestamp") || last.ends_with("Time") => {
            return Some(timestamp_warning(label, path));
        }
        _ => return None,
    };
    let hint = match last {
        "message" | "description" => "take the reason, or a StateSet",
        "name" => "leave the label out, or take a Gauge",
        "uid" => "take namespace and name",
        _ => "leave the label out, or make it a Gauge of its own",
    };
    Some((format!("label {label}: {path} {what}"), hint.to_owned()))
}

/// Returns the warning for a label with a timestamp.
pub(super) fn timestamp_warning(label: &str, path: &PathText) -> (String, String) {
    (
        format!("label {label}: {path} is a time: each one begins a new series"),
        "make it a Gauge of its own, whose value is in seconds".to_owned(),
    )
}
