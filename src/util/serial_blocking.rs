//! Blocking jobs, one at a time, outside the async worker threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
        // The code of a task exists once for each type, which would be one for each job.
        let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
        let guard = Arc::clone(&self.0).lock_owned().await;
        let done = spawn_blocking(move || {
            let _guard = guard;
            work()
        });
        done.await
    }
}

/// One job that several may request: at most one run at a time, shared by all who requested it before it started.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedRuns {
    worker: SerialBlocking,
    started: Arc<AtomicU64>,
}

impl SharedRuns {
    /// Waits for the end of a run of `job` on the blocking pool that starts after this call. Waiting occupies no thread.
    ///
    /// # Errors
    /// Returns an error if `job` panics.
    pub(crate) async fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), JoinError> {
        let (started, known) = (Arc::clone(&self.started), self.started.load(Ordering::Relaxed));
        let run = move || {
            // Otherwise another run has started, and ended, while this one waited for its turn.
            if started.load(Ordering::Relaxed) == known {
                started.store(known + 1, Ordering::Relaxed);
                job();
            }
        };
        self.worker.run(run).await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn requests_during_a_run_share_the_next_one() {
        let (runs, count) = (SharedRuns::default(), Arc::new(AtomicU64::new(0)));
        let (began, has_begun) = channel();
        let (go_on, told) = channel::<()>();
        let counter = Arc::clone(&count);
        let mut first = pin!(runs.run(move || {
            began.send(()).expect("a listener");
            told.recv().expect("told");
            counter.fetch_add(1, Ordering::Relaxed);
        }));
        let mut unwatched = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut unwatched).is_pending());
        has_begun.recv().expect("begun");
        let mut later: Vec<_> = (0..9)
            .map(|_| {
                let counter = Arc::clone(&count);
                Box::pin(runs.run(move || {
                    counter.fetch_add(1, Ordering::Relaxed);
                }))
            })
            .collect();
        for run in &mut later {
            assert!(run.as_mut().poll(&mut unwatched).is_pending());
        }
        go_on.send(()).expect("a listener");
        first.await.expect("no panic");
        for run in later {
            run.await.expect("no panic");
        }
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
