//! One question that many ask: one at a time, and its answer serves for a while.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinError;
use tokio::time::Instant;

/// The last result of a job, shared by all clones.
#[derive(Clone, Debug)]
pub(crate) struct RecentResult<T> {
    lifetime: Duration,
    /// The result and the time when it was known. Locked while the job runs.
    last: Arc<Mutex<Option<(T, Instant)>>>,
}

impl<T: Clone + Send + 'static> RecentResult<T> {
    /// Results serve for `lifetime`.
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { lifetime, last: Arc::default() }
    }

    /// Returns the last result if it is recent, or else that of `job`. All who wait meanwhile share the job, which runs to
    /// completion even if this future is dropped.
    ///
    /// # Errors
    /// Returns an error if `job` panics.
    pub(crate) async fn get(
        &self,
        job: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((result, known)) = &*last
            && known.elapsed() < self.lifetime
        {
            return Ok(result.clone());
        }
        let running = tokio::spawn(async move {
            let result = job.await;
            *last = Some((result.clone(), Instant::now()));
            result
        });
        running.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A job that takes longer than its result serves.
    #[derive(Default)]
    struct Job(Arc<AtomicU64>);

    impl Job {
        fn run(&self) -> impl Future<Output = u64> + use<> {
            let count = Arc::clone(&self.0);
            async move {
                tokio::time::sleep(2 * SECOND).await;
                count.fetch_add(1, Ordering::Relaxed) + 1
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_shared_until_it_is_old() {
        let (recent, job) = (RecentResult::new(SECOND), Job::default());
        let all = futures_util::future::join_all((0..50).map(|_| recent.get(job.run()))).await;
        assert!(all.iter().all(|result| matches!(result, Ok(1))), "{all:?}");
        tokio::time::advance(SECOND / 2).await;
        assert_eq!(recent.get(job.run()).await.expect("no panic"), 1);
        tokio::time::advance(SECOND / 2).await;
        assert_eq!(recent.get(job.run()).await.expect("no panic"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_goes_on_without_its_first_caller() {
        let (recent, job) = (RecentResult::new(SECOND), Job::default());
        assert!(tokio::time::timeout(SECOND, recent.get(job.run())).await.is_err());
        assert_eq!(recent.get(job.run()).await.expect("no panic"), 1);
        assert_eq!(job.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_panic_is_not_kept() {
        let recent = RecentResult::<u64>::new(SECOND);
        assert!(recent.get(async { panic!("a planned panic") }).await.is_err());
        assert_eq!(recent.get(async { 1 }).await.expect("no panic"), 1);
    }
}
