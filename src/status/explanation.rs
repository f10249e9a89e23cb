//! The explanation of a StatsD line, as a value and as text.
//!
//! The StatsD pipeline creates it. Its text contains no control characters.

use std::net::IpAddr;

use serde::Serialize;

use super::words::count;
use super::writer::Writer;
use crate::exposition::budget;

/// A line to explain.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineQuestion {
    /// The line, without its line feed.
    pub(crate) line: Vec<u8>,
    /// True if every rule is listed.
    pub(crate) all: bool,
    /// The address of the sender, if known.
    pub(crate) sender: Option<IpAddr>,
}

/// The sender of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LineSender {
    /// The evidence by which the pod was found, or the cause for which it was not, as in own metrics.
    pub(crate) outcome: &'static str,
    /// The UID of the pod.
    pub(crate) pod_uid: Option<String>,
    /// The labels that the line gets.
    pub(crate) labels: Vec<Label>,
    /// The evidence that contradicts the origin in the line.
    pub(crate) contradicted_by: Option<&'static str>,
}

/// The explanation of one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The line, with invalid UTF-8 replaced.
    pub(crate) line: String,
    /// True if all of the line takes effect or is dropped by a rule.
    pub accepted: bool,
    /// The parts of the line, in order.
    pub(crate) parts: Vec<Part>,
    /// The sender, if lines get labels of it.
    pub(crate) sender: Option<LineSender>,
    /// The number of samples and rejections not listed in `parts`.
    pub(crate) further: usize,
    /// The exposition of the line on its own; absent if a process shows its own series instead.
    pub(crate) alone: Option<Vec<String>>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    Sample(Box<Sample>),
    Refused(Refusal),
}

/// A rejected part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// The reason, as in the label of `kstatd_statsd_samples_total`.
    pub(crate) reason: &'static str,
    /// The reason as a sentence.
    pub(crate) meaning: &'static str,
    pub(crate) times: u64,
}

/// Values of one type with one set of tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sample {
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// The values, as they take effect.
    pub(crate) values: Vec<String>,
    /// The tags, sorted by name.
    pub(crate) tags: Vec<Label>,
    /// The rules tried, in the order of the file; absent if they are those of an earlier sample.
    pub(crate) rules: Option<Vec<Tried>>,
    /// The number of rules tried but not listed.
    pub(crate) further: usize,
    /// True if a rule matched.
    pub(crate) mapped: bool,
    /// The metric name; absent if a rule drops the sample.
    pub(crate) metric: Option<String>,
    /// The name before escaping, if that changed it.
    pub(crate) written: Option<String>,
    /// The labels set by the rule, sorted by name.
    pub(crate) labels: Vec<Label>,
    /// Remarks, in sentences.
    pub(crate) notes: Vec<String>,
    /// The resulting series in the process that was asked.
    pub(crate) landing: Option<Landing>,
}

/// A name and a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Label {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A mapping rule that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tried {
    /// The number of the rule, from 1.
    pub(crate) rule: usize,
    /// The line of the rule in the mapping file.
    pub(crate) line: u64,
    /// The pattern of the rule.
    pub(crate) pattern: String,
    pub(crate) regex: bool,
    /// The result, in words.
    pub(crate) verdict: String,
}

/// The effect of a sample on the series of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Landing {
    /// The series as in an exposition; absent if there is none.
    pub(crate) series: Option<String>,
    pub(crate) state: State,
    /// The budgets that the sample exceeds, and the action taken.
    pub(crate) beyond: Vec<Beyond>,
    /// The usage of the budgets that apply.
    pub(crate) budgets: Vec<Used>,
    /// The reason why there is no series.
    pub(crate) refused: Option<Refusal>,
}

/// The state of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// The series exists.
    There,
    /// The series exists because a budget folded these labels before.
    Folded,
    /// The series would be created.
    New,
    /// The sample would be rejected.
    Refused,
}

/// A budget and the label that exceeds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Beyond {
    /// The label; empty for the whole metric.
    pub(crate) label: String,
    /// The budget, as flags name it without `--limit.`.
    pub(crate) limit: &'static str,
    /// `folded`, `refused` or `tracked`.
    pub(crate) action: &'static str,
}

/// The usage of a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Used {
    /// The budget, as flags name it without `--limit.`.
    pub(crate) limit: &'static str,
    /// The label that the budget applies to; empty for none.
    pub(crate) label: String,
    pub(crate) used: u64,
    pub(crate) most: u64,
}

impl Explanation {
    /// Formats the explanation for a terminal, ending with a line feed.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = Writer::default();
        out.line(0, &self.line);
        if let Some(sender) = &self.sender {
            out.line(1, &sender.text());
        }
        for part in &self.parts {
            match part {
                Part::Sample(sample) => sample.write(&mut out),
                Part::Refused(refusal) => out.line(1, &refusal.text("rejected")),
            }
        }
        if self.further > 0 {
            out.line(1, &format!("and {} more samples", self.further));
        }
        if let Some(series) = &self.alone {
            let none = series.is_empty();
            out.line(1, if none { "no series" } else { "resulting series:" });
            series.iter().for_each(|series| out.line(2, series));
        }
        out.text()
    }
}

impl LineSender {
    fn text(&self) -> String {
        let Self { outcome, pod_uid, labels, contradicted_by } = self;
        let rejected = match contradicted_by {
            Some(by) => format!("; the origin in the line is rejected: contradicted by {by}"),
            None => String::new(),
        };
        match pod_uid {
            Some(uid) if labels.is_empty() => format!("sender: pod {uid}, {outcome}{rejected}"),
            Some(uid) => {
                format!("sender: pod {uid}, found by {outcome}: {}{rejected}", pairs(labels))
            }
            None => format!("sender: not known ({outcome}){rejected}"),
        }
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
            out.line(2, "same rules as above");
        }
        if self.further > 0 {
            let further = self.further;
            out.line(2, &format!("and {further} more rules; use --all to list them"));
        }
        let text = match (metric, &self.written) {
            (None, _) => "dropped by the rule".to_owned(),
            (Some(metric), _) if !self.mapped => {
                format!("no rule matches; metric: {metric}")
            }
            (Some(metric), None) => format!("metric: {metric}"),
            (Some(metric), Some(written)) => format!("metric: {metric}, escaped from {written:?}"),
        };
        out.line(2, &text);
        if !self.labels.is_empty() {
            out.line(2, &format!("labels from the rule: {}", pairs(&self.labels)));
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
            out.line(2, &format!("{of} exceeds {}: {action}", budget::displayed(limit)));
        }
        if !self.budgets.is_empty() {
            let used = self.budgets.iter().map(|Used { limit, label, used, most }| {
                let of = if label.is_empty() { String::new() } else { format!(" of {label}") };
                format!("{limit}{of} {} of {}", count(*used), count(*most))
            });
            out.line(2, &format!("budgets: {}", used.collect::<Vec<_>>().join(", ")));
        }
        let series = self.series.as_deref().unwrap_or("a series that has just expired");
        let text = match (self.state, &self.refused) {
            (_, Some(refusal)) => refusal.text("rejected here"),
            (State::New, _) => format!("creates {series}"),
            (State::Folded, _) => format!("updates {series}, into which it was folded before"),
            (State::There | State::Refused, _) => format!("updates {series}"),
        };
        out.line(2, &text);
    }
}
