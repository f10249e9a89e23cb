//! Labels of a pod and of its workload on every series of the pod (`--pod-workload-labels`).

use std::hash::BuildHasher;
use std::sync::Arc;

use super::families::RESOURCE;
use super::objects::Workload;
use super::senders::LabelledObject;
use crate::exposition::budget::{Action, Budget, BudgetMode, Limit};
use crate::exposition::normalise::Normaliser;
use crate::exposition::value_counts::ValueCounts;
use crate::exposition::{escape, labels};
use crate::resources::select::selection::Selection;
use crate::resources::values::label_name;
use crate::resources::{DecodeError, ObjectBytes};
use crate::telemetry::KubeMetrics;
use crate::wire::view::decode;

/// The labels of pods and workloads that the flag selects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodLabels {
    /// True for the name of the workload, as `workload`.
    pub workload: bool,
    /// True for its kind in lower case, as `workload_type`.
    pub workload_type: bool,
    /// The labels of its object, as `workload_label_*`.
    pub of_workload: Selection,
    /// The labels of the pod itself, as `pod_label_*`.
    pub of_pod: Selection,
    /// The steps that change values.
    pub normalise: Arc<Normaliser>,
}

/// The reason why a flag's value selects no labels; each has the column, in bytes from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PodLabelsError {
    /// A list of labels does not end.
    #[error("column {0}: the list of labels needs a ]")]
    Unclosed(usize),
    /// A list has something else than keys.
    #[error("column {0}: each label is a key with at most one *")]
    Key(usize),
    /// An item is unknown.
    #[error(
        "column {0}: {1:?} must be workload, workload_type, labels=[KEY,KEY] or pod_labels=[KEY,KEY]"
    )]
    Item(usize, String),
    /// There is something else between two items.
    #[error("column {0}: a comma must follow ]")]
    Comma(usize),
}

impl PodLabels {
    /// Parses a flag's value: `workload`, `workload_type`, `labels=[key,key]` and `pod_labels=[key,key]`, separated by commas,
    /// in any order.
    ///
    /// # Errors
    /// An item has another form.
    pub fn parse(text: &str) -> Result<Self, PodLabelsError> {
        let mut parsed = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let column = |rest: &str| text.len() - rest.len() + 1;
            let at = column(rest);
            let end = match rest.find([',', '[']) {
                Some(at) if rest[at..].starts_with('[') => rest.find(']').map(|at| at + 1),
                end => end.or(Some(rest.len())),
            };
            let end = end.ok_or(PodLabelsError::Unclosed(at))?;
            let (item, after) = rest.split_at(end);
            let list = |list: &str| {
                let mut keys: Vec<_> = list.split(',').map(|key| key.trim().to_owned()).collect();
                if keys.iter().any(|key| key.is_empty() || key.matches('*').count() > 1) {
                    return Err(PodLabelsError::Key(at));
                }
                // A lone * is the first key.
                keys.sort_by_key(|key| key != "*");
                Ok(Selection::new(&keys))
            };
            let list_of = |name| item.strip_prefix(name)?.strip_suffix(']').map(list);
            match item.trim_end() {
                "workload" => parsed.workload = true,
                "workload_type" => parsed.workload_type = true,
                item => match (list_of("labels=["), list_of("pod_labels=[")) {
                    (Some(keys), _) => parsed.of_workload = keys?,
                    (None, Some(keys)) => parsed.of_pod = keys?,
                    (None, None) => {
                        return Err(PodLabelsError::Item(at, item.to_owned()));
                    }
                },
            }
            let after = after.trim_start();
            if !after.is_empty() && !after.starts_with(',') {
                return Err(PodLabelsError::Comma(column(after)));
            }
            rest = after.trim_start_matches(',').trim_start();
        }
        Ok(parsed)
    }

    /// Returns whether nothing is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.of_pod.is_empty() && !self.names_workload()
    }

    /// Returns whether labels of workloads are selected.
    pub(super) fn names_workload(&self) -> bool {
        self.workload || self.workload_type || !self.of_workload.is_empty()
    }

    /// Returns the selected labels of a workload's object, rendered.
    ///
    /// # Errors
    /// The object is malformed.
    pub(super) fn of_workload(&self, object: ObjectBytes<'_>) -> Result<Box<[u8]>, DecodeError> {
        self.select(&self.of_workload, "workload_label", object)
    }

    /// Returns the selected labels of a pod, rendered.
    ///
    /// # Errors
    /// The object is malformed.
    pub(super) fn of_pod(&self, object: ObjectBytes<'_>) -> Result<Box<[u8]>, DecodeError> {
        self.select(&self.of_pod, "pod_label", object)
    }

    fn select(
        &self,
        selection: &Selection,
        prefix: &str,
        object: ObjectBytes<'_>,
    ) -> Result<Box<[u8]>, DecodeError> {
        if selection.is_empty() {
            return Ok(Box::default());
        }
        let labels = decode::<LabelledObject<'_>>(object)?.metadata.labels;
        let entries = labels.entries();
        let selected = entries.iter().filter(|(key, _)| selection.matches(key));
        let values: Vec<_> =
            selected.map(|(key, value)| (&**key, self.normalise.value(key, value))).collect();
        let pairs = values.iter().map(|(key, value)| (*key, &**value));
        let pairs = pairs.filter(|(key, value)| !value.is_empty() || !self.normalise.changes(key));
        let mut out = Vec::new();
        label_name::write_labels(&mut out, prefix, pairs);
        Ok(out.strip_prefix(b",").unwrap_or_default().into())
    }

    /// Writes the labels of a pod after its identity labels: `own`, then those of its workload with its rendered labels.
    pub(super) fn write(
        &self,
        own: &[u8],
        workload: Option<(&Workload, &[u8])>,
        out: &mut Vec<u8>,
    ) {
        push(out, own);
        let Some((workload, labels)) = workload else { return };
        for (is_selected, name, value) in [
            (self.workload, "workload", &*workload.id.name),
            (self.workload_type, "workload_type", &*workload.id.kind),
        ] {
            if is_selected {
                push(out, &labels::rendered(&[(name, value)]));
            }
        }
        push(out, labels);
    }
}

/// Appends rendered labels to others.
pub(super) fn push(out: &mut Vec<u8>, labels: &[u8]) {
    if !labels.is_empty() {
        out.push(b',');
        out.extend_from_slice(labels);
    }
}

/// The values of each selected label over all objects, which a budget bounds.
pub(super) struct LabelValues {
    counts: ValueCounts,
    budget: Arc<Budget>,
    /// The escaped replacement of folded values.
    fold: Vec<u8>,
    metrics: KubeMetrics,
    hasher: foldhash::quality::RandomState,
}

impl LabelValues {
    pub(super) fn new(budget: &Arc<Budget>, metrics: &KubeMetrics) -> Self {
        let mut fold = Vec::new();
        escape::label_value(&mut fold, &budget.fold_value);
        Self {
            counts: ValueCounts::default(),
            budget: Arc::clone(budget),
            fold,
            metrics: metrics.clone(),
            hasher: foldhash::quality::RandomState::default(),
        }
    }

    /// Replaces the `held` labels of an object, folding values over the budget; returns whether that changes them.
    pub(super) fn replace(&mut self, held: &mut Box<[u8]>, rendered: &[u8]) -> bool {
        for (name, value) in labels::iter(held).filter(|(_, value)| *value != self.fold) {
            let (label, pair) = self.hashes(name, value);
            self.counts.remove(label, pair);
        }
        let mut out = Vec::with_capacity(rendered.len());
        for (name, value) in labels::iter(rendered) {
            let (label, pair) = self.hashes(name, value);
            let is_kept = self.admit(name, value, (label, pair));
            if is_kept && value != self.fold {
                self.counts.add(label, pair);
            }
            labels::push_rendered(&mut out, name, if is_kept { value } else { &self.fold });
        }
        let is_changed = **held != *out;
        *held = out.into();
        is_changed
    }

    fn hashes(&self, name: &[u8], value: &[u8]) -> (u64, u64) {
        (self.hasher.hash_one(name), self.hasher.hash_one((name, value)))
    }

    /// Returns whether a value keeps its place, and counts it if it is over the budget.
    fn admit(&self, name: &[u8], value: &[u8], (label, pair): (u64, u64)) -> bool {
        let Budget { mode, values_per_label: many, value_bytes, .. } = *self.budget;
        let limit = if mode == BudgetMode::Off || value == self.fold {
            return true;
        } else if labels::is_long(value, value_bytes) {
            Limit::ValueBytes
        } else if many > 0 && self.counts.is_over_limit(label, pair, many) {
            Limit::ValuesPerLabel
        } else {
            return true;
        };
        let enforces = mode == BudgetMode::Enforce;
        let action = if enforces { Action::Folded } else { Action::Tracked };
        let name = String::from_utf8_lossy(name);
        self.metrics.over_budget([action.as_str(), &name, limit.as_str(), ""], RESOURCE, 1);
        !enforces
    }
}
