//! Entries compiled for one kind: families, common labels, and the field mask.

use std::collections::BTreeMap;

use crate::cache::{Family, MetricKind};

use super::config::{Entry, LabelPaths, LabelTexts, Metric};
use super::label::{Sources, sanitised};
use super::mask::Mask;
use super::metric::{Extractor, MetricType};

/// An error that makes an entry unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: metric {metric}: {reason}")]
pub struct CompileError {
    /// The name of the metric.
    pub metric: String,
    /// The description of the error.
    pub reason: String,
    /// Line in the file, from 1.
    pub line: u64,
    /// Column in the line, from 1.
    pub column: u64,
}

/// The error for a Count whose name another metric of the kind has. The series of a Count aggregate all objects, so it
/// cannot share a family.
pub(super) const COUNT_NAME_TAKEN: &str =
    "a Count needs a name that no other metric of the kind has";

impl CompileError {
    /// Creates an error about a metric.
    pub(super) fn of(metric: &Metric, reason: String) -> Self {
        let position = metric.positions.metric.0;
        let (line, column) = (position.line, position.column);
        Self { metric: metric.name.clone(), reason, line, column }
    }
}

/// Labels that several metrics have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BaseLabels {
    pub(super) texts: LabelTexts,
    pub(super) sources: Sources,
}

/// A compiled metric with its family and labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CompiledMetric {
    pub(super) name: String,
    help: String,
    /// The path as shown in errors.
    pub(super) path: String,
    pub(super) extractor: Extractor,
    /// The index of its common labels in `Program::bases`.
    pub(super) base: usize,
    /// The minimum log verbosity that shows its value errors.
    pub(super) error_log_v: i32,
    /// The names of the labels with an object's namespace, name and uid.
    pub(super) own: [Option<String>; 3],
}

/// All metrics of the objects of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    pub(super) metrics: Vec<CompiledMetric>,
    /// The labels of items counted beyond the limit of label sets.
    pub(super) overflow: LabelTexts,
    pub(super) bases: Vec<BaseLabels>,
    pub(super) mask: Mask,
}

impl Program {
    /// Adds the metrics of an entry, for the kind `[group, version, kind]`. Call [`Program::finish`] after the last
    /// one.
    ///
    /// # Errors
    /// The first metric that does not compile.
    pub(super) fn add(&mut self, entry: &Entry, gvk: [&str; 3]) -> Result<(), CompileError> {
        for metric in &entry.metrics {
            let error = |reason: String| CompileError::of(metric, reason);
            let extractor = Extractor::compile(metric).map_err(error)?;
            let name = entry.family_name(metric);
            let is_count = extractor.kind == MetricType::Count;
            let takes_name =
                |other: &CompiledMetric| (is_count || other.is_count()) && other.name == name;
            if self.metrics.iter().any(takes_name) {
                return Err(error(COUNT_NAME_TAKEN.to_owned()));
            }
            let base = base(entry, metric, &extractor, gvk).map_err(error)?;
            let base = match self.bases.iter().position(|own| *own == base) {
                Some(at) => at,
                None => {
                    self.bases.push(base);
                    self.bases.len() - 1
                }
            };
            let error_log_v =
                if metric.error_log_v == 0 { entry.error_log_v } else { metric.error_log_v };
            let own = ["namespace", "name", "uid"].map(|member| {
                let mut paths = metric.labels_from_path.iter().chain(&entry.labels_from_path);
                let found = paths.find(|(_, path)| path.segments == ["metadata", member]);
                let label = found.map(|(label, _)| sanitised(label).into_owned());
                label.filter(|label| !extractor.may_set(label))
            });
            self.metrics.push(CompiledMetric {
                own,
                name,
                help: metric.help.clone(),
                path: extractor.block.path.to_string(),
                extractor,
                base,
                error_log_v,
            });
        }
        self.overflow = kind_labels(gvk).collect();
        self.overflow.insert(OVERFLOW.to_owned(), "true".to_owned());
        Ok(())
    }

    /// Groups metrics of the same name, so that they form one family.
    pub(super) fn join_families(&mut self) {
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        for (number, metric) in self.metrics.iter().enumerate() {
            first.entry(metric.name.clone()).or_insert(number);
        }
        self.metrics.sort_by_key(|metric| first.get(&metric.name).copied());
    }

    /// Computes the field mask.
    pub(super) fn finish(&mut self) {
        let mut mask = Mask::default();
        for member in ["uid", "resourceVersion", "name", "namespace"] {
            mask.select("metadata").select(member);
        }
        self.bases.iter().for_each(|base| base.sources.extend_mask(&mut mask));
        self.metrics.iter().for_each(|metric| metric.extractor.extend_mask(&mut mask));
        mask.settle();
        self.mask = mask;
    }
}

impl CompiledMetric {
    /// True if it counts objects instead of having a series for each.
    pub(super) fn is_count(&self) -> bool {
        self.extractor.kind == MetricType::Count
    }

    pub(super) fn family(&self) -> Family {
        let kind = match self.extractor.kind {
            MetricType::Gauge | MetricType::Count => MetricKind::Gauge,
            MetricType::Info => MetricKind::Info,
            MetricType::StateSet => MetricKind::StateSet,
        };
        Family { name: self.name.clone(), help: self.help.clone(), kind }
    }
}

/// The label of items counted beyond the limit of label sets, as in OpenTelemetry.
const OVERFLOW: &str = "otel_metric_overflow";

fn kind_labels(gvk: [&str; 3]) -> impl Iterator<Item = (String, String)> {
    let label = |(name, value): (&str, &str)| (format!("customresource_{name}"), value.to_owned());
    ["group", "version", "kind"].into_iter().zip(gvk).map(label)
}

fn base(
    entry: &Entry,
    metric: &Metric,
    extractor: &Extractor,
    gvk: [&str; 3],
) -> Result<BaseLabels, String> {
    let mut texts = entry.common_labels.clone();
    texts.extend(kind_labels(gvk));
    texts.extend(metric.common_labels.clone());
    // Labels of the entry mostly identify the object: counting by them would give every object a series again.
    let mut paths = if extractor.kind == MetricType::Count {
        LabelPaths::new()
    } else {
        entry.labels_from_path.clone()
    };
    paths.extend(metric.labels_from_path.clone());
    let mut defaults = entry.label_defaults.clone();
    defaults.extend(metric.label_defaults.clone());
    Ok(BaseLabels { texts, sources: Sources::compile(&paths, &defaults)? })
}
