//! All series: which exist, what may join them, and when they go.
//!
//! A [`NewSeries`] goes in, a [`Handle`] or the [`Rejection`] of the offender comes out; whoever holds a handle updates
//! its cell without asking here again. Membership (the [`Tree`], the families) is behind one lock that only a new or an
//! expiring series takes for writing; numbers are in the slabs and need no lock of the registry. A scrape takes a
//! [`View`], after which neither waits for the other. The registry knows neither lines nor mapping rules nor formats.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashTable;

use super::account::Account;
use super::cell::{self, Handle, Life, ObserverCell, Scalar, Slab, SlotId};
use super::family::{Family, Kind};
use super::observer::{
    Distinct, Histogram, HistogramSpec, Observer, SetSpec, Summary, SummarySpec,
};
use super::over::Ledger;
use super::senders::{Origin, Outcome, Senders};
use super::tree::{Key, Position, Snapshot, Tenant, Tree};
use crate::exposition::budget::{Budget, RuleBudget};
use crate::exposition::{escape, labels};
use crate::growth::{Growth, MINUTES};
use crate::statsd::clock::{Clock, Moment};
use crate::statsd::expiry::Calendar;
use crate::statsd::mapper::SummaryOptions;

mod admission;
mod budget;
mod leave;
mod preview;

pub(crate) use super::rejection::Rejection;

/// Says whether a metric name belongs to somebody else.
pub type Reserved = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// How a new series aggregates.
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
    /// The options give the window.
    Set(&'a SummaryOptions),
}

impl Aggregation<'_> {
    /// Lines of the text format that a series has, at most.
    pub(crate) fn samples(&self) -> u64 {
        match self {
            Self::Counter | Self::Gauge | Self::Set(_) => 1,
            Self::Summary(options) => options.quantiles.len() as u64 + 2,
            Self::Histogram { bounds, .. } => bounds.len() as u64 + 3,
        }
    }

    /// The kind of the family.
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

/// A series as an event wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSeries<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) aggregation: Aggregation<'a>,
    /// Help text, if this is the first series of its family.
    pub(crate) help: &'a str,
    /// Time to live in ticks, 0 for ever, if the series is made now.
    pub(crate) ttl: u32,
    /// Differs for every mapping that was loaded.
    pub(crate) generation: u32,
    /// What its rule says instead of the budget for everything.
    pub(crate) budget: RuleBudget,
    /// Who wants it.
    pub(crate) origin: &'a Origin,
}

/// A series that was found or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) handle: Handle,
    /// Its time to live in ticks: the one that it was made with, whatever the mapping says by now.
    pub(crate) ttl: u32,
}

/// What the series of one set of label names share.
#[derive(Clone, Debug)]
enum Spec {
    Scalar,
    Summary(Arc<SummarySpec>),
    Histogram(Arc<HistogramSpec>),
    Set(Arc<SetSpec>),
}

impl Spec {
    /// Lines of the text format that a series has.
    fn samples(&self) -> u64 {
        match self {
            Self::Scalar | Self::Set(_) => 1,
            Self::Summary(spec) => spec.samples(),
            Self::Histogram(spec) => spec.samples(),
        }
    }

    fn new(aggregation: &Aggregation<'_>, family: &Family) -> Self {
        match aggregation {
            Aggregation::Counter | Aggregation::Gauge => Self::Scalar,
            Aggregation::Summary(options) => {
                Self::Summary(Arc::new(SummarySpec::new(options).telling(family.falls())))
            }
            Aggregation::Histogram { bounds, native_factor, native_max_buckets } => {
                let spec = HistogramSpec::new(bounds, *native_factor, *native_max_buckets);
                Self::Histogram(Arc::new(spec.telling(family.falls())))
            }
            Aggregation::Set(options) => {
                Self::Set(Arc::new(SetSpec::new(&SummarySpec::new(options))))
            }
        }
    }
}

/// The series of one family with the same label names.
#[derive(Debug)]
struct LabelSet {
    live: u32,
    /// The mapping that the spec is from.
    generation: u32,
    /// What the next series of this set gets.
    spec: Spec,
}

/// Slots of one slab.
#[derive(Debug, Default)]
struct Slots {
    free: Vec<u32>,
    /// Page of each slot ever used.
    pages: Vec<u32>,
    /// Lines of the text format of the series in each slot; empty where all have one.
    widths: Vec<u32>,
}

impl Slots {
    fn take(&mut self) -> u32 {
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
    /// Families with observers or with more than one set of label names: their sets, by the hash of the names. A sender
    /// may give a metric as many of them as it has series.
    sets: HashMap<u32, HashMap<u64, LabelSet, foldhash::fast::FixedState>>,
    departed: HashSet<u64>,
    helps: Arc<Vec<Arc<str>>>,
    help_numbers: HashMap<Arc<str>, u32>,
    /// The different times to live, and their positions in this list.
    ttls: Vec<u32>,
    ttl_numbers: HashMap<u32, u16>,
    scalars: Slots,
    observers: Slots,
    live: u64,
    growth: Growth,
    account: Account,
}

impl Members {
    fn slots(&mut self, slot: SlotId) -> &mut Slots {
        if slot.is_observer() { &mut self.observers } else { &mut self.scalars }
    }

    /// Notes how many lines the series in a slot has.
    fn set_width(&mut self, slot: SlotId, width: u64) {
        if slot.is_observer() {
            let widths = &mut self.observers.widths;
            widths.resize(widths.len().max(slot.index() + 1), 1);
            if let Some(known) = widths.get_mut(slot.index()) {
                *known = u32::try_from(width).unwrap_or(u32::MAX);
            }
        }
    }

    fn width_of(&self, slot: SlotId) -> u64 {
        let widths = if slot.is_observer() { &self.observers.widths } else { &self.scalars.widths };
        widths.get(slot.index()).copied().map_or(1, u64::from)
    }

    fn help(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.help_numbers.get(text) {
            return number;
        }
        let number = self.helps.len() as u32;
        let text: Arc<str> = text.into();
        Arc::make_mut(&mut self.helps).push(Arc::clone(&text));
        self.help_numbers.insert(text, number);
        number
    }

    /// The number of a time to live. There are numbers for 65535 of them; series with any other take the one of the
    /// rule that maps to them.
    fn ttl_number(&mut self, ttl: u32) -> u16 {
        // Most mapping files have a few of them at most.
        if let Some(number) = self.ttls.iter().take(4).position(|known| *known == ttl) {
            return number as u16;
        }
        let number = self.ttls.len().min(usize::from(u16::MAX)) as u16;
        if number == u16::MAX {
            return self.ttl_numbers.get(&ttl).copied().unwrap_or(number);
        }
        *self.ttl_numbers.entry(ttl).or_insert_with(|| {
            self.ttls.push(ttl);
            number
        })
    }

    fn resolved(&self, tenant: Tenant, asked: u32) -> Resolved {
        let ttl = self.ttls.get(usize::from(tenant.ttl)).copied().unwrap_or(asked);
        Resolved { handle: tenant.handle, ttl }
    }
}

/// Numbers of the registry for its metrics.
#[derive(Debug, Default)]
pub(crate) struct RegistryCounts {
    /// (name, label names) pairs ever made, by [`Kind`].
    pub(crate) pairs: [AtomicU64; Kind::ALL.len()],
    /// Series alive, by [`Kind`].
    pub(crate) live: [AtomicU64; Kind::ALL.len()],
    /// Series expired, by [`Kind`].
    pub(crate) expired: [AtomicU64; Kind::ALL.len()],
    /// Series that joined a family with another help text than their own.
    pub(crate) other_help: AtomicU64,
}

fn count(counters: &[AtomicU64], kind: Kind) -> Option<&AtomicU64> {
    counters.get(kind as usize)
}

/// All series.
pub(crate) struct Registry {
    members: RwLock<Members>,
    scalars: Slab<Scalar>,
    observers: Slab<ObserverCell>,
    calendar: Mutex<Calendar>,
    /// Told when an earlier bucket appears in the calendar.
    on_earlier: Box<dyn Fn() + Send + Sync>,
    reserved: Reserved,
    pub(crate) budget: Budget,
    /// The fold value, rendered.
    fold: Box<[u8]>,
    /// What went beyond a budget.
    pub(crate) over: Ledger,
    /// Who brings new series.
    pub(crate) senders: Senders,
    hasher: foldhash::fast::RandomState,
    /// For whole label sets.
    set_hasher: foldhash::quality::RandomState,
    pub(crate) clock: Clock,
    pub(crate) counts: RegistryCounts,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// What a scrape needs: the membership of one moment and access to the cells.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) pages: Snapshot,
    pub(crate) helps: Arc<Vec<Arc<str>>>,
    pub(crate) scalars: cell::View<Scalar>,
    pub(crate) observers: cell::View<ObserverCell>,
    pub(crate) reserved: Reserved,
}

impl Registry {
    /// An empty registry. `on_earlier` is called when something will expire earlier than
    /// [`Registry::next_expiry`] said before.
    pub(crate) fn new(
        clock: Clock,
        reserved: Reserved,
        budget: Budget,
        on_earlier: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        let mut fold = Vec::new();
        escape::label_value(&mut fold, &budget.fold_value);
        Self {
            members: RwLock::default(),
            scalars: Slab::new(),
            observers: Slab::new(),
            calendar: Mutex::default(),
            on_earlier,
            reserved,
            budget,
            fold: fold.into_boxed_slice(),
            over: Ledger::default(),
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
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cells of counters and gauges.
    pub(crate) fn scalars(&self) -> cell::View<Scalar> {
        self.scalars.view()
    }

    /// The cells of all other series.
    pub(crate) fn observers(&self) -> cell::View<ObserverCell> {
        self.observers.view()
    }

    /// What a scrape needs, as of now.
    pub(crate) fn view(&self) -> View {
        let members = self.read();
        View {
            pages: members.tree.snapshot(),
            helps: Arc::clone(&members.helps),
            scalars: self.scalars.view(),
            observers: self.observers.view(),
            reserved: Arc::clone(&self.reserved),
        }
    }

    /// Says which names belong to somebody else.
    pub(crate) fn reserved(&self) -> Reserved {
        Arc::clone(&self.reserved)
    }

    /// Series made in each of the last minutes, the present one first.
    pub(crate) fn growth(&self) -> [u64; MINUTES] {
        self.read().growth.by_minute(self.clock.now().minute())
    }

    /// Remembers that a counter of family `name` became NaN.
    pub(crate) fn mark_nan(&self, name: &str) {
        if let Some(family) = self.family(&self.read(), name) {
            family.mark_nan();
        }
    }

    fn family<'a>(&self, members: &'a Members, name: &str) -> Option<&'a Arc<Family>> {
        let hash = self.hasher.hash_one(name);
        members.families.find(hash, |family| *family.name == *name)
    }

    /// Finds the series, or makes it.
    ///
    /// # Errors
    /// The reason why this series cannot exist beside those that do.
    pub(crate) fn resolve(&self, series: &NewSeries<'_>) -> Result<Resolved, Rejection> {
        if series.key.name.is_empty() {
            return Err(Rejection::EmptyName);
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
        // What was found holds if nobody was faster.
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
        self.admit(&members, series, absent.family.is_some())?;
        self.within(&mut members, series, absent)
    }

    /// Looks a series up; a name of another kind is its rejection.
    fn find(&self, members: &Members, series: &NewSeries<'_>) -> Result<Found, Rejection> {
        let family = self.family(members, series.key.name);
        if family.is_some_and(|family| family.kind != series.aggregation.kind()) {
            return Err(Rejection::OtherKind);
        }
        let position = match members.tree.find(&series.key) {
            // A series that has just expired may still have its entry; it is replaced, not revived.
            Ok(at) => match members.tree.tenant(at) {
                Some(tenant)
                    if tenant.handle.is_alive(&self.scalars.view(), &self.observers.view()) =>
                {
                    return Ok(Found::Alive(members.resolved(tenant, series.ttl)));
                }
                stale => Err(stale.map(|tenant| tenant.handle)),
            },
            Err(at) => Ok(at),
        };
        Ok(Found::Absent(Absent { family: family.cloned(), position }))
    }

    fn create(&self, members: &mut Members, series: &NewSeries<'_>, absent: Absent) -> Handle {
        let kind = series.aggregation.kind();
        let names = names_hash(series.key.labels);
        let family = match absent.family {
            Some(family) => {
                let other = members
                    .helps
                    .get(family.help as usize)
                    .is_some_and(|help| **help != *series.help);
                if other {
                    self.counts.other_help.fetch_add(1, Ordering::Relaxed);
                }
                family
            }
            None => {
                let help = members.help(series.help);
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
        let spec = self.join_set(members, &family, names, series);
        family.born();
        let now = self.clock.now();
        let handle = self.occupy(members, &spec, now);
        if self.has_budget() {
            self.enter(members, &family, series.key.labels, handle, &spec);
        }
        let position = match absent.position {
            Ok(position) => Ok(position),
            Err(stale) => {
                self.evict(members, stale.into_iter().collect());
                members.tree.find(&series.key).map_or_else(Ok, Err)
            }
        };
        let tenant = Tenant { handle, ttl: members.ttl_number(series.ttl) };
        let Members { tree, scalars, observers, .. } = members;
        if let Ok(position) = position {
            tree.insert(position, &family, tenant, &series.key, |slot, page| {
                place(scalars, observers, slot, page);
            });
        }
        members.live += 1;
        members.growth.note(now.minute(), 1);
        self.senders.note(series.origin, series.key.name, Outcome::Made, now);
        if let Some(live) = count(&self.counts.live, kind) {
            live.fetch_add(1, Ordering::Relaxed);
        }
        handle
    }

    /// Counts the new series in its set of label names and returns what that set shares.
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
                self.pair_made(members, family, names);
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
            // Rules of one mapping that share a set share what the first of them says; a reload makes it anew for the
            // series to come.
            if set.generation != generation {
                (set.generation, set.spec) = (generation, Spec::new(aggregation, family));
            }
            return set.spec.clone();
        }
        let spec = Spec::new(aggregation, family);
        sets.insert(names, LabelSet { live: 1, generation, spec: spec.clone() });
        debug_assert_eq!(kind, aggregation.kind());
        self.pair_made(members, family, names);
        spec
    }

    fn pair_made(&self, members: &mut Members, family: &Family, names: u64) {
        if !members.departed.remove(&self.pair_hash(family, names))
            && let Some(pairs) = count(&self.counts.pairs, family.kind)
        {
            pairs.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn pair_hash(&self, family: &Family, names: u64) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(family.name.as_bytes());
        hasher.write_u64(names);
        hasher.write_u8(family.kind as u8);
        hasher.finish()
    }

    /// Takes a free slot and starts it.
    fn occupy(&self, members: &mut Members, spec: &Spec, now: Moment) -> Handle {
        let observer = match spec {
            Spec::Scalar => {
                let index = members.scalars.take();
                self.scalars.grow_to(index as usize);
                let slot = SlotId::scalar(index);
                let view = self.scalars.view();
                let generation = view.get(slot).map_or(0, |cell| {
                    cell.reset(now.tick());
                    cell.generation()
                });
                return Handle { slot, generation };
            }
            Spec::Summary(spec) => Observer::Summary(Summary::new(Arc::clone(spec), now)),
            Spec::Histogram(spec) => Observer::Histogram(Histogram::new(Arc::clone(spec))),
            Spec::Set(spec) => Observer::Distinct(Distinct::new(Arc::clone(spec), now)),
        };
        let index = members.observers.take();
        self.observers.grow_to(index as usize);
        let slot = SlotId::observer(index);
        let view = self.observers.view();
        let generation = view.get(slot).map_or(0, |cell| {
            let mut cell = cell.lock_any();
            cell.created = now.tick();
            cell.life = Life::default();
            cell.observer = Some(Box::new(observer));
            cell.generation
        });
        Handle { slot, generation }
    }
}

/// What a look-up found.
enum Found {
    Alive(Resolved),
    Absent(Absent),
}

/// What is there of a series that does not exist.
struct Absent {
    family: Option<Arc<Family>>,
    /// Where it belongs, or what is there still of an expired series of its name and labels.
    position: Result<Position, Option<Handle>>,
}

fn place(scalars: &mut Slots, observers: &mut Slots, slot: SlotId, page: u32) {
    let slots = if slot.is_observer() { observers } else { scalars };
    if let Some(place) = slots.pages.get_mut(slot.index()) {
        *place = page;
    }
}

/// Hash of the label names of a rendered set. The key is fixed: sets are only compared within one family.
fn names_hash(text: &[u8]) -> u64 {
    let mut hasher = foldhash::quality::FixedState::default().build_hasher();
    for (name, _) in labels::iter(text) {
        hasher.write(name);
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::series::cell::SlotId;

    #[test]
    fn times_to_live_are_numbered_and_found_again() {
        let mut members = Members::default();
        let handle = Handle { slot: SlotId::scalar(0), generation: 0 };
        let most = u32::from(u16::MAX);
        let numbers: Vec<u16> = (0..most + 10).map(|ttl| members.ttl_number(ttl * 3)).collect();
        for (ttl, number) in (0..most + 10).zip(numbers) {
            assert_eq!(members.ttl_number(ttl * 3), number);
            let found = members.resolved(Tenant { handle, ttl: number }, 7).ttl;
            // Beyond what can be numbered it is what the rule says now.
            assert_eq!(found, if ttl < most { ttl * 3 } else { 7 });
        }
        assert_eq!(members.ttls.len(), usize::from(u16::MAX));
    }
}
