//! Rendering options of one resource, from the flags for labels and metrics.

use std::sync::Arc;

use super::select::filter::FamilyFilter;
use super::select::selection::Selection;
use crate::exposition::normalise::Normaliser;

/// The rendering options of one resource.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// The object labels to expose in the `_labels` family.
    pub labels: Selection,
    /// The annotations to expose in the `_annotations` family.
    pub annotations: Selection,
    /// Normalisation of label and annotation values, by the object's own keys.
    pub normalise: Arc<Normaliser>,
    /// The families to expose.
    pub families: Arc<FamilyFilter>,
    /// Print duplicate series (`--compat.duplicate-series`), as kube-state-metrics does; otherwise only the first is
    /// kept.
    pub keep_duplicates: bool,
    /// Omit the samples that are 0 of families with one sample per state.
    pub skip_zero_states: bool,
}
