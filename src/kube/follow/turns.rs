//! How many lists are under way at once.
//!
//! A list is dear for a server, and one that is asked for all kinds at the same moment answers 429. So a
//! list waits for its turn. One that takes long gives its turn to the next and goes on beside it: what is
//! small never waits for all of what is huge, nor anything for a server that does not answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// How many there are.
pub(crate) const AT_ONCE: usize = 16;

/// The turns of all list/watches of one server.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Arc<Semaphore>,
    longest: Duration,
}

/// A turn, until it is dropped or has lasted long.
#[derive(Debug)]
pub(crate) struct Turn(Option<AbortHandle>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(holder) = &self.0 {
            holder.abort();
        }
    }
}

impl Turns {
    /// A turn lasts for so long at most.
    pub(crate) fn new(longest: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(AT_ONCE)), longest }
    }

    /// Waits for a turn, behind those who came before.
    pub(crate) async fn take(&self) -> Turn {
        // Nobody closes it.
        let Ok(permit) = Arc::clone(&self.free).acquire_owned().await else { return Turn(None) };
        let longest = self.longest;
        let holder = tokio::spawn(async move {
            sleep(longest).await;
            drop(permit);
        });
        Turn(Some(holder.abort_handle()))
    }
}
