//! Applies an event to its series: maps the name, renders the labels, finds the series and changes it.

use std::cmp::Ordering;
use std::sync::Arc;

use super::enriched::enriched;
use super::sender_cache::SenderCache;
use super::shared::{LoadedMapping, Mapping, Shared, UpdatePlan};
use crate::exposition::budget::RuleBudget;
use crate::exposition::labels;
use crate::exposition::normalise::Normaliser;
use crate::mapper::{self, Action, DEFAULT_HELP, Mapper, ObserverType, Rule};
use crate::pods::SenderLabels;
use crate::statsd::clock::{Moment, ticks};
use crate::statsd::line::{Event, EventKind, Label};
use crate::statsd::metrics::{Count, EventType, Listener, SampleOutcome, Tally, rule_number};
use crate::statsd::mirror;
use crate::statsd::relay::RelayBatch;
use crate::statsd::series::budget_violations::truncated;
use crate::statsd::series::cell::{self, Handle, Lifetime, ObserverCell, Scalar};
use crate::statsd::series::key_cache::CachedLine;
use crate::statsd::series::observer::Observer;
use crate::statsd::series::placement::{ExceededBudget, RejectedSeries};
use crate::statsd::series::registry::{Aggregation, NewSeries, Registry, Rejection, Resolved};
use crate::statsd::series::senders::Origin;
use crate::statsd::series::tree::Key;
use crate::util::work_counter;

/// A change of one series.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    Add(f64),
    Set(f64),
    AddSigned(f64),
    Observe { value: f64, weight: u64 },
    InsertMember(&'a [u8]),
}

/// The series for all events of one type on a line. Those events have the same name and labels, so name and
/// tags are read only for the first of them.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) mapping: Mapping,
    /// The plan of the first event; other events may differ in weight.
    pub(super) plan: UpdatePlan,
    pub(super) target: Target,
    /// True if a rejected event of this line has been logged.
    pub(super) is_logged: bool,
    /// True if the family is already marked as containing NaN.
    pub(super) nan_marked: bool,
    /// The budgets that reject the events, and the number of rejections after the first.
    pub(super) exceeded: Vec<ExceededBudget>,
    pub(super) rejected_again: u64,
    /// The weight of the events rejected because the metric conflicts with another one.
    pub(super) conflicts: u64,
}

/// The destination of a [`Route`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// The rule drops the events.
    Dropped,
    /// The rule produces an empty name.
    Nameless,
    /// The series has not been looked up yet or has expired since.
    Unresolved,
    Series(Handle),
    Refused(Rejection),
}

/// The part of a worker that applies events.
pub(super) struct Applier {
    pub(super) shared: Arc<Shared>,
    pub(super) listener: Listener,
    pub(super) tally: Tally,
    pub(super) loaded: Arc<LoadedMapping>,
    pub(super) scalars: cell::View<Scalar>,
    pub(super) observers: cell::View<ObserverCell>,
    pub(super) now: Moment,
    pub(super) buffer: mapper::Buffer,
    pub(super) text: Vec<u8>,
    /// The origin of the current line.
    pub(super) origin: Origin,
    /// The pods that sent lines, if lines get labels of them.
    pub(super) senders: Option<SenderCache>,
    /// True if lines are copied to the relay or to other replicas: lines of another replica never are.
    pub(super) copies: bool,
    pub(super) relayed: RelayBatch,
    pub(super) mirrored: RelayBatch,
    /// True if the lines of this batch are logged.
    pub(super) verbose: bool,
}

impl Applier {
    pub(super) fn new(shared: &Arc<Shared>, listener: Listener) -> Self {
        Self {
            listener,
            tally: Tally::default(),
            loaded: shared.mapping.load_full(),
            scalars: shared.registry.scalars(),
            observers: shared.registry.observers(),
            now: shared.registry.clock.now(),
            buffer: mapper::Buffer::default(),
            text: Vec::new(),
            origin: match listener {
                Listener::Peer => Origin::replica(),
                _ => Origin::default(),
            },
            senders: shared.pods.as_ref().map(SenderCache::new),
            copies: listener != Listener::Peer
                && (shared.relay.is_some() || shared.mirror.is_some()),
            relayed: RelayBatch::default(),
            mirrored: RelayBatch::default(),
            verbose: false,
            shared: Arc::clone(shared),
        }
    }

    /// Copies a line to the relay, and to other replicas unless its sender has to be resolved first.
    pub(super) fn copy(&mut self, line: &[u8]) {
        match &self.shared.relay {
            Some(relay) if relay.fits(line) => self.relayed.push(line),
            Some(relay) => {
                self.tally.add(Count::RelayLongLines, 1);
                relay.log_long_line();
            }
            None => {}
        }
        if self.shared.mirror.is_some() && self.senders.is_none() {
            self.mirrored.push(line);
        }
    }

    /// Counts the sender of a line, and copies both to other replicas.
    #[inline]
    pub(super) fn end_line(&mut self, line: &[u8]) {
        let Some(senders) = &self.senders else { return };
        let sender = senders.current();
        self.tally.sender(sender.outcome, sender.rejected);
        if self.copies {
            self.mirror(line);
        }
    }

    /// Copies a line with its sender to other replicas.
    fn mirror(&mut self, line: &[u8]) {
        if self.shared.mirror.is_some() {
            let sender = self.senders.as_ref().and_then(SenderCache::sender);
            let uid = sender.and_then(|sender| sender.uid.as_deref());
            self.mirrored.push_parts(&mirror::with_sender(uid, line));
        }
    }

    /// Passes the copied lines on.
    pub(super) fn pass_copies(&mut self) {
        if let Some(relay) = &self.shared.relay
            && !self.relayed.is_empty()
        {
            relay.send(std::mem::take(&mut self.relayed));
        }
        if let Some(mirror) = &self.shared.mirror
            && !self.mirrored.is_empty()
        {
            mirror.push(std::mem::take(&mut self.mirrored));
        }
    }

    pub(super) fn is_alive(&self, known: CachedLine) -> bool {
        known.handle.is_none_or(|handle| handle.is_alive(&self.scalars, &self.observers))
    }

    /// Changes a series and extends its lifetime. Returns false if the series has expired.
    #[inline]
    pub(super) fn change(&mut self, handle: Handle, change: Change<'_>, ttl: u32) -> bool {
        if handle.slot.is_observer() {
            return self.change_observer(handle, change, ttl);
        }
        if self.scalars.get(handle.slot).is_none() {
            self.scalars = self.shared.registry.scalars();
        }
        let Some(cell) =
            self.scalars.get(handle.slot).and_then(|cell| cell.lock(handle.generation))
        else {
            return false;
        };
        match change {
            Change::Add(value) => cell.add(value),
            Change::Set(value) => cell.set(value),
            Change::AddSigned(value) => cell.add_fraction(value),
            Change::Observe { .. } | Change::InsertMember(_) => {}
        }
        let life = cell.life();
        if ttl > 0 || life.deadline > 0 {
            let (life, bucket) = Registry::extend_life(life, self.now.tick(), ttl);
            cell.set_life(life);
            drop(cell);
            self.schedule(handle, bucket);
        }
        true
    }

    fn change_observer(&mut self, handle: Handle, change: Change<'_>, ttl: u32) -> bool {
        if self.observers.get(handle.slot).is_none() {
            self.observers = self.shared.registry.observers();
        }
        let Some(mut cell) =
            self.observers.get(handle.slot).and_then(|cell| cell.lock(handle.generation))
        else {
            return false;
        };
        match (cell.observer.as_deref_mut(), change) {
            (Some(Observer::Distinct(set)), Change::InsertMember(member)) => {
                set.insert(member, self.now)
            }
            (Some(observer), Change::Observe { value, weight }) => {
                observer.observe(value, weight, self.now)
            }
            _ => {}
        }
        if ttl > 0 || cell.life.deadline > 0 {
            let (life, bucket): (Lifetime, _) =
                Registry::extend_life(cell.life, self.now.tick(), ttl);
            cell.life = life;
            drop(cell);
            self.schedule(handle, bucket);
        }
        true
    }

    fn schedule(&self, handle: Handle, bucket: Option<u32>) {
        if let Some(second) = bucket {
            self.shared.registry.schedule(handle, second);
        }
    }

    /// Maps a name.
    fn mapping(&mut self, kind: EventType, name: &str, weight: u64) -> Mapping {
        self.tally.add(Count::CacheMisses, 1);
        work_counter::add(name.len());
        if let Some(mapped) = self.loaded.mapper.map(name, kind.metric_type(), &mut self.buffer) {
            return Mapping::of(&mapped);
        }
        let examples = &self.shared.metrics.examples;
        let events = if examples.has_room() {
            Some(weight)
        } else {
            self.tally.unmapped_sampler.sample(weight)
        };
        if let Some(events) = events {
            examples.record_unmapped(name.as_bytes(), events, self.loaded.generation);
        }
        Mapping::none(name)
    }

    /// Maps the name of an event.
    pub(super) fn route(&mut self, kind: EventType, event: &Event<'_>) -> Route {
        let mapping = self.mapping(kind, event.name, event.weight);
        let mapper = &self.loaded.mapper;
        let rule = mapping.rule.and_then(|index| mapper.rules().get(index));
        let target = match rule {
            Some(rule) if rule.action == Action::Drop => Target::Dropped,
            Some(_) if mapping.name.is_empty() => Target::Nameless,
            _ => Target::Unresolved,
        };
        let plan = UpdatePlan {
            kind,
            divisor: 1.0f64.to_bits(),
            scale: rule.and_then(|rule| rule.scale).map(f64::to_bits),
            weight: event.weight,
            ttl: ticks(rule.map_or(mapper.defaults().ttl, |rule| rule.ttl)),
            tag_errors: 0,
            has_tags: false,
            rule: rule.map(|rule| rule_number(rule.index)),
        };
        Route {
            mapping,
            plan,
            target,
            is_logged: false,
            nan_marked: false,
            exceeded: Vec::new(),
            rejected_again: 0,
            conflicts: 0,
        }
    }

    /// Applies an event to the series of its route, which is resolved first if necessary.
    pub(super) fn apply(&mut self, route: &mut Route, event: &Event<'_>) -> SampleOutcome {
        let weight = event.weight;
        work_counter::add(1);
        if let Some(rule) = route.plan.rule {
            self.tally.rule(rule, weight);
        }
        match route.target {
            Target::Dropped => {
                self.tally.add(Count::ActionDrop, weight);
                return SampleOutcome::DroppedByRule;
            }
            Target::Nameless => return self.reject(Rejection::EmptyName, route, weight),
            Target::Refused(_) => route.rejected_again += 1,
            _ => {}
        }
        match route.plan.rule {
            Some(_) => self.tally.add(Count::ActionMap, weight),
            None => self.tally.add(Count::Unmapped, weight),
        }
        let value = route.plan.series_value(event.value);
        if route.plan.kind == EventType::Counter && value < 0.0 {
            if !std::mem::replace(&mut route.is_logged, true) {
                tracing::debug!(
                    metric = truncated(&route.mapping.name),
                    event_value = value,
                    "counter must be non-negative value"
                );
            }
            self.tally.add(Count::NegativeCounter, weight);
            return SampleOutcome::NegativeCounter;
        }
        let change = match event.kind {
            EventKind::Counter => Change::Add(value),
            EventKind::Gauge { relative: true } => Change::AddSigned(value),
            EventKind::Gauge { relative: false } => Change::Set(value),
            EventKind::Observer => Change::Observe { value, weight },
            EventKind::Set(member) => Change::InsertMember(member.as_bytes()),
        };
        // A series that expires between the look-up and the change is created again.
        loop {
            let handle = match route.target {
                Target::Series(handle) => handle,
                Target::Refused(rejection) => return self.reject(rejection, route, weight),
                _ => {
                    route.target = match self.resolve(route, event) {
                        Ok(resolved) => {
                            route.plan.ttl = resolved.ttl;
                            Target::Series(resolved.handle)
                        }
                        Err(RejectedSeries { rejection, exceeded }) => {
                            route.exceeded = exceeded;
                            Target::Refused(rejection)
                        }
                    };
                    continue;
                }
            };
            if self.change(handle, change, route.plan.ttl) {
                if route.plan.kind == EventType::Counter && value.is_nan() && !route.nan_marked {
                    self.shared.registry.mark_nan(&route.mapping.name);
                    route.nan_marked = true;
                }
                self.tally.event(route.plan.kind, weight);
                return SampleOutcome::Accepted;
            }
            route.target = Target::Unresolved;
        }
    }

    /// Finds or creates the series of a route.
    fn resolve(&mut self, route: &Route, event: &Event<'_>) -> Result<Resolved, RejectedSeries> {
        let loaded = Arc::clone(&self.loaded);
        let mapper = &loaded.mapper;
        let rule = route.mapping.rule.and_then(|index| mapper.rules().get(index));
        let keep_empty = self.shared.registry.keeps_empty_labels;
        let sender = self.senders.as_ref().and_then(|senders| senders.sender()?.labels.clone());
        let text = &mut self.text;
        let labels = sender.as_deref();
        let (tags, mapping) = enriched(event.labels, &route.mapping, labels);
        let label_count = render_labels(text, &tags, &mapping, mapper, keep_empty);
        work_counter::add(route.mapping.name.len() + self.text.len());
        let key = Key { name: &route.mapping.name, labels: &self.text, label_count };
        let mut series = new_series(&loaded, rule, route.plan.kind, key, &self.origin);
        // Several senders share a series whose labels are normalised, so it does not end with one of them.
        let normalise = normaliser(rule, mapper);
        let is_own = |labels: &SenderLabels| {
            !labels.pairs.iter().any(|(label, _)| normalise.changes(label.as_str()))
        };
        series.sender = sender.filter(|labels| is_own(labels)).map_or(0, |labels| labels.id);
        self.shared.registry.resolve(&series)
    }

    fn reject(&mut self, rejection: Rejection, route: &mut Route, weight: u64) -> SampleOutcome {
        if !std::mem::replace(&mut route.is_logged, true) {
            tracing::debug!(
                metric = truncated(&route.mapping.name),
                reason = ?rejection,
                "Failed to update metric"
            );
        }
        match rejection {
            Rejection::EmptyName => self.tally.add(Count::EmptyName, weight),
            Rejection::InvalidName => self.tally.add(Count::InvalidName, weight),
            Rejection::InvalidLabel => self.tally.add(Count::InvalidLabel, weight),
            Rejection::SeriesLimit
            | Rejection::LabelLimit
            | Rejection::NameLimit
            | Rejection::MemoryLimit => self.tally.add(Count::SeriesLimit, weight),
            conflict => {
                debug_assert!(conflict.is_conflict());
                route.conflicts += weight;
            }
        }
        SampleOutcome::Rejected(rejection)
    }
}

/// Returns the normaliser of the labels that a rule, if any, gives.
pub(crate) fn normaliser<'m>(rule: Option<&'m Rule>, mapper: &'m Mapper) -> &'m Normaliser {
    rule.map_or(&mapper.defaults().normalise, |rule| &rule.normalise)
}

/// Renders the [merged] labels of an event into `text`, with normalised values. A label whose value is normalised to
/// the empty string is omitted; without `keep_empty`, so is any label with an empty value. Returns the number of labels.
pub(crate) fn render_labels(
    text: &mut Vec<u8>,
    tags: &[Label<'_>],
    mapping: &Mapping,
    mapper: &Mapper,
    keep_empty: bool,
) -> u16 {
    let rule = mapping.rule.and_then(|index| mapper.rules().get(index));
    let normalise = normaliser(rule, mapper);
    text.clear();
    let mut count = 0u16;
    for (name, value) in merged(tags, mapping, rule) {
        work_counter::add(name.len() + value.len());
        let value = normalise.value(name, value);
        if value.is_empty() && (!keep_empty || normalise.changes(name)) {
            continue;
        }
        labels::push(text, name, &value);
        count = count.saturating_add(1);
    }
    count
}

/// Returns the tags of an event and the labels of the matching rule, both sorted by name, in one order. If both define a
/// label, the rule wins unless it has `honor_labels`.
pub(crate) fn merged<'a>(
    tags: &'a [Label<'_>],
    mapping: &'a Mapping,
    rule: Option<&Rule>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let honor = rule.is_some_and(|rule| rule.honor_labels);
    let mut tags = tags.iter().map(|tag| (&*tag.name, tag.value)).peekable();
    let mut own = mapping.labels.iter().map(|(name, value)| (&**name, &**value)).peekable();
    std::iter::from_fn(move || {
        let order = match (tags.peek(), own.peek()) {
            (Some((tag, _)), Some((name, _))) => tag.cmp(name),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => tags.next(),
            Ordering::Greater => own.next(),
            Ordering::Equal => {
                let (tag, own) = (tags.next(), own.next());
                if honor { tag } else { own }
            }
        }
    })
}

/// Describes the series for an event of this type that `rule`, if any, has mapped.
pub(crate) fn new_series<'a>(
    loaded: &'a LoadedMapping,
    rule: Option<&'a Rule>,
    kind: EventType,
    key: Key<'a>,
    origin: &'a Origin,
) -> NewSeries<'a> {
    let mapper = &loaded.mapper;
    NewSeries {
        key,
        aggregation: aggregation(mapper, rule, kind),
        help: rule.map_or(DEFAULT_HELP, |rule| &rule.help),
        ttl: ticks(rule.map_or(mapper.defaults().ttl, |rule| rule.ttl)),
        generation: loaded.generation as u32,
        budget: rule.map_or_else(RuleBudget::default, |rule| rule.limits),
        origin,
        sender: 0,
    }
}

fn aggregation<'a>(mapper: &'a Mapper, rule: Option<&'a Rule>, kind: EventType) -> Aggregation<'a> {
    match kind {
        EventType::Counter => Aggregation::Counter,
        EventType::Gauge => Aggregation::Gauge,
        EventType::Set => Aggregation::Set(mapper.summary_options(rule)),
        EventType::Observer => match mapper.observer_type(rule) {
            ObserverType::Summary => Aggregation::Summary(mapper.summary_options(rule)),
            ObserverType::Histogram => Aggregation::Histogram {
                bounds: mapper.buckets(rule),
                native_factor: mapper.native_bucket_factor(rule),
                native_max_buckets: mapper.native_max_buckets(rule),
            },
        },
    }
}
