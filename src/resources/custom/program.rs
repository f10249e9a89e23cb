//! An entry, compiled for one kind: families, what their labels begin with, and what of an object they read.

use std::collections::BTreeMap;

use crate::cache::{Family, MetricKind};

use super::config::{Entry, LabelPaths, LabelTexts, Metric};
use super::label::{Sources, sanitised};
use super::mask::Mask;
use super::metric::{Each, Kind, lookup};
use super::path::Path;

/// Why an entry cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: metric {metric}: {reason}")]
pub struct CompileError {
    /// The metric's name.
    pub metric: String,
    /// What is wrong with it.
    pub reason: String,
    /// Line in the file, from 1.
    pub line: u64,
    /// Column in the line, from 1.
    pub column: u64,
}

/// Why a Count is refused whose name another metric of the kind has: its series are of all objects together.
pub(super) const COUNT_ALONE: &str = "a Count needs a name that no other metric of the kind has";

impl CompileError {
    /// About a metric.
    pub(super) fn of(metric: &Metric, reason: String) -> Self {
        let place = metric.spots[0].0;
        let (line, column) = (place.line, place.column);
        Self { metric: metric.name.clone(), reason, line, column }
    }
}

/// The labels that several metrics may have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Base {
    pub(super) texts: LabelTexts,
    pub(super) sources: Sources,
}

/// A metric, compiled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Compiled {
    pub(super) name: String,
    help: String,
    /// Its path, as errors name it.
    pub(super) path: String,
    pub(super) each: Each,
    /// Which of the bases it has.
    pub(super) base: usize,
    /// The verbosity from which on its value errors are logged.
    pub(super) error_log_v: i32,
    /// The labels that say an object's namespace, name and uid.
    pub(super) own: [Option<String>; 3],
}

/// Everything that is made of the objects of a kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    pub(super) metrics: Vec<Compiled>,
    has_count: bool,
    /// The labels of what is counted beyond the bound of label sets.
    pub(super) overflow: LabelTexts,
    pub(super) bases: Vec<Base>,
    pub(super) mask: Mask,
}

impl Program {
    /// Adds the metrics of an entry, for the kind `[group, version, kind]`. To be [finished](Program::finish).
    ///
    /// # Errors
    /// The first metric that cannot be compiled.
    pub(super) fn add(&mut self, entry: &Entry, gvk: [&str; 3]) -> Result<(), CompileError> {
        for metric in &entry.metrics {
            let error = |reason: String| CompileError::of(metric, reason);
            let each = Each::compile(metric).map_err(error)?;
            let name = entry.family_name(metric);
            let is_count = each.kind() == Kind::Count;
            self.has_count |= is_count;
            let mut others = self.metrics.iter().filter(|other| other.name == name);
            if self.has_count && others.any(|other| is_count || other.each.kind() == Kind::Count) {
                return Err(error(COUNT_ALONE.to_owned()));
            }
            let base = base(entry, metric, &each, gvk).map_err(error)?;
            let base = match self.bases.iter().position(|own| *own == base) {
                Some(at) => at,
                None => {
                    self.bases.push(base);
                    self.bases.len() - 1
                }
            };
            let block = each.kind().block(metric);
            let error_log_v =
                if metric.error_log_v == 0 { entry.error_log_v } else { metric.error_log_v };
            let own = ["namespace", "name", "uid"].map(|member| {
                let mut paths = metric.labels_from_path.iter().chain(&entry.labels_from_path);
                let found = paths.find(|(_, path)| path.segments == ["metadata", member]);
                let label = found.map(|(label, _)| sanitised(label).into_owned());
                label.filter(|label| !each.may_set(label))
            });
            self.metrics.push(Compiled {
                own,
                name,
                help: metric.help.clone(),
                path: block.map(|block| block.path.to_string()).unwrap_or_default(),
                each,
                base,
                error_log_v,
            });
        }
        self.overflow = kind_labels(gvk).collect();
        self.overflow.insert(OVERFLOW.to_owned(), "true".to_owned());
        Ok(())
    }

    /// Puts metrics of one name side by side, so that there is one family of it.
    pub(super) fn join_families(&mut self) {
        let mut first: BTreeMap<String, usize> = BTreeMap::new();
        for (number, metric) in self.metrics.iter().enumerate() {
            first.entry(metric.name.clone()).or_insert(number);
        }
        self.metrics.sort_by_key(|metric| first.get(&metric.name).copied());
    }

    /// Works out what has to be read of an object.
    pub(super) fn finish(&mut self) {
        let mut mask = Mask::default();
        let metadata = ["uid", "resourceVersion", "name", "namespace"];
        let paths = metadata.map(|member| vec!["metadata".to_owned(), member.to_owned()]);
        for path in paths.iter().filter_map(|path| Path::compile(path).ok()) {
            mask.follow(&path, &|_| {});
        }
        self.bases.iter().for_each(|base| base.sources.ask(&mut mask));
        self.metrics.iter().for_each(|metric| metric.each.ask(&mut mask));
        mask.settle();
        self.mask = mask;
    }
}

impl Compiled {
    /// Whether it counts objects instead of giving each a series.
    pub(super) fn is_count(&self) -> bool {
        self.each.kind() == Kind::Count
    }

    pub(super) fn family(&self) -> Family {
        let kind = match self.each.kind() {
            Kind::Gauge | Kind::Count => MetricKind::Gauge,
            Kind::Info => MetricKind::Info,
            Kind::StateSet => MetricKind::StateSet,
        };
        Family { name: self.name.clone(), help: self.help.clone(), kind }
    }
}

/// The label of what is counted beyond the bound of label sets, as OpenTelemetry names it.
const OVERFLOW: &str = "otel_metric_overflow";

fn kind_labels(gvk: [&str; 3]) -> impl Iterator<Item = (String, String)> {
    let label = |(name, value): (&str, &str)| (format!("customresource_{name}"), value.to_owned());
    ["group", "version", "kind"].into_iter().zip(gvk).map(label)
}

fn base(entry: &Entry, metric: &Metric, each: &Each, gvk: [&str; 3]) -> Result<Base, String> {
    let mut texts = entry.common_labels.clone();
    texts.extend(kind_labels(gvk));
    let own = |texts: &LabelTexts| {
        texts.iter().map(|(name, text)| (name.clone(), text.clone())).collect::<Vec<_>>()
    };
    texts.extend(own(&metric.common_labels));
    // What all metrics have is mostly a name: counted with it, every object would have a series again.
    let mut paths =
        if each.kind() == Kind::Count { LabelPaths::new() } else { entry.labels_from_path.clone() };
    paths.extend(metric.labels_from_path.iter().map(|(name, path)| (name.clone(), path.clone())));
    let mut defaults = entry.label_defaults.clone();
    defaults.extend(own(&metric.label_defaults));
    let sources = Sources::compile(&paths, &defaults)
        .map_err(|(label, bad)| format!("labelsFromPath: {label}: {}", lookup(&bad)))?;
    Ok(Base { texts, sources })
}
