//! What becomes of a line, said for people and programs: the value, and its text.
//!
//! Whoever reads lines makes it. Nothing of it is a control character once it is text.

use serde::Serialize;

use super::words::count;
use super::writer::Writer;

/// What is said of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The line; what is not UTF-8 in it is replaced.
    pub(crate) line: String,
    /// Whether all of the line has an effect, or is dropped by a rule.
    pub accepted: bool,
    /// What it consists of, in its order.
    pub(crate) parts: Vec<Part>,
    /// Samples and refusals beyond those of `parts`.
    pub(crate) further: usize,
    /// The lines of the exposition, if it came alone; absent where a process says in what it lands.
    pub(crate) alone: Option<Vec<String>>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    Sample(Box<Sample>),
    Refused(Refusal),
}

/// Something that has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// A word of the ledger.
    pub(crate) reason: &'static str,
    /// What the word means.
    pub(crate) meaning: &'static str,
    pub(crate) times: u64,
}

/// Values of one type with one set of tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Sample {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// As they take effect.
    pub(crate) values: Vec<String>,
    /// Sorted by name.
    pub(crate) tags: Vec<Label>,
    /// The rules that were tried, in the order of the file; absent where they are those of a sample before.
    pub(crate) rules: Option<Vec<Tried>>,
    /// Rules that are further away than those.
    pub(crate) further: usize,
    /// Whether a rule decides.
    pub(crate) mapped: bool,
    /// The name of the metric; absent where a rule drops the sample.
    pub(crate) metric: Option<String>,
    /// The name before it was escaped, where that is another one.
    pub(crate) written: Option<String>,
    /// Labels of the rule, sorted by name.
    pub(crate) labels: Vec<Label>,
    /// What else is to be said, in sentences.
    pub(crate) notes: Vec<String>,
    /// Where it lands in the process that was asked.
    pub(crate) landing: Option<Landing>,
}

/// A name and a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A rule that was held against a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tried {
    /// Its number, from 1.
    pub(crate) rule: usize,
    /// Where it is in the file.
    pub(crate) line: u64,
    /// What it matches.
    pub(crate) pattern: String,
    pub(crate) regex: bool,
    /// What comes of it, in words.
    pub(crate) verdict: String,
}

/// Where a sample lands among the series of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Landing {
    /// The series, as in an exposition; absent where there is none.
    pub(crate) series: Option<String>,
    pub(crate) state: State,
    /// The budgets that it goes beyond, and what becomes of it.
    pub(crate) beyond: Vec<Beyond>,
    /// How far the budgets are used that it is held against.
    pub(crate) budgets: Vec<Used>,
    /// Why there is no series.
    pub(crate) refused: Option<Refusal>,
}

/// What there is of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It is there.
    There,
    /// It is there, and has what these labels brought before, because of a budget.
    Folded,
    /// It would be made.
    New,
    /// There would be none.
    Refused,
}

/// A budget and what goes beyond it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Beyond {
    /// The label, empty for all of the metric.
    pub(crate) label: String,
    /// The flag behind `--limit.`.
    pub(crate) limit: &'static str,
    /// `folded`, `refused` or `tracked`.
    pub(crate) action: &'static str,
}

/// How much of a budget is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Used {
    /// The flag behind `--limit.`.
    pub(crate) limit: &'static str,
    /// The label that it is about, or nothing.
    pub(crate) label: String,
    pub(crate) used: u64,
    pub(crate) most: u64,
}

impl Explanation {
    /// For a person to read, with a line feed at the end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = Writer::default();
        out.line(0, &self.line);
        for part in &self.parts {
            match part {
                Part::Sample(sample) => sample.write(&mut out),
                Part::Refused(refusal) => out.line(1, &refusal.text("refused")),
            }
        }
        if self.further > 0 {
            out.line(1, &format!("and {} more samples", self.further));
        }
        if let Some(series) = &self.alone {
            let none = series.is_empty();
            out.line(1, if none { "no series" } else { "series, if it came alone:" });
            series.iter().for_each(|series| out.line(2, series));
        }
        out.text()
    }
}

impl Refusal {
    fn text(&self, verb: &str) -> String {
        let times = if self.times == 1 { String::new() } else { format!(" {} times", self.times) };
        format!("{verb}{times}: {} ({})", self.reason, self.meaning)
    }
}

fn pairs(labels: &[Label]) -> String {
    let pairs = labels.iter().map(|Label { name, value }| format!("{name}={value:?}"));
    pairs.collect::<Vec<_>>().join(", ")
}

impl Sample {
    fn write(&self, out: &mut Writer) {
        let Self { kind, name, values, tags, metric, .. } = self;
        out.line(1, &format!("{kind} {name}: {}", values.join(", ")));
        if !tags.is_empty() {
            out.line(2, &format!("tags: {}", pairs(tags)));
        }
        for Tried { rule, line, pattern, regex, verdict } in self.rules.iter().flatten() {
            let form = if *regex { "regex " } else { "" };
            out.line(2, &format!("rule {rule}, line {line}: {form}{pattern}: {verdict}"));
        }
        if self.rules.is_none() {
            out.line(2, "the same rules as above");
        }
        if self.further > 0 {
            let further = self.further;
            out.line(2, &format!("and {further} rules that are further away; --all shows them"));
        }
        let text = match (metric, &self.written) {
            (None, _) => "the rule drops it".to_owned(),
            (Some(metric), _) if !self.mapped => {
                format!("no rule decides: the metric is {metric}")
            }
            (Some(metric), None) => format!("metric: {metric}"),
            (Some(metric), Some(written)) => format!("metric: {metric}, written for {written:?}"),
        };
        out.line(2, &text);
        if !self.labels.is_empty() {
            out.line(2, &format!("labels of the rule: {}", pairs(&self.labels)));
        }
        self.notes.iter().for_each(|note| out.line(2, note));
        if let Some(landing) = &self.landing {
            landing.write(out);
        }
    }
}

impl Landing {
    fn write(&self, out: &mut Writer) {
        for Beyond { label, limit, action } in &self.beyond {
            let of = if label.is_empty() { "the metric" } else { label };
            out.line(2, &format!("{of} is beyond --limit.{limit}: {action}"));
        }
        if !self.budgets.is_empty() {
            let used = self.budgets.iter().map(|Used { limit, label, used, most }| {
                let of = if label.is_empty() { String::new() } else { format!(" of {label}") };
                format!("{limit}{of} {} of {}", count(*used), count(*most))
            });
            out.line(2, &format!("budgets: {}", used.collect::<Vec<_>>().join(", ")));
        }
        let series = self.series.as_deref().unwrap_or("a series that has just gone");
        let text = match (self.state, &self.refused) {
            (_, Some(refusal)) => refusal.text("refused here"),
            (State::New, _) => format!("lands in {series}, which is new"),
            (State::Folded, _) => format!("lands in {series}, in which it was folded before"),
            (State::There | State::Refused, _) => format!("lands in {series}, which is there"),
        };
        out.line(2, &text);
    }
}
