//! Derives the problems from the facts, in sentences: worst first, and few, regardless of the
//! number of kinds.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::facts::{
    ConfigFile, EmptyMetric, Facts, Findings, Health, Kind, Kubernetes, Listener, Program,
    StandbyPeer, StandbyStatus, State, Statsd,
};
use super::words::{bytes, clock, count, duration, is_recent, some_names};
use crate::exposition::budget;

/// A receive buffer up to this size is small: one busy client fills it in a few milliseconds.
const SMALL_BUFFER: u64 = 1 << 20;

/// The age in seconds up to which an event is worth mentioning.
const RECENT: f64 = 300.0;

/// The share of the memory limit from which memory is near it, as for the alert.
const NEAR_LIMIT: f64 = 0.9;

/// Runbook pages that several problems share.
const NOT_READY: &str = "KstatdNotReady";
const OVER_BUDGET: &str = "KstatdOverBudget";
const PARTITION: &str = "KstatdStandbyPartition";

/// The maximum number of kinds named in a sentence.
const NAMED: usize = 4;

/// Returns the rank of an exceeded budget in a list: first those of the last minutes, then the most frequent ones.
pub(crate) fn excess_rank(now: f64, at: f64, times: u64) -> (bool, Reverse<u64>) {
    (!is_recent(now, at, RECENT), Reverse(times))
}

/// Sets state, reasons, warnings and notes.
pub(super) fn judge(facts: &mut Facts) {
    let mut found = Findings::default();
    if let Some(kubernetes) = &facts.kubernetes {
        kinds(kubernetes, facts.at, &mut found);
        objects(kubernetes, facts.at, &mut found);
    }
    if let Some(of) = &facts.standby {
        standby(of, facts.at, &mut found);
    }
    facts.files.iter().for_each(|of| file(of, facts.at, &mut found));
    memory(facts, &mut found);
    growth(facts, &mut found);
    if let Some(failure) = facts.node.as_ref().and_then(|node| node.failure.as_ref()) {
        found.reason(NOT_READY, format!("disk usage of pods is incomplete: {failure}"));
    }
    facts.node.iter().flat_map(|node| &node.gaps).for_each(|gap| found.note(gap.clone()));
    if let Some(statsd) = &facts.statsd {
        lost(statsd, facts, &mut found);
        clients(statsd, facts.at, &mut found);
    }
    if let Some(last) = facts.scrapes.first().map(|scrape| facts.at - scrape.at)
        && last > RECENT
    {
        found.note(format!("no scrapes for {}", duration(last)));
    }
    super::truncation::judge(facts, &mut found);
    let Findings { reasons, warnings, notes } = found;
    facts.state = match (reasons.is_empty(), warnings.is_empty()) {
        (false, _) => State::Degraded,
        (true, false) => State::Warn,
        (true, true) => State::Ok,
    };
    (facts.reasons, facts.warnings, facts.notes) = (reasons, warnings, notes);
}

/// Describes objects without series, exceeded budgets and metrics without series.
fn objects(kubernetes: &Kubernetes, now: f64, found: &mut Findings) {
    if let Some(over) = kubernetes.over_budget.first() {
        let subject = match (over.metric.as_str(), over.label.as_str()) {
            ("", _) => over.resource.clone(),
            (metric, "") => metric.to_owned(),
            (metric, label) => format!("values of {label} of {metric}"),
        };
        let text = format!(
            "{subject} exceed {} ({} {} since the start, resource {})",
            budget::displayed(&over.limit),
            count(over.times),
            over.action,
            over.resource
        );
        if is_recent(now, over.at, RECENT) {
            found.warning(OVER_BUDGET, text);
        } else {
            found.note(text);
        }
    }
    let short: Vec<&Kind> = kubernetes.kinds.iter().filter(|kind| kind.left_out > 0).collect();
    if !short.is_empty() {
        let objects = count(short.iter().map(|kind| kind.left_out).sum());
        let text =
            format!("{}: {objects} objects have no series because of a limit", names(&short));
        found.warning(OVER_BUDGET, text);
    }
    for EmptyMetric { resource, metric, path } in kubernetes.empty_metrics.iter().take(NAMED) {
        let text = format!("{metric} has no series: no object of {resource} has a value at {path}");
        found.warning("KstatdCustomResourceMetricEmpty", text);
    }
    if kubernetes.empty_metrics.len() > NAMED {
        let more = kubernetes.empty_metrics.len() - NAMED;
        let text = format!("{more} more metrics of custom resources have no series");
        found.warning("KstatdCustomResourceMetricEmpty", text);
    }
    if !kubernetes.unserved_kinds.is_empty() {
        let kinds = kubernetes.unserved_kinds.join(", ");
        found
            .note(format!("the API server does not serve the configured custom resources {kinds}"));
    }
    if !kubernetes.missing_namespaces.is_empty() {
        let missing = kubernetes.missing_namespaces.join(", ");
        found.note(format!("namespaces not found: {missing}"));
    }
}

/// Describes a file that is not applied.
fn file(file: &ConfigFile, now: f64, found: &mut Findings) {
    if file.is_applied() {
        return;
    }
    let since = match file.loaded {
        Some(loaded) => format!("keeping the content of {}", clock(loaded, now)),
        None if file.what == "file" => "keeping the previous content".to_owned(),
        None => "never loaded".to_owned(),
    };
    let why = match (file.unanswered_since, &file.error) {
        (Some(since), _) => {
            let since = clock(since, now);
            format!("cannot be read, the file system has not responded since {since}")
        }
        (None, Some(error)) => error.clone(),
        (None, None) => "being applied".to_owned(),
    };
    let text = format!("{} {} is not applied, {since}: {why}", file.what, file.path);
    found.reason("KstatdConfigReloadFailed", text);
}

/// Warns about memory near the limit.
fn memory(facts: &Facts, found: &mut Findings) {
    let Program { memory_bytes: Some(used), memory_limit_bytes: Some(limit), .. } = facts.program
    else {
        return;
    };
    let share = used as f64 / limit.max(1) as f64;
    if share >= NEAR_LIMIT {
        let (used, limit) = (bytes(used as f64), bytes(limit as f64));
        let text = format!(
            "memory is at {:.0}% of the cgroup limit ({used} of {limit}), above which the process is killed",
            100.0 * share
        );
        found.warning("KstatdMemoryNearLimit", text);
    }
}

/// Warns about many more series than an hour ago, as the alert does. The first minutes of the process do not count.
fn growth(facts: &Facts, found: &mut Findings) {
    let Some(track) = facts.history.track("series") else { return };
    let up = (facts.at - facts.program.started).max(0.0) as usize;
    let step = facts.history.step.max(1) as usize;
    let settled = (up.saturating_sub(RECENT as usize) / step).min(track.values.len());
    let past = track.values.get(track.values.len() - settled..).unwrap_or_default();
    let fewest = past.iter().flatten().copied().fold(f32::INFINITY, f32::min);
    let Some(now) = track.last().filter(|now| *now > fewest * 1.5 && *now - fewest > 1e4) else {
        return;
    };
    let (before, now) = (count(fewest as u64), count(now as u64));
    let text = format!(
        "series grew from {before} to {now} within an hour: `kstatd top --sort growth` names the metrics"
    );
    found.warning("KstatdSeriesGrowth", text);
}

/// Describes failing list/watches, with one sentence per reason. If most kinds fail because of the API server, these share
/// one.
fn failing(kubernetes: &Kubernetes, now: f64, found: &mut Findings) {
    let kinds = &kubernetes.kinds;
    let failure = |kind: &Kind| kind.failure.as_ref().map(|failure| failure.of_the_server);
    let of_server = kinds.iter().filter(|kind| failure(kind) == Some(true)).count();
    let is_whole = of_server > 1 && of_server * 2 > kinds.len();
    let mut groups: BTreeMap<&str, BTreeMap<&str, Vec<&Kind>>> = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| kind.health == Health::Failing) {
        let reason = kind.failure.as_ref().and_then(|failure| failure.reason).unwrap_or_default();
        let key = if is_whole && failure(kind) == Some(true) { "server" } else { reason };
        groups.entry(key).or_default().entry(reason).or_default().push(kind);
    }
    for reasons in groups.into_values() {
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(_, kinds)| Reverse(kinds.len()));
        let said = reasons.iter().map(|(reason, kinds)| {
            let failures = kinds.iter().filter_map(|kind| kind.failure.as_ref());
            let message = failures.map(|failure| failure.message.as_str()).next();
            why(reason, message.unwrap_or_default())
        });
        let why = said.collect::<Vec<_>>().join("; ");
        let page = match reasons.first() {
            Some(("unauthorized" | "forbidden", _)) => "KstatdKindForbidden",
            _ => "KstatdListWatchErrors",
        };
        let affected: Vec<&Kind> = reasons.into_iter().flat_map(|(_, kinds)| kinds).collect();
        let failures = affected.iter().filter_map(|kind| kind.failure.as_ref());
        let since = failures.map(|failure| failure.since).fold(f64::INFINITY, f64::min);
        let (who, since) = (subject(&affected, kinds.len()), clock(since, now));
        found.reason(page, format!("{who}: {why} since {since}, {}", data(&affected, now)));
    }
}

/// Describes the list/watches that are not healthy.
fn kinds(kubernetes: &Kubernetes, now: f64, found: &mut Findings) {
    let total = kubernetes.kinds.len();
    failing(kubernetes, now, found);
    let of = |health| kubernetes.kinds.iter().filter(|kind| kind.health == health).collect();
    let stale: Vec<&Kind> = of(Health::Stale);
    if !stale.is_empty() {
        let who = subject(&stale, total);
        let text = format!("{who}: no data from the API server, {}", data(&stale, now));
        found.reason("KstatdKindStale", text);
    }
    let absent: Vec<&Kind> = of(Health::Absent);
    if !absent.is_empty() {
        found.note(format!("the API server does not serve {}", names(&absent)));
    }
    let starting: Vec<&Kind> = of(Health::Starting);
    if !starting.is_empty() {
        let objects = count(starting.iter().map(|kind| kind.coming.max(kind.objects)).sum());
        let who = subject(&starting, total);
        let text = format!("{who}: initial list in progress, {objects} objects so far");
        found.reason(NOT_READY, text);
    }
    if !kubernetes.ready && total == 0 {
        found.reason(NOT_READY, "initial lists have not started".to_owned());
    }
    if !kubernetes.pending.is_empty() && starting.is_empty() {
        let pending = kubernetes.pending.join(", ");
        let text = format!("the latest configuration is not applied yet to {pending}");
        found.reason(NOT_READY, text);
    }
}

/// Returns the names of a few kinds, or their number if all are meant.
fn subject(kinds: &[&Kind], total: usize) -> String {
    match kinds.len() {
        number if number == total && number > 1 => {
            let is_scoped = kinds.iter().any(|kind| kind.namespace.is_some());
            format!("{number} {}", if is_scoped { "list/watches" } else { "kinds" })
        }
        number if number > NAMED => format!("{number} of {total} kinds ({})", names(kinds)),
        _ => names(kinds),
    }
}

fn names(kinds: &[&Kind]) -> String {
    some_names(kinds.iter().map(|kind| kind.name()), NAMED)
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
        "refused" if message.is_empty() => "the API server rejects requests",
        "broken" => "no connection",
        // The message has the limit.
        "timeout" => message,
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

/// Describes which replica exposes metrics, and those that do not answer.
fn standby(standby: &StandbyStatus, now: f64, found: &mut Findings) {
    for StandbyPeer { address, since, error, .. } in &standby.peers {
        if let Some(error) = error {
            let since = clock(*since, now);
            let text = format!(
                "standby: {address} has not answered since {since} ({error}); if it runs, both replicas expose the same metrics"
            );
            found.warning(PARTITION, text);
        }
    }
    for (name, error) in &standby.unresolved {
        let text = format!("standby: the address {name} cannot be looked up ({error})");
        found.warning(PARTITION, text);
    }
    let active = standby.peers.iter().filter(|peer| peer.active == Some(true));
    let active: Vec<&str> = active.map(|peer| peer.address.as_str()).collect();
    let others = active.join(", ");
    if standby.peers.is_empty() && standby.unresolved.is_empty() {
        let text = "standby: --standby-peers has no address of another replica";
        found.warning(PARTITION, text.to_owned());
    }
    found.note(match (standby.active, active.is_empty()) {
        (true, true) => "standby: this replica exposes the metrics".to_owned(),
        (true, false) => format!("standby: this replica exposes the metrics, and so does {others}"),
        (false, false) => {
            format!("standby: {others} exposes the metrics, scrapes of this replica are empty")
        }
        (false, true) => "standby: no replica exposes the metrics yet".to_owned(),
    });
}

/// Describes lost lines.
fn lost(statsd: &Statsd, facts: &Facts, found: &mut Findings) {
    let recent = facts.history.track("drops").map_or(0.0, |track| {
        let steps = (RECENT as u64 / facts.history.step.max(1)) as usize;
        let last = track.values.iter().rev().take(steps).flatten();
        last.map(|rate| f64::from(*rate) * facts.history.step as f64).sum::<f64>()
    });
    if recent >= 0.5 {
        let dropped = count(recent.round() as u64);
        let mut text = format!("StatsD: the kernel dropped {dropped} datagrams in the last 5 min");
        let dropping = statsd.listeners.iter().filter(|of| of.dropped.is_some_and(|n| n > 0));
        let buffers = dropping.filter_map(|of| of.receive_buffer_bytes);
        if let Some(buffer) = buffers.min() {
            text.push_str(&format!(", receive buffer {}", bytes(buffer as f64)));
        }
        if let Some(hint) = buffer_hint(statsd) {
            text.push_str(&format!("; {hint}"));
        }
        found.warning("KstatdUdpDrops", text);
    }
    for (reason, what) in [("series_limit", "--limit.series"), ("memory_limit", "--limit.memory")] {
        let full = statsd.refused.iter().find(|refused| refused.reason == reason);
        let Some(refused) = full.filter(|refused| is_recent(facts.at, refused.at, RECENT)) else {
            continue;
        };
        let at = clock(refused.at, facts.at);
        let text = format!("StatsD: {what} is reached, new series are rejected (last at {at})");
        found.reason("KstatdStatsdRejects", text);
    }
    let closed = |of: &&Listener| of.dropped.is_some() && of.receive_buffer_bytes.is_none();
    for Listener { protocol, address, .. } in statsd.listeners.iter().filter(closed) {
        let text = format!("StatsD: socket {protocol} {address} failed and is being reopened");
        found.reason("KstatdUdpDrops", text);
    }
}

/// Describes problems that clients should fix.
fn clients(statsd: &Statsd, now: f64, found: &mut Findings) {
    for refused in statsd.refused.iter().filter(|refused| is_recent(now, refused.at, RECENT)) {
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
        found.note(format!(
            "StatsD rejects samples: {what} ({} since the start, last at {})",
            count(refused.count),
            clock(refused.at, now)
        ));
    }
    if let Some(over) = statsd.over_budget.iter().find(|over| is_recent(now, over.at, RECENT)) {
        let text = format!(
            "StatsD: {} exceeds {} ({} label sets {})",
            over.subject(),
            budget::displayed(over.limit),
            count(over.label_sets),
            over.action
        );
        found.warning(OVER_BUDGET, text);
    }
    let unmapped = statsd.unmapped_since_load;
    let events = statsd.mapped_since_load + unmapped;
    if statsd.rule_count > 0 && events > 0 && unmapped * 2 > events {
        found.note(format!(
            "{:.0}% of StatsD events match no mapping rule",
            100.0 * unmapped as f64 / events as f64
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
            selectors: None,
            phase: "waiting",
            shown: true,
            given_up: false,
            objects: 7,
            coming: 0,
            series: 0,
            bytes: 0,
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
            empty_metrics: Vec::new(),
            unserved_kinds: Vec::new(),
            kinds: kinds_of,
        };
        let mut found = Findings::default();
        kinds(&kubernetes, 1_700_000_480.0, &mut found);
        found.reasons.into_iter().map(|reason| reason.text).collect()
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
                "5 kinds: stalled, the connection is open but silent, since 22:13:20 UTC, data 8 min old",
            ),
            (
                ["a", "b", "c", "d", "e"].map(|name| kind(name, Failing, Some("forbidden"))).into(),
                "5 kinds: 403 Forbidden, an RBAC rule is missing, since 22:13:20 UTC, data 8 min old",
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
