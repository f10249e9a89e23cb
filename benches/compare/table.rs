//! The result tables.

use std::fmt::Write as _;

/// A row: the load, the results of the original, the limit and kstatd, and the goals.
pub struct Row {
    /// The measured load.
    pub what: String,
    /// Result of the original.
    pub peer: String,
    /// Result of the limit program.
    pub limit: String,
    /// Result of kstatd.
    pub ours: String,
    /// The goals with their results.
    pub goals: Vec<Goal>,
}

/// One part of a row's goal.
pub struct Goal {
    /// The goal as text.
    pub text: String,
    /// The result, in the unit of `at_most`.
    pub value: f64,
    /// The upper bound.
    pub at_most: f64,
}

impl Goal {
    /// Defines a goal of at most `factor` times `of`, which is named `what`.
    pub fn times(what: &str, value: f64, factor: f64, of: f64) -> Self {
        let text = if factor < 0.5 {
            format!("≤ 1/{:.0} of {what}", 1.0 / factor)
        } else {
            format!("≤ {factor} × {what}")
        };
        Self { text, value: value / of, at_most: factor }
    }

    /// Defines a goal with an absolute upper bound.
    pub fn at_most(text: &str, value: f64, at_most: f64) -> Self {
        Self { text: text.to_owned(), value, at_most }
    }

    fn met(&self) -> bool {
        // NaN (nothing to compare with) does not meet the goal.
        self.value <= self.at_most
    }

    fn result(&self) -> String {
        if self.at_most < 0.5 && self.value > 0.0 {
            format!("1/{:.1}", 1.0 / self.value)
        } else {
            format!("{:.2}", self.value)
        }
    }
}

/// Formats the table of goals as Markdown.
pub fn goals(rows: &[Row]) -> String {
    let mut out = String::from(
        "| Load | kube-state-metrics 2.20 / statsd_exporter 0.31 | Limit | kstatd | Goal | Result | Met |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let join =
            |text: fn(&Goal) -> String| row.goals.iter().map(text).collect::<Vec<_>>().join("; ");
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.what,
            row.peer,
            row.limit,
            row.ours,
            join(|goal| goal.text.clone()),
            join(Goal::result),
            join(|goal| if goal.met() { "met".to_owned() } else { "**not met**".to_owned() }),
        );
    }
    out
}

/// Formats a plain table as Markdown.
pub fn plain(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}

/// Formats bytes in decimal megabytes or smaller units.
pub fn bytes(value: f64) -> String {
    match value {
        1e9.. => format!("{:.2} GB", value / 1e9),
        1e7.. => format!("{:.0} MB", value / 1e6),
        1e5.. => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.1} kB", value / 1e3),
    }
}

/// Formats seconds in a suitable unit.
pub fn seconds(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.0} s"),
        0.1.. => format!("{value:.2} s"),
        1e-3.. => format!("{:.1} ms", value * 1e3),
        1e-6.. => format!("{:.2} µs", value * 1e6),
        _ => format!("{:.0} ns", value * 1e9),
    }
}

/// Formats a fraction as a percentage.
pub fn percent(value: f64) -> String {
    format!("{:.2}%", value * 100.0)
}

/// Formats a count with thousands separators.
pub fn count(value: f64) -> String {
    indicatif::HumanCount(value as u64).to_string()
}
