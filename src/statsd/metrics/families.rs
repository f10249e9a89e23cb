//! The metric families that the StatsD pipeline exposes about itself: those of statsd_exporter, with its
//! names and meaning, and our own.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::{Count, Counters, EventType, LineOutcome, Listener, Metrics, SampleOutcome};
use super::largest_families::series_by_family;
use super::rule_hits::RuleHits;
use super::sender_outcome::{RejectedClaim, SenderOutcome};
use crate::exposition::family::{Family, FamilyRow, Series, Value, family_rows};
use crate::statsd::line::SampleError;
use crate::statsd::relay::Relay;
use crate::statsd::series::budget_violations::{Violation, ViolationLog};
use crate::statsd::series::family::Kind as Aggregate;
use crate::statsd::series::registry::{RegistryCounts, Rejection};
use crate::statsd::series::tree::Snapshot;
use crate::telemetry::build;

fn get(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

/// The state of a datagram socket.
#[derive(Clone, Debug)]
pub(crate) struct SocketStats {
    pub(crate) listener: Listener,
    /// The index among the sockets of the listener.
    pub(crate) socket: usize,
    /// The number of datagrams that the kernel dropped.
    pub(crate) dropped: u64,
    /// The size of the receive buffer in bytes, including the kernel's bookkeeping; `None` while the socket
    /// is closed.
    pub(crate) receive_buffer: Option<usize>,
}

/// Inputs for families that are not counted in [`Metrics`].
#[derive(Debug)]
pub(crate) struct FamilyInputs<'a> {
    pub(crate) registry: &'a RegistryCounts,
    pub(crate) relay: Option<&'a Relay>,
    pub(crate) sockets: Vec<SocketStats>,
    /// The families in the registry.
    pub(crate) families: &'a Snapshot,
    /// The number of events per rule.
    pub(crate) rules: &'a RuleHits,
    /// The path of the mapping file, if there is one.
    pub(crate) mapping_file: Option<&'a str>,
    /// The violations of budgets.
    pub(crate) violations: &'a ViolationLog,
    /// True if lines get labels of their sender.
    pub(crate) enriches: bool,
    pub(crate) selection: OwnSelection<'a>,
}

/// The own families to collect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSelection<'a> {
    /// True for the families that statsd_exporter does not have, too.
    pub(crate) all: bool,
    /// The names of the families; `None` for every name.
    pub(crate) names: Option<&'a BTreeSet<String>>,
    /// True if [`CONFLICTS`] gets no series, because the caller renders them while it writes.
    pub(crate) omits_conflicts: bool,
}

impl OwnSelection<'_> {
    /// Returns true if families with this name are collected.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.is_none_or(|names| names.contains(name))
    }
}

/// The family of rejected events, which may have thousands of series.
pub(crate) const CONFLICTS: &str = "statsd_exporter_events_conflict_total";

/// A family with the function that returns its series.
type Row = FamilyRow<fn(&Metrics, &FamilyInputs<'_>) -> Vec<Series>>;

/// The families of statsd_exporter, with its names, labels and meaning.
const ORIGINAL: &[Row] = family_rows! {
    Gauge "statsd_exporter_build_info", "Build information; always 1.": |_, _| vec![build::series(&[])];
    Counter "statsd_exporter_config_reloads_total", "Reloads of the mapping file, by outcome.":
        |of, _| {
            let reloads = [("success", &of.reloads_ok), ("failure", &of.reloads_failed)];
            nonzero(by("outcome", reloads.map(|(outcome, n)| (outcome, get(n)))))
        };
    Counter "statsd_exporter_event_queue_flushed_total",
        "Always 0: events are applied as they arrive, without a queue.": |_, _| one(0.0);
    Counter "statsd_exporter_events_actions_total", "Events that matched a rule, by the rule's action.":
        |of, _| nonzero(of.by_count("action", &[("map", Count::ActionMap), ("drop", Count::ActionDrop)]));
    Counter "statsd_exporter_events_conflict_total",
        "Events rejected because their metric conflicts with an existing one.":
        |of, inputs| {
            let snapshot = (!inputs.selection.omits_conflicts).then(|| of.conflicts.snapshot());
            snapshot.map_or_else(Vec::new, |conflicts| conflicts.series())
        };
    Counter "statsd_exporter_events_error_total", "Events that could not become a sample, by reason.":
        |of, _| nonzero(of.by_count("reason", &EVENT_ERRORS));
    Counter "statsd_exporter_events_total", "Events applied to a metric, by type.":
        |of, _| nonzero(by("type", EventType::ALL.map(EventType::as_str).into_iter().zip(of.events.iter().map(get))));
    Counter "statsd_exporter_events_unmapped_total", "Events that no rule matched.":
        |of, _| of.one(Count::Unmapped);
    Counter "statsd_exporter_lines_total", "Lines received, including empty ones.":
        |of, _| one(of.lines(None) as f64);
    Gauge "statsd_exporter_loaded_mappings", "Rules of the mapping in use.":
        |of, _| one(get(&of.loaded_mappings));
    Gauge "statsd_exporter_metrics_total",
        "Combinations of metric name and label names created since the start, by type.":
        |_, inputs| nonzero(by_kind(&inputs.registry.pairs));
    Counter "statsd_exporter_relay_lines_relayed_total", "Lines sent by the relay and not refused.":
        |_, inputs| by_target(inputs, |relay| get(&relay.counts.relayed_lines));
    Counter "statsd_exporter_relay_long_lines_total", "Lines too long to be relayed.":
        |of, inputs| by_target(inputs, |_| of.count(Count::RelayLongLines) as f64);
    Counter "statsd_exporter_relay_packets_total", "Datagrams sent by the relay, including failed ones.":
        |_, inputs| by_target(inputs, |relay| get(&relay.counts.packets));
    Counter "statsd_exporter_sample_errors_total", "Lines and samples rejected by the parser, by reason.":
        |of, _| nonzero(by("reason", SampleError::ALL.map(SampleError::as_str).into_iter().zip(of.errors.iter().map(get))));
    Counter "statsd_exporter_samples_total", "Samples found in lines, including invalid ones.":
        |of, _| of.one(Count::Samples);
    Counter "statsd_exporter_tag_errors_total", "Tags rejected by the parser.":
        |of, _| of.one(Count::TagErrors);
    Counter "statsd_exporter_tags_total", "Samples with labels.": |of, _| of.one(Count::Tags);
    Counter "statsd_exporter_tcp_connection_errors_total", "TCP connections that ended in a read error.":
        |of, _| one(get(&of.tcp_connection_errors));
    Counter "statsd_exporter_tcp_connections_total", "TCP connections accepted.":
        |of, _| one(get(&of.tcp_connections));
    Counter "statsd_exporter_tcp_too_long_lines_total", "Lines too long for TCP; each closed its connection.":
        |of, _| one(get(&of.tcp_too_long_lines));
    Counter "statsd_exporter_udp_packet_drops_total",
        "UDP datagrams the kernel dropped because a socket's buffer was full.":
        |_, inputs| {
            let udp = inputs.sockets.iter().filter(|socket| socket.listener == Listener::Udp);
            one(udp.map(|socket| socket.dropped as f64).sum())
        };
    Counter "statsd_exporter_udp_packets_total", "UDP datagrams received.":
        |of, _| of.one(Count::UdpPackets);
    Counter "statsd_exporter_unixgram_packets_total", "Unix datagrams received.":
        |of, _| of.one(Count::UnixgramPackets);
    // Misses are read before gets, and hits before the family of gets, so that neither exceeds it.
    Counter "statsd_metric_mapper_cache_hits_total",
        "Events whose mapping was cached from an earlier line or value.":
        |of, _| {
            let misses = of.count(Count::CacheMisses);
            one((of.count(Count::CacheGets) - misses) as f64)
        };
    Counter "statsd_metric_mapper_cache_gets_total", "Events that needed the mapping of their name.":
        |of, _| of.one(Count::CacheGets);
    Gauge "statsd_metric_mapper_cache_length",
        "Entries of the key cache, which finds the series of a line without the mapper.":
        |of, _| one(of.cached_keys.load(Ordering::Relaxed).max(0) as f64);
};

/// The families that statsd_exporter does not have.
const ADDITIONAL: &[Row] = family_rows! {
    Counter "kstatd_statsd_accept_errors_total", "Failed accepts of TCP connections.":
        |of, _| one(get(&of.accept_errors));
    Counter "kstatd_statsd_dogstatsd_events_total",
        "Lines that are DogStatsD events, which are not metrics.": |of, _| of.one(Count::DogstatsdEvents);
    Counter "kstatd_statsd_dogstatsd_service_checks_total",
        "Lines that are DogStatsD service checks, which are not metrics.":
        |of, _| of.one(Count::DogstatsdServiceChecks);
    Counter "kstatd_statsd_enriched_lines_total",
        "Lines whose sender is a known pod, by what identified it.":
        |of, inputs| by_sender(of, inputs, "by", true);
    Counter "kstatd_statsd_expired_series_total", "Series that have expired, by type.":
        |_, inputs| by_kind(&inputs.registry.expired);
    Gauge "kstatd_statsd_family_series",
        "Live series of the 50 largest families; all others are counted as \"other\".":
        |_, inputs| {
            let families = series_by_family(inputs.families);
            by("family", families.into_iter().map(|(name, series)| (name, series as f64)))
        };
    Counter "kstatd_statsd_help_mismatches_total",
        "Series added to a family with a different help text; the family keeps its first one.":
        |_, inputs| one(get(&inputs.registry.help_mismatches));
    Counter "kstatd_statsd_hidden_families_total",
        "Families hidden because a reload gave their name to another metric of the exposition.":
        |_, inputs| one(get(&inputs.registry.hidden));
    Counter "kstatd_statsd_kernel_drops_total",
        "Datagrams that the kernel dropped because the receive buffer was full.":
        |_, inputs| by_socket(inputs, |socket| Some(socket.dropped as f64));
    Counter "kstatd_statsd_key_evictions_total", "Live entries evicted from the key cache.":
        |of, _| one(get(&of.key_evictions));
    Counter "kstatd_statsd_lines_total",
        "Lines by listener and outcome; they add up to statsd_exporter_lines_total.":
        |of, _| lines_by_outcome(of);
    Gauge "kstatd_statsd_mapping_last_reload_success_timestamp_seconds",
        "Unix time of the last successful load of the mapping file.":
        |of, inputs| by("filename", inputs.mapping_file.map(|file| (file, get(&of.mapping_loaded_at) / 1e3)));
    Gauge "kstatd_statsd_mapping_last_reload_successful",
        "1 if the last load of the mapping file succeeded.":
        |of, inputs| {
            let loaded = of.mapping_loaded.load(Ordering::Relaxed);
            by("filename", inputs.mapping_file.map(|file| (file, f64::from(loaded))))
        };
    Counter "kstatd_statsd_over_budget_total",
        "Label sets over a budget, by the action taken. Counted when a line with an unknown key arrives.":
        |_, inputs| inputs.violations.all().iter().map(budget_violation).collect();
    Counter "kstatd_statsd_read_errors_total", "Failed reads from a socket, which is then reopened.":
        |of, _| by_listener(&of.read_errors);
    Gauge "kstatd_statsd_receive_buffer_bytes",
        "Receive buffer of a socket as granted by the kernel, including its bookkeeping.":
        |_, inputs| by_socket(inputs, |socket| socket.receive_buffer.map(|bytes| bytes as f64));
    Counter "kstatd_statsd_rejected_origins_total",
        "Container IDs and external data in lines that were rejected, by what contradicted them.":
        |of, inputs| {
            let rejected = RejectedClaim::ALL.map(RejectedClaim::as_str).into_iter();
            let rejected = rejected.zip(of.rejected_origins.iter().map(get));
            by("contradicted_by", rejected.filter(|_| inputs.enriches))
        };
    Counter "kstatd_statsd_rejected_samples_total", "Samples rejected by the registry, by reason.":
        |of, _| of.by_outcome("reason", Rejection::ALL.into_iter().map(SampleOutcome::Rejected));
    Counter "kstatd_statsd_relay_dropped_lines_total",
        "Lines not relayed because the queue was full or their datagram was not sent or was refused.":
        |_, inputs| by_target(inputs, |relay| get(&relay.counts.dropped_lines));
    Counter "kstatd_statsd_relay_errors_total",
        "Relay datagrams not sent or refused, and failed look-ups of the target.":
        |_, inputs| by_target(inputs, |relay| get(&relay.counts.errors));
    Counter "kstatd_statsd_rule_hits_total",
        "Events that matched a mapping rule, including dropped events.":
        |_, inputs| by("rule", inputs.rules.iter().map(|(rule, events)| (rule, events as f64)));
    Counter "kstatd_statsd_samples_total",
        "Samples by outcome; the outcomes add up to statsd_exporter_samples_total.":
        |of, _| of.by_outcome("outcome", SampleOutcome::all());
    Gauge "kstatd_statsd_series", "Live series, by type.": |_, inputs| by_kind(&inputs.registry.live);
    Counter "kstatd_statsd_tcp_closed_connections_total",
        "TCP connections closed because their file descriptors were needed or because they were idle.":
        |of, _| by("reason", [("displaced", get(&of.tcp_displaced)), ("idle", get(&of.tcp_idle))]);
    Gauge "kstatd_statsd_tcp_open_connections", "Open TCP connections.":
        |of, _| one(of.tcp_open.load(Ordering::Relaxed).max(0) as f64);
    Counter "kstatd_statsd_thread_restarts_total", "Threads restarted after a panic.":
        |of, inputs| {
            let relay = inputs.relay.map(|relay| ("relay", get(&relay.counts.restarts)));
            let own = [("expiry", &of.expiry_restarts), ("intake", &of.receiver_restarts)];
            by("thread", own.map(|(thread, restarts)| (thread, get(restarts))).into_iter().chain(relay))
        };
    Counter "kstatd_statsd_truncated_datagrams_total", "Datagrams truncated because they were too long.":
        |of, _| by_listener(&of.truncated);
    Counter "kstatd_statsd_unknown_sender_lines_total",
        "Lines without labels of a pod, by the cause for which the sender is not known.":
        |of, inputs| by_sender(of, inputs, "cause", false);
};

/// The reasons of `statsd_exporter_events_error_total`.
const EVENT_ERRORS: [(&str, Count); 5] = [
    ("empty_metric_name", Count::EmptyName),
    ("illegal_negative_counter", Count::NegativeCounter),
    ("invalid_metric_name", Count::InvalidName),
    ("invalid_label_name", Count::InvalidLabel),
    ("series_limit", Count::SeriesLimit),
];

/// Returns true if `name` is one of the StatsD pipeline's own metrics.
pub fn is_own_name(name: &str) -> bool {
    static NAMES: LazyLock<HashSet<&str>> =
        LazyLock::new(|| ORIGINAL.iter().chain(ADDITIONAL).map(|row| row.name).collect());
    NAMES.contains(name)
}

impl Metrics {
    /// Returns the families of statsd_exporter. Those of an absent relay or file have no series.
    pub(crate) fn original(&self, inputs: &FamilyInputs<'_>) -> Vec<Family> {
        self.families(ORIGINAL, inputs)
    }

    /// Returns the families that statsd_exporter does not have.
    pub(crate) fn additional(&self, inputs: &FamilyInputs<'_>) -> Vec<Family> {
        self.families(ADDITIONAL, inputs)
    }

    fn families(&self, rows: &[Row], inputs: &FamilyInputs<'_>) -> Vec<Family> {
        let family = |&Row { name, help, kind, value }: &Row| {
            Family { name, help, kind, series: value(self, inputs) }.sorted()
        };
        rows.iter().filter(|row| inputs.selection.has(row.name)).map(family).collect()
    }

    fn one(&self, count: Count) -> Vec<Series> {
        one(self.count(count) as f64)
    }

    fn by_count(&self, label: &str, counts: &[(&str, Count)]) -> Vec<Series> {
        by(label, counts.iter().map(|&(value, count)| (value, self.count(count) as f64)))
    }

    fn by_outcome(
        &self,
        label: &str,
        outcomes: impl Iterator<Item = SampleOutcome>,
    ) -> Vec<Series> {
        let samples = outcomes.map(|of| (of.as_str(), get(&self.samples[of.index()])));
        by(label, samples)
    }
}

fn one(value: f64) -> Vec<Series> {
    vec![Series::new(&[], value)]
}

/// Returns one series for each value of a label.
fn by<'a>(label: &str, series: impl IntoIterator<Item = (&'a str, f64)>) -> Vec<Series> {
    series.into_iter().map(|(of, value)| Series::new(&[(label, of)], value)).collect()
}

/// Removes the series that are still 0: those of statsd_exporter appear only with their first increment.
fn nonzero(mut series: Vec<Series>) -> Vec<Series> {
    series.retain(|series| series.value != Value::Number(0.0));
    series
}

fn by_kind(counters: &[AtomicU64; Aggregate::ALL.len()]) -> Vec<Series> {
    by("type", Aggregate::ALL.map(Aggregate::as_str).into_iter().zip(counters.iter().map(get)))
}

/// Returns the lines by outcome for their sender, if lines get labels of it.
fn by_sender(of: &Metrics, inputs: &FamilyInputs<'_>, label: &str, is_known: bool) -> Vec<Series> {
    let lines = SenderOutcome::ALL.into_iter().zip(of.senders.iter().map(get));
    let lines = lines.filter(|(outcome, _)| inputs.enriches && outcome.is_known() == is_known);
    by(label, lines.map(|(outcome, lines)| (outcome.as_str(), lines)))
}

fn by_listener(counters: &Counters<{ Listener::ALL.len() }>) -> Vec<Series> {
    by("listener", Listener::ALL.map(Listener::as_str).into_iter().zip(counters.iter().map(get)))
}

fn by_target(inputs: &FamilyInputs<'_>, value: impl Fn(&Relay) -> f64) -> Vec<Series> {
    by("target", inputs.relay.map(|relay| (relay.target(), value(relay))))
}

/// Returns one series for each datagram socket for which `value` returns a value.
fn by_socket(
    inputs: &FamilyInputs<'_>,
    value: impl Fn(&SocketStats) -> Option<f64>,
) -> Vec<Series> {
    let series = inputs.sockets.iter().filter_map(|socket| {
        let number = socket.socket.to_string();
        let labels = [("listener", socket.listener.as_str()), ("socket", &*number)];
        Some(Series::new(&labels, value(socket)?))
    });
    series.collect()
}

fn budget_violation(violation: &Violation) -> Series {
    let labels = [
        ("action", violation.action.as_str()),
        ("label", &*violation.label),
        ("limit", violation.limit.as_str()),
        ("metric_name", &*violation.metric),
    ];
    Series::new(&labels, violation.times as f64)
}

fn lines_by_outcome(metrics: &Metrics) -> Vec<Series> {
    let series = Listener::ALL.into_iter().zip(&metrics.lines).flat_map(|(listener, lines)| {
        LineOutcome::ALL.into_iter().zip(lines).map(move |(outcome, number)| {
            let labels = [("listener", listener.as_str()), ("outcome", outcome.as_str())];
            Series::new(&labels, get(number))
        })
    });
    series.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::labels;
    use crate::statsd::metrics::conflicts::MAX_CONFLICT_NAMES;
    use crate::statsd::relay::RelayConfig;

    fn context<'a>(
        registry: &'a RegistryCounts,
        relay: &'a Relay,
        families: &'a Snapshot,
        rules: &'a RuleHits,
    ) -> FamilyInputs<'a> {
        let (listener, receive_buffer) = (Listener::Udp, Some(4_096));
        FamilyInputs {
            registry,
            relay: Some(relay),
            sockets: vec![SocketStats { listener, socket: 0, dropped: 3, receive_buffer }],
            families,
            rules,
            mapping_file: Some("/mapping.yml"),
            violations: Box::leak(Box::default()),
            enriches: true,
            selection: OwnSelection { all: true, names: None, omits_conflicts: false },
        }
    }

    fn numbers(series: &[Series]) -> impl Iterator<Item = f64> {
        series.iter().map(|series| match series.value {
            Value::Number(number) => number,
            Value::Histogram(_) => f64::NAN,
        })
    }

    #[test]
    fn every_family_is_listed_and_has_a_help_text() {
        let registry = RegistryCounts::default();
        let metrics = Metrics::default();
        let relay = Relay::start(&RelayConfig {
            address: "127.0.0.1:9".to_owned(),
            target: "127.0.0.1:9".to_owned(),
            packet_length: 1_400,
        })
        .expect("started");
        let (none, rules) = (Snapshot::default(), RuleHits::default());
        let context = context(&registry, &relay, &none, &rules);
        let mut families = metrics.original(&context);
        families.extend(metrics.additional(&context));
        let mut names: Vec<_> = families.iter().map(|family| family.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(all, ORIGINAL.len() + ADDITIONAL.len());
        assert!(names.iter().all(|name| is_own_name(name)));
        for family in &families {
            assert!(family.help.ends_with('.'), "{}", family.name);
            assert!(
                family
                    .series
                    .is_sorted_by(|a, b| { labels::compare(&a.labels, &b.labels).is_lt() }),
                "{}",
                family.name
            );
        }
        assert!(is_own_name("statsd_exporter_lines_total"));
        assert!(!is_own_name("statsd_exporter_lines"));
    }

    #[test]
    fn long_conflict_names_are_truncated() {
        let metrics = Metrics::default();
        for number in 0..3_000 {
            let name = format!("{}{number}", "n".repeat(60_000));
            metrics.conflict(EventType::Gauge, &name, 1);
            metrics.conflict(EventType::Gauge, &format!("{number:04}{name}"), 1);
        }
        let series = metrics.conflicts.snapshot().series();
        assert_eq!(series.len(), 3_001);
        assert!(series.iter().all(|series| series.labels.len() < 300));
        let total: f64 = numbers(&series).sum();
        assert_eq!(total, 6_000.0);
    }

    #[test]
    fn conflict_names_are_bounded() {
        let metrics = Metrics::default();
        for number in 0..MAX_CONFLICT_NAMES + 50 {
            metrics.conflict(EventType::Gauge, &format!("m{number:06}"), 1);
        }
        metrics.conflict(EventType::Gauge, "m000000", 1);
        let series = metrics.conflicts.snapshot().series();
        assert_eq!(series.len(), MAX_CONFLICT_NAMES + 1);
        let total: f64 = numbers(&series).sum();
        assert_eq!(total, (MAX_CONFLICT_NAMES + 51) as f64);
        assert!(series.iter().zip(numbers(&series)).any(|(series, number)| {
            number == 50.0 && series.labels.starts_with(b"metric_name=\"_other\"")
        }));
    }
}
