//! Derives the problems from the facts, in sentences: worst first, and few, regardless of the
//! number of kinds.

use std::collections::BTreeMap;

use super::facts::{Facts, Health, Kind, Kubernetes, Listener, State, Statsd};
use super::words::{bytes, clock, count, duration};
use crate::exposition::budget;

/// A receive buffer up to this size is small: one busy client fills it in a few milliseconds.
const SMALL_BUFFER: u64 = 1 << 20;

/// The age in seconds up to which an event is worth mentioning.
const RECENT: f64 = 300.0;

/// The maximum number of kinds named in a sentence.
const NAMED: usize = 4;

/// Sets state, reasons and notes.
pub(super) fn judge(facts: &mut Facts) {
    let mut reasons = Vec::new();
    let mut notes = Vec::new();
    if let Some(kubernetes) = &facts.kubernetes {
        kinds(kubernetes, facts.at, &mut reasons);
        let missing = &kubernetes.missing_namespaces;
        if !missing.is_empty() {
            notes.push(format!("namespaces not found: {}", missing.join(", ")));
        }
        if let Some(over) = kubernetes.over_budget.iter().find(|over| !over.label.is_empty()) {
            notes.push(format!(
                "{}: values of {} exceed {} ({} {} since the start, resource {})",
                over.metric,
                over.label,
                budget::displayed(&over.limit),
                count(over.times),
                over.action,
                over.resource
            ));
        }
        let short: Vec<&Kind> = kubernetes.kinds.iter().filter(|kind| kind.left_out > 0).collect();
        if !short.is_empty() {
            notes.push(format!(
                "{}: {} objects have no series because they exceed --limit.series-per-kind",
                names(&short),
                count(short.iter().map(|kind| kind.left_out).sum())
            ));
        }
    }
    for file in facts.files.iter().filter(|file| !file.is_applied()) {
        let since = match file.loaded {
            Some(loaded) => format!("keeping the content of {}", clock(loaded, facts.at)),
            None if file.what == "file" => "keeping the previous content".to_owned(),
            None => "never loaded".to_owned(),
        };
        let why = match (file.unanswered_since, &file.error) {
            (Some(since), _) => {
                let since = clock(since, facts.at);
                format!("cannot be read, the file system has not responded since {since}")
            }
            (None, Some(error)) => error.clone(),
            (None, None) => "being applied".to_owned(),
        };
        reasons.push(format!("{} {} is not applied, {since}: {why}", file.what, file.path));
    }
    if let Some(failure) = facts.node.as_ref().and_then(|node| node.failure.as_ref()) {
        reasons.push(format!("disk usage of pods is incomplete: {failure}"));
    }
    notes.extend(facts.node.iter().flat_map(|node| node.gaps.iter().cloned()));
    if let Some(statsd) = &facts.statsd {
        lost(statsd, facts, &mut reasons);
        clients(statsd, facts.at, &mut notes);
    }
    if let Some(last) = facts.scrapes.first().map(|scrape| facts.at - scrape.at)
        && last > RECENT
    {
        notes.push(format!("no scrapes for {}", duration(last)));
    }
    super::truncation::notes(facts, &mut notes);
    facts.state = if reasons.is_empty() { State::Ok } else { State::Degraded };
    (facts.reasons, facts.notes) = (reasons, notes);
}

/// Describes failing list/watches, with one sentence per reason.
fn kinds(kubernetes: &Kubernetes, now: f64, reasons: &mut Vec<String>) {
    let mut failing: BTreeMap<&str, Vec<&Kind>> = BTreeMap::new();
    for kind in kubernetes.kinds.iter().filter(|kind| kind.health == Health::Failing) {
        let reason = kind.failure.as_ref().and_then(|failure| failure.reason).unwrap_or_default();
        failing.entry(reason).or_default().push(kind);
    }
    let total = kubernetes.kinds.len();
    for (reason, kinds) in failing {
        let failures = || kinds.iter().filter_map(|kind| kind.failure.as_ref());
        let since = failures().map(|failure| failure.since).fold(f64::INFINITY, f64::min);
        let message = failures().next().map_or("", |failure| failure.message.as_str());
        let whole = failures().all(|failure| failure.of_the_server) && kinds.len() * 2 > total;
        let who = if whole && total > 1 {
            format!("the API server ({} of {total} list/watches)", kinds.len())
        } else {
            names(&kinds)
        };
        reasons.push(format!(
            "{who}: {} since {}, {}",
            why(reason, message),
            clock(since, now),
            data(&kinds, now)
        ));
    }
    let of = |health| kubernetes.kinds.iter().filter(|kind| kind.health == health).collect();
    let stale: Vec<&Kind> = of(Health::Stale);
    if !stale.is_empty() {
        reasons.push(format!(
            "{}: no data from the API server, {}",
            names(&stale),
            data(&stale, now)
        ));
    }
    let starting: Vec<&Kind> = of(Health::Starting);
    if !starting.is_empty() {
        reasons.push(format!(
            "{}: initial list in progress, {} objects so far",
            names(&starting),
            count(starting.iter().map(|kind| kind.coming.max(kind.objects)).sum())
        ));
    }
    if !kubernetes.ready && total == 0 {
        reasons.push("initial lists have not started".to_owned());
    }
    if !kubernetes.pending.is_empty() && starting.is_empty() {
        let pending = kubernetes.pending.join(", ");
        reasons.push(format!("the latest configuration is not applied yet to {pending}"));
    }
}

fn names(kinds: &[&Kind]) -> String {
    let mut text = kinds.iter().take(NAMED).map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    if kinds.len() > NAMED {
        text.push_str(&format!(" and {} more", kinds.len() - NAMED));
    }
    text
}

/// Returns the reason in plain words, or the error message if the reason is unknown.
fn why<'m>(reason: &str, message: &'m str) -> &'m str {
    match reason {
        "unauthorized" => "401 Unauthorized, the API server rejects the credentials,",
        "forbidden" => "403 Forbidden, an RBAC rule is missing,",
        "not_found" => "404 Not Found, the API server does not serve this resource,",
        "expired" => "410 Gone, the resourceVersion has expired,",
        "throttled" => "429 Too Many Requests, throttled by the API server,",
        "server_error" => "the API server returns errors",
        "refused" => "the API server rejects requests",
        "broken" => "no connection",
        "timeout" => "timeout",
        "frozen" => "stalled, the connection is open but silent,",
        "slow" => "responses are too slow",
        "garbled" => "invalid responses",
        _ => message,
    }
}

/// Describes the age of the served data.
fn data(kinds: &[&Kind], now: f64) -> String {
    let oldest = kinds.iter().filter_map(|kind| kind.current).fold(f64::INFINITY, f64::min);
    let never = kinds.iter().any(|kind| kind.listed.is_none());
    match (never, oldest.is_finite()) {
        _ if kinds.iter().all(|kind| kind.given_up) => "its data is no longer served".to_owned(),
        (true, _) => "no data yet".to_owned(),
        (false, true) => format!("data {} old", duration(now - oldest)),
        (false, false) => "age of the data unknown".to_owned(),
    }
}

/// Describes lost lines.
fn lost(statsd: &Statsd, facts: &Facts, reasons: &mut Vec<String>) {
    let recent = facts.history.track("drops").map_or(0.0, |track| {
        let steps = (RECENT as u64 / facts.history.step.max(1)) as usize;
        let last = track.values.iter().rev().take(steps).flatten();
        last.map(|rate| f64::from(*rate) * facts.history.step as f64).sum::<f64>()
    });
    if recent >= 0.5 {
        let mut sentence = format!(
            "StatsD: the kernel dropped {} datagrams in the last {}",
            count(recent.round() as u64),
            duration(RECENT)
        );
        if let Some(hint) = buffer_hint(statsd) {
            sentence.push_str(&format!("; {hint}"));
        }
        reasons.push(sentence);
    }
    for (reason, what) in [("series_limit", "--limit.series"), ("memory_limit", "--limit.memory")] {
        let full = statsd.refused.iter().find(|refused| refused.reason == reason);
        let Some(refused) = full.filter(|refused| facts.at - refused.at < RECENT) else {
            continue;
        };
        reasons.push(format!(
            "StatsD: {what} is reached, new series are rejected (last at {})",
            clock(refused.at, facts.at)
        ));
    }
    let closed = |of: &&Listener| of.dropped.is_some() && of.receive_buffer_bytes.is_none();
    for Listener { protocol, address, .. } in statsd.listeners.iter().filter(closed) {
        reasons.push(format!("StatsD: socket {protocol} {address} failed and is being reopened"));
    }
}

/// Describes problems that clients should fix.
fn clients(statsd: &Statsd, now: f64, notes: &mut Vec<String>) {
    for refused in statsd.refused.iter().filter(|refused| now - refused.at < RECENT) {
        let what = match refused.reason {
            "other_kind" => "a metric is sent with two types",
            "derived_name" => "a name conflicts with the derived series of another metric",
            "reserved_name" => "a name is reserved",
            "reserved_label" => "a label is reserved by the metric type",
            "label_limit" => "a label has too many values, or too long a value",
            "name_limit" => "a name is too long",
            "series_limit" | "memory_limit" => continue,
            reason => reason,
        };
        notes.push(format!(
            "StatsD rejects samples: {what} ({} since the start, last at {})",
            count(refused.count),
            clock(refused.at, now)
        ));
    }
    if let Some(over) = statsd.over_budget.iter().find(|over| now - over.at < RECENT) {
        notes.push(format!(
            "StatsD: {} exceeds {} ({} label sets {})",
            over.subject(),
            budget::displayed(over.limit),
            count(over.label_sets),
            over.action
        ));
    }
    let events = statsd.mapped + statsd.unmapped;
    if statsd.rule_count > 0 && events > 0 && statsd.unmapped * 2 > events {
        notes.push(format!(
            "{:.0}% of StatsD events match no mapping rule",
            100.0 * statsd.unmapped as f64 / events as f64
        ));
    }
}

/// Returns advice about a small receive buffer.
pub(super) fn buffer_hint(statsd: &Statsd) -> Option<String> {
    let most = statsd.rmem_max.filter(|most| *most <= SMALL_BUFFER)?;
    let small = |buffer: u64| buffer <= 2 * SMALL_BUFFER;
    let smallest = statsd.listeners.iter().filter_map(|of| of.receive_buffer_bytes).min();
    smallest.filter(|buffer| small(*buffer)).map(|buffer| {
        format!(
            "a receive buffer is limited to {} by the host: raise net.core.rmem_max there \
             (it is {}), for example `sysctl -w net.core.rmem_max=16777216`",
            bytes(buffer as f64),
            count(most)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::Failure;
    use super::*;

    fn kind(resource: &str, health: Health, reason: Option<&'static str>) -> Kind {
        let failure = (health == Health::Failing).then(|| Failure {
            since: 1_700_000_000.0,
            reason,
            of_the_server: reason == Some("frozen"),
            message: "in its own words".to_owned(),
        });
        Kind {
            health,
            resource: resource.to_owned(),
            namespace: (resource == "pods").then(|| "billing".to_owned()),
            phase: "waiting",
            shown: true,
            given_up: false,
            objects: 7,
            coming: 0,
            series: None,
            bytes: None,
            left_out: 0,
            listed: (health != Health::Starting).then_some(1_699_999_000.0),
            heard: (health != Health::Starting).then_some(1_700_000_400.0),
            current: (health != Health::Starting).then_some(1_700_000_000.0),
            events_per_second: None,
            errors: 1,
            failure,
            missing_rule: None,
        }
    }

    fn sentences(kinds_of: Vec<Kind>) -> Vec<String> {
        let kubernetes = Kubernetes {
            server: "https://a".to_owned(),
            shard: None,
            ready: true,
            pending: Vec::new(),
            missing_namespaces: Vec::new(),
            over_budget: Vec::new(),
            kinds: kinds_of,
        };
        let mut reasons = Vec::new();
        kinds(&kubernetes, 1_700_000_480.0, &mut reasons);
        reasons
    }

    #[test]
    fn failing_kinds() {
        use Health::{Failing, Ok, Stale, Starting};
        for (kinds, sentence) in [
            (
                vec![kind("pods", Failing, Some("forbidden")), kind("nodes", Ok, None)],
                "pods in billing: 403 Forbidden, an RBAC rule is missing, since 22:13:20 UTC, data 8 min old",
            ),
            (
                vec![kind("nodes", Failing, None)],
                "nodes: in its own words since 22:13:20 UTC, data 8 min old",
            ),
            (
                ["a", "b", "c", "d", "e"].map(|name| kind(name, Failing, Some("frozen"))).into(),
                "the API server (5 of 5 list/watches): stalled, the connection is open but silent, since \
                 22:13:20 UTC, data 8 min old",
            ),
            (
                ["a", "b", "c", "d", "e"].map(|name| kind(name, Failing, Some("forbidden"))).into(),
                "a, b, c, d and 1 more: 403 Forbidden, an RBAC rule is missing, since 22:13:20 UTC, data 8 min old",
            ),
            (
                vec![kind("nodes", Stale, None)],
                "nodes: no data from the API server, data 8 min old",
            ),
            (
                vec![kind("nodes", Starting, None)],
                "nodes: initial list in progress, 7 objects so far",
            ),
        ] {
            assert_eq!(sentences(kinds), [sentence]);
        }
        assert!(sentences(vec![kind("nodes", Ok, None)]).is_empty());
    }
}
