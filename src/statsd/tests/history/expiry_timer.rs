//! The thread that removes expired series, in simulated time: it performs its step only at the time that the last one has named, or
//! when something is due earlier and wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::pods::PodIndex;
use crate::statsd::ingest::Shared;

/// The number of steps after which one must name a later time.
const MAX_STEPS: usize = 100;

/// What wakes the thread.
#[derive(Clone, Default)]
pub(super) struct Wakeups(Arc<AtomicU64>);

impl Wakeups {
    /// Lets a registry cause these.
    pub(super) fn attach(&self, shared: &mut Shared) {
        shared.registry.on_earlier_deadline = Box::new(self.wake());
    }

    /// Lets the ends of pods cause these.
    pub(super) fn attach_pods(&self, pods: &PodIndex) {
        pods.on_end(self.wake());
    }

    fn wake(&self) -> impl Fn() + Send + Sync + use<> {
        let Self(number) = self.clone();
        move || {
            number.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The thread of one pipeline.
pub(super) struct ExpiryTimer {
    wakeups: Wakeups,
    /// The number of wake-ups so far.
    seen: u64,
    /// The time of the next step, in nanoseconds of the clock.
    due: Option<u64>,
}

impl ExpiryTimer {
    pub(super) fn new(wakeups: &Wakeups) -> Self {
        Self { wakeups: wakeups.clone(), seen: 0, due: None }
    }

    /// Does what the thread does until now. Returns true if it has done something.
    pub(super) fn run(&mut self, shared: &Shared) -> bool {
        let number = self.wakeups.0.load(Ordering::Relaxed);
        let now = shared.registry.clock.now().nanos();
        let mut is_woken = std::mem::replace(&mut self.seen, number) != number;
        for step in 0..MAX_STEPS {
            if !std::mem::take(&mut is_woken) && self.due.is_none_or(|due| due > now) {
                return step > 0;
            }
            let wait = shared.run_due();
            self.due = wait.map(|wait| now + u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        }
        panic!("{:?} remains due at {now}", self.due);
    }
}
