//! `kstatd top`: which metrics and labels bring the series of a running process, again and again.
//!
//! It reads the report about the series and the status of the process, and shows them as a screen. Names and values are
//! those that clients chose; none of them steers the terminal.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::ask::Asked;
use super::status::Doing;
use crate::server::cardinality::{BESIDE, CARDINALITY_PATH};
use crate::server::query::percent_encode;
use crate::server::status::{PATH, PATH_BESIDE};
use crate::status::Writer;
use crate::status::words::{bytes, clock, count, rate};
use crate::telemetry::cardinality::{Label, Metric, Report};

/// Minutes that are a short time.
const SHORT: usize = 5;

/// What goes beyond a budget that is shown.
const BEYOND: usize = 5;

/// Senders that are shown.
const SENDERS: usize = 3;

/// What puts a row before others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Series of a metric.
    #[default]
    Series,
    /// Series of a metric made in the last hour.
    Growth,
    /// Memory of a metric.
    Bytes,
    /// Events of a mapping rule, or of a name that none takes.
    Lines,
}

/// What a row is about that is no name.
const RULE: &str = "rule";

/// What is looked at.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The order of the rows.
    pub(crate) sort: Sort,
    /// The only metric, with all its labels.
    pub(crate) metric: Option<String>,
    /// Rows at most.
    pub(crate) rows: usize,
}

/// What there was to be seen at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Seen {
    address: String,
    status: Status,
    cardinality: Report,
}

/// What is read of the status of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Status {
    state: String,
    reasons: Vec<String>,
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

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Rule {
    pattern: String,
    hits: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Unmapped {
    name: String,
    events: u64,
}

/// Looks once.
///
/// # Errors
/// There is nothing to be seen; the text says why.
pub(crate) async fn look(process: &Asked, view: &View) -> Result<Seen, String> {
    let sort = match view.sort {
        Sort::Series | Sort::Lines => "series",
        Sort::Growth => "growth",
        Sort::Bytes => "bytes",
    };
    let mut question = format!("limit={}&sort={sort}", view.rows.max(1));
    if let Some(metric) = &view.metric {
        question = format!("{question}&metric={}", percent_encode(metric.as_bytes()));
    }
    let cardinality = report(process, &question).await?;
    if let Some(metric) = &view.metric
        && cardinality.metrics.is_empty()
    {
        return Err(format!("there is no metric {metric:?} at {}", process.address()));
    }
    Ok(Seen { address: process.address().to_owned(), status: status(process).await?, cardinality })
}

/// Under the name kube-state-metrics the report is below a path of kstatd's own.
async fn report(process: &Asked, question: &str) -> Result<Report, String> {
    match process.data(&format!("{CARDINALITY_PATH}?{question}")).await {
        Ok(report) => Ok(report),
        Err(error) => {
            let beside = process.data(&format!("{BESIDE}{CARDINALITY_PATH}?{question}")).await;
            beside.map_err(|_| error)
        }
    }
}

/// Under the name statsd_exporter everything may be an answer at the path that kstatd has it at.
async fn status(process: &Asked) -> Result<Status, String> {
    for path in [PATH_BESIDE, PATH] {
        let (status, body) =
            process.get(&format!("{path}?format=json&labels=0"), "application/json").await?;
        if status == 200
            && let Ok(status) = serde_json::from_slice(&body)
        {
            return Ok(status);
        }
    }
    Err(format!("no status from {}", process.address()))
}

impl Seen {
    /// How the process is doing.
    pub(crate) fn doing(&self) -> Doing {
        if self.status.state == "ok" { Doing::Ok } else { Doing::Degraded }
    }

    /// All of it as one JSON object.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// A screen; with what was seen before, numbers of lines are rates.
    pub(crate) fn screen(&self, before: Option<&Self>, view: &View) -> String {
        let mut out = Writer::default();
        let Report { series, metric_names, label_sets, bytes: size, .. } = self.cardinality;
        let Status { state, program, at, .. } = &self.status;
        let (state, time) = (state.to_uppercase(), clock(*at, *at));
        let Program { name, version, .. } = program;
        out.line(0, &format!("{state}  {name} {}, kstatd {version}, {time}", self.address));
        self.status.reasons.iter().for_each(|reason| out.line(1, &format!("! {reason}")));
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
        let beyond = self.cardinality.budgets.iter().flat_map(|budgets| &budgets.beyond);
        for over in beyond.take(BEYOND) {
            let of = match over.label.as_str() {
                "" => over.metric.clone(),
                label => format!("{label} of {}", over.metric),
            };
            let (times, action) = (count(over.times), &over.action);
            out.line(
                1,
                &format!("beyond --limit.{}: {of}, {times} label sets {action}", over.limit),
            );
        }
        let senders = self.cardinality.senders.iter().filter(|sender| {
            let metric = view.metric.as_deref().unwrap_or(&sender.last_metric);
            sender.brings() && sender.last_metric == metric
        });
        for sender in senders.take(SENDERS) {
            let (now, hour) = (short(&sender.new_by_minute), sender.in_an_hour());
            let (now, hour, beyond) = (count(now), count(hour), count(sender.beyond_budget));
            let (who, metric) = (sender.who(), short_text(&sender.last_metric));
            out.line(1, &format!("from {who}: new in {SHORT} min {now}, in 1 h {hour}, beyond a budget {beyond}, last of {metric}"));
        }
        out.line(0, "");
        match (&view.metric, view.sort) {
            (Some(_), _) => self.cardinality.metrics.iter().for_each(|of| metric(&mut out, of)),
            (None, Sort::Lines) => self.lines(&mut out, before, view.rows),
            (None, _) => metrics(&mut out, &self.cardinality.metrics),
        }
        out.text()
    }

    /// How a number of the StatsD side grows a second.
    fn rate(&self, before: Option<&Self>, number: impl Fn(&Statsd) -> u64) -> Option<f64> {
        let now = number(self.status.statsd.as_ref()?);
        let (then, since) = match before {
            Some(before) => (number(before.status.statsd.as_ref()?), before.status.at),
            None => (0, self.status.program.started),
        };
        let seconds = self.status.at - since;
        (seconds > 0.0).then(|| now.saturating_sub(then) as f64 / seconds)
    }

    /// Rules and names by what they bring.
    fn lines(&self, out: &mut Writer, before: Option<&Self>, rows: usize) {
        let events = |seen: &Self| -> HashMap<(&'static str, String), u64> {
            let Some(statsd) = &seen.status.statsd else { return HashMap::new() };
            let rules = statsd.rules.iter().map(|rule| ((RULE, rule.pattern.clone()), rule.hits));
            let names = statsd.unmapped_names.iter();
            rules.chain(names.map(|name| (("no rule", name.name.clone()), name.events))).collect()
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
        let head = ["BY", "PATTERN OR NAME", "EVENTS", "A SECOND"];
        let mut table = vec![head.map(str::to_owned).to_vec()];
        table.extend(all.into_iter().take(rows).map(|(each_second, events, (what, name))| {
            // Events of names are estimates.
            let about = if what == RULE { "" } else { "~" };
            let (events, each_second) = (count(events), rate(each_second));
            vec![
                what.to_owned(),
                short_text(&name),
                format!("{about}{events}"),
                format!("{about}{each_second}"),
            ]
        }));
        out.table(&[false, false, true, true], &table);
    }
}

fn short(minutes: &[u64]) -> u64 {
    minutes.iter().take(SHORT).sum()
}

/// As much of a name as a table has room for.
fn short_text(text: &str) -> String {
    const ROOM: usize = 60;
    match text.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn values(label: &Label) -> String {
    format!("{}{}", if label.exact { "" } else { "~" }, count(label.values))
}

fn metrics(out: &mut Writer, metrics: &[Metric]) {
    let head = ["METRIC", "TYPE", "SERIES", "NEW 5 MIN", "NEW 1 H", "MEMORY", "MOST VALUES"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    table.extend(metrics.iter().map(|metric| {
        let label = metric.labels.first();
        vec![
            short_text(&metric.name),
            metric.kind.to_string(),
            count(metric.series),
            count(short(&metric.new_by_minute)),
            count(metric.grown()),
            bytes(metric.bytes as f64),
            label.map_or_else(String::new, |of| format!("{} {}", short_text(&of.name), values(of))),
        ]
    }));
    out.table(&[false, false, true, true, true, true, false], &table);
}

fn metric(out: &mut Writer, metric: &Metric) {
    out.line(
        0,
        &format!(
            "{} {}: {} series of {} label sets, {}, new in {SHORT} min {}, in 1 h {}",
            metric.kind,
            metric.name,
            count(metric.series),
            count(metric.label_sets),
            bytes(metric.bytes as f64),
            count(short(&metric.new_by_minute)),
            count(metric.grown()),
        ),
    );
    let minutes = metric.new_by_minute.iter().take(15).map(u64::to_string);
    let minutes = minutes.collect::<Vec<_>>().join(" ");
    out.line(0, &format!("new by minute, the present one first: {minutes}"));
    let head = ["LABEL", "VALUES", "BYTES", "EXAMPLES"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    table.extend(metric.labels.iter().map(|label| {
        let examples: Vec<_> = label.examples.iter().map(|value| short_text(value)).collect();
        vec![short_text(&label.name), values(label), bytes(label.bytes as f64), examples.join("  ")]
    }));
    out.table(&[false, true, true, false], &table);
}
