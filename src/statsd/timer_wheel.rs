//! A timer wheel of the series that will expire, with one bucket per second.
//!
//! A series with a time to live has one entry, in the bucket of the second in which it expires without
//! further events. Events only move the deadline in the cell of the series. When a bucket is due, each of its
//! series has either expired or moves to the bucket of its new deadline. Expiry thus costs one visit per
//! series and time to live instead of a scan of all series.

use std::collections::BTreeMap;

use super::clock::TICKS_PER_SECOND;
use super::series::cell::Handle;

/// Returns the bucket for a deadline in ticks: the first full second after the deadline.
pub(crate) const fn bucket_of(deadline: u32) -> u32 {
    deadline / TICKS_PER_SECOND + 1
}

/// A bucket that is due.
#[derive(Debug, Default)]
pub(crate) struct DueBucket {
    pub(crate) second: u32,
    /// The series that have not been checked yet.
    pub(crate) handles: Vec<Handle>,
    /// The series whose time was over when they were checked. They still have to end.
    pub(crate) expired: Vec<Handle>,
}

impl DueBucket {
    pub(crate) fn is_done(&self) -> bool {
        self.handles.is_empty() && self.expired.is_empty()
    }
}

/// Series by the second in which they may expire.
#[derive(Debug, Default)]
pub(crate) struct TimerWheel {
    buckets: BTreeMap<u32, Vec<Handle>>,
    /// The number of handles in them.
    entries: usize,
    /// The number of series that have ended early since the last purge, and may have left their handles.
    ended: usize,
}

/// The number of series that end early before their handles are dropped, in addition to half of all.
const PURGE_MIN: usize = 1 << 16;

impl TimerWheel {
    /// Inserts a series. Returns true if it is due earlier than all others.
    pub(crate) fn insert(&mut self, second: u32, handle: Handle) -> bool {
        let is_earlier = self.next().is_none_or(|next| second < next);
        self.buckets.entry(second).or_default().push(handle);
        self.entries += 1;
        is_earlier
    }

    /// Returns the second in which the first bucket is due.
    pub(crate) fn next(&self) -> Option<u32> {
        self.buckets.first_key_value().map(|(&second, _)| second)
    }

    /// Notes that series have ended before their time to live was over. Returns true if so many have that a purge pays: it visits at most
    /// twice as many handles.
    pub(crate) fn note_ended(&mut self, count: usize) -> bool {
        self.ended += count;
        let is_due = self.ended >= PURGE_MIN && self.ended >= self.entries / 2;
        self.ended = if is_due { 0 } else { self.ended };
        is_due
    }

    /// Takes out the first bucket at or after a second.
    pub(crate) fn take(&mut self, from: u32) -> Option<(u32, Vec<Handle>)> {
        let (&second, _) = self.buckets.range(from..).next()?;
        let handles = self.buckets.remove(&second)?;
        self.entries -= handles.len();
        Some((second, handles))
    }

    /// Puts back what is left of a bucket.
    pub(crate) fn put_back(&mut self, second: u32, handles: Vec<Handle>) {
        if !handles.is_empty() {
            self.entries += handles.len();
            self.buckets.entry(second).or_default().extend(handles);
        }
    }

    /// Removes the first bucket if it is due at `tick`.
    pub(crate) fn pop_due(&mut self, tick: u32) -> Option<DueBucket> {
        let first = self.buckets.first_entry()?;
        if u64::from(*first.key()) * u64::from(TICKS_PER_SECOND) > u64::from(tick) {
            return None;
        }
        let (second, handles) = first.remove_entry();
        self.entries -= handles.len();
        Some(DueBucket { second, handles, expired: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::series::cell::SlotId;

    #[test]
    fn buckets_fall_due_in_order_and_not_early() {
        let handle = |slot| Handle { slot: SlotId::scalar(slot), generation: 0 };
        let mut wheel = TimerWheel::default();
        assert!(wheel.insert(5, handle(1)));
        assert!(!wheel.insert(7, handle(2)));
        assert!(wheel.insert(3, handle(3)));
        assert!(!wheel.insert(3, handle(4)), "the bucket is known to be due first");
        assert_eq!(wheel.next(), Some(3));
        assert!(wheel.pop_due(29).is_none());
        assert_eq!(wheel.pop_due(55).map(|due| due.second), Some(3));
        assert_eq!(wheel.pop_due(55).map(|due| due.second), Some(5));
        assert!(wheel.pop_due(55).is_none());
        assert_eq!(wheel.next(), Some(7));
    }

    #[test]
    fn handles_of_ended_series_are_dropped() {
        let handle = |slot| Handle { slot: SlotId::scalar(slot), generation: 0 };
        let mut wheel = TimerWheel::default();
        let last = PURGE_MIN as u32 * 3;
        for slot in 0..last {
            wheel.insert(1_000_000 + slot % 7, handle(slot));
        }
        assert!(!wheel.note_ended(PURGE_MIN));
        assert!(wheel.note_ended(PURGE_MIN));
        let mut from = 0;
        while let Some((second, mut handles)) = wheel.take(from) {
            handles.retain(|handle| handle.slot == SlotId::scalar(6));
            wheel.put_back(second, handles);
            from = second + 1;
        }
        assert_eq!((wheel.entries, wheel.next()), (1, Some(1_000_006)));
        assert!(!wheel.note_ended(1), "each purge is paid by the series that have ended since");
    }

    #[test]
    fn a_bucket_is_due_only_after_every_deadline_in_it() {
        for deadline in 0..100 {
            assert!(bucket_of(deadline) * TICKS_PER_SECOND > deadline);
            assert!(bucket_of(deadline) * TICKS_PER_SECOND <= deadline + TICKS_PER_SECOND);
        }
    }
}
