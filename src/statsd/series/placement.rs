//! The predicted or actual result of resolving a label set.

use super::rejection::Rejection;
use crate::exposition::budget::{Action, Limit};
use crate::status::explanation::Used;

/// The predicted result for a label set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    /// The series, or the reason why there is none.
    pub(crate) placement: Result<Placement, Rejection>,
    /// The budgets that the label set exceeds.
    pub(crate) exceeded: Vec<ExceededBudget>,
    /// The usage of the budgets that apply.
    pub(crate) usage: Vec<Used>,
    /// True if no exposition has the metric, because its name is used by another one.
    pub(crate) is_hidden: bool,
}

/// The reason why a label set gets no series.
#[derive(Debug)]
pub(crate) struct RejectedSeries {
    pub(crate) rejection: Rejection,
    /// The budgets that the label set exceeds.
    pub(crate) exceeded: Vec<ExceededBudget>,
}

impl From<Rejection> for RejectedSeries {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, exceeded: Vec::new() }
    }
}

/// The series that a label set updates, with its rendered labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// An existing series.
    Existing(Vec<u8>),
    /// An existing series into which the label set was folded before; without labels if it has just expired.
    Folded(Option<Vec<u8>>),
    /// A new series.
    New(Vec<u8>),
}

/// A budget that a label set exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExceededBudget {
    /// The label; empty if the budget is not for a single label.
    pub(crate) label: String,
    pub(crate) limit: Limit,
    pub(crate) action: Action,
}
