//! Blocking jobs, one at a time, outside the async worker threads.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// A mutex around Tokio's blocking pool: at most one job of all clones runs at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct SerialBlocking(Arc<Mutex<()>>);

impl SerialBlocking {
    /// Waits for the previous jobs, then runs `work` on the blocking pool. A job that has started runs to completion even
    /// if this future is dropped.
    ///
    /// # Errors
    /// Returns an error if `work` panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let guard = Arc::clone(&self.0).lock_owned().await;
        let done = spawn_blocking(move || {
            let _guard = guard;
            work()
        });
        done.await
    }
}
