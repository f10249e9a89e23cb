//! The calendar of series that will expire: a timer wheel with one bucket for each second.
//!
//! A series with a time to live has one entry, in the bucket of the second in which it would expire if no event came
//! any more. Events only move the deadline in the series' own cell. When a bucket falls due, each of its series either
//! is over, or moves to the bucket of its new deadline: the cost is one visit per series and time to live, not a scan of
//! all series. The calendar knows handles and seconds, no names and no values.

use std::collections::BTreeMap;

use super::clock::TICKS_PER_SECOND;
use super::series::cell::Handle;

/// The bucket in which a deadline (in ticks) is looked at: the first full second after it.
pub(crate) const fn second_of(deadline: u32) -> u32 {
    deadline / TICKS_PER_SECOND + 1
}

/// Series by the second in which they may be over.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    buckets: BTreeMap<u32, Vec<Handle>>,
}

impl Calendar {
    /// Enters a series; returns whether its bucket is the first to fall due.
    pub(crate) fn enter(&mut self, second: u32, handle: Handle) -> bool {
        self.buckets.entry(second).or_default().push(handle);
        self.next() == Some(second)
    }

    /// The second in which the first bucket falls due.
    pub(crate) fn next(&self) -> Option<u32> {
        self.buckets.first_key_value().map(|(&second, _)| second)
    }

    /// Takes the first bucket if it is due at `tick`.
    pub(crate) fn due(&mut self, tick: u32) -> Option<(u32, Vec<Handle>)> {
        let first = self.buckets.first_entry()?;
        if u64::from(*first.key()) * u64::from(TICKS_PER_SECOND) > u64::from(tick) {
            return None;
        }
        Some(first.remove_entry())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::series::cell::SlotId;

    #[test]
    fn buckets_fall_due_in_order_and_not_early() {
        let handle = |slot| Handle { slot: SlotId::scalar(slot), generation: 0 };
        let mut calendar = Calendar::default();
        assert!(calendar.enter(5, handle(1)));
        assert!(!calendar.enter(7, handle(2)));
        assert!(calendar.enter(3, handle(3)));
        assert_eq!(calendar.next(), Some(3));
        assert!(calendar.due(29).is_none());
        assert_eq!(calendar.due(55).map(|due| due.0), Some(3));
        assert_eq!(calendar.due(55).map(|due| due.0), Some(5));
        assert!(calendar.due(55).is_none());
        assert_eq!(calendar.next(), Some(7));
    }

    #[test]
    fn a_bucket_is_due_only_after_every_deadline_in_it() {
        for deadline in 0..100 {
            assert!(second_of(deadline) * TICKS_PER_SECOND > deadline);
            assert!(second_of(deadline) * TICKS_PER_SECOND <= deadline + TICKS_PER_SECOND);
        }
    }
}
