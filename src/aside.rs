//! Work that takes longer than a worker may be held: done beside the workers, one at a time.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::{JoinError, spawn_blocking};

/// Those who wait for their turn. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aside(Arc<Mutex<()>>);

impl Aside {
    /// Does something when it is its turn, on a thread beside the workers; to its end, also when nobody waits for what
    /// comes of it any more.
    ///
    /// # Errors
    /// It panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.0).lock_owned().await;
        let done = spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await
    }
}
