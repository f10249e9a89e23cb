//! What would become of a label set, as a value.

use super::rejection::Rejection;
use crate::exposition::budget::{Action, Limit};

/// What would become of a label set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    /// Where it lands.
    pub(crate) landing: Result<Landing, Rejection>,
    /// The budgets that it goes beyond.
    pub(crate) beyond: Vec<Beyond>,
    /// How far the budgets are used that it is held against.
    pub(crate) used: Vec<Used>,
}

/// The series in which a label set lands, by its rendered labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Landing {
    /// One that is there.
    There(Vec<u8>),
    /// One that is there, in which it was folded before; without labels where that has just gone.
    FoldedBefore(Option<Vec<u8>>),
    /// A new one.
    New(Vec<u8>),
}

/// How much of a budget is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) limit: Limit,
    /// The label that it is about, or nothing.
    pub(crate) label: String,
    pub(crate) used: u64,
    pub(crate) most: u64,
}

/// Something of a label set that goes beyond a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// Empty where it is not about one label.
    pub(crate) label: String,
    pub(crate) limit: Limit,
    pub(crate) action: Action,
}
