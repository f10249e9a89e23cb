//! In what two expositions can differ.

use serde::Serialize;

/// One of the two expositions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The one that is there.
    A,
    /// The one that takes its place.
    B,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::A, Self::B];

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// In what a family differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Series that A alone has.
    OnlyInA,
    /// Series that B alone has.
    OnlyInB,
    /// Values that are not the same.
    Value,
    /// Counters that did not grow alike.
    Increase,
    /// Names of labels that one side alone has.
    Labels,
    /// Series that come more than once.
    Repeated,
    /// The type.
    Type,
    /// What HELP says of stability and deprecation.
    Stability,
    /// The rest of HELP.
    Help,
    /// The name under which the family is announced.
    Name,
    /// How bounds of buckets and quantiles are written.
    Bounds,
}

impl What {
    /// As the table in `docs/compatibility.md` and the report name it.
    pub(super) fn text(self) -> &'static str {
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
