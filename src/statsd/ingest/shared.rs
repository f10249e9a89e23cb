//! The state that all workers share, and the cached plan of a known line.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::exposition::family::Family;
use crate::mapper::name::escape;
use crate::mapper::{Mapped, Mapper, Rule};
use crate::pods::PodIndex;
use crate::statsd::datagram_senders::DatagramSenders;
use crate::statsd::line::ParserFlags;
use crate::statsd::metrics::{
    EventType, FamilyInputs, Metrics, OwnSelection, RuleHits, SocketStats,
};
use crate::statsd::mirror::Mirror;
use crate::statsd::relay::Relay;
use crate::statsd::series::registry::Registry;
use crate::statsd::series::tree::Snapshot;

/// The result of mapping a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The index of the rule; `None` if none matched.
    pub(crate) rule: Option<usize>,
    /// The escaped metric name.
    pub(crate) name: Box<str>,
    /// The labels set by the rule, sorted by name.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
}

impl Mapping {
    /// Returns the result for a name without a matching rule.
    pub(crate) fn none(name: &str) -> Self {
        Self { rule: None, name: escape(name).into(), labels: Box::default() }
    }

    /// Copies the result of the mapper.
    pub(crate) fn of(mapped: &Mapped<'_>) -> Self {
        Self {
            rule: Some(mapped.rule.index),
            name: mapped.name.into(),
            labels: mapped.labels().map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }
}

/// A mapping in use.
#[derive(Debug)]
pub(crate) struct LoadedMapping {
    pub(crate) mapper: Arc<Mapper>,
    /// A number that differs for every load.
    pub(crate) generation: u64,
    /// The number of events per rule.
    pub(crate) hits: RuleHits,
}

impl LoadedMapping {
    /// Creates the replacement of the mapping `before`. Rules in both keep their counts.
    pub(crate) fn new(mapper: Arc<Mapper>, generation: u64, before: Option<&Self>) -> Self {
        let none = RuleHits::default();
        let before = before.map_or(&none, |before| &before.hits);
        let hits = RuleHits::new(mapper.rules().iter().map(name), before);
        Self { mapper, generation, hits }
    }
}

/// Returns the label value that identifies a rule in metrics: its pattern, and the metric type if it is
/// restricted to one.
fn name(rule: &Rule) -> String {
    match rule.match_metric_type {
        Some(only) => format!("{} ({})", rule.pattern, only.as_str()),
        None => rule.pattern.clone(),
    }
}

/// The state that all workers of a pipeline share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    pub(crate) mapping: ArcSwap<LoadedMapping>,
    pub(crate) flags: ParserFlags,
    /// The number of keys that a worker caches.
    pub(crate) key_cache_size: usize,
    pub(crate) relay: Option<Relay>,
    /// The lines for other replicas.
    pub(crate) mirror: Option<Mirror>,
    /// The pods that send lines, if lines get labels of them.
    pub(crate) pods: Option<Arc<PodIndex>>,
    /// The load of each sender of datagrams.
    pub(crate) datagram_senders: DatagramSenders,
}

impl Shared {
    /// Returns the selected own families of the pipeline.
    pub(crate) fn own_families(
        &self,
        families: &Snapshot,
        sockets: Vec<SocketStats>,
        mapping_file: Option<&str>,
        selection: OwnSelection<'_>,
    ) -> Vec<Family> {
        let inputs = FamilyInputs {
            registry: &self.registry.counts,
            relay: self.relay.as_ref(),
            sockets,
            families,
            rules: &self.mapping.load().hits,
            mapping_file,
            violations: &self.registry.violations,
            enriches: self.pods.is_some(),
            selection,
        };
        let mut own = self.metrics.original(&inputs);
        if selection.all {
            own.extend(self.metrics.additional(&inputs));
        }
        own
    }

    /// Performs what is due: ends series that have expired or whose pods are gone, and logs violations of budgets. Returns the
    /// time until the next call is necessary, unless something falls due earlier.
    pub(crate) fn run_due(&self) -> Option<Duration> {
        self.registry.run_due();
        let senders = self.end_senders();
        let expiry = self
            .registry
            .next_wakeup()
            .map(|due| Duration::from_nanos(due.saturating_sub(self.registry.clock.now().nanos())));
        expiry.into_iter().chain(senders).min()
    }

    /// Ends the series with labels that no pod has any more. Returns the time until the next call is necessary.
    pub(crate) fn end_senders(&self) -> Option<Duration> {
        let (unused, next) = self.pods.as_ref()?.advance();
        self.registry.end_senders(&unused);
        next
    }
}

/// Everything about a known line except its series and its value. Floats are stored as bits so that they can
/// be compared and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UpdatePlan {
    pub(crate) kind: EventType,
    pub(crate) divisor: u64,
    pub(crate) scale: Option<u64>,
    pub(crate) weight: u64,
    /// The time to live in ticks.
    pub(crate) ttl: u32,
    pub(crate) tag_errors: u32,
    pub(crate) has_tags: bool,
    /// The [number](crate::statsd::metrics::rule_number) of the matching rule.
    pub(crate) rule: Option<u32>,
}

impl UpdatePlan {
    /// Computes the value of an event from the number in the line.
    pub(crate) fn event_value(&self, number: f64) -> f64 {
        number / f64::from_bits(self.divisor)
    }

    /// Computes the value for the series from the value of the event.
    pub(crate) fn series_value(&self, value: f64) -> f64 {
        match self.scale {
            Some(scale) => value * f64::from_bits(scale),
            None => value,
        }
    }
}
