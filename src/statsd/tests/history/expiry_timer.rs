//! The thread that removes expired series, in simulated time: it works only at the time that the registry has named, or when
//! something is due earlier and wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::statsd::ingest::Shared;
use crate::statsd::series::registry::Registry;

/// The number of calls after which a registry must name a later time.
const MAX_CALLS: usize = 100;

/// What wakes the threads of the registries of a history.
#[derive(Clone, Default)]
pub(super) struct Wakeups(Arc<AtomicU64>);

impl Wakeups {
    /// Lets a registry cause these.
    pub(super) fn attach(&self, shared: &mut Shared) {
        let Self(number) = self.clone();
        shared.registry.on_earlier_deadline = Box::new(move || {
            number.fetch_add(1, Ordering::Relaxed);
        });
    }
}

/// The thread of one registry.
pub(super) struct ExpiryTimer {
    wakeups: Wakeups,
    /// The number of wake-ups so far.
    seen: u64,
    due: Option<u64>,
}

impl ExpiryTimer {
    pub(super) fn new(wakeups: &Wakeups) -> Self {
        Self { wakeups: wakeups.clone(), seen: 0, due: None }
    }

    /// Does what the thread does until now.
    pub(super) fn run(&mut self, registry: &Registry) {
        let number = self.wakeups.0.load(Ordering::Relaxed);
        let now = registry.clock.now().nanos();
        let mut is_woken = std::mem::replace(&mut self.seen, number) != number;
        for _ in 0..MAX_CALLS {
            if !std::mem::take(&mut is_woken) && self.due.is_none_or(|due| due > now) {
                return;
            }
            registry.run_due();
            self.due = registry.next_wakeup();
        }
        panic!("{:?} remains due at {now}", self.due);
    }
}
