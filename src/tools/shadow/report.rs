//! The result of a run, as text and as JSON.

use serde::Serialize;

use super::costs::{Cost, Plot};
use super::target::Commands;
use crate::status::words::{duration, printable};
use crate::tools::diff::{Explained, Report};

/// The verdict of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// No unexplained difference.
    Equal,
    Different,
    NotCompared,
}

/// Something that happened during the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    /// Seconds from the start of the comparison.
    pub seconds: u64,
    pub text: String,
}

/// The result of a run.
#[derive(Serialize)]
pub(crate) struct ShadowReport {
    pub(super) verdict: Verdict,
    /// The reason why there is no result.
    pub(super) reason: Option<String>,
    pub(super) version: &'static str,
    pub(super) program: &'static str,
    pub(super) comparisons: u32,
    pub(super) seconds: f64,
    pub(super) differences: Report,
    pub(super) events: Vec<Event>,
    pub(super) costs: Vec<Cost>,
    #[serde(skip)]
    pub(super) plots: Vec<Plot>,
    pub(super) commands: Commands,
}

impl ShadowReport {
    /// Returns whether both sides are equal; `None` if they could not be compared.
    pub(crate) fn is_equal(&self) -> Option<bool> {
        match self.verdict {
            Verdict::Equal => Some(true),
            Verdict::Different => Some(false),
            Verdict::NotCompared => None,
        }
    }

    /// Returns the verdict as a sentence.
    pub(super) fn sentence(&self) -> String {
        let compared = format!("{} comparisons in {}", self.comparisons, duration(self.seconds));
        match (self.verdict, self.differences.differing_families) {
            (Verdict::Equal, _) => format!("equal: no undocumented difference in {compared}"),
            (Verdict::Different, 1) => format!("1 family differs in {compared}"),
            (Verdict::Different, some) => format!("{some} families differ in {compared}"),
            (Verdict::NotCompared, _) => {
                let reason = self.reason.as_deref().unwrap_or_default();
                format!("could not compare: {reason}")
            }
        }
    }

    /// Formats the report as one line of JSON.
    pub(crate) fn json(&self) -> String {
        // Serialising strings and numbers cannot fail.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Formats the report for a terminal.
    pub(crate) fn text(&self) -> String {
        let mut out = self.differences.text(Explained::Some, true);
        let mut put = |line: &str| {
            out.extend(line.split('\n').flat_map(|line| [printable(line), "\n".into()]));
        };
        if !self.events.is_empty() {
            put("\nEvents");
        }
        for Event { seconds, text } in &self.events {
            put(&format!("  after {}: {text}", duration(*seconds as f64)));
        }
        put(&format!("\n{:<30}{:>16}{:>16}", "Costs", "original", "kstatd"));
        for cost in &self.costs {
            let [original, kstatd] = cost.shown();
            put(&format!("  {:<28}{original:>16}{kstatd:>16}", cost.name));
        }
        for (title, commands) in
            [("Swap", &self.commands.swap), ("Roll back", &self.commands.roll_back)]
        {
            put(&format!("\n{title}"));
            put(&format!("  {}", commands.join("\n  or\n  ")));
        }
        put(&format!("\nVerdict: {}", self.sentence()));
        out
    }
}
