//! The status as text for a terminal. The first word is the state.

use std::fmt::Write as _;

use super::facts::{Facts, Kind, Kubernetes, Node, Refused, Statsd};
use super::history::Track;
use super::judge::buffer_hint;
use super::words::{bytes, clock, count, duration, rate};
use super::writer::Writer;
use crate::exposition::budget;
use crate::telemetry::cardinality::Report;
use crate::telemetry::scrapes::Scrape;

/// The number of scrapes shown.
const SCRAPES: usize = 5;

/// The maximum number of rules and names shown in each list.
const LINES: usize = 10;

/// Formats the facts for a terminal.
pub(crate) fn text(facts: &Facts) -> String {
    let mut out = Writer::default();
    let program = &facts.program;
    let up = duration(facts.at - program.started);
    let head =
        format!("{}  {}, kstatd {}, up {up}", facts.state.as_str(), program.name, program.version);
    out.line(0, &head);
    for problem in facts.reasons.iter().chain(&facts.warnings) {
        out.line(1, &format!("! {}", problem.text));
        out.line(2, &problem.runbook);
    }
    facts.notes.iter().for_each(|note| out.line(1, &format!("- {note}")));
    out.line(0, &numbers(facts));
    if let Some(kubernetes) = &facts.kubernetes {
        kinds(&mut out, kubernetes, facts.at);
    }
    if let Some(of) = &facts.statsd {
        statsd(&mut out, of, facts.cardinality.as_ref(), facts.at);
    }
    if let Some(of) = &facts.node {
        node(&mut out, of, facts.at);
    }
    if let Some(explanation) = &facts.explanation {
        out.heading("EXPLANATION");
        explanation.text().lines().for_each(|line| out.line(1, line));
    }
    scrapes(&mut out, &facts.scrapes, facts.at);
    if !facts.files.is_empty() {
        out.heading("CONFIGURATION");
        for file in &facts.files {
            let (state, error) = (file.state(), file.error.iter());
            let loaded = file.loaded.map_or("never".to_owned(), |at| clock(at, facts.at));
            out.line(1, &format!("{}: {}, {state}, loaded {loaded}", file.what, file.path));
            error.for_each(|error| out.line(2, error));
        }
    }
    out.text()
}

/// Returns a one-sentence summary without names.
pub(super) fn summary(facts: &Facts) -> String {
    let up = duration(facts.at - facts.program.started);
    let mut text = format!("{}, up {up}", facts.state.as_str());
    if let Some(kubernetes) = &facts.kubernetes {
        let (objects, kinds) = (count(kubernetes.objects()), kubernetes.kinds.len());
        let _ = write!(text, ", {objects} Kubernetes objects in {kinds} list/watches");
    }
    if let Some(statsd) = &facts.statsd {
        let _ = write!(text, ", {} StatsD series", count(statsd.series));
    }
    if let Some(node) = &facts.node {
        let (pods, used) = (count(node.pods), bytes(node.used_bytes));
        let _ = write!(text, ", {used} of {pods} pods on this node");
    }
    if let Some(scrape) = facts.scrapes.first() {
        let _ = write!(text, ", last scrape {} ago", duration(facts.at - scrape.at));
    }
    text
}

fn numbers(facts: &Facts) -> String {
    let mut parts = Vec::new();
    let last = |what: &str| facts.history.track(what).and_then(Track::last).map(f64::from);
    if let Some(kubernetes) = &facts.kubernetes {
        parts.push(format!("objects {}", count(kubernetes.objects())));
        parts.push(format!("series {}", count(kubernetes.series())));
        parts.extend(last("events").map(|events| format!("events {}", rate(events))));
    }
    if let Some(statsd) = &facts.statsd {
        parts.push(format!("StatsD series {}", count(statsd.series)));
        parts.extend(last("lines").map(|lines| format!("lines {}", rate(lines))));
        parts.extend(last("drops").map(|drops| format!("drops {}", rate(drops))));
    }
    parts.extend(facts.program.memory().map(|memory| format!("memory {memory}")));
    parts.extend(facts.program.cpu_percent.map(|cpu| format!("CPU {cpu:.1}%")));
    parts.join("   ")
}

fn kinds(out: &mut Writer, kubernetes: &Kubernetes, now: f64) {
    out.heading(&format!("KUBERNETES  {}", kubernetes.server));
    let heads = [
        "KIND", "STATE", "PHASE", ">OBJECTS", ">SERIES", ">SIZE", ">LISTED", ">HEARD", ">EVENTS",
        ">ERRORS",
    ];
    out.table(1, &heads, kubernetes.kinds.iter().map(|kind| kind_row(kind, now)));
    for kind in &kubernetes.kinds {
        if let Some(selectors) = &kind.selectors {
            out.line(1, &format!("{} as selected by {selectors}", kind.name()));
        }
        let Some(failure) = &kind.failure else { continue };
        let since = clock(failure.since, now);
        out.line(1, &format!("{} since {since}: {}", kind.name(), failure.message));
        for line in kind.missing_rule.iter().flat_map(|rule| rule.lines()) {
            out.line(3, line);
        }
    }
}

fn node(out: &mut Writer, node: &Node, now: f64) {
    out.heading("NODE");
    let said = node.summary.map_or_else(|| "never".to_owned(), |at| duration(now - at) + " ago");
    out.line(1, &format!("last complete kubelet summary: {said}"));
    let dash = || "-".to_owned();
    let rows = node.fullest.iter().map(|of| {
        vec![
            of.pod.clone(),
            bytes(of.used_bytes),
            of.limit_ratio.map_or_else(dash, |ratio| format!("{:.0}%", 100.0 * ratio)),
            of.until_full.map_or_else(dash, duration),
        ]
    });
    out.table(1, &["POD", ">USED", ">OF LIMIT", ">FULL IN"], rows);
}

fn kind_row(kind: &Kind, now: f64) -> Vec<String> {
    let ago = |at: Option<f64>| at.map_or_else(|| "never".to_owned(), |at| duration(now - at));
    vec![
        kind.name(),
        kind.health.as_str().to_owned(),
        kind.phase.to_owned(),
        count(kind.objects),
        count(kind.series),
        bytes(kind.bytes as f64),
        ago(kind.listed),
        ago(kind.heard),
        kind.events_per_second.map_or("-".to_owned(), rate),
        count(kind.errors),
    ]
}

fn statsd(out: &mut Writer, statsd: &Statsd, cardinality: Option<&Report>, now: f64) {
    out.heading("STATSD");
    for listener in &statsd.listeners {
        let mut line =
            format!("{} {}: {} lines", listener.protocol, listener.address, count(listener.lines));
        if let Some(size) = listener.receive_buffer_bytes {
            let _ = write!(line, ", receive buffer {}", bytes(size as f64));
        }
        if let Some(dropped) = listener.dropped {
            let _ = write!(line, ", {} datagrams dropped", count(dropped));
        }
        out.line(1, &line);
    }
    if let Some(hint) = buffer_hint(statsd) {
        out.line(1, &hint);
    }
    let mapping = match &statsd.mapping_file {
        Some(file) => format!(
            "{} rules in {file}, {} without matches",
            count(statsd.rule_count),
            count(statsd.never_hit_count)
        ),
        None => "no mapping file".to_owned(),
    };
    let (series, families) = (count(statsd.series), count(statsd.families));
    let events =
        format!("{} events mapped, {} unmapped", count(statsd.mapped), count(statsd.unmapped));
    out.line(1, &format!("{series} series in {families} families; {mapping}; {events}"));
    for over in statsd.over_budget.iter().take(LINES) {
        let (limit, action) = (budget::displayed(over.limit), over.action);
        let (subject, sets) = (over.subject(), count(over.label_sets));
        out.line(2, &format!("over {limit}: {subject}, {sets} label sets {action}"));
    }
    for metric in cardinality.iter().flat_map(|report| &report.metrics).take(LINES) {
        let (kind, name, series) = (&metric.kind, &metric.name, count(metric.series));
        let grown = metric.grown(60).map_or_else(|| "-".to_owned(), count);
        out.line(2, &format!("{kind} {name}: {series} series, {grown} new in the last hour"));
        for label in &metric.labels {
            let about = if label.exact { "" } else { "about " };
            let (values, examples) = (count(label.values), label.examples.join(", "));
            out.line(3, &format!("{}: {about}{values} values, e.g. {examples}", label.name));
        }
    }
    for sender in statsd.senders.iter().filter(|sender| sender.gains()).take(LINES) {
        let (who, lines, saving) = (sender.who(), sender.lines_per_datagram, 100.0 * sender.saving);
        let datagrams = count(sender.datagrams_per_second.round() as u64);
        let saves = format!("batching would save about {saving:.0}% of the CPU for datagrams");
        let sends = format!("{lines:.1} lines per datagram, {datagrams} datagrams/s");
        out.line(2, &format!("{who}: {sends}; {saves}"));
    }
    let senders = cardinality.iter().flat_map(|report| &report.senders);
    for sender in senders.filter(|sender| sender.brings()).take(LINES) {
        let (hour, beyond) = (count(sender.in_an_hour()), count(sender.beyond_budget));
        let brings = format!("{hour} new series in the last hour, {beyond} label sets over budget");
        out.line(2, &format!("from {}: {brings}", sender.display_name()));
    }
    let uncounted = statsd.largest.iter().filter(|_| cardinality.is_none());
    for metric in uncounted.take(LINES) {
        let (name, sets) = (&metric.name, count(metric.label_sets));
        out.line(2, &format!("{} {name}: {sets} label sets of {}", metric.kind, metric.labels));
    }
    for rule in statsd.rules.iter().take(LINES) {
        out.line(2, &format!("rule {}: {}", rule.pattern, count(rule.hits)));
    }
    for pattern in statsd.never_hit.iter().take(LINES) {
        out.line(2, &format!("no matches: {pattern}"));
    }
    for name in statsd.unmapped_names.iter().take(LINES) {
        out.line(2, &format!("unmapped: {} (about {} events)", name.name, count(name.events)));
    }
    for refused in &statsd.refused {
        let Refused { reason, line, .. } = refused;
        let (times, last) = (count(refused.count), duration(now - refused.at));
        out.line(1, &format!("rejected, {reason}: {times}, last {last} ago: {line}"));
    }
}

fn scrapes(out: &mut Writer, scrapes: &[Scrape], now: f64) {
    out.heading("SCRAPES");
    if scrapes.is_empty() {
        out.line(1, "no scrapes yet");
    }
    for scrape in scrapes.iter().take(SCRAPES) {
        let Scrape { client, agent, path, status, .. } = scrape;
        let cut = if scrape.complete { "" } else { ", cut" };
        let (ago, took) = (duration(now - scrape.at), duration(scrape.seconds));
        let size = bytes(scrape.bytes as f64);
        out.line(
            1,
            &format!("{ago} ago: {client} ({agent}) {path}: {status}, {size}, {took}{cut}"),
        );
    }
}
