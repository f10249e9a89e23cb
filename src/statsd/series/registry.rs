//! The registry of all series: creates, finds and removes them.
//!
//! [`Registry::resolve`] takes a [`NewSeries`] and returns a [`Handle`] or a [`Rejection`]. The owner of a
//! handle updates the cell without calling the registry again. Membership (the [`Tree`] and the families) is
//! behind one lock, which is taken for writing only when series are created or expire. Values are in the
//! slabs and need no lock of the registry. A scrape takes a [`View`], after which neither blocks the other.
//! The registry does not know lines, mapping rules or formats.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwap;
use hashbrown::HashTable;
use helps::Helps;

use super::account::Account;
use super::budget_violations::ViolationLog;
use super::cell::{self, Handle, Lifetime, ObserverCell, Scalar, Slab, SlotId};
use super::family::{Family, Kind};
use super::observer::{Distinct, Histogram, HistogramSpec, Observer, Summary, SummarySpec, Window};
use super::placement::RejectedSeries;
use super::senders::{Origin, Outcome, Senders};
use super::tree::{Key, Position, SeriesRef, Snapshot, Tree};
use crate::exposition::budget::{Budget, RuleBudget};
use crate::exposition::escape;
use crate::exposition::labels::ParsedLabels;
use crate::mapper::SummaryOptions;
use crate::statsd::clock::{Clock, Moment};
use crate::statsd::timer_wheel::{DueBucket, TimerWheel};
use crate::util::lock::Lock;
use crate::util::per_minute::{MINUTES, PerMinuteCounter};
use crate::util::shrink::Shrink as _;

mod admission;
mod budget;
mod expiry;
mod helps;
mod preview;
#[cfg(test)]
mod tests;

pub(crate) use super::rejection::Rejection;

/// Returns true for metric names that are used elsewhere in the exposition.
pub type Reserved = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The aggregation of a new series.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aggregation<'a> {
    Counter,
    Gauge,
    Summary(&'a SummaryOptions),
    Histogram {
        bounds: &'a [f64],
        native_factor: f64,
        native_max_buckets: u32,
    },
    /// The options define the window.
    Set(&'a SummaryOptions),
}

impl Aggregation<'_> {
    /// Returns the maximum number of samples of a series, without its start time.
    pub(crate) fn samples(&self) -> u64 {
        let more = match self {
            Self::Counter | Self::Gauge | Self::Set(_) => 0,
            Self::Summary(options) => options.quantiles.len(),
            Self::Histogram { bounds, .. } => bounds.len(),
        };
        self.fewest_samples() + more as u64
    }

    /// Returns the number of samples of a series without quantiles, or with the bucket `+Inf` only.
    pub(crate) const fn fewest_samples(&self) -> u64 {
        match self {
            Self::Counter | Self::Gauge | Self::Set(_) => 1,
            Self::Summary(_) => 2,
            Self::Histogram { .. } => 3,
        }
    }

    /// Returns the kind of the family.
    pub(crate) const fn kind(&self) -> Kind {
        match self {
            Self::Counter => Kind::Counter,
            Self::Gauge => Kind::Gauge,
            Self::Summary(_) => Kind::Summary,
            Self::Histogram { .. } => Kind::Histogram,
            Self::Set(_) => Kind::Set,
        }
    }
}

/// The series that an event requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSeries<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) aggregation: Aggregation<'a>,
    /// The help text, used if this is the first series of its family.
    pub(crate) help: &'a str,
    /// The time to live in ticks, used if the series is created. 0 is forever.
    pub(crate) ttl: u32,
    /// The generation of the mapping.
    pub(crate) generation: u32,
    /// The limits set by the rule, which replace the global ones.
    pub(crate) budget: RuleBudget,
    /// The origin of the line.
    pub(crate) origin: &'a Origin,
    /// The ID of the sender's labels, or 0: a series that is created ends with them.
    pub(crate) sender: u64,
}

/// A series that was found or created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) handle: Handle,
    /// The time to live in ticks that the series was created with.
    pub(crate) ttl: u32,
}

/// The settings shared by the series with the same label names.
#[derive(Clone, Debug)]
enum Spec {
    Scalar,
    Summary(Arc<SummarySpec>),
    Histogram(Arc<HistogramSpec>),
    Set(Window),
}

impl Spec {
    /// Returns the number of samples of a series, without its start time.
    fn samples(&self) -> u64 {
        match self {
            Self::Scalar | Self::Set(_) => 1,
            Self::Summary(spec) => spec.samples(),
            Self::Histogram(spec) => spec.samples(),
        }
    }

    /// Returns settings with as many quantiles or buckets as fit into `room` samples.
    fn limited_to(self, room: u64) -> Self {
        match self {
            Self::Summary(spec) if spec.samples() > room => {
                Self::Summary(Arc::new(spec.with_fewer(spec.samples() - room)))
            }
            Self::Histogram(spec) if spec.samples() > room => {
                Self::Histogram(Arc::new(spec.with_fewer(spec.samples() - room)))
            }
            spec => spec,
        }
    }

    fn new(aggregation: &Aggregation<'_>, family: &Family) -> Self {
        match aggregation {
            Aggregation::Counter | Aggregation::Gauge => Self::Scalar,
            Aggregation::Summary(options) => Self::Summary(Arc::new(
                SummarySpec::new(options).with_decrease_flag(family.decrease_flag()),
            )),
            Aggregation::Histogram { bounds, native_factor, native_max_buckets } => {
                let spec = HistogramSpec::new(bounds, *native_factor, *native_max_buckets);
                Self::Histogram(Arc::new(spec.with_decrease_flag(family.decrease_flag())))
            }
            Aggregation::Set(options) => Self::Set(SummarySpec::new(options).window()),
        }
    }
}

/// The series of one family with the same label names.
#[derive(Debug)]
struct LabelSet {
    live: u32,
    /// The generation of the mapping that `spec` is from.
    generation: u32,
    /// The settings of the next series.
    spec: Spec,
}

/// The slots of one slab.
#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    /// The page ID of each slot ever used.
    pages: Vec<u32>,
    /// The number of samples of the series in each slot, without start times; empty if every series has one.
    sample_counts: Vec<u32>,
}

impl Slots {
    fn allocate(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.pages.push(0);
            self.pages.len() as u32 - 1
        })
    }
}

#[derive(Default)]
struct Members {
    tree: Tree,
    families: HashTable<Arc<Family>>,
    next_family: u32,
    /// The sets of label names of a family, by the hash of the names, for families with observers or with
    /// several sets. A sender may give a metric a different set for each series.
    sets: HashMap<u32, HashMap<u64, LabelSet, foldhash::fast::FixedState>>,
    expired_pairs: HashSet<u64, foldhash::fast::FixedState>,
    helps: Helps,
    /// The distinct times to live, and their indexes in this list.
    ttls: Vec<u32>,
    /// The slots of scalars and those of observers, see [`SlotId::slab`].
    slots: [Slots; 2],
    live: u64,
    growth: PerMinuteCounter,
    account: Account,
    /// Series that have ended but are not removed yet. Empty unless a panic interrupted the removal.
    ended: Vec<Handle>,
    /// The series that end with the labels of their sender, by the ID of these labels.
    by_sender: HashMap<u64, Vec<Handle>>,
    /// The IDs of families whose names are used elsewhere in the exposition.
    hidden: Arc<HashSet<u32>>,
}

impl Members {
    /// Returns the ID of the page with the series in a slot.
    fn page(&self, slot: SlotId) -> Option<u32> {
        self.slots[slot.slab()].pages.get(slot.index()).copied()
    }

    /// Stores the number of samples of the series in a slot.
    fn set_samples(&mut self, slot: SlotId, samples: u64) {
        if slot.is_observer() {
            let sample_counts = &mut self.slots[slot.slab()].sample_counts;
            sample_counts.resize(sample_counts.len().max(slot.index() + 1), 1);
            sample_counts[slot.index()] = u32::try_from(samples).unwrap_or(u32::MAX);
        }
    }

    fn samples_of(&self, slot: SlotId) -> u64 {
        let sample_counts = &self.slots[slot.slab()].sample_counts;
        sample_counts.get(slot.index()).copied().map_or(1, u64::from)
    }

    /// Returns the index of a time to live. There are 65535 of them; series with any other use the time to
    /// live of the rule that maps them.
    fn ttl_number(&mut self, ttl: u32) -> u16 {
        // Most mapping files have only a few.
        let known = self.ttls.iter().position(|known| *known == ttl);
        let number = known.unwrap_or(self.ttls.len());
        if number == self.ttls.len() && number < usize::from(u16::MAX) {
            self.ttls.push(ttl);
        }
        number as u16
    }

    fn resolved(&self, series_ref: SeriesRef, asked: u32) -> Resolved {
        let ttl = self.ttls.get(usize::from(series_ref.ttl)).copied().unwrap_or(asked);
        Resolved { handle: series_ref.handle, ttl }
    }
}

/// The counters of the registry for its own metrics.
#[derive(Debug, Default)]
pub(crate) struct RegistryCounts {
    /// The number of distinct pairs of name and label names ever created, by [`Kind`].
    pub(crate) pairs: [AtomicU64; Kind::ALL.len()],
    /// The number of live series, by [`Kind`].
    pub(crate) live: [AtomicU64; Kind::ALL.len()],
    /// The number of expired series, by [`Kind`].
    pub(crate) expired: [AtomicU64; Kind::ALL.len()],
    /// The number of series that joined a family with a different help text.
    pub(crate) help_mismatches: AtomicU64,
    /// The number of times that a family was hidden because its name is used elsewhere.
    pub(crate) hidden: AtomicU64,
}

/// The families hidden because their names are used elsewhere now, and those shown again.
#[derive(Debug, Default)]
pub(crate) struct NameChanges {
    pub(crate) hidden: BTreeSet<String>,
    pub(crate) shown: BTreeSet<String>,
}

/// The registry of all series.
pub(crate) struct Registry {
    members: RwLock<Members>,
    scalars: Slab<Scalar>,
    observers: Slab<ObserverCell>,
    timer_wheel: Lock<TimerWheel>,
    /// The bucket of the timer wheel that is being processed.
    due: Lock<DueBucket>,
    /// Called when something is due earlier than [`Registry::next_wakeup`] returned.
    pub(in crate::statsd) on_earlier_deadline: Box<dyn Fn() + Send + Sync>,
    reserved: ArcSwap<Reserved>,
    pub(crate) budget: Budget,
    /// True if labels with empty values are kept, as in statsd_exporter. Prometheus treats them as absent.
    pub(crate) keeps_empty_labels: bool,
    /// True if OpenMetrics has a sample with the start time of a series.
    pub(crate) exposes_start_times: bool,
    /// The rendered fold value.
    fold: Box<[u8]>,
    /// The violations of budgets.
    pub(crate) violations: ViolationLog,
    /// The senders of new series.
    pub(crate) senders: Senders,
    hasher: foldhash::fast::RandomState,
    /// The hasher for whole label sets.
    set_hasher: foldhash::quality::RandomState,
    pub(crate) clock: Clock,
    pub(crate) counts: RegistryCounts,
}

/// A snapshot for a scrape: the membership at one moment and access to the cells.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) pages: Snapshot,
    pub(crate) helps: Arc<Vec<Arc<str>>>,
    pub(crate) scalars: cell::View<Scalar>,
    pub(crate) observers: cell::View<ObserverCell>,
    pub(crate) reserved: Reserved,
    hidden: Arc<HashSet<u32>>,
}

impl View {
    /// Returns true if the family is hidden because its name is used elsewhere in the exposition.
    pub(crate) fn is_hidden(&self, family: &Family) -> bool {
        !self.hidden.is_empty() && self.hidden.contains(&family.id)
    }
}

impl Registry {
    /// Creates an empty registry that keeps labels with empty values. `on_earlier_deadline` is called when something
    /// is due earlier than [`Registry::next_wakeup`] returned.
    pub(crate) fn new(
        clock: Clock,
        reserved: Reserved,
        budget: Budget,
        on_earlier_deadline: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let mut fold = Vec::new();
        escape::label_value(&mut fold, &budget.fold_value);
        Self {
            members: RwLock::default(),
            scalars: Slab::new(),
            observers: Slab::new(),
            timer_wheel: Lock::default(),
            due: Lock::default(),
            on_earlier_deadline,
            reserved: ArcSwap::from_pointee(reserved),
            budget,
            keeps_empty_labels: true,
            exposes_start_times: false,
            fold: fold.into_boxed_slice(),
            violations: ViolationLog::default(),
            senders: Senders::default(),
            hasher: foldhash::fast::RandomState::default(),
            set_hasher: foldhash::quality::RandomState::default(),
            clock,
            counts: RegistryCounts::default(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Members> {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        if !members.ended.is_empty() {
            self.remove_ended(&mut members);
        }
        members
    }

    /// Returns the cells of counters and gauges.
    pub(crate) fn scalars(&self) -> cell::View<Scalar> {
        self.scalars.view()
    }

    /// Returns the cells of all other series.
    pub(crate) fn observers(&self) -> cell::View<ObserverCell> {
        self.observers.view()
    }

    /// Returns a snapshot for a scrape.
    pub(crate) fn view(&self) -> View {
        let members = self.read();
        View {
            pages: members.tree.snapshot(),
            helps: members.helps.snapshot(),
            scalars: self.scalars.view(),
            observers: self.observers.view(),
            reserved: self.reserved(),
            hidden: Arc::clone(&members.hidden),
        }
    }

    /// Returns the predicate for names that are used elsewhere.
    pub(crate) fn reserved(&self) -> Reserved {
        Reserved::clone(&self.reserved.load())
    }

    /// Returns the number of series created in each of the last minutes, the current one first.
    pub(crate) fn growth(&self) -> [u64; MINUTES] {
        self.read().growth.by_minute(self.clock.now().minute())
    }

    /// Records that a counter of family `name` became NaN.
    pub(crate) fn mark_nan(&self, name: &str) {
        if let Some(family) = self.family(&self.read(), name) {
            family.mark_nan();
        }
    }

    fn family<'a>(&self, members: &'a Members, name: &str) -> Option<&'a Arc<Family>> {
        let hash = self.hasher.hash_one(name);
        members.families.find(hash, |family| *family.name == *name)
    }

    /// Finds or creates a series.
    ///
    /// # Errors
    /// Returns the reason why the series cannot be created.
    pub(crate) fn resolve(&self, series: &NewSeries<'_>) -> Result<Resolved, RejectedSeries> {
        if series.key.name.is_empty() {
            return Err(Rejection::EmptyName.into());
        }
        let (version, found) = {
            let members = self.read();
            let found = self.find(&members, series)?;
            if let (Found::Absent(_), Some(folded)) = (&found, self.folded(&members, &series.key)) {
                return Ok(folded);
            }
            (members.tree.version(), found)
        };
        let absent = match found {
            Found::Alive(resolved) => return Ok(resolved),
            Found::Absent(absent) => absent,
        };
        let mut members = self.write();
        // The result of the look-up is still valid if no other thread has changed the tree.
        let absent = if members.tree.version() == version {
            absent
        } else {
            match self.find(&members, series)? {
                Found::Alive(resolved) => return Ok(resolved),
                Found::Absent(absent) => absent,
            }
        };
        if let Some(folded) = self.folded(&members, &series.key) {
            return Ok(folded);
        }
        self.admit(&members, series, &absent)?;
        self.create_within_budget(&mut members, series, absent)
    }

    /// Looks a series up. Rejects it if the metric exists with another kind.
    fn find(&self, members: &Members, series: &NewSeries<'_>) -> Result<Found, Rejection> {
        let family = self.family(members, series.key.name);
        if family.is_some_and(|family| family.kind != series.aggregation.kind()) {
            return Err(Rejection::OtherKind);
        }
        let labels = ParsedLabels::new(series.key.labels);
        let own = family.map(|family| &**family);
        let position = match members.tree.find(&series.key, &labels, own) {
            Ok(at) => match members.tree.series_ref(at) {
                Some(series_ref)
                    if series_ref.handle.is_alive(&self.scalars.view(), &self.observers.view()) =>
                {
                    return Ok(Found::Alive(members.resolved(series_ref, series.ttl)));
                }
                // The series has ended. The next write lock removes it.
                _ => None,
            },
            Err(at) => Some(at),
        };
        let names = self.names_hash(&labels);
        Ok(Found::Absent(Absent { family: family.cloned(), position, names, room: u64::MAX }))
    }

    fn create(&self, members: &mut Members, series: &NewSeries<'_>, absent: Absent) -> Handle {
        let kind = series.aggregation.kind();
        let names = absent.names;
        let family = match absent.family {
            Some(family) => {
                if members.helps.get(family.help).is_some_and(|help| *help != *series.help) {
                    self.counts.help_mismatches.fetch_add(1, Ordering::Relaxed);
                }
                family
            }
            None => {
                let help = members.helps.add(series.help);
                let id = members.next_family;
                members.next_family = members.next_family.wrapping_add(1);
                let family = Arc::new(Family::new(series.key.name, id, kind, help, names));
                let hash = self.hasher.hash_one(&*family.name);
                members.families.insert_unique(hash, Arc::clone(&family), |family| {
                    self.hasher.hash_one(&*family.name)
                });
                family
            }
        };
        let spec = self.join_set(members, &family, names, series).limited_to(absent.room);
        family.add_series();
        let now = self.clock.now();
        let handle = self.allocate(members, &spec, now);
        if self.has_budget() {
            self.add_to_budgets(members, &family, series.key.labels, handle, &spec);
        }
        if series.sender != 0 {
            let own = members.by_sender.entry(series.sender).or_default();
            if own.len() == own.capacity() {
                let (scalars, observers) = (self.scalars.view(), self.observers.view());
                own.retain(|handle| handle.is_alive(&scalars, &observers));
                own.make_room();
            }
            own.push(handle);
        }
        let series_ref = SeriesRef { handle, ttl: members.ttl_number(series.ttl) };
        let Members { tree, slots, .. } = members;
        if let Some(position) = absent.position {
            tree.insert(position, &family, series_ref, &series.key, |slot, page| {
                slots[slot.slab()].pages[slot.index()] = page;
            });
        }
        members.live += 1;
        members.growth.add(now.minute(), 1);
        self.senders.record(series.origin, series.key.name, Outcome::Created, now);
        self.counts.live[kind as usize].fetch_add(1, Ordering::Relaxed);
        handle
    }

    /// Adds the new series to its set of label names and returns the settings of that set.
    fn join_set(
        &self,
        members: &mut Members,
        family: &Family,
        names: u64,
        series: &NewSeries<'_>,
    ) -> Spec {
        let NewSeries { ref aggregation, generation, .. } = *series;
        let kind = family.kind;
        let first = family.live() == 0;
        let alone = !members.sets.contains_key(&family.id);
        if alone && matches!(aggregation, Aggregation::Counter | Aggregation::Gauge) {
            if first {
                self.count_pair(members, family, names);
            }
            if names == family.first_set {
                return Spec::Scalar;
            }
            let set = LabelSet { live: family.live(), generation, spec: Spec::Scalar };
            members.sets.entry(family.id).or_default().insert(family.first_set, set);
        }
        let sets = members.sets.entry(family.id).or_default();
        if let Some(set) = sets.get_mut(&names) {
            set.live += 1;
            // Rules of one mapping with the same set use the settings of the first. A reload replaces them
            // for new series.
            if set.generation != generation {
                (set.generation, set.spec) = (generation, Spec::new(aggregation, family));
            }
            return set.spec.clone();
        }
        let spec = Spec::new(aggregation, family);
        sets.insert(names, LabelSet { live: 1, generation, spec: spec.clone() });
        debug_assert_eq!(kind, aggregation.kind());
        self.count_pair(members, family, names);
        spec
    }

    fn count_pair(&self, members: &mut Members, family: &Family, names: u64) {
        let is_known = !members.expired_pairs.is_empty()
            && members.expired_pairs.remove(&self.pair_hash(family, names));
        if !is_known {
            self.counts.pairs[family.kind as usize].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pair_hash(&self, family: &Family, names: u64) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(family.name.as_bytes());
        hasher.write_u64(names);
        hasher.write_u8(family.kind as u8);
        hasher.finish()
    }

    /// Hashes the label names of a rendered set. The seed is random, so that no sender can find two sets with one hash.
    fn names_hash(&self, labels: &ParsedLabels<'_>) -> u64 {
        let mut hasher = self.set_hasher.build_hasher();
        for name in labels.names() {
            hasher.write(name);
            hasher.write_u8(0xff);
        }
        hasher.finish()
    }

    /// Takes a free slot and initialises its cell.
    fn allocate(&self, members: &mut Members, spec: &Spec, now: Moment) -> Handle {
        let observer = match spec {
            Spec::Scalar => {
                let index = members.slots[0].allocate();
                let view = self.scalars.grow_to(index as usize);
                let slot = SlotId::scalar(index);
                let generation = view.get(slot).map_or(0, |cell| {
                    cell.reset(now.tick());
                    cell.generation()
                });
                return Handle { slot, generation };
            }
            Spec::Summary(spec) => Observer::Summary(Summary::new(Arc::clone(spec), now)),
            Spec::Histogram(spec) => Observer::Histogram(Histogram::new(Arc::clone(spec))),
            Spec::Set(window) => Observer::Distinct(Distinct::new(*window, now)),
        };
        let index = members.slots[1].allocate();
        let view = self.observers.grow_to(index as usize);
        let slot = SlotId::observer(index);
        let generation = view.get(slot).map_or(0, |cell| {
            let mut cell = cell.lock_any();
            cell.created = now.tick();
            cell.life = Lifetime::default();
            cell.observer = Some(Box::new(observer));
            cell.generation
        });
        Handle { slot, generation }
    }
}

/// The result of a look-up.
enum Found {
    Alive(Resolved),
    Absent(Absent),
}

/// The context of a series that does not exist.
struct Absent {
    family: Option<Arc<Family>>,
    /// The position to insert it at; `None` if an ended series with its name and labels is still there.
    position: Option<Position>,
    /// The [hash](Registry::names_hash) of its label names.
    names: u64,
    /// The maximum number of samples, without the start time.
    room: u64,
}
