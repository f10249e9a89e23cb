//! The HTML status page. It has no scripts and loads no resources. Text is HTML-escaped where it is
//! inserted; terminal control and bidirectional formatting characters are escaped on the entire
//! page.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest::{SHA256, digest};

use super::explanation::Explanation;
use super::facts::{
    ConfigFile, DatagramSender, Facts, Health, Kind, Kubernetes, Node, Problem, State, Statsd,
};
use super::history::{Past, STEP, Track};
use super::judge::buffer_hint;
use super::plot;
use super::words::{bytes, clock, count, duration, printable, rate};
use crate::exposition::budget;
use crate::telemetry::cardinality::Report;
use crate::telemetry::countable::Sender;
use crate::telemetry::scrapes::Scrape;

const STYLE: &str = include_str!("style.css");

/// The location of the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageContext {
    /// The path of the page.
    pub(crate) path: &'static str,
    /// True if this listener serves profiles.
    pub(crate) profiles: bool,
}

/// Returns the Content-Security-Policy: inline style, and forms to the same origin.
pub(crate) fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let style = STANDARD.encode(digest(&SHA256, STYLE.as_bytes()));
        format!(
            "default-src 'none'; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; \
             frame-ancestors 'none'"
        )
    });
    &POLICY
}

/// Renders the page; with `refresh` the browser reloads it periodically.
pub(crate) fn page(facts: &Facts, place: PageContext, refresh: bool) -> String {
    let program = &facts.program;
    let body = html! {
        header {
            h1 { (program.name) }
            span.dim {
                "kstatd " (program.version) ", up " (duration(facts.at - program.started)) ", "
                (clock(facts.at, facts.at))
            }
            nav {
                @if refresh { a href=(place.path) { "stop refreshing" } }
                @else { a href={ (place.path) "?refresh=1" } { "refresh every 15 s" } }
                " · " a href={ (place.path) "?format=json" } { "JSON" }
                " · " a href={ (place.path) "?format=text" } { "text" }
            }
        }
        (banner(facts))
        (tiles(facts))
        (plots(facts))
        @if let Some(kubernetes) = &facts.kubernetes { (kinds(kubernetes, facts.at)) }
        @if let Some(statsd) = &facts.statsd { (listeners(statsd, facts, place)) }
        @if let Some(of) = &facts.node { (node(of, facts.at)) }
        (scrapes(&facts.scrapes, facts.at))
        @if !facts.files.is_empty() { (files(&facts.files, facts.at)) }
        (profiles(place))
    };
    document(&format!("{} · {}", facts.state.as_str(), program.name), refresh, &body)
}

/// Renders a page with our style.
pub(crate) fn document(title: &str, refresh: bool, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                @if refresh { meta http-equiv="refresh" content="15"; }
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    let lines = page.into_string();
    lines.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

fn banner(facts: &Facts) -> Markup {
    let class = match facts.state {
        State::Ok => "banner",
        State::Warn => "banner warning",
        State::Degraded => "banner degraded",
    };
    html! {
        div class=(class) role="status" {
            strong { (facts.state.as_str()) } " "
            span.dim { (basis(facts)) }
            @if !facts.reasons.is_empty() {
                ul { @for reason in &facts.reasons { li { (problem(reason)) } } }
            }
            @if !facts.warnings.is_empty() {
                ul.warn { @for warning in &facts.warnings { li { (problem(warning)) } } }
            }
            @if !facts.notes.is_empty() {
                ul.dim { @for note in &facts.notes { li { (note) } } }
            }
        }
    }
}

/// Renders a problem with a link to its runbook page.
fn problem(problem: &Problem) -> Markup {
    html! { (problem.text) " " a href=(problem.runbook) { (problem.page()) } }
}

/// Returns what the state is based on.
fn basis(facts: &Facts) -> String {
    let mut parts = Vec::new();
    if let Some(kubernetes) = &facts.kubernetes {
        let of = |health| kubernetes.kinds.iter().filter(|kind| kind.health == health).count();
        let served = kubernetes.kinds.len() - of(Health::Absent);
        parts.push(format!("{}/{served} kinds synced", of(Health::Ok)));
    }
    if facts.statsd.is_some()
        && let Some(drops) = facts.history.track("drops").and_then(Track::last)
    {
        parts.push(format!("{} dropped", rate(drops.into())));
    }
    parts.push(match facts.scrapes.first() {
        Some(scrape) => format!("last scrape {} ago", duration(facts.at - scrape.at)),
        None => "not scraped yet".to_owned(),
    });
    parts.join(" · ")
}

fn tile(name: &str, value: Option<String>, track: Option<&Track>) -> Markup {
    html! {
        div.card {
            span.dim { (name) }
            b { (value.as_deref().unwrap_or("–")) }
            @if let Some(track) = track { (plot::lines("spark", 26, track.max(), &[track])) }
        }
    }
}

fn tiles(facts: &Facts) -> Markup {
    let past = &facts.history;
    let last = |what: &str| past.track(what).and_then(Track::last).map(f64::from);
    let rated = |what: &str| last(what).map(rate);
    let both = |kubernetes: Option<u64>, statsd: Option<u64>| match (kubernetes, statsd) {
        (None, None) => None,
        (a, b) => Some(count(a.unwrap_or(0) + b.unwrap_or(0))),
    };
    let kubernetes = facts.kubernetes.as_ref();
    let series =
        both(kubernetes.map(Kubernetes::series), facts.statsd.as_ref().map(|statsd| statsd.series));
    let scrape = facts.scrapes.first();
    html! {
        div.grid {
            @if let Some(kubernetes) = kubernetes {
                (tile("objects", Some(count(kubernetes.objects())), past.track("objects")))
            }
            (tile("series", series, past.track("series")))
            @if kubernetes.is_some() { (tile("events", rated("events"), past.track("events"))) }
            @if facts.statsd.is_some() {
                (tile("lines", rated("lines"), past.track("lines")))
                (tile("drops", rated("drops"), past.track("drops")))
            }
            (tile("memory", facts.program.memory(), past.track("memory")))
            (tile("CPU", facts.program.cpu_percent.map(|cpu| format!("{cpu:.1}%")), past.track("cpu")))
            (tile(
                "last scrape",
                scrape.map(|scrape| format!("{} ago", duration(facts.at - scrape.at))),
                past.track("scrape_seconds"),
            ))
        }
    }
}

/// Renders a chart of the last hour.
fn recent(title: &str, tracks: &[&Track], show: impl Fn(f64) -> String) -> Markup {
    drawing(title, tracks, STEP.as_secs_f64(), ["ago", "now"], show)
}

/// Renders a chart with its scale, the names of its ends, and a legend. Values are `step` seconds apart.
pub(crate) fn drawing(
    title: &str,
    tracks: &[&Track],
    step: f64,
    [begin, end]: [&str; 2],
    show: impl Fn(f64) -> String,
) -> Markup {
    let top = tracks.iter().map(|track| track.max()).fold(0.0, f32::max);
    let width = (plot::span(tracks) - 1) as f64 * step;
    html! {
        div.card {
            h3 { (title) }
            div.ends { span { "up to " (show(top.into())) } }
            (plot::lines("plot", 90, top, tracks))
            div.ends { span { (duration(width)) " " (begin) } span { (end) } }
            @if tracks.iter().any(|track| !track.of.is_empty()) {
                div.legend {
                    @for (number, track) in tracks.iter().enumerate() {
                        span class={ "l" (number) } {
                            (track.of) " " (track.last().map_or("–".to_owned(), |last| show(last.into())))
                        }
                    }
                }
            }
        }
    }
}

fn plots(facts: &Facts) -> Markup {
    let past: &Past = &facts.history;
    let kinds: Vec<&Track> = past.parts("events").collect();
    let one = |title: &str, what: &str, show: fn(f64) -> String| {
        html! { @if let Some(track) = past.track(what) { (recent(title, &[track], show)) } }
    };
    html! {
        div.grid.wide {
            @if facts.kubernetes.is_some() {
                (recent("Events by kind", &kinds, rate))
                (one("Longest silence", "age", duration))
            }
            @if facts.statsd.is_some() {
                (one("StatsD lines", "lines", rate))
                (one("Kernel drops", "drops", rate))
            }
            (one("Scrape duration", "scrape_seconds", duration))
            (one("Scrape size", "scrape_bytes", bytes))
        }
    }
}

fn class_of(health: Health) -> &'static str {
    match health {
        Health::Failing => "bad",
        Health::Stale | Health::Starting => "warn",
        Health::Absent | Health::Ok => "ok",
    }
}

fn ago(at: Option<f64>, now: f64) -> String {
    at.map_or("never".to_owned(), |at| duration(now - at))
}

fn or_dash(value: Option<u64>, show: impl Fn(u64) -> String) -> String {
    value.map_or("–".to_owned(), show)
}

/// Renders a table.
pub(crate) fn table<T>(
    heads: Markup,
    rows: impl IntoIterator<Item = T>,
    cells: impl Fn(T) -> Markup,
) -> Markup {
    html! { div.scroll { table { tr { (heads) } @for row in rows { tr { (cells(row)) } } } } }
}

fn kinds(kubernetes: &Kubernetes, now: f64) -> Markup {
    html! {
        h2 { "Kubernetes" }
        section {
            small {
                (kubernetes.server)
                @if let Some((shard, total)) = kubernetes.shard { ", shard " (shard) " of " (total) }

            }
            div.scroll {
                table {
                    tr {
                        th { "kind" } th { "state" } th.n { "objects" } th.n { "series" } th.n.w { "size" }
                        th.n.w { "listed" } th.n { "heard" } th.n.w { "events" } th.n.w { "errors" }
                    }
                    @for kind in &kubernetes.kinds { (kind_rows(kind, now)) }
                }
            }
        }
    }
}

fn node(node: &Node, now: f64) -> Markup {
    html! {
        h2 { "This node" }
        section {
            small { "last complete kubelet summary: " (ago(node.summary, now)) }
            @let heads = html! { th { "pod" } th.n { "used" } th.n { "of limit" } th.n { "full in" } };
            (table(heads, &node.fullest, |of| html! {
                td.t { (of.pod) }
                td.n { (bytes(of.used_bytes)) }
                td.n { (of.limit_ratio.map_or("–".to_owned(), |of| format!("{:.0}%", 100.0 * of))) }
                td.n { (of.until_full.map_or("–".to_owned(), duration)) }
            }))
        }
    }
}

fn kind_rows(kind: &Kind, now: f64) -> Markup {
    html! {
        tr {
            td.t { (kind.name()) @if let Some(selectors) = &kind.selectors { br; small { (selectors) } } }
            td {
                span class=(class_of(kind.health)) { (kind.health.as_str()) }
                small { " " (kind.phase) @if !kind.shown { ", staged" } @if kind.given_up { ", no longer served" } }
            }
            td.n { (count(kind.objects)) @if kind.coming > 0 { small { " +" (count(kind.coming)) } } }
            td.n { (count(kind.series)) }
            td.n.w { (bytes(kind.bytes as f64)) }
            td.n.w { (ago(kind.listed, now)) }
            td.n { (ago(kind.heard, now)) }
            td.n.w { (kind.events_per_second.map_or("–".to_owned(), rate)) }
            td.n.w { (count(kind.errors)) }
        }
        @if let Some(failure) = &kind.failure {
            tr.more {
                td colspan="9" {
                    span.bad { "since " (clock(failure.since, now)) ": " (failure.message) }
                    @if let Some(rule) = &kind.missing_rule {
                        div { "Missing RBAC rule:" }
                        pre { (rule) }
                    }
                }
            }
        }
    }
}

fn listeners(statsd: &Statsd, facts: &Facts, place: PageContext) -> Markup {
    let (now, explained) = (facts.at, facts.explanation.as_ref());
    html! {
        h2 { "StatsD" }
        section {
            @let heads =
                html! { th { "listener" } th { "address" } th.n { "lines" } th.n { "receive buffer" } th.n { "dropped" } };
            (table(heads, &statsd.listeners, |listener| html! {
                td { (listener.protocol) }
                td.t { (listener.address) }
                td.n { (count(listener.lines)) }
                td.n { (or_dash(listener.receive_buffer_bytes, |size| bytes(size as f64))) }
                td.n { (or_dash(listener.dropped, count)) }
            }))
            @if let Some(hint) = buffer_hint(statsd) { p.warn { (hint) } }
            p {
                (count(statsd.series)) " series in " (count(statsd.families)) " families. Events: "
                (count(statsd.mapped)) " mapped, " (count(statsd.unmapped)) " unmapped. "
                @match &statsd.mapping_file {
                    Some(file) => { (count(statsd.rule_count)) " rules in " code { (file) } "." },
                    None => "No mapping file.",
                }
            }
            (batching(statsd))
            (explanation(explained, place))
            (beyond(statsd, now))
            @match &facts.cardinality {
                Some(report) => (counted(report)),
                None => (largest(statsd, place)),
            }
            (rules(statsd))
            @if !statsd.unmapped_names.is_empty() {
                details open[statsd.rule_count > 0] {
                    summary { "Unmapped names" }
                    (table(html! { th { "name" } th.n { "events (estimated)" } }, &statsd.unmapped_names, |name| html! {
                        td.t { code { (name.name) } } td.n { (count(name.events)) }
                    }))
                }
            }
            @if !statsd.refused.is_empty() {
                h3 { "Rejected samples" }
                @let heads = html! { th { "reason" } th.n { "samples" } th.n { "last" } th { "last line" } };
                (table(heads, &statsd.refused, |refused| html! {
                    td { (refused.reason) }
                    td.n { (count(refused.count)) }
                    td.n { (duration(now - refused.at)) }
                    td.t { code { (refused.line) } }
                }))
            }
        }
    }
}

/// Renders the senders that should batch their lines.
fn batching(statsd: &Statsd) -> Markup {
    html! {
        @if statsd.senders.iter().any(DatagramSender::gains) {
            details open {
                summary { "Senders that should batch their lines" }
                @let heads = html! { th { "sender" } th.n { "lines per datagram" } th.n { "datagrams" } th.n { "saves of datagram CPU" } };
                (table(heads, statsd.senders.iter().filter(|sender| sender.gains()), |sender| html! {
                    td.t { (sender.who()) }
                    td.n { (format!("{:.1}", sender.lines_per_datagram)) }
                    td.n { (rate(sender.datagrams_per_second)) }
                    td.n { (format!("{:.0}%", 100.0 * sender.saving)) }
                }))
            }
        }
    }
}

/// Renders the explain form and the answer to the last question.
fn explanation(explanation: Option<&Explanation>, place: PageContext) -> Markup {
    html! {
        form method="get" action={ (place.path) "#explain" } id="explain" {
            input name="explain" aria-label="StatsD line" placeholder="a.b.c:1|c|#tag:value"
                autocomplete="off" spellcheck="false" value=[explanation.map(|of| &of.line)];
            button { "Explain this line" }
        }
        @if let Some(explanation) = explanation { pre { (explanation.text()) } }
    }
}

/// Renders the metrics with the most series, with their labels.
fn counted(report: &Report) -> Markup {
    let grown = |minutes: &[u64]| count(minutes.iter().sum());
    html! {
        @if !report.metrics.is_empty() {
            details open {
                summary {
                    "Largest metrics and their labels; " (grown(&report.new_by_minute)) " new series in the last hour, "
                    (bytes(report.bytes as f64)) " in total"
                }
                div.scroll { table {
                    tr { th { "metric" } th { "type" } th.n { "series" } th.n { "new in 1 h" } th.n.w { "memory" } th.n { "values" } }
                    @for metric in &report.metrics {
                        tr {
                            td.t { code { (metric.name) } }
                            td { (metric.kind) }
                            td.n { (count(metric.series)) }
                            td.n { (metric.grown(60).map_or_else(|| "-".to_owned(), count)) }
                            td.n.w { (bytes(metric.bytes as f64)) }
                            td.n {}
                        }
                        @for label in &metric.labels {
                            tr.more {
                                td colspan="4" {
                                    code { (label.name) } small { " e.g. " }
                                    @for (at, value) in label.examples.iter().enumerate() {
                                        @if at > 0 { ", " } code { (value) }
                                    }
                                }
                                td.w {}
                                td.n { @if !label.exact { "~" } (count(label.values)) }
                            }
                        }
                    }
                } }
            }
        }
        @if report.senders.iter().any(Sender::brings) {
            details open {
                summary { "Senders of new series" }
                @let heads = html! { th { "sender" } th.n { "new in 1 h" } th.n { "over budget" } th { "latest metric" } };
                (table(heads, report.senders.iter().filter(|sender| sender.brings()), |sender| html! {
                    td.t { (sender.display_name()) }
                    td.n { (count(sender.in_an_hour())) }
                    td.n { (count(sender.beyond_budget)) }
                    td.t { code { (sender.last_metric) } }
                }))
            }
        }
    }
}

/// Renders the metrics with the most label sets, when the series were not scanned.
fn largest(statsd: &Statsd, place: PageContext) -> Markup {
    html! {
        @if !statsd.largest.is_empty() {
            details {
                summary { "Largest metrics; " (count(statsd.new_in_an_hour)) " new series in the last hour" }
                a href={ (place.path) "?labels=1" } { "Count label values" }
                @let heads = html! { th { "metric" } th { "type" } th.n { "label sets" } th { "labels" } };
                (table(heads, &statsd.largest, |metric| html! {
                    td.t { code { (metric.name) } }
                    td { (metric.kind) }
                    td.n { (count(metric.label_sets)) }
                    td.t { code { (metric.labels) } }
                }))
            }
        }
    }
}

/// Renders the exceeded budgets.
fn beyond(statsd: &Statsd, now: f64) -> Markup {
    html! {
        @if !statsd.over_budget.is_empty() {
            h3 { "Over budget" }
            @let heads = html! { th { "metric" } th { "label" } th { "budget" } th { "action" } th.n { "label sets" } th.n { "last" } };
            (table(heads, &statsd.over_budget, |over| html! {
                td.t { code { (over.metric) } }
                td.t { code { (over.label) } }
                td { (budget::displayed(over.limit)) }
                td { (over.action) }
                td.n { (count(over.label_sets)) }
                td.n { (duration(now - over.at)) }
            }))
        }
    }
}

fn rules(statsd: &Statsd) -> Markup {
    html! {
        @if !statsd.rules.is_empty() {
            details {
                summary { "Matching rules (" (count(statsd.rule_count - statsd.never_hit_count)) ")" }
                (table(html! { th { "rule" } th.n { "events" } }, &statsd.rules, |rule| html! {
                    td.t { code { (rule.pattern) } } td.n { (count(rule.hits)) }
                }))
            }
        }
        @if !statsd.never_hit.is_empty() {
            details {
                summary { "Rules without matches (" (count(statsd.never_hit_count)) ")" }
                ul { @for pattern in &statsd.never_hit { li { code { (pattern) } } } }
            }
        }
    }
}

fn scrapes(scrapes: &[Scrape], now: f64) -> Markup {
    html! {
        h2 { "Scrapes" }
        section {
            @if scrapes.is_empty() { "No scrapes yet." }
            @else {
                @let heads = html! {
                    th { "client" } th.w { "user agent" } th { "path" } th.w { "format" } th.n { "status" } th.n { "duration" }
                    th.n.w { "size" } th.n { "ago" }
                };
                (table(heads, scrapes, |scrape| html! {
                    td.t { (scrape.client) }
                    td.w.t { (scrape.agent) }
                    td.t { (scrape.path) }
                    td.w { (scrape.form) @if scrape.gzip { ", gzip" } }
                    td.n { (scrape.status) @if !scrape.complete { span.warn { " cut" } } }
                    td.n { (duration(scrape.seconds)) }
                    td.n.w { (bytes(scrape.bytes as f64)) }
                    td.n { (duration(now - scrape.at)) }
                }))
            }
        }
    }
}

fn files(files: &[ConfigFile], now: f64) -> Markup {
    html! {
        h2 { "Configuration" }
        section {
            @let heads = html! { th { "file" } th { "purpose" } th { "state" } th.n { "loaded" } };
            (table(heads, files, |file| html! {
                td.t { code { (file.path) } }
                td { (file.what) }
                td.t {
                    @if file.is_applied() { span.ok { (file.state()) } } @else { span.bad { (file.state()) } }
                    @if let Some(error) = &file.error { " " code { (error) } }
                }
                td.n { (file.loaded.map_or("never".to_owned(), |at| clock(at, now))) }
            }))
        }
    }
}

fn profiles(place: PageContext) -> Markup {
    html! {
        h2 { "Profiles" }
        section {
            @if place.profiles {
                form method="get" action="/debug/pprof/flamegraph" {
                    label { "CPU for "
                        select name="seconds" {
                            @for seconds in [5, 10, 30, 60, 300] {
                                option value=(seconds) selected[seconds == 10] { (seconds) " s" }
                            }
                        }
                    }
                    button { "Flame graph" }
                    button formaction="/debug/pprof/profile" { "pprof" }
                }
                a href="/debug/pprof/heap_flamegraph" { "heap flame graph" } " · "
                a href="/debug/pprof/heap" { "heap pprof" } " · "
                a href="/debug/pprof/threads" { "threads" } " · "
                a href="/debug/pprof/" { "all profiles" }
            } @else {
                "Profiles are served on the telemetry listener at " code { "/debug/pprof/" } "."
            }
        }
    }
}
