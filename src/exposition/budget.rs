//! Cardinality budgets of series, values and names.

use serde::{Deserialize, Serialize};

use crate::util::words::words;

words! {
    /// The action of budgets once they are exceeded.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum BudgetMode {
        /// Budgets have no effect.
        #[default]
        Off = "off",
        /// Violations are only counted.
        Track = "track",
        /// Series that can be aggregated are folded into one, others are rejected.
        Enforce = "enforce",
    }
}

words! {
    /// A kind of budget.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum Limit {
        /// Total number of series.
        Series = "series",
        /// Series of one metric.
        SeriesPerMetric = "series-per-metric",
        /// Series of all objects of one kind.
        SeriesPerKind = "series-per-kind",
        /// Values of one label.
        ValuesPerLabel = "values-per-label",
        /// Length of a label value, in bytes.
        ValueBytes = "value-bytes",
        /// Length of a name, in bytes.
        NameBytes = "name-bytes",
        /// Memory of the registry, in bytes.
        Memory = "memory",
    }
}

/// Returns how messages name a budget: by its flag, if it has one.
pub(crate) fn displayed(limit: &str) -> String {
    match limit {
        "value-bytes" | "name-bytes" => limit.to_owned(),
        limit => format!("--limit.{limit}"),
    }
}

words! {
    /// The action taken on something over its budget.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum Action {
        /// Folded into the overflow series.
        Folded = "folded",
        /// Rejected with a cause.
        Refused = "refused",
        /// Accepted, as budgets are only tracked.
        Tracked = "tracked",
    }
}

/// All budgets; 0 means no limit.
///
/// Series are counted as a scrape shows them: each line of a histogram or summary is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_a_budget_by_its_flag() {
        let names = [Limit::SeriesPerKind, Limit::ValueBytes, Limit::NameBytes];
        let shown = names.map(|limit| displayed(limit.as_str()));
        assert_eq!(shown, ["--limit.series-per-kind", "value-bytes", "name-bytes"]);
    }
}
