//! Notifications of changes, which wake waiting tasks in the order of their arrival. (`tokio::sync::watch` wakes them in
//! a random order.)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Announces changes to all its [`Observer`]s.
#[derive(Clone, Default)]
pub struct Signal(Arc<Inner>);

#[derive(Default)]
struct Inner {
    count: AtomicU64,
    notify: Notify,
}

/// Waits for changes.
pub struct Observer {
    signal: Signal,
    known: u64,
}

impl Signal {
    /// Announces a change.
    pub fn announce(&self) {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        self.0.notify.notify_waiters();
    }

    /// Returns an observer of later changes.
    pub fn observe(&self) -> Observer {
        Observer { signal: self.clone(), known: self.0.count.load(Ordering::Relaxed) }
    }
}

impl Observer {
    /// Waits for a change since the last call.
    pub async fn changed(&mut self) {
        let inner = &self.signal.0;
        let notified = inner.notify.notified();
        if inner.count.load(Ordering::Relaxed) == self.known {
            notified.await;
        }
        self.known = inner.count.load(Ordering::Relaxed);
    }
}
