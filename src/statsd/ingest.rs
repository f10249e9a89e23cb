//! Applies received lines to series, on the thread that received them.
//!
//! Each receiving thread has one [`Worker`] for all its listeners. A line of the most common form with a
//! cached key costs one look-up and one change of a cell. Any other line is parsed, mapped and resolved, and
//! its key is cached if possible. Each line and each sample is counted with exactly one outcome.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::line::{
    self, DogstatsdMessage, Event, SampleError, SimpleKind, SimpleLine, name_without_tags,
    split_simple_with,
};
use super::line_log;
use super::metrics::{Count, EventType, LineOutcome, Listener, SampleOutcome};
use super::mirror;
use super::series::cell::Handle;
use super::series::key_cache::{CachedLine, Fingerprint, KeyCache, MAX_PLANS};
use crate::go;
use crate::util::work_counter;

mod apply;
mod enriched;
mod last_origin;
mod sender_cache;
mod shared;
#[cfg(test)]
mod tests;

use apply::{Applier, Change, Route, Target};
pub(crate) use apply::{merged, new_series, normaliser, render_labels};
pub(crate) use enriched::enriched;
use last_origin::LastOrigin;
pub(crate) use sender_cache::{Peer, Sender};
use shared::UpdatePlan;
pub(crate) use shared::{LoadedMapping, Mapping, Shared};

/// The ingest state of one receiving thread.
pub(crate) struct Worker {
    applier: Applier,
    key_cache: KeyCache,
    /// The number of cached keys at the end of the last batch.
    reported_keys: i64,
    plans: Vec<UpdatePlan>,
    plan_indexes: HashMap<UpdatePlan, u16, foldhash::fast::RandomState>,
    /// The sections of the current line that state its origin, as far as the parser has reported them.
    origin_sections: Vec<u8>,
    /// The origin of the last line that stated one; `None` while a line is applied, and before the first one.
    last_origin: Option<Box<LastOrigin>>,
    /// The origin of the current line if it is another one.
    next_origin: Option<Box<LastOrigin>>,
    origin_hasher: foldhash::quality::RandomState,
}

impl Worker {
    pub(crate) fn new(shared: &Arc<Shared>, listener: Listener) -> Self {
        Self {
            applier: Applier::new(shared, listener),
            key_cache: KeyCache::new(shared.key_cache_size),
            reported_keys: 0,
            plans: Vec::new(),
            plan_indexes: HashMap::default(),
            origin_sections: Vec::new(),
            last_origin: None,
            next_origin: None,
            origin_hasher: foldhash::quality::RandomState::default(),
        }
    }

    /// Begins a batch: reads the clock and switches to a reloaded mapping. Must be called after the bytes
    /// have arrived, so that lines sent after a reload use the new mapping.
    pub(crate) fn begin(&mut self) {
        self.applier.now = self.applier.shared.registry.clock.now();
        self.applier.verbose = tracing::enabled!(tracing::Level::DEBUG);
        if let Some(senders) = &mut self.applier.senders {
            senders.begin();
        }
        if self.applier.shared.mapping.load().generation != self.applier.loaded.generation {
            // The counts belong to the rules of the old mapping.
            self.applier.loaded.hits.drain(&mut self.applier.tally.rules);
            self.applier.loaded = self.applier.shared.mapping.load_full();
            self.clear_cache();
        }
    }

    fn clear_cache(&mut self) {
        self.key_cache.clear();
        self.plans.clear();
        self.plan_indexes.clear();
    }

    /// Ends a batch: publishes its counts and passes its lines to the relay and to other replicas.
    pub(crate) fn end(&mut self) {
        let applier = &mut self.applier;
        applier.pass_copies();
        let metrics = &applier.shared.metrics;
        let known = self.key_cache.len() as i64;
        if known != self.reported_keys {
            metrics.cached_keys.fetch_add(known - self.reported_keys, Ordering::Relaxed);
            self.reported_keys = known;
        }
        applier.loaded.hits.drain(&mut applier.tally.rules);
        metrics.drain(&mut applier.tally, applier.listener);
    }

    /// Sets the listener that the following lines are counted for.
    pub(crate) fn set_listener(&mut self, listener: Listener) {
        if self.applier.listener != listener {
            self.end();
            self.applier.listener = listener;
        }
    }

    /// Sets the address that the following lines were sent from.
    #[inline]
    pub(crate) fn set_sender(&mut self, address: Option<IpAddr>) {
        self.applier.origin.address = address;
        if let Some(senders) = &mut self.applier.senders {
            senders.set_peer(address.map_or(Peer::Unknown, Peer::Address));
        }
    }

    /// Sets the process that the following lines were sent by, over a Unix socket.
    #[inline]
    pub(crate) fn set_process(&mut self, process: u32) {
        self.applier.origin.address = None;
        if let Some(senders) = &mut self.applier.senders {
            senders.set_peer(Peer::Process(process));
        }
    }

    /// Applies lines that another replica received, each with its sender as in [`mirror::with_sender`].
    pub(crate) fn lines_with_senders(&mut self, bytes: &[u8]) {
        for line in bytes.split(|byte| *byte == b'\n') {
            let (uid, line) = mirror::split_sender(line);
            if let Some(senders) = &mut self.applier.senders {
                senders.set_pod(uid);
            }
            self.line(line);
        }
    }

    /// Restores a consistent state after a panic in the middle of a line: clears the key cache and publishes
    /// the counts.
    pub(crate) fn recover(&mut self) {
        self.clear_cache();
        self.end();
    }

    /// Applies a datagram of lines separated by line feeds.
    pub(crate) fn datagram(&mut self, bytes: &[u8]) {
        let count = match self.applier.listener {
            Listener::Unixgram => Count::UnixgramPackets,
            _ => Count::UdpPackets,
        };
        self.applier.tally.add(count, 1);
        if let Some(weight) = self.applier.tally.datagrams.sample(1) {
            let Applier { shared, origin, now, .. } = &self.applier;
            shared.datagram_senders.note(origin.address, bytes, weight, *now);
        }
        if self.applier.verbose {
            line_log::datagram(self.applier.listener, bytes, self.applier.shared.flags);
        }
        self.lines(bytes);
    }

    /// Applies a line of a stream, without its line feed.
    pub(crate) fn stream_line(&mut self, line: &[u8]) {
        if self.applier.verbose {
            line_log::line(self.applier.listener, line, self.applier.shared.flags);
        }
        self.line(line);
    }

    /// Applies lines separated by line feeds. The bytes after the last line feed are a line too, even if they
    /// are empty.
    pub(crate) fn lines(&mut self, bytes: &[u8]) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            self.line(bytes.get(start..end).unwrap_or_default());
            start = end + 1;
        }
        self.line(bytes.get(start..).unwrap_or_default());
    }

    /// Applies one line, without its line feed.
    #[inline]
    pub(crate) fn line(&mut self, line: &[u8]) {
        if line.is_empty() {
            return self.applier.tally.line(LineOutcome::Empty);
        }
        if self.applier.copies {
            self.applier.copy(line);
        }
        work_counter::add(line.len());
        // Taken out, because the parts of the line borrow it.
        let mut last = self.last_origin.take();
        if self.line_after(line, last.as_deref()) {
            std::mem::swap(&mut last, &mut self.next_origin);
        }
        self.last_origin = last;
    }

    /// Applies a line. Returns true if it has another origin than the last one.
    #[inline]
    fn line_after(&mut self, line: &[u8], last: Option<&LastOrigin>) -> bool {
        let known = last.map(LastOrigin::known).unwrap_or_default();
        let mut split = split_simple_with(line, known);
        // By reference, because a copy would take longer than all that follows reads.
        let Some(simple) = &mut split else {
            self.parse_line(line, None);
            return false;
        };
        let origin = simple.origin;
        let (mut salt, is_new) = match last {
            _ if origin.is_empty() => (0, false),
            Some(last) if last.is_of(origin) => (last.hash, false),
            _ if str::from_utf8(origin).is_err() => {
                // Without text it claims nothing, so that a cached key would fit.
                self.parse_line(line, None);
                return false;
            }
            _ => (self.set_next_origin(origin), true),
        };
        if let Some(senders) = &mut self.applier.senders {
            // The origin is part of the sender.
            simple.origin = &[];
            senders.set_hashed_origin(origin, salt);
            salt = senders.current().salt;
        }
        let fingerprint = self.key_cache.fingerprint(simple, salt);
        if let Some(known) = self.key_cache.get(fingerprint)
            && self.apply_cached(simple, known)
        {
            self.applier.end_line(line);
        } else {
            self.parse_line(line, Some((*simple, fingerprint)));
        }
        is_new
    }

    /// Sets [`Worker::next_origin`], and returns its hash.
    fn set_next_origin(&mut self, origin: &[u8]) -> u64 {
        let hash = self.origin_hasher.hash_one(origin).max(1);
        self.next_origin.get_or_insert_default().set(origin, hash);
        hash
    }

    /// Applies a line with a cached key. Returns false if the entry is stale or the value needs the full
    /// parser.
    #[inline]
    fn apply_cached(&mut self, line: &SimpleLine<'_>, known: CachedLine) -> bool {
        let Some(plan) = self.plans.get(known.plan as usize) else {
            return false;
        };
        let Ok(number) = go::float::parse(line.value) else {
            return false;
        };
        let applier = &mut self.applier;
        let outcome = if let Some(handle) = known.handle {
            let value = plan.series_value(plan.event_value(number));
            let change = match plan.kind {
                // The full parser logs the reason and records an example.
                EventType::Counter if value < 0.0 => return false,
                // The full parser marks the family as containing NaN.
                EventType::Counter if value.is_nan() => return false,
                EventType::Counter => Change::Add(value),
                EventType::Gauge if matches!(line.value.first(), Some(b'+' | b'-')) => {
                    Change::AddSigned(value)
                }
                EventType::Gauge => Change::Set(value),
                // Sets are not cached.
                EventType::Observer | EventType::Set => {
                    Change::Observe { value, weight: plan.weight }
                }
            };
            if !applier.change(handle, change, plan.ttl) {
                return false;
            }
            applier.tally.event(plan.kind, plan.weight);
            SampleOutcome::Accepted
        } else {
            SampleOutcome::DroppedByRule
        };
        let tally = &mut applier.tally;
        tally.line(LineOutcome::Sampled);
        tally.add(Count::Samples, 1);
        tally.sample(outcome);
        let action = match (known.handle, plan.rule) {
            (None, _) => Count::ActionDrop,
            (Some(_), Some(_)) => Count::ActionMap,
            (Some(_), None) => Count::Unmapped,
        };
        tally.add(action, plan.weight);
        match plan.rule {
            Some(rule) => tally.rule(rule, plan.weight),
            None => {
                if let Some(events) = tally.unmapped_sampler.sample(plan.weight) {
                    let key = String::from_utf8_lossy(line.key);
                    let name = name_without_tags(&key, applier.shared.flags);
                    let (examples, used) = (&applier.shared.metrics.examples, &applier.loaded);
                    examples.record_unmapped(name.as_bytes(), events, used.generation);
                }
            }
        }
        tally.add(Count::Tags, u64::from(plan.has_tags));
        tally.add(Count::TagErrors, u64::from(plan.tag_errors));
        tally.add(Count::CacheGets, plan.weight);
        true
    }

    /// Parses, maps and resolves a line, and caches its key if the fast path can handle such lines.
    fn parse_line(&mut self, line: &[u8], simple: Option<(SimpleLine<'_>, Fingerprint)>) {
        let flags = self.applier.shared.flags;
        self.applier.origin.set_container("");
        self.origin_sections.clear();
        if let Some(senders) = &mut self.applier.senders {
            senders.set_origin(b"");
        }
        let mut sink = Sink {
            applier: &mut self.applier,
            origin_sections: &mut self.origin_sections,
            has_new_origin: false,
            pending: None,
            samples: 0,
            events: 0,
            errors: 0,
            tag_errors: 0,
            tags: 0,
            known: None,
            routes: [const { None }; EventType::ALL.len()],
            rejection_reason: None,
        };
        line::parse(line, flags, &mut sink);
        sink.resolve_origin();
        sink.finish_sample();
        sink.finish_routes();
        if let Some(reason) = sink.rejection_reason {
            sink.applier.shared.metrics.examples.record_rejected(reason, line);
        }
        let Sink { samples, events, errors, tag_errors, tags, known, .. } = sink;
        self.applier.tally.line(if samples > 0 {
            LineOutcome::Sampled
        } else {
            LineOutcome::Rejected
        });
        self.applier.end_line(line);
        let (Some((simple, fingerprint)), Some(line)) = (simple, known) else {
            return;
        };
        if samples != 1 || events != 1 || errors > 0 {
            return;
        }
        let Ok(tag_errors) = u32::try_from(tag_errors) else {
            return;
        };
        let plan = UpdatePlan { tag_errors, has_tags: tags > 0, ..line.plan };
        self.cache_line(&simple, fingerprint, CacheableLine { plan, ..line });
    }

    fn cache_line(
        &mut self,
        simple: &SimpleLine<'_>,
        fingerprint: Fingerprint,
        line: CacheableLine,
    ) {
        let divisor = match (simple.kind, simple.rate) {
            (SimpleKind::Timer, _) => 1_000.0,
            (SimpleKind::Counter, Some(rate)) => match go::float::parse(rate) {
                Ok(rate) if rate != 0.0 => rate,
                _ => 1.0,
            },
            _ => 1.0,
        };
        let plan = UpdatePlan { divisor: f64::to_bits(divisor), ..line.plan };
        // The fast path must compute the same value as the parser; otherwise the line is not cached.
        let agrees = go::float::parse(simple.value)
            .is_ok_and(|number| plan.event_value(number).to_bits() == line.value.to_bits());
        if !agrees {
            return;
        }
        if self.plans.len() >= MAX_PLANS && !self.plan_indexes.contains_key(&plan) {
            self.clear_cache();
        }
        let plans = &mut self.plans;
        let number = *self.plan_indexes.entry(plan).or_insert_with(|| {
            plans.push(plan);
            (plans.len() - 1) as u16
        });
        let known = CachedLine { handle: line.handle, plan: number };
        let applier = &self.applier;
        let evicted = self.key_cache.insert(fingerprint, known, |known| applier.is_alive(known));
        if evicted > 0 {
            applier.shared.metrics.key_evictions.fetch_add(evicted as u64, Ordering::Relaxed);
        }
    }
}

/// A line that the fast path can handle.
#[derive(Clone, Copy, Debug)]
struct CacheableLine {
    handle: Option<Handle>,
    plan: UpdatePlan,
    /// The value of the event according to the parser.
    value: f64,
}

/// Applies the events of one line.
struct Sink<'w> {
    applier: &'w mut Applier,
    origin_sections: &'w mut Vec<u8>,
    /// True if the sender has not been found yet by the last of these sections.
    has_new_origin: bool,
    /// The outcome of the current sample, if there is a sample and if it has an outcome yet.
    pending: Option<Option<SampleOutcome>>,
    samples: u64,
    events: u64,
    errors: u64,
    tag_errors: u64,
    tags: u64,
    known: Option<CacheableLine>,
    /// The series for each event type of this line.
    routes: [Option<Route>; EventType::ALL.len()],
    /// The last reason for which a part of the line was rejected.
    rejection_reason: Option<&'static str>,
}

impl Sink<'_> {
    /// Finds the sender by the origin that the line has stated so far.
    fn resolve_origin(&mut self) {
        if std::mem::take(&mut self.has_new_origin)
            && let Some(senders) = &mut self.applier.senders
        {
            senders.set_origin(self.origin_sections);
        }
    }

    /// Reports the counts that the routes have collected.
    fn finish_routes(&mut self) {
        let Shared { metrics, registry, .. } = &*self.applier.shared;
        for route in self.routes.iter().flatten() {
            if route.conflicts > 0 {
                metrics.conflict(route.plan.kind, &route.mapping.name, route.conflicts);
            }
            if route.rejected_again > 0 {
                registry.record_violations(
                    &route.mapping.name,
                    &route.exceeded,
                    route.rejected_again,
                );
            }
        }
    }

    /// Counts the outcome of the current sample.
    fn finish_sample(&mut self) {
        if let Some(outcome) = self.pending.take() {
            self.applier.tally.sample(outcome.unwrap_or(SampleOutcome::NoEvent));
        }
    }

    fn outcome(&mut self, outcome: SampleOutcome) {
        if outcome.is_rejected() {
            self.rejection_reason = Some(outcome.as_str());
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
        self.resolve_origin();
        self.events += 1;
        if event.weight == 0 {
            return self.outcome(SampleOutcome::NoEvent);
        }
        self.applier.tally.add(Count::CacheGets, event.weight);
        let kind = EventType::of(event.kind);
        let route =
            self.routes[kind as usize].get_or_insert_with(|| self.applier.route(kind, event));
        let outcome = self.applier.apply(route, event);
        self.known = match (outcome, route.target) {
            (SampleOutcome::Accepted, Target::Series(handle))
                if route.plan.kind != EventType::Set =>
            {
                Some(Some(handle))
            }
            (SampleOutcome::DroppedByRule, _) => Some(None),
            _ => None,
        }
        .map(|handle| CacheableLine { handle, plan: route.plan, value: event.value });
        self.outcome(outcome);
    }

    fn container(&mut self, id: &str) {
        self.applier.origin.set_container(id);
    }

    fn origin(&mut self, section: &str) {
        self.origin_sections.push(b'|');
        self.origin_sections.extend_from_slice(section.as_bytes());
        self.has_new_origin = true;
    }

    fn sample(&mut self) {
        self.finish_sample();
        self.samples += 1;
        self.pending = Some(None);
        self.applier.tally.add(Count::Samples, 1);
    }

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        self.errors += 1;
        self.outcome(SampleOutcome::Malformed(reason));
        self.applier.tally.sample_error(reason, count);
    }

    fn tag_errors(&mut self, count: u64) {
        self.tag_errors += count;
        self.applier.tally.add(Count::TagErrors, count);
    }

    fn tags(&mut self) {
        self.tags += 1;
        self.applier.tally.add(Count::Tags, 1);
    }

    fn dogstatsd(&mut self, message: DogstatsdMessage) {
        self.errors += 1;
        let count = match message {
            DogstatsdMessage::Event => Count::DogstatsdEvents,
            DogstatsdMessage::ServiceCheck => Count::DogstatsdServiceChecks,
        };
        self.applier.tally.add(count, 1);
    }
}
