//! The counters of the StatsD pipeline.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::conflicts::Conflicts;
use super::examples::{EventSampler, Examples};
use super::rule_hits::HitTally;
use super::sender_outcome::{RejectedClaim, SenderOutcome};
use crate::mapper::MetricType;
use crate::statsd::line::{EventKind, SampleError};
use crate::statsd::series::registry::Rejection;
use crate::util::lock::Lock;
use crate::util::words::words;

words! {
    /// The source of lines.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Listener {
        /// UDP datagrams.
        Udp = "udp",
        /// TCP connections.
        Tcp = "tcp",
        /// Unix datagrams.
        Unixgram = "unixgram",
        /// Lines passed in by a function call.
        Direct = "direct",
        /// Lines that another replica received.
        Peer = "peer",
    }
}

words! {
    /// The type of an event: the label `type`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum EventType {
        Counter = "counter",
        Gauge = "gauge",
        Observer = "observer",
        Set = "set",
    }
}

impl EventType {
    pub(crate) const fn of(event: EventKind<'_>) -> Self {
        match event {
            EventKind::Counter => Self::Counter,
            EventKind::Gauge { .. } => Self::Gauge,
            EventKind::Observer => Self::Observer,
            EventKind::Set(_) => Self::Set,
        }
    }

    /// Returns the type that mapping rules match.
    pub(crate) const fn metric_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::Counter,
            Self::Gauge | Self::Set => MetricType::Gauge,
            Self::Observer => MetricType::Observer,
        }
    }
}

words! {
    /// The outcome of a line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum LineOutcome {
        /// The line is empty.
        Empty = "empty",
        /// The line has at least one sample.
        Sampled = "sampled",
        /// The line was rejected before its first sample.
        Rejected = "refused",
    }
}

/// The outcome of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleOutcome {
    /// It changed a series.
    Accepted,
    /// A rule with action `drop` matched.
    DroppedByRule,
    /// It yields no observation: a sampled observer whose weight rounds to 0.
    NoEvent,
    /// A counter with a negative value.
    NegativeCounter,
    /// The parser rejected it.
    Malformed(SampleError),
    /// The registry rejected its series.
    Rejected(Rejection),
}

impl SampleOutcome {
    /// Returns true if the sample was rejected.
    pub(crate) const fn is_rejected(self) -> bool {
        !matches!(self, Self::Accepted | Self::DroppedByRule | Self::NoEvent)
    }

    pub(crate) const COUNT: usize = 4 + SampleError::ALL.len() + Rejection::ALL.len();

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Accepted => 0,
            Self::DroppedByRule => 1,
            Self::NoEvent => 2,
            Self::NegativeCounter => 3,
            Self::Malformed(error) => 4 + error as usize,
            Self::Rejected(rejection) => 4 + SampleError::ALL.len() + rejection as usize,
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Accepted, Self::DroppedByRule, Self::NoEvent, Self::NegativeCounter]
            .into_iter()
            .chain(SampleError::ALL.into_iter().map(Self::Malformed))
            .chain(Rejection::ALL.into_iter().map(Self::Rejected))
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::DroppedByRule => "dropped_by_rule",
            Self::NoEvent => "no_event",
            Self::NegativeCounter => "illegal_negative_counter",
            Self::Malformed(error) => error.as_str(),
            Self::Rejected(rejection) => rejection.as_str(),
        }
    }
}

/// A counter in a [`Tally`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Samples,
    Tags,
    TagErrors,
    Unmapped,
    ActionMap,
    ActionDrop,
    EmptyName,
    NegativeCounter,
    InvalidName,
    InvalidLabel,
    SeriesLimit,
    /// The number of events that needed the mapping of their name.
    CacheGets,
    /// The number of events for which the mapper ran.
    CacheMisses,
    DogstatsdEvents,
    DogstatsdServiceChecks,
    UdpPackets,
    UnixgramPackets,
    RelayLongLines,
}

pub(crate) const COUNTS: usize = Count::RelayLongLines as usize + 1;

/// The counts of one ingest thread since they were last added to [`Metrics`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: [u64; COUNTS],
    pub(crate) events: [u64; EventType::ALL.len()],
    pub(crate) errors: [u64; SampleError::ALL.len()],
    pub(crate) lines: [u64; LineOutcome::ALL.len()],
    pub(crate) samples: [u64; SampleOutcome::COUNT],
    pub(crate) senders: [u64; SenderOutcome::ALL.len()],
    pub(crate) rejected_origins: [u64; RejectedClaim::ALL.len()],
    /// The number of events per rule, for the thread's mapping.
    pub(crate) rules: HitTally,
    /// Samples the events that no rule matched.
    pub(crate) unmapped_sampler: EventSampler,
    /// Chooses datagrams whose sender is counted.
    pub(crate) datagrams: EventSampler,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, count: Count, by: u64) {
        self.counts[count as usize] += by;
    }

    #[inline]
    pub(crate) fn event(&mut self, kind: EventType, by: u64) {
        self.events[kind as usize] += by;
    }

    pub(crate) fn sample_error(&mut self, reason: SampleError, by: u64) {
        self.errors[reason as usize] += by;
    }

    #[inline]
    pub(crate) fn line(&mut self, outcome: LineOutcome) {
        self.lines[outcome as usize] += 1;
    }

    #[inline]
    pub(crate) fn sample(&mut self, outcome: SampleOutcome) {
        self.samples[outcome.index()] += 1;
    }

    /// Counts the sender of a line.
    #[inline]
    pub(crate) fn sender(&mut self, outcome: SenderOutcome, rejected: Option<RejectedClaim>) {
        self.senders[outcome as usize] += 1;
        if let Some(rejected) = rejected {
            self.rejected_origins[rejected as usize] += 1;
        }
    }

    /// Adds events that matched a rule.
    #[inline]
    pub(crate) fn rule(&mut self, rule: u32, by: u64) {
        self.rules.add(rule, by);
    }
}

pub(crate) type Counters<const N: usize> = [AtomicU64; N];

/// The counters of all threads.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) counts: Counters<COUNTS>,
    pub(crate) events: Counters<{ EventType::ALL.len() }>,
    pub(crate) errors: Counters<{ SampleError::ALL.len() }>,
    pub(crate) lines: [Counters<{ LineOutcome::ALL.len() }>; Listener::ALL.len()],
    pub(crate) samples: Counters<{ SampleOutcome::COUNT }>,
    pub(crate) senders: Counters<{ SenderOutcome::ALL.len() }>,
    pub(crate) rejected_origins: Counters<{ RejectedClaim::ALL.len() }>,
    pub(crate) conflicts: Conflicts,
    /// Examples for some of the counters.
    pub(crate) examples: Examples,
    pub(crate) tcp_connections: AtomicU64,
    pub(crate) tcp_connection_errors: AtomicU64,
    pub(crate) tcp_too_long_lines: AtomicU64,
    pub(crate) tcp_open: AtomicI64,
    /// The number of connections closed because their descriptors were needed.
    pub(crate) tcp_displaced: AtomicU64,
    /// The number of connections closed because they were idle for too long.
    pub(crate) tcp_idle: AtomicU64,
    /// The number of panics of receiving threads and of the expiry thread.
    pub(crate) receiver_restarts: AtomicU64,
    pub(crate) expiry_restarts: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) reloads_ok: AtomicU64,
    pub(crate) reloads_failed: AtomicU64,
    pub(crate) loaded_mappings: AtomicU64,
    /// True if the last load of the mapping file succeeded, and the time of the last successful load in Unix
    /// milliseconds.
    pub(crate) mapping_loaded: AtomicBool,
    pub(crate) mapping_loaded_at: AtomicU64,
    /// The numbers of [mapped](Metrics::mapped) and unmapped events at the last successful load.
    mapped_before: AtomicU64,
    unmapped_before: AtomicU64,
    /// The first problem of the mapping file if its last load failed.
    pub(crate) mapping_error: Lock<Option<String>>,
    /// The number of cached keys of all threads.
    pub(crate) cached_keys: AtomicI64,
    pub(crate) key_evictions: AtomicU64,
    pub(crate) read_errors: Counters<{ Listener::ALL.len() }>,
    pub(crate) truncated: Counters<{ Listener::ALL.len() }>,
}

/// Adds one to a counter.
pub(crate) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn drain<const N: usize>(from: &mut [u64; N], into: &Counters<N>) {
    for (counts, counters) in from.chunks_mut(8).zip(into.chunks(8)) {
        // Most counts are 0.
        if counts.iter().fold(0, |all, count| all | count) == 0 {
            continue;
        }
        for (count, counter) in counts.iter_mut().zip(counters).filter(|(count, _)| **count > 0) {
            counter.fetch_add(std::mem::take(count), Ordering::Relaxed);
        }
    }
}

impl Metrics {
    /// Adds the counts of a thread and resets them.
    pub(crate) fn drain(&self, tally: &mut Tally, listener: Listener) {
        drain(&mut tally.counts, &self.counts);
        drain(&mut tally.events, &self.events);
        drain(&mut tally.errors, &self.errors);
        drain(&mut tally.samples, &self.samples);
        drain(&mut tally.senders, &self.senders);
        drain(&mut tally.rejected_origins, &self.rejected_origins);
        drain(&mut tally.lines, &self.lines[listener as usize]);
    }

    /// Records that a mapping was loaded, with its number of rules.
    pub(crate) fn mapping_loaded(&self, rules: usize) {
        self.loaded_mappings.store(rules as u64, Ordering::Relaxed);
        self.mapped_before.store(self.mapped(), Ordering::Relaxed);
        self.unmapped_before.store(self.count(Count::Unmapped), Ordering::Relaxed);
        *self.mapping_error.lock() = None;
        self.mapping_loaded.store(true, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.mapping_loaded_at.store(now.as_millis() as u64, Ordering::Relaxed);
    }

    /// Records that loading the mapping file failed.
    pub(crate) fn mapping_failed(&self, error: &str) {
        *self.mapping_error.lock() = Some(error.to_owned());
        self.mapping_loaded.store(false, Ordering::Relaxed);
    }

    /// Returns a counter, without what threads have not added yet.
    pub(crate) fn count(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of events matched by a rule, including dropped ones.
    pub(crate) fn mapped(&self) -> u64 {
        self.count(Count::ActionMap) + self.count(Count::ActionDrop)
    }

    /// Returns the numbers of mapped and unmapped events since the mapping was loaded.
    pub(crate) fn since_load(&self) -> (u64, u64) {
        let before = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (mapped, unmapped) = (before(&self.mapped_before), before(&self.unmapped_before));
        (self.mapped().saturating_sub(mapped), self.count(Count::Unmapped).saturating_sub(unmapped))
    }

    /// Returns the number of lines of one listener, or of all.
    pub(crate) fn lines(&self, listener: Option<Listener>) -> u64 {
        Listener::ALL
            .into_iter()
            .filter(|each| listener.is_none_or(|wanted| wanted == *each))
            .flat_map(|each| &self.lines[each as usize])
            .map(|lines| lines.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the number of rejections by reason.
    pub(crate) fn rejections(&self) -> Vec<(&'static str, u64)> {
        let outcomes = SampleOutcome::all()
            .filter(|outcome| {
                !matches!(outcome, SampleOutcome::Accepted | SampleOutcome::DroppedByRule)
            })
            .map(|outcome| (outcome.as_str(), &self.samples[outcome.index()]));
        // The reason for rejecting a whole line is only in `errors`.
        let lines = SampleError::ALL.into_iter().zip(&self.errors);
        let lines = lines.map(|(error, count)| (error.as_str(), count));
        let others = [
            ("dogstatsd_event", Count::DogstatsdEvents),
            ("dogstatsd_service_check", Count::DogstatsdServiceChecks),
            ("tag_error", Count::TagErrors),
        ];
        let others = others.map(|(word, count)| (word, &self.counts[count as usize]));
        outcomes
            .chain(lines)
            .chain(others)
            .map(|(word, count)| (word, count.load(Ordering::Relaxed)))
            .collect()
    }

    /// Counts a conflict between an event of `kind` and the metric `name`.
    pub(crate) fn conflict(&self, kind: EventType, name: &str, by: u64) {
        self.conflicts.add(kind.as_str(), name, by);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_have_distinct_indexes() {
        let places: Vec<_> = SampleOutcome::all().map(SampleOutcome::index).collect();
        assert_eq!(places, (0..SampleOutcome::COUNT).collect::<Vec<_>>());
    }
}
