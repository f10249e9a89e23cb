//! The result of a run, as text and as JSON.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::costs::{Cost, Plot};
use super::target::Commands;
use crate::status::words::{duration, printable};
use crate::telemetry::VERSION;
use crate::tools::diff::{Explained, Report};

/// The verdict of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No unexplained difference.
    Equal,
    Different,
    /// The reason why there is no result.
    NotCompared(String),
}

/// Something that happened during the run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    /// Seconds from the start of the comparison.
    pub seconds: u64,
    pub text: String,
}

/// The result of a run.
pub(crate) struct ShadowReport {
    pub(super) program: &'static str,
    pub(super) verdict: Verdict,
    pub(super) comparisons: u32,
    pub(super) seconds: f64,
    pub(super) differences: Report,
    pub(super) events: Vec<Event>,
    pub(super) costs: Vec<Cost>,
    pub(super) plots: Vec<Plot>,
    pub(super) commands: Commands,
}

impl Serialize for ShadowReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (verdict, reason) = match &self.verdict {
            Verdict::Equal => ("equal", None),
            Verdict::Different => ("different", None),
            Verdict::NotCompared(reason) => ("not_compared", Some(reason)),
        };
        let mut out = serializer.serialize_struct("ShadowReport", 10)?;
        out.serialize_field("verdict", verdict)?;
        out.serialize_field("reason", &reason)?;
        out.serialize_field("version", VERSION)?;
        out.serialize_field("program", self.program)?;
        out.serialize_field("comparisons", &self.comparisons)?;
        out.serialize_field("seconds", &self.seconds)?;
        out.serialize_field("differences", &self.differences)?;
        out.serialize_field("events", &self.events)?;
        out.serialize_field("costs", &self.costs)?;
        out.serialize_field("commands", &self.commands)?;
        out.end()
    }
}

impl ShadowReport {
    /// Returns whether both sides are equal; `None` if they could not be compared.
    pub(crate) fn is_equal(&self) -> Option<bool> {
        match self.verdict {
            Verdict::Equal => Some(true),
            Verdict::Different => Some(false),
            Verdict::NotCompared(_) => None,
        }
    }

    /// Returns the verdict as a sentence.
    pub(super) fn sentence(&self) -> String {
        let compared = format!("{} comparisons in {}", self.comparisons, duration(self.seconds));
        match (&self.verdict, self.differences.differing_families) {
            (Verdict::Equal, _) => format!("equal: no undocumented difference in {compared}"),
            (Verdict::Different, 1) => format!("1 family differs in {compared}"),
            (Verdict::Different, some) => format!("{some} families differ in {compared}"),
            (Verdict::NotCompared(reason), _) => format!("could not compare: {reason}"),
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
            commands.iter().for_each(|command| put(&format!("  {command}")));
        }
        put(&format!("\nVerdict: {}", self.sentence()));
        out
    }
}
