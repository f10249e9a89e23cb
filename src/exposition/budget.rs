//! How much of everything there may be, whoever asks for it.

/// What happens beyond a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BudgetMode {
    /// Nothing: there are no budgets.
    #[default]
    Off,
    /// It is counted, and nothing else happens.
    Track,
    /// What sums up is folded, what does not is refused.
    Enforce,
}

impl BudgetMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Off, Self::Track, Self::Enforce];

    /// The word of the flag.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Track => "track",
            Self::Enforce => "enforce",
        }
    }
}

/// One of the budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Limit {
    /// All series.
    Series,
    /// Series of one metric.
    SeriesPerMetric,
    /// Series of all objects of one kind.
    SeriesPerKind,
    /// Values of one label.
    ValuesPerLabel,
    /// Bytes of a label value.
    ValueBytes,
    /// Bytes of a name.
    NameBytes,
    /// Memory.
    Memory,
}

impl Limit {
    /// The word of the flag.
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

/// What became of something beyond a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Action {
    /// It was counted with others.
    Folded,
    /// It was not taken.
    Refused,
    /// It was taken all the same, as budgets are only tracked.
    Tracked,
}

impl Action {
    /// A label value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Folded => "folded",
            Self::Refused => "refused",
            Self::Tracked => "tracked",
        }
    }
}

/// All budgets. 0 is no limit.
///
/// Series are counted as a scrape shows them: a histogram or summary has one for each of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What happens beyond them.
    pub mode: BudgetMode,
    /// Series in all, with the places that are kept for folding.
    pub series: u64,
    /// Series of one metric.
    pub series_per_metric: u64,
    /// Series of all objects of one kind.
    pub series_per_kind: u64,
    /// Different values of one label of one metric, the fold value aside.
    pub values_per_label: u64,
    /// Bytes of a label value.
    pub value_bytes: u64,
    /// Bytes of a metric or label name.
    pub name_bytes: u64,
    /// Bytes that all series come to by the account of the registry.
    pub memory: u64,
    /// What stands for values beyond the budget of a label.
    pub fold_value: String,
}

impl Default for Budget {
    /// No limits.
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

/// What a mapping rule says instead of the budget for everything. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleBudget {
    /// Series of the metric.
    pub series: Option<u64>,
    /// Different values of one label of it.
    pub values_per_label: Option<u64>,
    /// Bytes of a label value of it.
    pub value_bytes: Option<u64>,
}
