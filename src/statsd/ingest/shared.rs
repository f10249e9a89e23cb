//! What workers share, and what a known line does.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::statsd::line::ParserFlags;
use crate::statsd::mapcache::CacheKind;
use crate::statsd::mapper::{Mapper, Rule};
use crate::statsd::metrics::{EventType, Metrics, RuleHits};
use crate::statsd::relay::Relay;
use crate::statsd::series::registry::Registry;

/// A mapping in use.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) mapper: Arc<Mapper>,
    /// Differs for every load.
    pub(crate) generation: u64,
    /// Events by rule.
    pub(crate) hits: RuleHits,
}

impl Loaded {
    /// The mapping that takes the place of the one `before`.
    pub(crate) fn new(mapper: Arc<Mapper>, generation: u64, before: Option<&Self>) -> Self {
        let none = RuleHits::default();
        let before = before.map_or(&none, |before| &before.hits);
        let hits = RuleHits::new(mapper.rules().iter().map(name), before);
        Self { mapper, generation, hits }
    }
}

/// How the metrics name a rule: by what it matches.
fn name(rule: &Rule) -> String {
    match rule.match_metric_type {
        Some(only) => format!("{} ({})", rule.pattern, only.as_str()),
        None => rule.pattern.clone(),
    }
}

/// What all workers of a pipeline share. [`Shared::new`] has the defaults of the original.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) metrics: Metrics,
    pub(crate) mapping: ArcSwap<Loaded>,
    pub(crate) flags: ParserFlags,
    /// Names in the mapping cache, 0 for none.
    pub(crate) cache_size: usize,
    pub(crate) cache_kind: CacheKind,
    /// Keys a worker remembers.
    pub(crate) key_cache_size: usize,
    pub(crate) relay: Option<Relay>,
}

impl Shared {
    pub(crate) fn new(
        registry: Registry,
        mapper: impl Into<Arc<Mapper>>,
        flags: ParserFlags,
    ) -> Self {
        Self {
            registry,
            metrics: Metrics::default(),
            mapping: ArcSwap::from_pointee(Loaded::new(mapper.into(), 0, None)),
            flags,
            cache_size: 1_000,
            cache_kind: CacheKind::Lru,
            key_cache_size: 4 << 20,
            relay: None,
        }
    }
}

/// What a value does to its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Add,
    /// Set or change, by the sign of the text.
    Level,
    Observe,
}

/// Everything about a known line but its series and its value. Floats are kept as bits to be comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Treatment {
    pub(crate) op: Op,
    pub(crate) divisor: u64,
    pub(crate) scale: Option<u64>,
    pub(crate) weight: u64,
    /// Time to live in ticks.
    pub(crate) ttl: u32,
    pub(crate) tag_errors: u32,
    pub(crate) has_tags: bool,
    /// The [number](crate::statsd::metrics::rule_number) of the rule that matched.
    pub(crate) rule: Option<u32>,
}

impl Treatment {
    /// The value of an event, from the number in the line.
    pub(crate) fn event_value(&self, number: f64) -> f64 {
        number / f64::from_bits(self.divisor)
    }

    /// The value for the series, from that of the event.
    pub(crate) fn series_value(&self, value: f64) -> f64 {
        match self.scale {
            Some(scale) => value * f64::from_bits(scale),
            None => value,
        }
    }

    pub(crate) const fn event_type(&self) -> EventType {
        match self.op {
            Op::Add => EventType::Counter,
            Op::Level => EventType::Gauge,
            Op::Observe => EventType::Observer,
        }
    }
}
