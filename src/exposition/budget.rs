//! Cardinality budgets of series, values and names.

/// The action of budgets once they are exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BudgetMode {
    /// Budgets are off.
    #[default]
    Off,
    /// Violations are only counted.
    Track,
    /// Series that can be aggregated are folded into one, others are rejected.
    Enforce,
}

impl BudgetMode {
    /// All modes, in the order of the flag's help.
    pub const ALL: [Self; 3] = [Self::Off, Self::Track, Self::Enforce];

    /// Returns the flag's value for the mode.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Track => "track",
            Self::Enforce => "enforce",
        }
    }
}

/// A kind of budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Limit {
    /// Total number of series.
    Series,
    /// Series of one metric.
    SeriesPerMetric,
    /// Series of all objects of one kind.
    SeriesPerKind,
    /// Values of one label.
    ValuesPerLabel,
    /// Length of a label value, in bytes.
    ValueBytes,
    /// Length of a name, in bytes.
    NameBytes,
    /// Memory of the registry, in bytes.
    Memory,
}

impl Limit {
    /// Returns the budget's name as flags and metrics have it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Series => "series",
            Self::SeriesPerMetric => "series-per-metric",
            Self::SeriesPerKind => "series-per-kind",
            Self::ValuesPerLabel => "values-per-label",
            Self::ValueBytes => "value-bytes",
            Self::NameBytes => "name-bytes",
            Self::Memory => "memory",
        }
    }
}

/// Returns how messages name a budget: by its flag, if it has one.
pub(crate) fn displayed(limit: &str) -> String {
    match limit {
        "value-bytes" | "name-bytes" => limit.to_owned(),
        limit => format!("--limit.{limit}"),
    }
}

/// The action taken on something over its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Action {
    /// Folded into the overflow series.
    Folded,
    /// Rejected.
    Refused,
    /// Accepted, as budgets are only tracked.
    Tracked,
}

impl Action {
    /// Returns the action as a label value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Refused => "refused",
            Self::Tracked => "tracked",
        }
    }
}

/// All budgets; 0 means no limit.
///
/// Series are counted as a scrape shows them: each line of a histogram or summary is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The action once a budget is exceeded.
    pub mode: BudgetMode,
    /// Total series, including the slots reserved for folding.
    pub series: u64,
    /// Series of one metric.
    pub series_per_metric: u64,
    /// Series of all objects of one kind.
    pub series_per_kind: u64,
    /// Distinct values of one label of one metric, without the fold value.
    pub values_per_label: u64,
    /// Bytes of a label value.
    pub value_bytes: u64,
    /// Bytes of a metric or label name.
    pub name_bytes: u64,
    /// Bytes of all series, as the registry accounts for them.
    pub memory: u64,
    /// The label value that replaces values over the budget of their label.
    pub fold_value: String,
}

impl Default for Budget {
    /// Returns budgets without limits.
    fn default() -> Self {
        Self {
            mode: BudgetMode::Off,
            series: 0,
            series_per_metric: 0,
            series_per_kind: 0,
            values_per_label: 0,
            value_bytes: 0,
            name_bytes: 0,
            memory: 0,
            fold_value: "other".to_owned(),
        }
    }
}

/// Budgets of one mapping rule, which override the global ones; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleBudget {
    /// Series of the metric.
    pub series: Option<u64>,
    /// Distinct values of one of its labels.
    pub values_per_label: Option<u64>,
    /// Bytes of one of its label values.
    pub value_bytes: Option<u64>,
}
