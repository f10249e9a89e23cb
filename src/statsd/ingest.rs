//! From bytes of a listener to changed series, on the thread that received them.
//!
//! A [`Worker`] belongs to one listening thread, whichever listeners that thread reads from. A line of the dominant shape whose key it knows costs one look-up and
//! one change of a cell; everything else is parsed, mapped and resolved, and remembered if it can be. Each line and each
//! sample ends in exactly one outcome of the ledger. Sockets are the business of [`super::receive::net`] and [`super::receive::tcp`],
//! membership that of the registry.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::line::{self, Event, SampleError, SimpleKind, SimpleLine, split_simple};
use super::line_log;
use super::metrics::{Count, EventType, LineOutcome, Listener, SampleOutcome};
use super::series::cell::Handle;
use super::series::keys::{KeyTable, Known, MAX_TREATMENTS};
use crate::go;

mod apply;
mod shared;

use apply::{Change, Core, Route, Target};
pub(crate) use apply::{new_series, render_labels};
pub(crate) use shared::{Loaded, Shared};
use shared::{Op, Treatment};

/// The state of one ingest thread.
#[derive(Debug)]
pub(crate) struct Worker {
    core: Core,
    keys: KeyTable,
    treatments: Vec<Treatment>,
    treatment_numbers: HashMap<Treatment, u16>,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, listener: Listener) -> Self {
        Self {
            core: Core::new(shared, listener),
            keys: KeyTable::new(shared.key_cache_size),
            treatments: Vec::new(),
            treatment_numbers: HashMap::new(),
        }
    }

    /// Begins a batch: reads the clock and takes up a mapping loaded since. Call it after the bytes have arrived, so
    /// that what was sent after a reload is mapped by it.
    pub(crate) fn begin(&mut self) {
        self.core.now = self.core.shared.registry.clock.now();
        self.core.verbose = tracing::enabled!(tracing::Level::DEBUG);
        if self.core.shared.mapping.load().generation != self.core.loaded.generation {
            // What was counted is of the rules that there were.
            self.core.loaded.hits.drain(&mut self.core.tally.rules);
            self.core.loaded = self.core.shared.mapping.load_full();
            if let Some(cache) = &mut self.core.cache {
                cache.clear();
            }
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.keys.clear();
        self.treatments.clear();
        self.treatment_numbers.clear();
    }

    /// Ends a batch: what was counted becomes visible, what is to be relayed is handed over.
    pub(crate) fn end(&mut self) {
        let core = &mut self.core;
        if let Some(relay) = &core.shared.relay
            && !core.relayed.is_empty()
        {
            relay.send(std::mem::take(&mut core.relayed));
        }
        let metrics = &core.shared.metrics;
        if let Some(cache) = &core.cache {
            let length = cache.len() as i64;
            if length != core.cache_length {
                metrics.cache_length.fetch_add(length - core.cache_length, Ordering::Relaxed);
                core.cache_length = length;
            }
        }
        metrics.queue.add(core.tally.mapped_events(), core.now);
        core.loaded.hits.drain(&mut core.tally.rules);
        metrics.drain(&mut core.tally, core.listener);
    }

    /// Counts for this listener what comes from here on.
    pub(crate) fn serve(&mut self, listener: Listener) {
        if self.core.listener != listener {
            self.end();
            self.core.listener = listener;
        }
    }

    /// What comes from here on was sent from this address.
    #[inline]
    pub(crate) fn come_from(&mut self, address: Option<IpAddr>) {
        self.core.origin.set_address(address);
    }

    /// Puts the worker in order after a panic in the midst of a line: what it remembered goes, what it counted stays.
    pub(crate) fn recover(&mut self) {
        self.forget();
        if let Some(cache) = &mut self.core.cache {
            cache.clear();
        }
        self.end();
    }

    /// A datagram: lines between line feeds.
    pub(crate) fn datagram(&mut self, bytes: &[u8]) {
        let count = match self.core.listener {
            Listener::Unixgram => Count::UnixgramPackets,
            _ => Count::UdpPackets,
        };
        self.core.tally.add(count, 1);
        if self.core.verbose {
            line_log::datagram(self.core.listener, bytes, self.core.shared.flags);
        }
        self.lines(bytes);
    }

    /// A line of a stream, without its line feed.
    pub(crate) fn stream_line(&mut self, line: &[u8]) {
        if self.core.verbose {
            line_log::line(self.core.listener, line, self.core.shared.flags);
        }
        self.line(line);
    }

    /// Lines separated by line feeds; what follows the last one is a line too, even if it is empty.
    pub(crate) fn lines(&mut self, bytes: &[u8]) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.line(bytes.get(start..end).unwrap_or_default());
            start = end + 1;
        }
        self.line(bytes.get(start..).unwrap_or_default());
    }

    /// One line, without its line feed.
    #[inline]
    pub(crate) fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return self.core.tally.line(LineOutcome::Empty);
        }
        if let Some(relay) = &self.core.shared.relay {
            if relay.fits(line) {
                self.core.relayed.push(line);
            } else {
                self.core.tally.add(Count::RelayLongLines, 1);
            }
        }
        let simple = split_simple(line);
        if let Some(simple) = &simple {
            let fingerprint = self.keys.fingerprint(simple);
            if let Some(known) = self.keys.get(fingerprint)
                && self.known_line(simple, known)
            {
                return;
            }
            return self.long_way(line, Some((*simple, fingerprint)));
        }
        self.long_way(line, None);
    }

    /// Applies a line that leads to `known`; `false` if it does not any more, or if its value needs a second look.
    #[inline]
    fn known_line(&mut self, line: &SimpleLine<'_>, known: Known) -> bool {
        let Some(treatment) = self.treatments.get(known.treatment as usize) else {
            return false;
        };
        let Ok(number) = go::float::parse(line.value) else {
            return false;
        };
        let core = &mut self.core;
        let outcome = if let Some(handle) = known.handle {
            let value = treatment.series_value(treatment.event_value(number));
            let change = match treatment.op {
                // The long way says why, in the log and among the examples.
                Op::Add if value < 0.0 => return false,
                // NaN is noted in the family, which only the long way knows.
                Op::Add if value.is_nan() => return false,
                Op::Add => Change::Add(value),
                Op::Level if matches!(line.value.first(), Some(b'+' | b'-')) => Change::Move(value),
                Op::Level => Change::Set(value),
                Op::Observe => Change::Observe(value, treatment.weight),
            };
            if !core.change(handle, change, treatment.ttl) {
                return false;
            }
            core.tally.event(treatment.event_type(), treatment.weight);
            SampleOutcome::Accepted
        } else {
            SampleOutcome::DroppedByRule
        };
        let tally = &mut core.tally;
        tally.line(LineOutcome::Sampled);
        tally.add(Count::Samples, 1);
        tally.sample(outcome);
        let action = match (known.handle, treatment.rule) {
            (None, _) => Count::ActionDrop,
            (Some(_), Some(_)) => Count::ActionMap,
            (Some(_), None) => Count::Unmapped,
        };
        tally.add(action, treatment.weight);
        match treatment.rule {
            Some(rule) => tally.rule(rule, treatment.weight),
            None => {
                if let Some(events) = tally.unmapped.choose(treatment.weight) {
                    core.shared.metrics.examples.unmapped(line.key, events);
                }
            }
        }
        tally.add(Count::Tags, u64::from(treatment.has_tags));
        tally.add(Count::TagErrors, u64::from(treatment.tag_errors));
        if core.cache.is_some() {
            tally.add(Count::CacheGets, treatment.weight);
            tally.add(Count::CacheHits, treatment.weight);
        }
        true
    }

    /// Parses, maps and resolves a line, and remembers it if it can go the short way next time.
    fn long_way(
        &mut self,
        line: &[u8],
        simple: Option<(SimpleLine<'_>, super::series::keys::Fingerprint)>,
    ) {
        let flags = self.core.shared.flags;
        self.core.origin.read_container(line);
        let mut sink = Sink {
            core: &mut self.core,
            pending: None,
            samples: 0,
            events: 0,
            errors: 0,
            tag_errors: 0,
            tags: 0,
            known: None,
            route: None,
            refused: None,
        };
        line::parse(line, flags, &mut sink);
        sink.finish_sample();
        sink.finish_route();
        if let Some(reason) = sink.refused {
            sink.core.shared.metrics.examples.refuse(reason, line);
        }
        let (samples, events, errors, tag_errors, tags, known) =
            (sink.samples, sink.events, sink.errors, sink.tag_errors, sink.tags, sink.known);
        self.core.tally.line(if samples > 0 { LineOutcome::Sampled } else { LineOutcome::Refused });
        let (Some((simple, fingerprint)), Some(learned)) = (simple, known) else {
            return;
        };
        if samples != 1 || events != 1 || errors > 0 {
            return;
        }
        let Ok(tag_errors) = u32::try_from(tag_errors) else {
            return;
        };
        self.learn(&simple, fingerprint, learned, tag_errors, tags > 0);
    }

    fn learn(
        &mut self,
        simple: &SimpleLine<'_>,
        fingerprint: super::series::keys::Fingerprint,
        learned: Learned,
        tag_errors: u32,
        has_tags: bool,
    ) {
        let divisor = match (simple.kind, simple.rate) {
            (SimpleKind::Timer, _) => 1_000.0,
            (SimpleKind::Counter, Some(rate)) => match go::float::parse(rate) {
                Ok(rate) if rate != 0.0 => rate,
                _ => 1.0,
            },
            _ => 1.0,
        };
        let treatment =
            Treatment { divisor: f64::to_bits(divisor), tag_errors, has_tags, ..learned.treatment };
        // The short way must give what the parser gave; where it does not, the line keeps to the long one.
        let agrees = go::float::parse(simple.value)
            .is_ok_and(|number| treatment.event_value(number).to_bits() == learned.value.to_bits());
        if !agrees {
            return;
        }
        if self.treatments.len() >= MAX_TREATMENTS
            && !self.treatment_numbers.contains_key(&treatment)
        {
            self.forget();
        }
        let treatments = &mut self.treatments;
        let number = *self.treatment_numbers.entry(treatment).or_insert_with(|| {
            treatments.push(treatment);
            (treatments.len() - 1) as u16
        });
        let known = Known { handle: learned.handle, treatment: number };
        let core = &self.core;
        let evicted = self.keys.insert(fingerprint, known, |known| core.is_alive(known));
        if evicted > 0 {
            core.shared.metrics.key_evictions.fetch_add(evicted as u64, Ordering::Relaxed);
        }
    }
}

/// A line that can go the short way.
#[derive(Clone, Copy, Debug)]
struct Learned {
    handle: Option<Handle>,
    treatment: Treatment,
    /// Value of the event, as the parser gave it.
    value: f64,
}

/// Takes what the parser says about one line.
struct Sink<'w> {
    core: &'w mut Core,
    /// The sample that was begun last and what became of it so far.
    pending: Option<Option<SampleOutcome>>,
    samples: u64,
    events: u64,
    errors: u64,
    tag_errors: u64,
    tags: u64,
    known: Option<Learned>,
    /// Of the last event.
    route: Option<Route>,
    /// Why something of the line was refused.
    refused: Option<&'static str>,
}

impl Sink<'_> {
    /// Reports what a route has collected.
    fn finish_route(&mut self) {
        if let Some(route) = self.route.take()
            && route.conflicts > 0
        {
            let metrics = &self.core.shared.metrics;
            metrics.conflict(route.kind, &route.mapping.name, route.conflicts);
        }
    }

    /// Enters the outcome of the last sample in the ledger.
    fn finish_sample(&mut self) {
        if let Some(outcome) = self.pending.take() {
            self.core.tally.sample(outcome.unwrap_or(SampleOutcome::NoEvent));
        }
    }

    fn outcome(&mut self, outcome: SampleOutcome) {
        if outcome.is_refused() {
            self.refused = Some(outcome.as_str());
        }
        if let Some(pending) = &mut self.pending
            && *pending != Some(SampleOutcome::Accepted)
        {
            *pending = Some(outcome);
        }
    }
}

impl line::Sink for Sink<'_> {
    fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        if event.weight == 0 {
            return self.outcome(SampleOutcome::NoEvent);
        }
        if event.same_series && self.route.is_some() {
            self.core.same_mapping(event.weight);
        } else {
            self.finish_route();
            self.route = Some(self.core.route(event));
        }
        let Some(route) = &mut self.route else { return };
        let outcome = self.core.apply(route, event);
        self.known = match (outcome, route.target) {
            (SampleOutcome::Accepted, Target::Series(handle)) if route.kind != EventType::Set => {
                Some(Some(handle))
            }
            (SampleOutcome::DroppedByRule, _) => Some(None),
            _ => None,
        }
        .map(|handle| Learned { handle, treatment: route.treatment, value: event.value });
        self.outcome(outcome);
    }

    fn sample(&mut self) {
        self.finish_sample();
        self.samples += 1;
        self.pending = Some(None);
        self.core.tally.add(Count::Samples, 1);
    }

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        self.errors += 1;
        self.outcome(SampleOutcome::Malformed(reason));
        self.core.tally.sample_error(reason, count);
    }

    fn tag_errors(&mut self, count: u64) {
        self.tag_errors += count;
        self.core.tally.add(Count::TagErrors, count);
    }

    fn tags(&mut self) {
        self.tags += 1;
        self.core.tally.add(Count::Tags, 1);
    }

    fn dogstatsd_event(&mut self) {
        self.errors += 1;
        self.core.tally.add(Count::DogstatsdEvents, 1);
    }

    fn dogstatsd_service_check(&mut self) {
        self.errors += 1;
        self.core.tally.add(Count::DogstatsdServiceChecks, 1);
    }
}
