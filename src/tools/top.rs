//! `kstatd top`: repeatedly shows the metrics and labels with the most series of a running process.
//!
//! It combines the cardinality report and the status of the process on one screen. Names and values
//! are chosen by clients, so control characters are escaped.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::process_client::ProcessClient;
use super::status::ProcessState;
use crate::cli::asking::TopSort;
use crate::exposition::budget;
use crate::server::cardinality::CARDINALITY_PATH;
use crate::status::words::{bytes, clock, count, json_line, rate, truncated};
use crate::status::{Problem, Rule, Unmapped, Writer};
use crate::telemetry::cardinality::{Label, Metric, Report};
use crate::tools::Result;
use crate::util::percent::{self, UNRESERVED};

/// The minutes of the short interval.
const SHORT: usize = 5;

/// The minutes of the long interval.
const HOUR: usize = 60;

/// The maximum number of exceeded budgets shown of each side.
const MAX_EXCEEDED_BUDGETS: usize = 5;

/// Said of a process without a report on its series.
const NO_REPORT: &str = "has no report on its series; use the main port of a kstatd";

/// The maximum number of senders shown.
const MAX_SENDERS: usize = 3;

/// The kind of a row that is a rule rather than a name.
const RULE: &str = "rule";

/// The view settings.
pub(crate) struct View {
    /// The sort order.
    pub(crate) sort: TopSort,
    /// The only metric to show, with all its labels.
    pub(crate) metric: Option<String>,
    /// The maximum number of rows.
    pub(crate) rows: usize,
}

/// The data of one screen.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Screen {
    address: String,
    status: Status,
    cardinality: Report,
}

/// The relevant fields of a process's status.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Status {
    state: String,
    reasons: Vec<Problem>,
    warnings: Vec<Problem>,
    at: f64,
    program: Program,
    statsd: Option<Statsd>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Program {
    name: String,
    version: String,
    started: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Statsd {
    lines: u64,
    rules: Vec<Rule>,
    unmapped_names: Vec<Unmapped>,
}

/// Fetches the data of one screen within one request timeout.
///
/// # Errors
/// When there is no data; the text contains the reason.
pub(crate) async fn fetch(process: &ProcessClient, view: &View) -> Result<Screen> {
    let seen = process.with_timeout(fetch_screen(process, view)).await;
    seen.unwrap_or_else(
        |error| Err(format!("no answer from {}: {error}", process.address()).into()),
    )
}

async fn fetch_screen(process: &ProcessClient, view: &View) -> Result<Screen> {
    let sort = match view.sort {
        TopSort::Series | TopSort::Lines => "series",
        TopSort::Growth => "growth",
        TopSort::Bytes => "bytes",
    };
    let mut query = format!("limit={}&sort={sort}", view.rows.max(1));
    if let Some(metric) = &view.metric {
        query = format!("{query}&metric={}", percent::encode(metric, UNRESERVED));
    }
    let target = format!("{CARDINALITY_PATH}?{query}");
    let cardinality: Report = process.data(&target, NO_REPORT).await?;
    if let Some(metric) = &view.metric
        && cardinality.metrics.is_empty()
    {
        return Err(format!("there is no metric {metric:?} at {}", process.address()).into());
    }
    Ok(Screen {
        address: process.address().to_owned(),
        status: process.status().await?,
        cardinality,
    })
}

impl Screen {
    /// Returns the state of the process.
    pub(crate) fn state(&self) -> ProcessState {
        match self.status.state.as_str() {
            "ok" => ProcessState::Ok,
            "warn" => ProcessState::Warn,
            _ => ProcessState::Degraded,
        }
    }

    /// Formats the data as one JSON object.
    pub(crate) fn json(&self) -> String {
        json_line(self)
    }

    /// Formats a screen; with previous data, event counts become rates.
    pub(crate) fn screen(&self, before: Option<&Self>, view: &View) -> String {
        let mut out = Writer::default();
        let Report { series, metric_names, label_sets, bytes: size, .. } = self.cardinality;
        let Status { state, program, at, .. } = &self.status;
        let (state, time) = (state.to_uppercase(), clock(*at, *at));
        let Program { name, version, .. } = program;
        out.line(0, &format!("{state}  {name} {}, kstatd {version}, {time}", self.address));
        let problems = self.status.reasons.iter().chain(&self.status.warnings);
        problems.for_each(|problem| out.line(1, &format!("! {}", problem.text)));
        let mut line = format!(
            "series {} in {} metrics   label sets {}   memory {}   new in {SHORT} min {}, in 1 h {}",
            count(series),
            count(metric_names),
            count(label_sets),
            bytes(size as f64),
            count(short(&self.cardinality.new_by_minute)),
            count(self.cardinality.new_by_minute.iter().sum()),
        );
        if let Some(lines) = self.rate(before, |statsd| statsd.lines) {
            line = format!("{line}   lines {}", rate(lines));
        }
        out.line(0, &line);
        let sides = self.cardinality.budgets.iter();
        for over in sides.flat_map(|side| side.beyond.iter().take(MAX_EXCEEDED_BUDGETS)) {
            let of = match over.label.as_str() {
                "" => over.metric.clone(),
                label => format!("{label} of {}", over.metric),
            };
            let (times, action) = (count(over.times), &over.action);
            let limit = budget::displayed(&over.limit);
            out.line(1, &format!("over {limit}: {of}, {action} {times} times"));
        }
        let senders = self.cardinality.senders.iter().filter(|sender| {
            let metric = view.metric.as_deref().unwrap_or(&sender.last_metric);
            sender.brings() && sender.last_metric == metric
        });
        for sender in senders.take(MAX_SENDERS) {
            let (now, hour) = (short(&sender.new_by_minute), sender.in_an_hour());
            let (now, hour, beyond) = (count(now), count(hour), count(sender.beyond_budget));
            let (who, metric) = (sender.display_name(), short_text(&sender.last_metric));
            out.line(1, &format!("from {who}: new in {SHORT} min {now}, in 1 h {hour}, over budget {beyond}, latest metric {metric}"));
        }
        out.line(0, "");
        match (&view.metric, view.sort) {
            (Some(_), _) => self.cardinality.metrics.iter().for_each(|of| metric(&mut out, of)),
            (None, TopSort::Lines) => self.lines(&mut out, before, view.rows),
            (None, _) => metrics(&mut out, &self.cardinality.metrics),
        }
        out.text()
    }

    /// Returns the increase per second of a StatsD counter.
    fn rate(&self, before: Option<&Self>, number: impl Fn(&Statsd) -> u64) -> Option<f64> {
        let now = number(self.status.statsd.as_ref()?);
        let (then, since) = match before {
            Some(before) => (number(before.status.statsd.as_ref()?), before.status.at),
            None => (0, self.status.program.started),
        };
        let seconds = self.status.at - since;
        (seconds > 0.0).then(|| now.saturating_sub(then) as f64 / seconds)
    }

    /// Appends rules and names by number of events.
    fn lines(&self, out: &mut Writer, before: Option<&Self>, rows: usize) {
        let events = |seen: &Self| -> HashMap<(&'static str, String), u64> {
            let Some(statsd) = &seen.status.statsd else { return HashMap::new() };
            let rules = statsd.rules.iter().map(|rule| ((RULE, rule.pattern.clone()), rule.hits));
            let names = statsd.unmapped_names.iter();
            rules.chain(names.map(|name| (("unmapped", name.name.clone()), name.events))).collect()
        };
        let then = before.map(events).unwrap_or_default();
        let since = before.map_or(self.status.program.started, |before| before.status.at);
        let seconds = (self.status.at - since).max(0.001);
        let mut all: Vec<_> = events(self)
            .into_iter()
            .map(|(of, events)| {
                let grown = events.saturating_sub(then.get(&of).copied().unwrap_or(0));
                (grown as f64 / seconds, events, of)
            })
            .collect();
        all.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.2.cmp(&b.2)));
        let rows = all.into_iter().take(rows).map(|(each_second, events, (what, name))| {
            // Events of unmapped names are estimates.
            let about = if what == RULE { "" } else { "~" };
            let (events, each_second) = (count(events), rate(each_second));
            vec![
                what.to_owned(),
                short_text(&name),
                format!("{about}{events}"),
                format!("{about}{each_second}"),
            ]
        });
        out.table(1, &["BY", "PATTERN OR NAME", ">EVENTS", ">RATE"], rows);
    }
}

fn short(minutes: &[u64]) -> u64 {
    minutes.iter().take(SHORT).sum()
}

/// Truncates a name to the width of its column.
fn short_text(text: &str) -> String {
    truncated(text, 60)
}

fn values(label: &Label) -> String {
    format!("{}{}", if label.exact { "" } else { "~" }, count(label.values))
}

/// Formats a number, or a dash if it is unknown.
fn known(number: Option<u64>) -> String {
    number.map_or_else(|| "-".to_owned(), count)
}

fn metrics(out: &mut Writer, metrics: &[Metric]) {
    let heads = ["METRIC", "TYPE", ">SERIES", ">NEW 5 MIN", ">NEW 1 H", ">MEMORY", "MOST VALUES"];
    let rows = metrics.iter().map(|metric| {
        let label = metric.labels.first();
        vec![
            short_text(&metric.name),
            metric.kind.to_string(),
            count(metric.series),
            known(metric.grown(SHORT)),
            known(metric.grown(HOUR)),
            bytes(metric.bytes as f64),
            label.map_or_else(String::new, |of| format!("{} {}", short_text(&of.name), values(of))),
        ]
    });
    out.table(1, &heads, rows);
}

fn metric(out: &mut Writer, metric: &Metric) {
    let Metric { kind, name, .. } = metric;
    let [series, sets] = [metric.series, metric.label_sets].map(count);
    let [new, hour] = [SHORT, HOUR].map(|minutes| known(metric.grown(minutes)));
    let growth = format!("{}, new in {SHORT} min {new}, in 1 h {hour}", bytes(metric.bytes as f64));
    out.line(0, &format!("{kind} {name}: {series} series of {sets} label sets, {growth}"));
    if let Some(minutes) = &metric.new_by_minute {
        let minutes = minutes.iter().take(15).map(u64::to_string);
        let minutes = minutes.collect::<Vec<_>>().join(" ");
        out.line(0, &format!("new per minute, current minute first: {minutes}"));
    }
    let rows = metric.labels.iter().map(|label| {
        let examples: Vec<_> = label.examples.iter().map(|value| short_text(value)).collect();
        vec![short_text(&label.name), values(label), bytes(label.bytes as f64), examples.join("  ")]
    });
    out.table(1, &["LABEL", ">VALUES", ">BYTES", "EXAMPLES"], rows);
}
