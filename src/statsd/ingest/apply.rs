//! From an event to a changed series: mapping, labels, look-up, change.

use std::sync::Arc;

use super::shared::{Loaded, Op, Shared, Treatment};
use crate::exposition::budget::RuleBudget;
use crate::exposition::labels;
use crate::statsd::clock::{Moment, ticks};
use crate::statsd::line::{Event, EventKind, Label};
use crate::statsd::mapcache::{MapCache, Mapping};
use crate::statsd::mapper::{self, Action, DEFAULT_HELP, Mapper, MetricType, ObserverType, Rule};
use crate::statsd::metrics::{Count, EventType, Listener, SampleOutcome, Tally, rule_number};
use crate::statsd::name;
use crate::statsd::relay::RelayBatch;
use crate::statsd::series::cell;
use crate::statsd::series::cell::{Handle, Life, ObserverCell, Scalar};
use crate::statsd::series::keys::Known;
use crate::statsd::series::observer::Observer;
use crate::statsd::series::registry::{Aggregation, NewSeries, Registry, Rejection, Resolved};
use crate::statsd::series::senders::Origin;
use crate::statsd::series::tree::Key;

/// A change of one series.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change<'a> {
    Add(f64),
    Set(f64),
    Move(f64),
    Observe(f64, u64),
    Member(&'a [u8]),
}

/// Where events of one type, name and set of tags lead. Made for the first of them on a line and used for those that
/// follow it, so that neither the name nor the tags are read once for each value.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) kind: EventType,
    pub(super) mapping: Arc<Mapping>,
    /// Of the first event; the others may differ in their weight.
    pub(super) treatment: Treatment,
    pub(super) target: Target,
    /// Number of the labels in [`Core::text`], once they are there.
    pub(super) label_count: Option<u16>,
    /// The family knows that it holds a NaN.
    pub(super) nan_marked: bool,
    /// Weight of the events refused because the metric clashes with another one.
    pub(super) conflicts: u64,
}

/// The end of a [`Route`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// A rule drops the events.
    Dropped,
    /// The rule leaves no name.
    Nameless,
    /// Not looked up yet, or expired since.
    Unresolved,
    Series(Handle),
    Refused(Rejection),
}

/// The part of a worker that applies events.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) shared: Arc<Shared>,
    pub(super) listener: Listener,
    pub(super) tally: Tally,
    pub(super) cache: Option<MapCache>,
    pub(super) cache_length: i64,
    pub(super) loaded: Arc<Loaded>,
    pub(super) scalars: cell::View<Scalar>,
    pub(super) observers: cell::View<ObserverCell>,
    pub(super) now: Moment,
    pub(super) buffer: mapper::Buffer,
    pub(super) text: Vec<u8>,
    /// Of the line that is being applied.
    pub(super) origin: Origin,
    pub(super) relayed: RelayBatch,
    /// Lines of this batch are logged.
    pub(super) verbose: bool,
}

impl Core {
    pub(super) fn new(shared: &Arc<Shared>, listener: Listener) -> Self {
        let cache =
            (shared.cache_size > 0).then(|| MapCache::new(shared.cache_size, shared.cache_kind));
        Self {
            listener,
            tally: Tally::default(),
            cache,
            cache_length: 0,
            loaded: shared.mapping.load_full(),
            scalars: shared.registry.scalars(),
            observers: shared.registry.observers(),
            now: shared.registry.clock.now(),
            buffer: mapper::Buffer::default(),
            text: Vec::new(),
            origin: Origin::default(),
            relayed: RelayBatch::default(),
            verbose: false,
            shared: Arc::clone(shared),
        }
    }

    pub(super) fn is_alive(&self, known: Known) -> bool {
        known.handle.is_none_or(|handle| handle.is_alive(&self.scalars, &self.observers))
    }

    /// Changes a series and prolongs its life; `false` if the series is gone.
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
            Change::Move(value) => cell.add_fraction(value),
            Change::Observe(..) | Change::Member(_) => {}
        }
        let life = cell.life();
        if ttl > 0 || life.deadline > 0 {
            let (life, bucket) = Registry::prolong(life, self.now.tick(), ttl);
            cell.set_life(life);
            drop(cell);
            self.arm(handle, bucket);
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
            (Some(Observer::Distinct(set)), Change::Member(member)) => set.insert(member, self.now),
            (Some(observer), Change::Observe(value, weight)) => {
                observer.observe(value, weight, self.now)
            }
            _ => {}
        }
        if ttl > 0 || cell.life.deadline > 0 {
            let (life, bucket): (Life, _) = Registry::prolong(cell.life, self.now.tick(), ttl);
            cell.life = life;
            drop(cell);
            self.arm(handle, bucket);
        }
        true
    }

    fn arm(&self, handle: Handle, bucket: Option<u32>) {
        if let Some(second) = bucket {
            self.shared.registry.arm(handle, second);
        }
    }

    /// What `name` maps to, from the cache or from the mapper.
    fn mapping(&mut self, kind: EventType, name: &str, weight: u64) -> Arc<Mapping> {
        let metric_type = match kind {
            EventType::Counter => MetricType::Counter,
            EventType::Gauge | EventType::Set => MetricType::Gauge,
            EventType::Observer => MetricType::Observer,
        };
        if let Some(cache) = &mut self.cache {
            self.tally.add(Count::CacheGets, weight);
            if let Some(mapping) = cache.get(kind, name) {
                self.tally.add(Count::CacheHits, weight);
                if mapping.rule.is_none()
                    && let Some(events) = self.tally.unmapped.choose(weight)
                {
                    self.shared.metrics.examples.unmapped(name.as_bytes(), events);
                }
                return mapping;
            }
            // An event of weight n stands for n look-ups, of which the first missed.
            self.tally.add(Count::CacheHits, weight - 1);
        }
        let mapping = Arc::new(match self.loaded.mapper.map(name, metric_type, &mut self.buffer) {
            Some(mapped) => Mapping::of(&mapped),
            None => {
                let examples = &self.shared.metrics.examples;
                let events = if examples.has_room() {
                    Some(weight)
                } else {
                    self.tally.unmapped.choose(weight)
                };
                if let Some(events) = events {
                    examples.unmapped(name.as_bytes(), events);
                }
                Mapping { rule: None, name: name::escape(name).into(), labels: Box::default() }
            }
        });
        if let Some(cache) = &mut self.cache {
            cache.insert(kind, name, Arc::clone(&mapping));
        }
        mapping
    }

    /// Counts the look-up of a name that has just been looked up.
    pub(super) fn same_mapping(&mut self, weight: u64) {
        if self.cache.is_some() {
            self.tally.add(Count::CacheGets, weight);
            self.tally.add(Count::CacheHits, weight);
        }
    }

    /// Maps an event.
    pub(super) fn route(&mut self, event: &Event<'_>) -> Route {
        let (kind, op) = match event.kind {
            EventKind::Counter => (EventType::Counter, Op::Add),
            EventKind::Gauge { .. } => (EventType::Gauge, Op::Level),
            EventKind::Observer => (EventType::Observer, Op::Observe),
            EventKind::Set(_) => (EventType::Set, Op::Observe),
        };
        let mapping = self.mapping(kind, event.name, event.weight);
        let mapper = &self.loaded.mapper;
        let rule = mapping.rule.and_then(|index| mapper.rules().get(index));
        let target = match rule {
            Some(rule) if rule.action == Action::Drop => Target::Dropped,
            Some(_) if mapping.name.is_empty() => Target::Nameless,
            _ => Target::Unresolved,
        };
        let treatment = Treatment {
            op,
            divisor: 1.0f64.to_bits(),
            scale: rule.and_then(|rule| rule.scale).map(f64::to_bits),
            weight: event.weight,
            ttl: ticks(rule.map_or(mapper.defaults().ttl, |rule| rule.ttl)),
            tag_errors: 0,
            has_tags: false,
            rule: rule.map(|rule| rule_number(rule.index)),
        };
        Route {
            kind,
            mapping,
            treatment,
            target,
            label_count: None,
            nan_marked: false,
            conflicts: 0,
        }
    }

    /// Resolves a route if need be and applies an event that takes it.
    pub(super) fn apply(&mut self, route: &mut Route, event: &Event<'_>) -> SampleOutcome {
        let weight = event.weight;
        if let Some(rule) = route.treatment.rule {
            self.tally.rule(rule, weight);
        }
        match route.target {
            Target::Dropped => {
                self.tally.add(Count::ActionDrop, weight);
                return SampleOutcome::DroppedByRule;
            }
            Target::Nameless => return self.reject(Rejection::EmptyName, route, weight),
            _ if route.treatment.rule.is_some() => self.tally.add(Count::ActionMap, weight),
            _ => self.tally.add(Count::Unmapped, weight),
        }
        let value = route.treatment.series_value(event.value);
        if route.kind == EventType::Counter && value < 0.0 {
            tracing::debug!(
                metric = &*route.mapping.name,
                event_value = value,
                "counter must be non-negative value"
            );
            self.tally.add(Count::NegativeCounter, weight);
            return SampleOutcome::NegativeCounter;
        }
        let change = match event.kind {
            EventKind::Counter => Change::Add(value),
            EventKind::Gauge { relative: true } => Change::Move(value),
            EventKind::Gauge { relative: false } => Change::Set(value),
            EventKind::Observer => Change::Observe(value, weight),
            EventKind::Set(member) => Change::Member(member.as_bytes()),
        };
        // A series that expires between the look-up and the change is made anew.
        loop {
            let handle = match route.target {
                Target::Series(handle) => handle,
                Target::Refused(rejection) => return self.reject(rejection, route, weight),
                _ => {
                    route.target = match self.resolve(route, event) {
                        Ok(resolved) => {
                            route.treatment.ttl = resolved.ttl;
                            Target::Series(resolved.handle)
                        }
                        Err(rejection) => Target::Refused(rejection),
                    };
                    continue;
                }
            };
            if self.change(handle, change, route.treatment.ttl) {
                if route.kind == EventType::Counter && value.is_nan() && !route.nan_marked {
                    self.shared.registry.mark_nan(&route.mapping.name);
                    route.nan_marked = true;
                }
                self.tally.event(route.kind, weight);
                return SampleOutcome::Accepted;
            }
            route.target = Target::Unresolved;
        }
    }

    /// Finds or makes the series of a route.
    fn resolve(&mut self, route: &mut Route, event: &Event<'_>) -> Result<Resolved, Rejection> {
        let loaded = Arc::clone(&self.loaded);
        let mapper = &loaded.mapper;
        let rule = route.mapping.rule.and_then(|index| mapper.rules().get(index));
        let label_count = match route.label_count {
            Some(count) => count,
            None => render_labels(&mut self.text, event.labels, &route.mapping, mapper),
        };
        route.label_count = Some(label_count);
        let key = Key { name: &route.mapping.name, labels: &self.text, label_count };
        self.shared.registry.resolve(&new_series(&loaded, rule, route.kind, key, &self.origin))
    }

    fn reject(&mut self, rejection: Rejection, route: &mut Route, weight: u64) -> SampleOutcome {
        tracing::debug!(
            metric = &*route.mapping.name,
            reason = ?rejection,
            "Failed to update metric"
        );
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

/// Renders the labels of an event into `text`: its tags and the labels of the rule that it is mapped by, sorted by name, their values normalised.
/// Of equal names the rule's label wins unless the rule honours tags.
pub(crate) fn render_labels(
    text: &mut Vec<u8>,
    tags: &[Label<'_>],
    mapping: &Mapping,
    mapper: &Mapper,
) -> u16 {
    let rule = mapping.rule.and_then(|index| mapper.rules().get(index));
    let normalise = rule.map_or(&mapper.defaults().normalise, |rule| &rule.normalise);
    let honor = rule.is_some_and(|rule| rule.honor_labels);
    text.clear();
    let mut count = 0u16;
    let mut tags = tags.iter().peekable();
    let mut own = mapping.labels.iter().peekable();
    loop {
        let (name, value): (&str, &str) = match (tags.peek(), own.peek()) {
            (None, None) => return count,
            (Some(tag), Some((name, value))) => match (*tag.name).cmp(name) {
                std::cmp::Ordering::Less => {
                    let pair = (&*tag.name, tag.value);
                    tags.next();
                    pair
                }
                std::cmp::Ordering::Greater => {
                    own.next();
                    (name, value)
                }
                std::cmp::Ordering::Equal => {
                    let pair: (&str, &str) =
                        if honor { (&tag.name, tag.value) } else { (name, value) };
                    tags.next();
                    own.next();
                    pair
                }
            },
            (Some(tag), None) => {
                let pair = (&*tag.name, tag.value);
                tags.next();
                pair
            }
            (None, Some((name, value))) => {
                own.next();
                (name, value)
            }
        };
        labels::push(text, name, &normalise.value(name, value));
        count = count.saturating_add(1);
    }
}

/// The series that an event of this kind asks for, which was mapped by `rule`, if by any.
pub(crate) fn new_series<'a>(
    loaded: &'a Loaded,
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
