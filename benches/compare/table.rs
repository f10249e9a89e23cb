//! The tables that come out.

use std::fmt::Write as _;

/// A row: what, what the peer and the limit need, what we need, and whether that is the goal.
pub struct Row {
    /// What is measured.
    pub what: String,
    /// Measured on the original.
    pub peer: String,
    /// Measured on the limit.
    pub limit: String,
    /// Measured on kstatd.
    pub ours: String,
    /// What is asked for and what came out, one for each part of the goal.
    pub goals: Vec<Goal>,
}

/// One part of a row's goal.
pub struct Goal {
    /// The goal in words.
    pub text: String,
    /// What came out, in the unit of `at_most`.
    pub value: f64,
    /// The goal.
    pub at_most: f64,
}

impl Goal {
    /// At most `factor` times `of`, which is named `what`.
    pub fn times(what: &str, value: f64, factor: f64, of: f64) -> Self {
        let text = if factor < 0.5 {
            format!("≤ 1/{:.0} of {what}", 1.0 / factor)
        } else {
            format!("≤ {factor} × {what}")
        };
        Self { text, value: value / of, at_most: factor }
    }

    /// At most `at_most`.
    pub fn at_most(text: &str, value: f64, at_most: f64) -> Self {
        Self { text: text.to_owned(), value, at_most }
    }

    fn met(&self) -> bool {
        // Not a number (nothing to compare with) is not met.
        self.value <= self.at_most
    }

    fn came_out(&self) -> String {
        if self.at_most < 0.5 && self.value > 0.0 {
            format!("1/{:.1}", 1.0 / self.value)
        } else {
            format!("{:.2}", self.value)
        }
    }
}

/// The table of goals as Markdown.
pub fn goals(rows: &[Row]) -> String {
    let mut out = String::from(
        "| What | kube-state-metrics 2.20 / statsd_exporter 0.31 | Limit | kstatd | Goal | Came out | Met |\n\
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
            join(Goal::came_out),
            join(|goal| if goal.met() { "met".to_owned() } else { "**not met**".to_owned() }),
        );
    }
    out
}

/// A plain table as Markdown.
pub fn plain(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}

/// Bytes in decimal megabytes, or smaller units.
pub fn bytes(value: f64) -> String {
    match value {
        1e9.. => format!("{:.2} GB", value / 1e9),
        1e7.. => format!("{:.0} MB", value / 1e6),
        1e5.. => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.1} kB", value / 1e3),
    }
}

/// Seconds in a fitting unit.
pub fn seconds(value: f64) -> String {
    match value {
        10.0.. => format!("{value:.0} s"),
        0.1.. => format!("{value:.2} s"),
        1e-3.. => format!("{:.1} ms", value * 1e3),
        1e-6.. => format!("{:.2} µs", value * 1e6),
        _ => format!("{:.0} ns", value * 1e9),
    }
}

/// A share in percent.
pub fn percent(value: f64) -> String {
    format!("{:.2}%", value * 100.0)
}

/// A count with thousands separated.
pub fn count(value: f64) -> String {
    indicatif::HumanCount(value as u64).to_string()
}
