//! The bounds of memory, instructions, sizes and times in `tests/bounds.csv`, one line for each value that a bound has had.
#![allow(dead_code, reason = "every gate uses a part of it")]

use std::fmt::Write as _;

const HEAD: &str = "since;gate;bound;unit;value";
/// The first cell of values that no release has.
const UNRELEASED: &str = "unreleased";

/// A value of a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The release or the date and commit from which it applies.
    pub since: String,
    /// The kind of bound, such as `memory`.
    pub gate: String,
    pub bound: String,
    pub unit: String,
    pub value: f64,
}

/// The file.
pub struct Bounds(pub Vec<Value>);

impl Bounds {
    /// Parses the file.
    ///
    /// # Errors
    ///
    /// A line has not five cells, or its last one is no number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lines = text.strip_prefix(HEAD).ok_or("tests/bounds.csv has another head")?.trim();
        let values = lines.lines().map(|line| {
            let cells: Vec<&str> = line.split(';').collect();
            let [since, gate, bound, unit, value] = cells[..] else {
                return Err(format!("tests/bounds.csv: {line:?} has not five cells"));
            };
            let value =
                value.parse().map_err(|error| format!("tests/bounds.csv: {line:?}: {error}"))?;
            let [since, gate, bound, unit] = [since, gate, bound, unit].map(str::to_owned);
            Ok(Value { since, gate, bound, unit, value })
        });
        Ok(Self(values.collect::<Result<_, _>>()?))
    }

    /// Returns the value that applies: the last one.
    ///
    /// # Errors
    ///
    /// There is no such bound.
    pub fn current(&self, gate: &str, bound: &str) -> Result<f64, String> {
        let mut values = self.0.iter().rev();
        let value = values.find(|value| value.gate == gate && value.bound == bound);
        let value =
            value.ok_or_else(|| format!("tests/bounds.csv has no {gate} bound {bound:?}"))?;
        Ok(value.value)
    }

    /// Sets the value of the next release.
    pub fn set(&mut self, gate: &str, bound: &str, unit: &str, value: f64) {
        let is_same = |known: &&mut Value| known.gate == gate && known.bound == bound;
        match self.0.iter_mut().rev().find(is_same) {
            Some(known) if known.value == value => {}
            Some(known) if known.since == UNRELEASED => known.value = value,
            _ => {
                let [since, gate, bound, unit] = [UNRELEASED, gate, bound, unit].map(str::to_owned);
                self.0.push(Value { since, gate, bound, unit, value });
            }
        }
    }

    /// Returns the file with the current values.
    pub fn text(&self) -> String {
        let mut out = format!("{HEAD}\n");
        for Value { since, gate, bound, unit, value } in &self.0 {
            let _ = writeln!(out, "{since};{gate};{bound};{unit};{value}");
        }
        out
    }
}
