//! The kinds of difference between two expositions.

use crate::util::words::words;
use serde::Serialize;

/// One of the two expositions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The baseline.
    A,
    /// The candidate.
    B,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

words! {
    /// A kind of difference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum DifferenceKind {
        /// Series only in A.
        OnlyInA = "only in A",
        /// Series only in B.
        OnlyInB = "only in B",
        /// Different values.
        Value = "value",
        /// Counters with different increases.
        Increase = "increase",
        /// Label names only on one side.
        Labels = "labels",
        /// Duplicate series.
        Repeated = "repeated",
        /// The type.
        Type = "type",
        /// The stability and deprecation markers of HELP.
        Stability = "stability",
        /// The rest of HELP.
        Help = "help",
        /// The announced family name.
        Name = "name",
        /// The notation of bucket bounds and quantiles.
        Bounds = "bounds",
    }
}
