//! Expiry: removes series whose time to live is over and frees their slots.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Members, Registry, count, place};
use crate::exposition::labels::ParsedLabels;
use crate::statsd::clock::{TICK_NANOS, TICKS_PER_SECOND};
use crate::statsd::series::account::RemovedSeries;
use crate::statsd::series::cell::{Handle, Lifetime, ObserverCell, Scalar, View};
use crate::statsd::series::tree::Entry;
use crate::statsd::timer_wheel::bucket_of;

/// The maximum number of expired pairs of name and label names to remember, so that `metrics_total` does not
/// count returning ones twice.
pub(super) const MAX_EXPIRED_PAIRS: usize = 1 << 16;
/// The maximum number of series that expire under one write lock.
const EXPIRY_BATCH: usize = 4_096;

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
        let earlier =
            self.timer_wheel.lock().unwrap_or_else(PoisonError::into_inner).insert(second, handle);
        if earlier {
            (self.on_earlier_deadline)();
        }
    }

    /// Returns the time, in nanoseconds of the clock, of the next expiry or report.
    pub(crate) fn next_wakeup(&self) -> Option<u64> {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let timer_wheel = self.timer_wheel.lock().unwrap_or_else(PoisonError::into_inner);
        let second = if due.handles.is_empty() { timer_wheel.next() } else { Some(due.second) };
        let expiry =
            second.map(|second| u64::from(second) * u64::from(TICKS_PER_SECOND) * TICK_NANOS);
        expiry.into_iter().chain(self.violations.due()).min()
    }

    /// Performs what is due: removes expired series and logs violations of budgets.
    pub(crate) fn run_due(&self) {
        self.expire();
        self.violations.report_if_due(self.clock.now());
    }

    /// Removes the expired series. After a panic the next call continues where the last one stopped.
    pub(crate) fn expire(&self) {
        let tick = self.clock.now().tick();
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if due.handles.is_empty() {
                let next =
                    self.timer_wheel.lock().unwrap_or_else(PoisonError::into_inner).pop_due(tick);
                let Some(next) = next else { return };
                *due = next;
            }
            let rest = due.handles.len().saturating_sub(EXPIRY_BATCH);
            self.expire_batch(due.second, due.handles.get(rest..).unwrap_or_default(), tick);
            due.handles.truncate(rest);
        }
    }

    fn expire_batch(&self, second: u32, batch: &[Handle], tick: u32) {
        let decide = |life: Lifetime, handle: Handle| {
            if life.scheduled != second {
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
        let mut over = Vec::new();
        for &handle in batch {
            update_lifetime(&cells, handle, |life| match decide(life, handle) {
                ExpiryDecision::Expire => {
                    over.push(handle);
                    ExpiryDecision::Keep
                }
                decision => decision,
            });
        }
        if over.is_empty() {
            return;
        }
        // Series end under the write lock, so that a look-up never finds one that has ended but still counts.
        let mut members = self.write();
        for handle in over {
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
    }

    /// Ends the series with the labels of these senders.
    pub(crate) fn end_senders(&self, senders: &[u64]) {
        for sender in senders {
            let Some(own) = self.write().by_sender.remove(sender) else { continue };
            let cells = (self.scalars.view(), self.observers.view());
            for batch in own.chunks(EXPIRY_BATCH) {
                let mut members = self.write();
                for &handle in batch {
                    update_lifetime(&cells, handle, |_| {
                        members.ended.push(handle);
                        ExpiryDecision::Expire
                    });
                }
                self.remove_ended(&mut members);
            }
        }
    }

    /// Removes ended series from the tree and frees their slots.
    pub(super) fn remove_ended(&self, members: &mut Members) {
        let gone = std::mem::take(&mut members.ended);
        let ids: HashSet<u32> = gone
            .iter()
            .filter_map(|handle| members.slots(handle.slot).pages.get(handle.slot.index()).copied())
            .collect();
        let (scalars, observers) = (self.scalars.view(), self.observers.view());
        let alive = |entry: &Entry| entry.handle.is_alive(&scalars, &observers);
        let mut removed = Vec::new();
        let Members { tree, scalars, observers, account, .. } = members;
        tree.compact(
            &ids,
            alive,
            |entry, text| {
                let (slot, names) = (entry.handle.slot, self.names_hash(&ParsedLabels::new(text)));
                removed.push(account.remove(&entry.family, slot, (text, names), &self.fold));
            },
            |slot, page| place(scalars, observers, slot, page),
        );
        for gone in removed {
            self.remove_from_family(members, &gone);
            members.slots(gone.slot).free.push(gone.slot.index() as u32);
        }
    }

    /// Subtracts a series from its family, and removes the family with its last series.
    fn remove_from_family(&self, members: &mut Members, gone: &RemovedSeries) {
        let RemovedSeries { family, names, .. } = gone;
        members.live -= 1;
        if let (Some(live), Some(expired)) =
            (count(&self.counts.live, family.kind), count(&self.counts.expired, family.kind))
        {
            live.fetch_sub(1, Ordering::Relaxed);
            expired.fetch_add(1, Ordering::Relaxed);
        }
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
            }
        }
    }
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
            // Every other series gets an event and moves to a later bucket. Each bucket is earlier than the
            // one before.
            for (number, handle) in (0u32..).zip(&handles).filter(|(number, _)| number % 2 == 0) {
                extend_life(*handle, 5, 10 + 20 * (30 - number));
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
