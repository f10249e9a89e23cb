//! Permits that limit the number of concurrent lists.
//!
//! Lists are expensive for the API server, and too many at once are answered with 429. A list that
//! runs longer than a second gives its permit back, so that it cannot block the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The maximum number of concurrent lists that take less than a second.
pub(crate) const AT_ONCE: usize = 16;

/// The list permits of all list/watches of one server.
#[derive(Debug)]
pub(crate) struct ListPermits {
    free: Arc<Semaphore>,
    /// The time after which a permit expires.
    longest: Duration,
}

/// A permit to list, until it is dropped or expires.
#[derive(Debug)]
pub(crate) struct ListPermit {
    _holder: JoinSet<()>,
}

impl ListPermits {
    /// Creates permits that expire after `longest`.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(AT_ONCE)), longest }
    }

    /// Waits for a permit, in order of arrival.
    pub(crate) async fn take(&self) -> ListPermit {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let longest = self.longest;
        let mut holder = JoinSet::new();
        holder.spawn(async move {
            sleep(longest).await;
            drop(permit);
        });
        ListPermit { _holder: holder }
    }
}
