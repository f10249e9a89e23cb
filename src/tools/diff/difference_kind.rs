//! The kinds of difference between two expositions.

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

/// A kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Series only in A.
    OnlyInA,
    /// Series only in B.
    OnlyInB,
    /// Different values.
    Value,
    /// Counters with different increases.
    Increase,
    /// Label names only on one side.
    Labels,
    /// Duplicate series.
    Repeated,
    /// The type.
    Type,
    /// The stability and deprecation markers of HELP.
    Stability,
    /// The rest of HELP.
    Help,
    /// The announced family name.
    Name,
    /// The notation of bucket bounds and quantiles.
    Bounds,
}

impl DifferenceKind {
    /// Returns the name used in the table of `docs/compatibility.md` and in the report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::OnlyInA => "only in A",
            Self::OnlyInB => "only in B",
            Self::Value => "value",
            Self::Increase => "increase",
            Self::Labels => "labels",
            Self::Repeated => "repeated",
            Self::Type => "type",
            Self::Stability => "stability",
            Self::Help => "help",
            Self::Name => "name",
            Self::Bounds => "bounds",
        }
    }
}
