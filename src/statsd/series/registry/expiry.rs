//! Expiry: removes series whose time to live is over and frees their slots.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;

use super::{Members, Registry};
use crate::exposition::labels::ParsedLabels;
use crate::statsd::clock::{TICK_NANOS, TICKS_PER_SECOND};
use crate::statsd::series::account::{OVERFLOW, RemovedSeries};
use crate::statsd::series::cell::{Handle, Lifetime, ObserverCell, Scalar, SlotId, View};
use crate::statsd::timer_wheel::{DueBucket, bucket_of};
use crate::util::shrink::Shrink as _;

/// The maximum number of expired pairs of name and label names to remember, so that `metrics_total` does not
/// count returning ones twice.
pub(super) const MAX_EXPIRED_PAIRS: usize = 1 << 16;
/// The number of series at which a part of a run, which holds the write lock, ends. With [`PAGES_AT_ONCE`] it lasts
/// about a millisecond.
const EXPIRY_BATCH: usize = 4_096;
/// The maximum number of pages that are rewritten under one write lock.
const PAGES_AT_ONCE: usize = 256;

/// The decision about a series in a due bucket.
enum ExpiryDecision {
    Keep,
    Update(Lifetime),
    Expire,
}

impl Registry {
    /// Returns the lifetime of a series after an event at tick `now` with a time to live of `ttl` ticks, 0
    /// for forever. The second value is the bucket of the timer wheel to insert it into, if any.
    pub(crate) fn extend_life(life: Lifetime, now: u32, ttl: u32) -> (Lifetime, Option<u32>) {
        if ttl == 0 {
            return (Lifetime { deadline: 0, ..life }, None);
        }
        let deadline = now.saturating_add(ttl);
        let second = bucket_of(deadline);
        if life.scheduled != 0 && life.scheduled <= second {
            return (Lifetime { deadline, ..life }, None);
        }
        (Lifetime { deadline, scheduled: second }, Some(second))
    }

    /// Inserts a series into the timer wheel.
    pub(crate) fn schedule(&self, handle: Handle, second: u32) {
        let earlier = self.timer_wheel.lock().insert(second, handle);
        if earlier {
            (self.on_earlier_deadline)();
        }
    }

    /// Returns the time, in nanoseconds of the clock, of the next expiry or report.
    pub(crate) fn next_wakeup(&self) -> Option<u64> {
        let due = self.due.lock();
        let timer_wheel = self.timer_wheel.lock();
        let second = if due.is_done() { timer_wheel.next() } else { Some(due.second) };
        let expiry =
            second.map(|second| u64::from(second) * u64::from(TICKS_PER_SECOND) * TICK_NANOS);
        expiry.into_iter().chain(self.violations.due()).min()
    }

    /// Performs what is due: counts label values, removes expired series and logs violations of budgets.
    pub(crate) fn run_due(&self) {
        self.count_large_families();
        self.expire();
        self.violations.report_if_due(self.clock.now());
    }

    /// Removes the expired series. After a panic the next call continues where the last one stopped.
    pub(crate) fn expire(&self) {
        let tick = self.clock.now().tick();
        let mut due = self.due.lock();
        loop {
            if due.is_done() {
                let next = self.timer_wheel.lock().pop_due(tick);
                let Some(next) = next else { return };
                *due = next;
            }
            self.expire_due(&mut due, tick);
        }
    }

    fn expire_due(&self, due: &mut DueBucket, tick: u32) {
        let DueBucket { second, handles, expired } = due;
        let decide = |life: Lifetime, handle: Handle| {
            if life.scheduled != *second {
                // It is in another bucket by now.
                return ExpiryDecision::Keep;
            }
            if life.deadline == 0 {
                return ExpiryDecision::Update(Lifetime::default());
            }
            if life.deadline < tick {
                return ExpiryDecision::Expire;
            }
            let scheduled = bucket_of(life.deadline);
            self.schedule(handle, scheduled);
            ExpiryDecision::Update(Lifetime { scheduled, ..life })
        };
        let cells = (self.scalars.view(), self.observers.view());
        while let Some(&handle) = handles.last() {
            update_lifetime(&cells, handle, |life| match decide(life, handle) {
                ExpiryDecision::Expire => {
                    expired.push(handle);
                    ExpiryDecision::Keep
                }
                decision => decision,
            });
            handles.pop();
        }
        self.end(expired, decide);
        expired.clear();
    }

    /// Ends the series with the labels of these senders.
    pub(crate) fn end_senders(&self, senders: &[u64]) {
        let mut own = Vec::new();
        for sender in senders {
            own.extend(self.write().by_sender.remove(sender).unwrap_or_default());
        }
        let members = self.read();
        own.retain(|handle| !members.account.shared.contains(&handle.slot));
        drop(members);
        self.end(&own, |_, _| ExpiryDecision::Expire);
        let is_purge_due = self.timer_wheel.lock().note_ended(own.len());
        if is_purge_due {
            self.purge_timer_wheel();
        }
    }

    /// Drops the entries of series that have ended before their time to live was over, one bucket after the other. Other threads may use the
    /// wheel meanwhile.
    fn purge_timer_wheel(&self) {
        let mut from = 0;
        loop {
            let Some((second, mut handles)) = self.timer_wheel.lock().take(from) else { return };
            // They show all series that have been in the bucket.
            let (scalars, observers) = (self.scalars.view(), self.observers.view());
            handles.retain(|handle| handle.is_alive(&scalars, &observers));
            handles.shrink();
            self.timer_wheel.lock().put_back(second, handles);
            let Some(next) = second.checked_add(1) else { return };
            from = next;
        }
    }

    /// Ends those of the series that `decide` lets expire. Neighbours of the list are usually on different pages, so
    /// they are ordered by page first, and each page is rewritten once.
    fn end(&self, handles: &[Handle], decide: impl Fn(Lifetime, Handle) -> ExpiryDecision) {
        let cells = (self.scalars.view(), self.observers.view());
        let mut located = Vec::with_capacity(handles.len());
        for part in handles.chunks(EXPIRY_BATCH) {
            let members = self.read();
            located.extend(part.iter().map(|&handle| (members.page(handle.slot), handle)));
        }
        located.sort_unstable_by_key(|(page, _)| *page);
        let mut took = Duration::ZERO;
        for part in parts(&located) {
            // The lock is not fair: without a pause, threads that wait for it would find it taken again.
            std::thread::sleep(took);
            // Series end under the write lock, so that a look-up never finds one that has ended but still counts.
            let mut members = self.write();
            let begun = Instant::now();
            for &(_, handle) in part {
                let ended = &mut members.ended;
                update_lifetime(&cells, handle, |life| {
                    let decision = decide(life, handle);
                    if let ExpiryDecision::Expire = decision {
                        ended.push(handle);
                    }
                    decision
                });
            }
            self.remove_ended(&mut members);
            took = begun.elapsed();
        }
    }

    /// Removes ended series from the tree and frees their slots.
    pub(super) fn remove_ended(&self, members: &mut Members) {
        let ended = std::mem::take(&mut members.ended);
        let ids: HashSet<u32, FixedState> =
            ended.iter().filter_map(|handle| members.page(handle.slot)).collect();
        // The cells tell as well which series have ended, but they are far apart in memory.
        let ended: HashSet<SlotId, FixedState> = ended.iter().map(|handle| handle.slot).collect();
        let mut removed = Vec::new();
        let Members { tree, slots, account, .. } = members;
        tree.compact(
            &ids,
            |entry| !ended.contains(&entry.handle.slot),
            |entry, text| {
                if let Some(values) = account.values.get_mut(&entry.family.id) {
                    values.remove(text, &self.fold);
                }
                removed.push(RemovedSeries {
                    family: Arc::clone(&entry.family),
                    slot: entry.handle.slot,
                    names: self.names_hash(&ParsedLabels::new(text)),
                    label_bytes: text.len(),
                    is_overflow: text == OVERFLOW,
                });
            },
            |slot, page| slots[slot.slab()].pages[slot.index()] = page,
        );
        for gone in removed {
            self.remove_from_family(members, &gone);
            members.account.shared.remove(&gone.slot);
            members.slots[gone.slot.slab()].free.push(gone.slot.index() as u32);
        }
    }

    /// Subtracts a series from its family, and removes the family with its last series.
    fn remove_from_family(&self, members: &mut Members, gone: &RemovedSeries) {
        let RemovedSeries { family, names, .. } = gone;
        members.live -= 1;
        self.counts.live[family.kind as usize].fetch_sub(1, Ordering::Relaxed);
        self.counts.expired[family.kind as usize].fetch_add(1, Ordering::Relaxed);
        let remaining = family.remove_series();
        if self.has_budget() {
            self.remove_from_budgets(members, family, gone);
        }
        let mut empty = remaining == 0;
        if let Some(sets) = members.sets.get_mut(&family.id) {
            empty = false;
            if let Some(set) = sets.get_mut(names) {
                set.live -= 1;
                if set.live == 0 {
                    sets.remove(names);
                    empty = true;
                }
            }
        }
        if empty && members.expired_pairs.len() < MAX_EXPIRED_PAIRS {
            let pair = self.pair_hash(family, *names);
            members.expired_pairs.insert(pair);
        }
        if remaining == 0 {
            members.sets.remove(&family.id);
            let hash = self.hasher.hash_one(&*family.name);
            if let Ok(entry) = members.families.find_entry(hash, |known| known.id == family.id) {
                entry.remove();
                members.helps.remove(family.help);
            }
        }
    }
}

/// Splits series that are ordered by page into parts of bounded work, each with whole pages.
fn parts(mut series: &[(Option<u32>, Handle)]) -> impl Iterator<Item = &[(Option<u32>, Handle)]> {
    std::iter::from_fn(move || {
        let mut end = 0;
        for page in series.chunk_by(|(a, _), (b, _)| a == b).take(PAGES_AT_ONCE) {
            end += page.len();
            if end >= EXPIRY_BATCH {
                break;
            }
        }
        let (part, rest) = series.split_at(end);
        series = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// Applies `decision` to the lifetime of a series, if the series exists.
fn update_lifetime(
    (scalars, observers): &(View<Scalar>, View<ObserverCell>),
    Handle { slot, generation }: Handle,
    decision: impl FnOnce(Lifetime) -> ExpiryDecision,
) {
    if slot.is_observer() {
        let cell = observers.get(slot).and_then(|cell| cell.lock(generation));
        let Some(mut cell) = cell else { return };
        match decision(cell.life) {
            ExpiryDecision::Keep => {}
            ExpiryDecision::Update(life) => cell.life = life,
            ExpiryDecision::Expire => cell.retire(),
        }
    } else {
        let cell = scalars.get(slot).and_then(|cell| cell.lock(generation));
        let Some(cell) = cell else { return };
        match decision(cell.life()) {
            ExpiryDecision::Keep => {}
            ExpiryDecision::Update(life) => cell.set_life(life),
            ExpiryDecision::Expire => cell.retire(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use super::*;
    use crate::exposition::budget::{Budget, BudgetMode, RuleBudget};
    use crate::statsd::clock::Clock;
    use crate::statsd::series::registry::{Aggregation, NewSeries};
    use crate::statsd::series::senders::Origin;
    use crate::statsd::series::tree::Key;
    use crate::util::work_counter::take;

    impl Registry {
        /// Returns the labels of senders that have had series and have not ended.
        pub(crate) fn sender_labels(&self) -> std::collections::BTreeSet<u64> {
            self.read().by_sender.keys().copied().collect()
        }
    }

    /// Creates counters in an order that is not that of their labels. Those that are not kept have the labels of sender 7
    /// and expire after a second.
    fn scattered(count: u32, is_kept: impl Fn(u32) -> bool) -> Registry {
        let clock = Clock::manual();
        let registry =
            Registry::new(clock, Arc::new(|_| false), Budget::default(), Box::new(|| ()));
        for number in 0..count {
            let labels = format!("l=\"{:08x}\"", number.wrapping_mul(0x9E37_79B9));
            let series = registry.resolve(&NewSeries {
                key: Key { name: "c", labels: labels.as_bytes(), label_count: 1 },
                aggregation: Aggregation::Counter,
                help: "",
                ttl: 10,
                generation: 1,
                budget: RuleBudget::default(),
                origin: &Origin::default(),
                sender: if is_kept(number) { 0 } else { 7 },
            });
            let handle = series.expect("room").handle;
            if is_kept(number) {
                continue;
            }
            let view = registry.scalars();
            let cell = view.get(handle.slot).and_then(|cell| cell.lock(handle.generation));
            let cell = cell.expect("alive");
            let (life, bucket) = Registry::extend_life(cell.life(), 0, 10);
            cell.set_life(life);
            bucket.into_iter().for_each(|bucket| registry.schedule(handle, bucket));
        }
        registry
    }

    /// Mappings whose HELP texts change with each reload leave none of them behind.
    #[test]
    fn help_texts_end_with_their_families() {
        let registry =
            Registry::new(Clock::manual(), Arc::new(|_| false), Budget::default(), Box::new(|| ()));
        for revision in 0..50 {
            let (name, help) = (format!("c{revision}"), format!("of revision {revision}"));
            let series = NewSeries {
                key: Key { name: &name, labels: b"", label_count: 0 },
                aggregation: Aggregation::Counter,
                help: &help,
                ttl: 10,
                generation: 1,
                budget: RuleBudget::default(),
                origin: &Origin::default(),
                sender: 7,
            };
            registry.resolve(&series).expect("room");
            registry.end_senders(&[7]);
        }
        assert!(registry.view().helps.len() <= 2, "{:?}", registry.view().helps);
    }

    /// Series end in the order of their events or creation, which is not that of their labels.
    #[test]
    fn each_page_is_rewritten_once_in_a_run() {
        const COUNT: u32 = 30_000;
        let expire = |registry: &Registry| {
            registry.clock.advance(Duration::from_secs(3));
            registry.expire();
        };
        let end_sender = |registry: &Registry| registry.end_senders(&[7]);
        let ends: [&dyn Fn(&Registry); 2] = [&expire, &end_sender];
        for (ways, kept_one_in) in [(0, COUNT), (0, 2), (1, COUNT), (1, 2), (0, 100)] {
            let what = format!("way {ways}, one of {kept_one_in} is kept");
            let registry = scattered(COUNT, |number| number % kept_one_in == 1);
            let pages = registry.view().pages.len();
            take();
            ends[ways](&registry);
            let visited = take();
            assert!(
                visited <= u64::from(COUNT + COUNT / 100),
                "{what}: {visited} series were visited"
            );
            let kept = u64::from(COUNT / kept_one_in);
            assert_eq!(registry.read().live, kept, "{what}");
            // Small pages are merged.
            let left = registry.view().pages.len() as u64;
            assert!(left <= (pages as u64).min(kept / 20 + 1), "{what}: {left} of {pages} pages");
        }
    }

    #[test]
    fn a_run_is_cut_into_parts_with_whole_pages() {
        let handle = Handle { slot: SlotId::scalar(1), generation: 0 };
        for (pages, of_each, parts_of) in
            [(1, 1, 1), (1_000, 1, 256), (100, 160, 26), (3, 5_000, 1)]
        {
            let series: Vec<_> = (0..pages)
                .flat_map(|page| std::iter::repeat_n((Some(page), handle), of_each))
                .collect();
            let lengths: Vec<usize> = parts(&series).map(<[_]>::len).collect();
            assert_eq!(lengths.iter().sum::<usize>(), series.len());
            let expected = parts_of * of_each;
            let (last, others) = lengths.split_last().expect("a part");
            assert!(
                *last <= expected && others.iter().all(|length| *length == expected),
                "{lengths:?}"
            );
        }
        assert_eq!(parts(&[]).count(), 0);
    }

    /// A panic at any point of an expiry run loses no series: the next run removes all expired ones and keeps
    /// the rest.
    #[test]
    fn a_panic_during_expiry_loses_no_series() {
        for panics_at in 1..20 {
            // Counts down to a panic at a wake-up.
            let countdown = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&countdown);
            let wake = move || {
                let left = counted.load(Ordering::Relaxed);
                counted.store(left.saturating_sub(1), Ordering::Relaxed);
                assert!(left != 1, "a wake-up that panics");
            };
            let clock = Clock::manual();
            let budget = Budget {
                mode: BudgetMode::Enforce,
                series: 40,
                memory: 1 << 20,
                ..Budget::default()
            };
            let registry =
                Registry::new(clock.clone(), Arc::new(|_| false), budget, Box::new(wake));
            let origin = Origin::default();
            let resolve = |number: u32| {
                let labels = format!("l=\"{number}\"");
                let gauge = number.is_multiple_of(3);
                registry.resolve(&NewSeries {
                    key: Key {
                        name: if gauge { "g" } else { "c" },
                        labels: labels.as_bytes(),
                        label_count: 1,
                    },
                    aggregation: if gauge { Aggregation::Gauge } else { Aggregation::Counter },
                    help: "",
                    ttl: 10,
                    generation: 1,
                    budget: RuleBudget::default(),
                    origin: &origin,
                    sender: 0,
                })
            };
            let extend_life = |handle: Handle, now: u32, ttl: u32| {
                let view = registry.scalars();
                let cell = view.get(handle.slot).and_then(|cell| cell.lock(handle.generation));
                let cell = cell.expect("alive");
                let (life, bucket) = Registry::extend_life(cell.life(), now, ttl);
                cell.set_life(life);
                drop(cell);
                bucket.into_iter().for_each(|bucket| registry.schedule(handle, bucket));
            };
            let live = || {
                registry.counts.live.iter().map(|live| live.load(Ordering::Relaxed)).sum::<u64>()
            };
            let handles: Vec<Handle> =
                (0..30).map(|number| resolve(number).expect("room").handle).collect();
            handles.iter().for_each(|handle| extend_life(*handle, 0, 10));
            // Every other series gets an event and moves to a later bucket. The last one is checked first, so each
            // bucket is earlier than the one before.
            for (number, handle) in (0u32..).zip(&handles).filter(|(number, _)| number % 2 == 0) {
                extend_life(*handle, 5, 50 + 20 * number);
            }
            clock.advance(Duration::from_secs(3));
            countdown.store(panics_at, Ordering::Relaxed);
            let panicked = catch_unwind(AssertUnwindSafe(|| registry.expire())).is_err();
            countdown.store(0, Ordering::Relaxed);
            assert!(panicked || panics_at > 15, "{panics_at}");
            assert!(registry.next_wakeup().is_some(), "there is something to do still");
            registry.expire();
            assert_eq!(live(), 15, "{panics_at}");
            for number in 0..30 {
                assert!(resolve(number).is_ok(), "{number}: nothing that has gone takes a place");
            }
            clock.advance(Duration::from_secs(3_600));
            registry.expire();
            // The series created again have no event yet, so they do not expire.
            assert_eq!(live(), 15, "{panics_at}");
            assert_eq!(registry.next_wakeup(), None);
        }
    }
}
