//! The metric families that the StatsD pipeline exposes about itself: those of statsd_exporter, with its
//! names and meaning, and our own.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::counters::{Count, Counters, EventType, LineOutcome, Listener, Metrics, SampleOutcome};
use super::largest_families::series_by_family;
use super::rule_hits::RuleHits;
use crate::exposition::family::{Family, Kind, Series};
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
}

fn budget_violations(violations: &[Violation]) -> Family {
    let series = violations.iter().map(|violation| {
        let labels = [
            ("action", violation.action.as_str()),
            ("label", &*violation.label),
            ("limit", violation.limit.as_str()),
            ("metric_name", &*violation.metric),
        ];
        Series::new(&labels, violation.times as f64)
    });
    Family {
        name: "kstatd_statsd_over_budget_total",
        help: "Label sets over a budget, by the action taken. Counted when a line with an unknown key arrives.",
        kind: Kind::Counter,
        series: series.collect(),
    }
    .sorted()
}

/// The sorted names of the families of [`Metrics::original`] and [`Metrics::additional`].
const OWN_NAMES: &[&str] = &[
    "kstatd_statsd_accept_errors_total",
    "kstatd_statsd_dogstatsd_events_total",
    "kstatd_statsd_dogstatsd_service_checks_total",
    "kstatd_statsd_expired_series_total",
    "kstatd_statsd_family_series",
    "kstatd_statsd_help_mismatches_total",
    "kstatd_statsd_hidden_families_total",
    "kstatd_statsd_kernel_drops_total",
    "kstatd_statsd_key_evictions_total",
    "kstatd_statsd_lines_total",
    "kstatd_statsd_mapping_last_reload_success_timestamp_seconds",
    "kstatd_statsd_mapping_last_reload_successful",
    "kstatd_statsd_over_budget_total",
    "kstatd_statsd_read_errors_total",
    "kstatd_statsd_receive_buffer_bytes",
    "kstatd_statsd_rejected_samples_total",
    "kstatd_statsd_relay_dropped_lines_total",
    "kstatd_statsd_relay_errors_total",
    "kstatd_statsd_rule_hits_total",
    "kstatd_statsd_samples_total",
    "kstatd_statsd_series",
    "kstatd_statsd_tcp_closed_connections_total",
    "kstatd_statsd_tcp_open_connections",
    "kstatd_statsd_thread_restarts_total",
    "kstatd_statsd_truncated_datagrams_total",
    "statsd_exporter_build_info",
    "statsd_exporter_config_reloads_total",
    "statsd_exporter_event_queue_flushed_total",
    "statsd_exporter_events_actions_total",
    "statsd_exporter_events_conflict_total",
    "statsd_exporter_events_error_total",
    "statsd_exporter_events_total",
    "statsd_exporter_events_unmapped_total",
    "statsd_exporter_lines_total",
    "statsd_exporter_loaded_mappings",
    "statsd_exporter_metrics_total",
    "statsd_exporter_relay_lines_relayed_total",
    "statsd_exporter_relay_long_lines_total",
    "statsd_exporter_relay_packets_total",
    "statsd_exporter_sample_errors_total",
    "statsd_exporter_samples_total",
    "statsd_exporter_tag_errors_total",
    "statsd_exporter_tags_total",
    "statsd_exporter_tcp_connection_errors_total",
    "statsd_exporter_tcp_connections_total",
    "statsd_exporter_tcp_too_long_lines_total",
    "statsd_exporter_udp_packet_drops_total",
    "statsd_exporter_udp_packets_total",
    "statsd_exporter_unixgram_packets_total",
    "statsd_metric_mapper_cache_gets_total",
    "statsd_metric_mapper_cache_hits_total",
    "statsd_metric_mapper_cache_length",
];

/// Returns true if `name` is one of the StatsD pipeline's own metrics.
#[must_use]
pub fn is_own_name(name: &str) -> bool {
    OWN_NAMES.binary_search(&name).is_ok()
}

impl Metrics {
    fn errors_by_reason(&self) -> Family {
        Family::by(
            "statsd_exporter_events_error_total",
            "Events that could not become a sample, by reason.",
            Kind::Counter,
            "reason",
            [
                ("empty_metric_name", Count::EmptyName),
                ("illegal_negative_counter", Count::NegativeCounter),
                ("invalid_metric_name", Count::InvalidName),
                ("invalid_label_name", Count::InvalidLabel),
                ("series_limit", Count::SeriesLimit),
            ]
            .map(|(reason, count)| (reason, self.count(count) as f64)),
        )
        .nonzero()
    }

    fn conflicts_by_name(&self) -> Family {
        let conflicts = self.conflicts.lock().unwrap_or_else(PoisonError::into_inner);
        let series = conflicts
            .iter()
            .map(|((kind, name), &number)| {
                Series::new(&[("metric_name", name), ("type", kind.as_str())], number as f64)
            })
            .collect();
        Family {
            name: "statsd_exporter_events_conflict_total",
            help: "Events rejected because their metric conflicts with an existing one.",
            kind: Kind::Counter,
            series,
        }
        .sorted()
    }

    /// Returns the families of statsd_exporter, with its names, labels and meaning.
    pub(crate) fn original(&self, context: &FamilyInputs<'_>) -> Vec<Family> {
        use Kind::{Counter, Gauge};
        let count = |count| self.count(count) as f64;
        let one = Family::one;
        let mut families = vec![
            build::info("statsd_exporter_build_info", "Build information; always 1."),
            self.errors_by_reason(),
            self.conflicts_by_name(),
            Family::by(
                "statsd_exporter_config_reloads_total",
                "Reloads of the mapping file, by outcome.",
                Counter,
                "outcome",
                [("success", get(&self.reloads_ok)), ("failure", get(&self.reloads_failed))],
            )
            .nonzero(),
            one(
                "statsd_exporter_event_queue_flushed_total",
                "Always 0: events are applied as they arrive, without a queue.",
                Counter,
                0.0,
            ),
            Family::by(
                "statsd_exporter_events_actions_total",
                "Events that matched a rule, by the rule's action.",
                Counter,
                "action",
                [("map", count(Count::ActionMap)), ("drop", count(Count::ActionDrop))],
            )
            .nonzero(),
            Family::by(
                "statsd_exporter_events_total",
                "Events applied to a metric, by type.",
                Counter,
                "type",
                EventType::ALL
                    .into_iter()
                    .zip(&self.events)
                    .map(|(kind, n)| (kind.as_str(), get(n))),
            )
            .nonzero(),
            one(
                "statsd_exporter_events_unmapped_total",
                "Events that no rule matched.",
                Counter,
                count(Count::Unmapped),
            ),
            one(
                "statsd_exporter_lines_total",
                "Lines received, including empty ones.",
                Counter,
                self.lines(None) as f64,
            ),
            one(
                "statsd_exporter_loaded_mappings",
                "Rules of the mapping in use.",
                Gauge,
                get(&self.loaded_mappings),
            ),
            Family::by(
                "statsd_exporter_metrics_total",
                "Combinations of metric name and label names created since the start, by type.",
                Gauge,
                "type",
                Aggregate::ALL
                    .into_iter()
                    .zip(&context.registry.pairs)
                    .map(|(kind, n)| (kind.as_str(), get(n))),
            )
            .nonzero(),
            Family::by(
                "statsd_exporter_sample_errors_total",
                "Lines and samples rejected by the parser, by reason.",
                Counter,
                "reason",
                SampleError::ALL
                    .into_iter()
                    .zip(&self.errors)
                    .map(|(error, n)| (error.as_str(), get(n))),
            )
            .nonzero(),
            one(
                "statsd_exporter_samples_total",
                "Samples found in lines, including invalid ones.",
                Counter,
                count(Count::Samples),
            ),
            one(
                "statsd_exporter_tag_errors_total",
                "Tags rejected by the parser.",
                Counter,
                count(Count::TagErrors),
            ),
            one("statsd_exporter_tags_total", "Samples with labels.", Counter, count(Count::Tags)),
            one(
                "statsd_exporter_tcp_connection_errors_total",
                "TCP connections that ended in a read error.",
                Counter,
                get(&self.tcp_connection_errors),
            ),
            one(
                "statsd_exporter_tcp_connections_total",
                "TCP connections accepted.",
                Counter,
                get(&self.tcp_connections),
            ),
            one(
                "statsd_exporter_tcp_too_long_lines_total",
                "Lines too long for TCP; each closed its connection.",
                Counter,
                get(&self.tcp_too_long_lines),
            ),
            one(
                "statsd_exporter_udp_packet_drops_total",
                "UDP datagrams the kernel dropped because a socket's buffer was full.",
                Counter,
                context
                    .sockets
                    .iter()
                    .filter(|socket| socket.listener == Listener::Udp)
                    .map(|socket| socket.dropped as f64)
                    .sum(),
            ),
            one(
                "statsd_exporter_udp_packets_total",
                "UDP datagrams received.",
                Counter,
                count(Count::UdpPackets),
            ),
            one(
                "statsd_exporter_unixgram_packets_total",
                "Unix datagrams received.",
                Counter,
                count(Count::UnixgramPackets),
            ),
        ];
        if let Some(relay) = context.relay {
            families.extend(self.relay(relay));
        }
        // Misses are read first, so that they never exceed gets.
        let misses = count(Count::CacheMisses);
        let gets = count(Count::CacheGets);
        families.extend([
            one(
                "statsd_metric_mapper_cache_gets_total",
                "Events that needed the mapping of their name.",
                Counter,
                gets,
            ),
            one(
                "statsd_metric_mapper_cache_hits_total",
                "Events whose mapping was cached from an earlier line or value.",
                Counter,
                gets - misses,
            ),
            one(
                "statsd_metric_mapper_cache_length",
                "Entries of the key cache, which finds the series of a line without the mapper.",
                Gauge,
                self.cached_keys.load(Ordering::Relaxed).max(0) as f64,
            ),
        ]);
        families
    }

    fn relay(&self, relay: &Relay) -> [Family; 3] {
        let target = relay.target();
        let by =
            |name, help, value| Family::by(name, help, Kind::Counter, "target", [(target, value)]);
        [
            by(
                "statsd_exporter_relay_lines_relayed_total",
                "Lines sent by the relay and not refused.",
                get(&relay.counts.relayed_lines),
            ),
            by(
                "statsd_exporter_relay_long_lines_total",
                "Lines too long to be relayed.",
                self.count(Count::RelayLongLines) as f64,
            ),
            by(
                "statsd_exporter_relay_packets_total",
                "Datagrams sent by the relay, including failed ones.",
                get(&relay.counts.packets),
            ),
        ]
    }

    /// Returns the families that statsd_exporter does not have.
    pub(crate) fn additional(&self, context: &FamilyInputs<'_>) -> Vec<Family> {
        use Kind::{Counter, Gauge};
        let one = Family::one;
        let by_kind = |counters: &[AtomicU64; Aggregate::ALL.len()]| {
            Aggregate::ALL
                .into_iter()
                .zip(counters)
                .map(|(kind, n)| (kind.as_str(), get(n)))
                .collect::<Vec<_>>()
        };
        let by_listener = |counters: &Counters<{ Listener::ALL.len() }>| {
            Listener::ALL
                .into_iter()
                .zip(counters)
                .map(|(listener, n)| (listener.as_str(), get(n)))
                .collect::<Vec<_>>()
        };
        let mut families = vec![
            one(
                "kstatd_statsd_accept_errors_total",
                "Failed accepts of TCP connections.",
                Counter,
                get(&self.accept_errors),
            ),
            one(
                "kstatd_statsd_dogstatsd_events_total",
                "Lines that are DogStatsD events, which are not metrics.",
                Counter,
                self.count(Count::DogstatsdEvents) as f64,
            ),
            one(
                "kstatd_statsd_dogstatsd_service_checks_total",
                "Lines that are DogStatsD service checks, which are not metrics.",
                Counter,
                self.count(Count::DogstatsdServiceChecks) as f64,
            ),
            Family::by(
                "kstatd_statsd_expired_series_total",
                "Series that have expired, by type.",
                Counter,
                "type",
                by_kind(&context.registry.expired),
            ),
            series_by_family(context.families),
            one(
                "kstatd_statsd_help_mismatches_total",
                "Series added to a family with a different help text; the family keeps its first one.",
                Counter,
                get(&context.registry.help_mismatches),
            ),
            one(
                "kstatd_statsd_hidden_families_total",
                "Families hidden because a reload gave their name to another metric of the exposition.",
                Counter,
                get(&context.registry.hidden),
            ),
            by_socket(
                context,
                "kstatd_statsd_kernel_drops_total",
                "Datagrams that the kernel dropped because the receive buffer was full.",
                Counter,
                |socket| Some(socket.dropped as f64),
            ),
            one(
                "kstatd_statsd_key_evictions_total",
                "Live entries evicted from the key cache.",
                Counter,
                get(&self.key_evictions),
            ),
            self.lines_by_outcome(),
            budget_violations(&context.violations.all()),
            Family::by(
                "kstatd_statsd_read_errors_total",
                "Failed reads from a socket, which is then reopened.",
                Counter,
                "listener",
                by_listener(&self.read_errors),
            ),
            by_socket(
                context,
                "kstatd_statsd_receive_buffer_bytes",
                "Receive buffer of a socket as granted by the kernel, including its bookkeeping.",
                Gauge,
                |socket| socket.receive_buffer.map(|bytes| bytes as f64),
            ),
            Family::by(
                "kstatd_statsd_rejected_samples_total",
                "Samples rejected by the registry, by reason.",
                Counter,
                "reason",
                Rejection::ALL.map(|rejection| {
                    (
                        rejection.as_str(),
                        get(&self.samples[SampleOutcome::Rejected(rejection).index()]),
                    )
                }),
            ),
            Family::by(
                "kstatd_statsd_rule_hits_total",
                "Events that matched a mapping rule, including dropped events.",
                Counter,
                "rule",
                context.rules.iter().map(|(rule, events)| (rule, events as f64)),
            ),
            Family::by(
                "kstatd_statsd_samples_total",
                "Samples by outcome; the outcomes add up to statsd_exporter_samples_total.",
                Counter,
                "outcome",
                SampleOutcome::all()
                    .map(|outcome| (outcome.as_str(), get(&self.samples[outcome.index()]))),
            ),
            Family::by(
                "kstatd_statsd_series",
                "Live series, by type.",
                Gauge,
                "type",
                by_kind(&context.registry.live),
            ),
            Family::by(
                "kstatd_statsd_tcp_closed_connections_total",
                "TCP connections closed because their file descriptors were needed or because they were idle.",
                Counter,
                "reason",
                [("displaced", get(&self.tcp_displaced)), ("idle", get(&self.tcp_idle))],
            ),
            one(
                "kstatd_statsd_tcp_open_connections",
                "Open TCP connections.",
                Gauge,
                self.tcp_open.load(Ordering::Relaxed).max(0) as f64,
            ),
            Family::by(
                "kstatd_statsd_thread_restarts_total",
                "Threads restarted after a panic.",
                Counter,
                "thread",
                [
                    ("expiry", Some(&self.expiry_restarts)),
                    ("intake", Some(&self.receiver_restarts)),
                    ("relay", context.relay.map(|relay| &relay.counts.restarts)),
                ]
                .into_iter()
                .filter_map(|(thread, restarts)| Some((thread, get(restarts?)))),
            ),
            Family::by(
                "kstatd_statsd_truncated_datagrams_total",
                "Datagrams truncated because they were too long.",
                Counter,
                "listener",
                by_listener(&self.truncated),
            ),
        ];
        if let Some(file) = context.mapping_file {
            let by = |name, help, value| Family::by(name, help, Gauge, "filename", [(file, value)]);
            families.extend([
                by(
                    "kstatd_statsd_mapping_last_reload_success_timestamp_seconds",
                    "Unix time of the last successful load of the mapping file.",
                    get(&self.mapping_loaded_at) / 1e3,
                ),
                by(
                    "kstatd_statsd_mapping_last_reload_successful",
                    "1 if the last load of the mapping file succeeded.",
                    f64::from(self.mapping_loaded.load(Ordering::Relaxed)),
                ),
            ]);
        }
        if let Some(relay) = context.relay {
            let target = relay.target();
            let by =
                |name, help, value| Family::by(name, help, Counter, "target", [(target, value)]);
            families.extend([
                by(
                    "kstatd_statsd_relay_dropped_lines_total",
                    "Lines not relayed because the queue was full or their datagram was not sent or was refused.",
                    get(&relay.counts.dropped_lines),
                ),
                by(
                    "kstatd_statsd_relay_errors_total",
                    "Relay datagrams not sent or refused, and failed look-ups of the target.",
                    get(&relay.counts.errors),
                ),
            ]);
        }
        families
    }

    fn lines_by_outcome(&self) -> Family {
        let mut series = Vec::new();
        for (listener, lines) in Listener::ALL.into_iter().zip(&self.lines) {
            for (outcome, number) in LineOutcome::ALL.into_iter().zip(lines) {
                let labels = [("listener", listener.as_str()), ("outcome", outcome.as_str())];
                series.push(Series::new(&labels, get(number)));
            }
        }
        Family {
            name: "kstatd_statsd_lines_total",
            help: "Lines by listener and outcome; they add up to statsd_exporter_lines_total.",
            kind: Kind::Counter,
            series,
        }
        .sorted()
    }
}

/// Returns a family with one series per datagram socket for which `value` returns a value.
fn by_socket(
    context: &FamilyInputs<'_>,
    name: &'static str,
    help: &'static str,
    kind: Kind,
    value: impl Fn(&SocketStats) -> Option<f64>,
) -> Family {
    let series = context.sockets.iter().filter_map(|socket| {
        let number = socket.socket.to_string();
        let labels = [("listener", socket.listener.as_str()), ("socket", &*number)];
        Some(Series::new(&labels, value(socket)?))
    });
    Family { name, help, kind, series: series.collect() }.sorted()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::family::Value;
    use crate::exposition::labels;
    use crate::statsd::metrics::counters::MAX_CONFLICT_NAMES;
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
        }
    }

    fn numbers(family: &Family) -> impl Iterator<Item = f64> {
        family.series.iter().map(|series| match series.value {
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
        assert_eq!(names, OWN_NAMES);
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
        let family = metrics.conflicts_by_name();
        assert_eq!(family.series.len(), 3_001);
        assert!(family.series.iter().all(|series| series.labels.len() < 300));
        let total: f64 = numbers(&family).sum();
        assert_eq!(total, 6_000.0);
    }

    #[test]
    fn conflict_names_are_bounded() {
        let metrics = Metrics::default();
        for number in 0..MAX_CONFLICT_NAMES + 50 {
            metrics.conflict(EventType::Gauge, &format!("m{number:06}"), 1);
        }
        metrics.conflict(EventType::Gauge, "m000000", 1);
        let family = metrics.conflicts_by_name();
        assert_eq!(family.series.len(), MAX_CONFLICT_NAMES + 1);
        let total: f64 = numbers(&family).sum();
        assert_eq!(total, (MAX_CONFLICT_NAMES + 51) as f64);
        assert!(family.series.iter().zip(numbers(&family)).any(|(series, number)| {
            number == 50.0 && series.labels.starts_with(b"metric_name=\"_other\"")
        }));
    }
}
