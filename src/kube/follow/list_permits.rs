//! Permits that limit the number of concurrent lists.
//!
//! Lists are expensive for the API server, and too many at once are answered with 429. A list that
//! runs longer than a second gives its permit back, so that it cannot block the others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
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
pub(crate) struct ListPermit(Option<AbortHandle>);

impl Drop for ListPermit {
    fn drop(&mut self) {
        if let Some(holder) = &self.0 {
            holder.abort();
        }
    }
}

impl ListPermits {
    /// Creates permits that expire after `longest`.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(AT_ONCE)), longest }
    }

    /// Waits for a permit, in order of arrival.
    pub(crate) async fn take(&self) -> ListPermit {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else {
            return ListPermit(None);
        };
        let longest = self.longest;
        let holder = tokio::spawn(async move {
            sleep(longest).await;
            drop(permit);
        });
        ListPermit(Some(holder.abort_handle()))
    }
}
