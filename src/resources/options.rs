//! What flags for labels and metrics come to for one resource.

use std::sync::Arc;

use super::select::filter::FamilyFilter;
use super::select::selection::Selection;
use crate::exposition::normalise::Normaliser;

/// How objects are rendered: what the flags for labels and metrics come to for one resource.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Which object labels appear in the `_labels` family.
    pub labels: Selection,
    /// Which annotations appear in the `_annotations` family.
    pub annotations: Selection,
    /// What becomes of the values of both, by the object's own keys.
    pub normalise: Arc<Normaliser>,
    /// Which families there are.
    pub families: Arc<FamilyFilter>,
    /// Print a series as often as the object gives rise to it (`--compat.duplicate-series`), as
    /// kube-state-metrics does; otherwise only its first line is kept.
    pub keep_duplicates: bool,
}
