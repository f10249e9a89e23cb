//! How series leave the registry: their time to live is over, their slots become free.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Members, Registry, count, names_hash, place};
use crate::statsd::expiry::second_of;
use crate::statsd::series::account::Gone;
use crate::statsd::series::cell::{Handle, Life};
use crate::statsd::series::tree::Entry;

/// Expired (name, label names) pairs that are remembered so that `metrics_total` does not count a returning one twice.
const MAX_DEPARTED: usize = 1 << 16;
/// Series that expire under one hold of the writer's lock.
const EXPIRY_BATCH: usize = 4_096;

impl Registry {
    /// The life of a series whose event came at `now` (a tick) and whose rule gives it `ttl` ticks, 0 for ever.
    /// The second part is the calendar bucket it must be entered in, if any.
    pub(crate) fn prolong(life: Life, now: u32, ttl: u32) -> (Life, Option<u32>) {
        if ttl == 0 {
            return (Life { deadline: 0, ..life }, None);
        }
        let deadline = now.saturating_add(ttl);
        let second = second_of(deadline);
        if life.armed != 0 && life.armed <= second {
            return (Life { deadline, ..life }, None);
        }
        (Life { deadline, armed: second }, Some(second))
    }

    /// Enters a series in the calendar.
    pub(crate) fn arm(&self, handle: Handle, second: u32) {
        let earlier =
            self.calendar.lock().unwrap_or_else(PoisonError::into_inner).enter(second, handle);
        if earlier {
            (self.on_earlier)();
        }
    }

    /// The second (of the clock) in which something may expire next.
    pub(crate) fn next_expiry(&self) -> Option<u32> {
        self.calendar.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    /// Removes the series whose last event is longer ago than their time to live.
    pub(crate) fn expire(&self) {
        let tick = self.clock.now().tick();
        loop {
            let due = self.calendar.lock().unwrap_or_else(PoisonError::into_inner).due(tick);
            let Some((second, handles)) = due else {
                return;
            };
            for batch in handles.chunks(EXPIRY_BATCH) {
                self.expire_batch(second, batch, tick);
            }
        }
    }

    fn expire_batch(&self, second: u32, batch: &[Handle], tick: u32) {
        let (scalars, observers) = (self.scalars.view(), self.observers.view());
        let mut over = Vec::new();
        let mut later = Vec::new();
        // What becomes of a series whose bucket is due.
        let judge = |life: Life| -> (Option<Life>, Option<u32>) {
            if life.armed != second {
                return (None, None);
            }
            if life.deadline == 0 {
                return (Some(Life::default()), None);
            }
            let armed = second_of(life.deadline);
            (Some(Life { armed, ..life }), Some(armed))
        };
        for &handle in batch {
            if handle.slot.is_observer() {
                let Some(mut cell) =
                    observers.get(handle.slot).and_then(|cell| cell.lock(handle.generation))
                else {
                    continue;
                };
                if cell.life.armed == second && cell.life.deadline != 0 && cell.life.deadline < tick
                {
                    cell.retire();
                    over.push(handle);
                } else if let (Some(life), bucket) = judge(cell.life) {
                    cell.life = life;
                    later.extend(bucket.map(|bucket| (bucket, handle)));
                }
            } else {
                let Some(cell) =
                    scalars.get(handle.slot).and_then(|cell| cell.lock(handle.generation))
                else {
                    continue;
                };
                let life = cell.life();
                if life.armed == second && life.deadline != 0 && life.deadline < tick {
                    cell.retire();
                    over.push(handle);
                } else if let (Some(life), bucket) = judge(life) {
                    cell.set_life(life);
                    later.extend(bucket.map(|bucket| (bucket, handle)));
                }
            }
        }
        for (bucket, handle) in later {
            self.arm(handle, bucket);
        }
        if !over.is_empty() {
            self.evict(&mut self.write(), over);
        }
    }

    /// Removes series whose cells are retired from the membership and frees their slots.
    pub(super) fn evict(&self, members: &mut Members, gone: Vec<Handle>) {
        let ids: HashSet<u32> = gone
            .iter()
            .filter_map(|handle| members.slots(handle.slot).pages.get(handle.slot.index()).copied())
            .collect();
        let (scalar_view, observer_view) = (self.scalars.view(), self.observers.view());
        let alive = |entry: &Entry| {
            let Handle { slot, generation } = entry.handle;
            if slot.is_observer() {
                observer_view.get(slot).is_some_and(|cell| cell.lock(generation).is_some())
            } else {
                scalar_view.get(slot).is_some_and(|cell| cell.read(generation).is_some())
            }
        };
        let mut removed = Vec::new();
        let Members { tree, scalars, observers, account, .. } = members;
        tree.compact(
            &ids,
            alive,
            |entry, text| {
                let (slot, names) = (entry.handle.slot, names_hash(text));
                removed.push(account.gone(&entry.family, slot, (text, names), &self.fold));
            },
            |slot, page| place(scalars, observers, slot, page),
        );
        for gone in removed {
            self.left(members, &gone);
            members.slots(gone.slot).free.push(gone.slot.index() as u32);
        }
    }

    /// Counts a series out of its family, and forgets the family with its last one.
    fn left(&self, members: &mut Members, gone: &Gone) {
        let Gone { family, names, .. } = gone;
        members.live -= 1;
        if let (Some(live), Some(expired)) =
            (count(&self.counts.live, family.kind), count(&self.counts.expired, family.kind))
        {
            live.fetch_sub(1, Ordering::Relaxed);
            expired.fetch_add(1, Ordering::Relaxed);
        }
        let remaining = family.died();
        if self.has_budget() {
            self.exit(members, family, gone);
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
        if empty && members.departed.len() < MAX_DEPARTED {
            let pair = self.pair_hash(family, *names);
            members.departed.insert(pair);
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
