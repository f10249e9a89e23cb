//! The state that all list/watches share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use super::journal::Journal;
use super::list_permits::ListPermits;
use super::retries::Retries;
use super::timing::Timing;
use super::versions::Versions;
use crate::kube::client::Client;
use crate::util::lock::Lock;

/// The state shared by all list/watches. A reload may lead to another server.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) retries: Retries,
    pub(super) list_permits: ListPermits,
    pub(super) journal: Arc<Journal>,
    /// The origin of the common times at which short watches end and refused requests are retried.
    pub(super) origin: Instant,
    /// The latest client and connection over which the server has answered; 0 before the first.
    reached: AtomicU64,
    /// The number of signs that the server may have other kinds.
    pub(super) signs: AtomicU64,
    /// The resource versions of the latest client's server, with the number of the client.
    versions: Lock<(u64, Arc<Versions>)>,
}

impl Shared {
    /// Creates the state before the first list/watch.
    pub(crate) fn new(timing: &Timing) -> Self {
        let journal = Arc::default();
        Self {
            retries: Retries::new(&timing.backoff, &journal),
            list_permits: ListPermits::new(timing.list_turn),
            journal,
            origin: Instant::now(),
            reached: AtomicU64::new(0),
            signs: AtomicU64::new(0),
            versions: Lock::default(),
        }
    }

    /// Ends the backoff of kinds that the server did not have, on a sign that it may have other kinds now.
    pub(crate) fn retry_missing_kinds(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
        self.retries.changed();
    }

    /// Notes a successful watch over the client's latest HTTP/2 connection. A new connection may lead to another server, or
    /// to the same with other kinds; nothing else reveals a server that was replaced without a failed request.
    pub(super) fn reached(&self, client: &Client) {
        let latest = client.number() << 32 | client.opened() & u64::from(u32::MAX);
        let before = self.reached.swap(latest, Ordering::Relaxed);
        if before != 0 && before != latest {
            self.retry_missing_kinds();
        }
    }

    /// Returns the resource versions of a client's server. Those of different servers cannot be compared.
    pub(super) fn versions(&self, client: &Client) -> Arc<Versions> {
        let mut latest = self.versions.lock();
        if client.number() > latest.0 {
            *latest = (client.number(), Arc::default());
        }
        if client.number() == latest.0 { Arc::clone(&latest.1) } else { Arc::default() }
    }
}
