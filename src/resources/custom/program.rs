//! An entry, compiled for one kind: families, what their labels begin with, and what of an object they read.

use crate::cache::{Family, MetricKind};

use super::config::{Entry, LabelTexts, Metric};
use super::label::Sources;
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
}

/// Everything that is made of the objects of a kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    pub(super) metrics: Vec<Compiled>,
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
            let error = |reason: String| CompileError {
                metric: metric.name.clone(),
                reason,
                line: metric.spots[0].0.line,
                column: metric.spots[0].0.column,
            };
            let base = base(entry, metric, gvk).map_err(error)?;
            let base = match self.bases.iter().position(|own| *own == base) {
                Some(at) => at,
                None => {
                    self.bases.push(base);
                    self.bases.len() - 1
                }
            };
            let each = Each::compile(metric).map_err(error)?;
            let block = each.kind().block(metric);
            let error_log_v =
                if metric.error_log_v == 0 { entry.error_log_v } else { metric.error_log_v };
            self.metrics.push(Compiled {
                name: entry.family_name(metric),
                help: metric.help.clone(),
                path: block.map(|block| block.path.to_string()).unwrap_or_default(),
                each,
                base,
                error_log_v,
            });
        }
        Ok(())
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
    pub(super) fn family(&self) -> Family {
        let kind = match self.each.kind() {
            Kind::Gauge => MetricKind::Gauge,
            Kind::Info => MetricKind::Info,
            Kind::StateSet => MetricKind::StateSet,
        };
        Family { name: self.name.clone(), help: self.help.clone(), kind }
    }
}

fn base(entry: &Entry, metric: &Metric, gvk: [&str; 3]) -> Result<Base, String> {
    let mut texts = entry.common_labels.clone();
    for (name, value) in ["group", "version", "kind"].iter().zip(gvk) {
        texts.insert(format!("customresource_{name}"), value.to_owned());
    }
    let own = |texts: &LabelTexts| {
        texts.iter().map(|(name, text)| (name.clone(), text.clone())).collect::<Vec<_>>()
    };
    texts.extend(own(&metric.common_labels));
    let mut paths = entry.labels_from_path.clone();
    paths.extend(metric.labels_from_path.iter().map(|(name, path)| (name.clone(), path.clone())));
    let mut defaults = entry.label_defaults.clone();
    defaults.extend(own(&metric.label_defaults));
    let sources = Sources::compile(&paths, &defaults)
        .map_err(|(label, bad)| format!("labelsFromPath: {label}: {}", lookup(&bad)))?;
    Ok(Base { texts, sources })
}
