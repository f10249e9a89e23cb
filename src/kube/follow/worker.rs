//! The thread of the Kubernetes pipeline, and the batching of its wake-ups.
//!
//! All list/watches run on one thread with a single-threaded runtime. Its main cost while watching is one wake-up per
//! packet. So when wake-ups are frequent, the thread sleeps for a short time without polling its sockets and then
//! handles everything received in the meantime at once; the data is delayed by that time. It sleeps longer if only bookmarks
//! were received: before watches end together, the server sends a bookmark to each, one by one. It never sleeps while
//! something is being listed, and rare events are handled at once.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};

use crate::util::lock::Lock;

/// With more bytes than this since the last wake-up, the thread does not sleep.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// The factor by which the thread sleeps longer if no object has changed since the last wake-up.
const IDLE_FACTOR: u32 = 6;

/// Controls the batching of wake-ups and the end of the thread.
#[derive(Debug)]
pub(crate) struct WakeupBatcher {
    /// The time for which events are batched.
    gather: Duration,
    start: Instant,
    /// When the thread was last idle, in microseconds since `start`.
    idle: AtomicU64,
    /// The number of bytes received since then.
    received: AtomicUsize,
    /// An object has changed since then.
    has_changes: AtomicBool,
    /// The number of list/watches that must not be delayed.
    unbatched: AtomicUsize,
    /// The reason to end the current or next sleep.
    wakeup: Lock<Wakeup>,
    woken: Condvar,
    /// Tells the runtime to end.
    end: Notify,
}

/// The reason to end a sleep, set by another thread.
#[derive(Debug, Default, PartialEq)]
enum Wakeup {
    #[default]
    None,
    /// A task of the runtime was woken.
    TaskWoken,
    /// The thread has to end.
    End,
}

impl WakeupBatcher {
    /// Creates a batcher that delays events by up to `gather`; zero disables batching.
    pub(crate) fn new(gather: Duration) -> Self {
        Self {
            gather,
            start: Instant::now(),
            idle: AtomicU64::default(),
            received: AtomicUsize::default(),
            has_changes: AtomicBool::default(),
            unbatched: AtomicUsize::default(),
            wakeup: Lock::default(),
            woken: Condvar::new(),
            end: Notify::new(),
        }
    }

    /// Counts received bytes.
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that an object was added, modified or deleted.
    pub(super) fn changed(&self) {
        self.has_changes.store(true, Ordering::Relaxed);
    }

    /// Disables batching until the result is dropped.
    pub(crate) fn no_batching(self: &Arc<Self>) -> NoBatching {
        self.unbatched.fetch_add(1, Ordering::Relaxed);
        NoBatching(Arc::clone(self))
    }

    /// Sleeps to batch events; called when the runtime is idle.
    fn sleep_to_batch(&self) {
        let duration = self.duration();
        if !duration.is_zero() {
            let wakeup = self.wakeup.lock();
            let rested =
                self.woken.wait_timeout_while(wakeup, duration, |wakeup| *wakeup == Wakeup::None);
            let (mut wakeup, _) = rested.unwrap_or_else(PoisonError::into_inner);
            if *wakeup == Wakeup::TaskWoken {
                *wakeup = Wakeup::None;
            }
        }
    }

    /// Ends the current sleep or prevents the next one, because another thread has woken a task.
    pub(crate) fn rouse(&self) {
        let mut wakeup = self.wakeup.lock();
        if *wakeup == Wakeup::None {
            *wakeup = Wakeup::TaskWoken;
            self.woken.notify_all();
        }
    }

    /// Ends the current sleep and the thread.
    fn finish(&self) {
        *self.wakeup.lock() = Wakeup::End;
        self.woken.notify_all();
        self.end.notify_one();
    }

    /// Returns the time to sleep now.
    fn duration(&self) -> Duration {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let since = Duration::from_micros(now - self.idle.swap(now, Ordering::Relaxed).min(now));
        let enough = self.received.swap(0, Ordering::Relaxed) > MAX_BATCH_BYTES;
        let unbatched = self.unbatched.load(Ordering::Relaxed) > 0;
        let has_changes = self.has_changes.swap(false, Ordering::Relaxed);
        let sleep = if has_changes { self.gather } else { self.gather * IDLE_FACTOR };
        if unbatched || enough || since >= 2 * sleep { Duration::ZERO } else { sleep }
    }
}

/// A guard that disables batching while it exists.
#[derive(Debug)]
pub(crate) struct NoBatching(Arc<WakeupBatcher>);

impl Drop for NoBatching {
    fn drop(&mut self) {
        self.0.unbatched.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A handle to the thread and its tasks. Dropping it tells the thread to end.
#[derive(Debug)]
pub(crate) struct Worker {
    batcher: Arc<WakeupBatcher>,
    stopped: oneshot::Receiver<()>,
}

impl Worker {
    /// Ends the current sleep of the thread, for a task that was woken by another thread.
    pub(crate) fn rouse(&self) {
        self.batcher.rouse();
    }

    /// Runs `task` on a new thread until the worker is stopped or dropped.
    ///
    /// # Errors
    /// The thread or its runtime cannot be created.
    pub(crate) fn start<F>(task: F, batcher: Arc<WakeupBatcher>) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let resting = Arc::clone(&batcher);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || resting.sleep_to_batch())
            .build()?;
        let (ended, stopped) = oneshot::channel();
        let ending = Arc::clone(&batcher);
        thread::Builder::new().name("kubernetes".to_owned()).spawn(move || {
            // Spawned, because a wake-up of `block_on`'s own future is handled only after `on_thread_park`.
            let task = runtime.spawn(task);
            runtime.block_on(async {
                tokio::select! {
                    () = ending.end.notified() => {}
                    result = task => {
                        if let Err(error) = result {
                            tracing::error!(%error, "The Kubernetes side has ended, what it has is stale");
                        }
                    }
                }
            });
            // Drops the tasks, which close their connections. Name look-ups may go on until the resolver gives up.
            runtime.shutdown_background();
            // The receiver is gone if the worker was dropped.
            let _ = ended.send(());
        })?;
        Ok(Self { batcher, stopped })
    }

    /// Runs `task` on the caller's runtime, without batching.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn here<F>(task: F, batcher: Arc<WakeupBatcher>) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (ended, stopped) = oneshot::channel();
        let ending = Arc::clone(&batcher);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = ending.end.notified() => {}
                () = task => {}
            }
            let _ = ended.send(());
        });
        Self { batcher, stopped }
    }

    /// Ends the tasks and waits until the thread has dropped them.
    pub(crate) async fn stop(mut self) {
        self.batcher.finish();
        // An error means that the thread has already ended.
        let _ = (&mut self.stopped).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.batcher.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look-up of a name cannot be cancelled.
    #[tokio::test]
    async fn the_end_waits_for_the_tasks_but_not_for_what_blocks() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let held = Arc::new(());
        let of_task = Arc::clone(&held);
        let task = async move {
            let _held = of_task;
            let block = move || {
                let _ = begun.send(());
                let _ = released.recv();
            };
            tokio::task::spawn_blocking(block).await.expect("no panic");
        };
        let worker = Worker::start(task, Arc::new(WakeupBatcher::new(Duration::ZERO)));
        let worker = worker.expect("a thread");
        has_begun.await.expect("it blocks");
        tokio::time::timeout(Duration::from_secs(60), worker.stop()).await.expect("in time");
        assert_eq!(Arc::strong_count(&held), 1, "the task is dropped");
        drop(release);
    }

    #[test]
    fn sleeps_only_after_frequent_wakeups_without_urgent_work() {
        let gather = Duration::from_secs(3600);
        let batcher = Arc::new(WakeupBatcher::new(gather));
        let duration = |batcher: &WakeupBatcher| {
            batcher.changed();
            batcher.duration()
        };
        assert_eq!(duration(&batcher), gather);
        assert_eq!(batcher.duration(), IDLE_FACTOR * gather);
        batcher.changed();
        batcher.received(MAX_BATCH_BYTES);
        assert_eq!(batcher.duration(), gather);
        batcher.received(MAX_BATCH_BYTES + 1);
        assert_eq!(duration(&batcher), Duration::ZERO);
        assert_eq!(duration(&batcher), gather);
        let (one, two) = (batcher.no_batching(), batcher.no_batching());
        drop(one);
        assert_eq!(duration(&batcher), Duration::ZERO);
        drop(two);
        assert_eq!(duration(&batcher), gather);
        assert_eq!(WakeupBatcher::new(Duration::ZERO).duration(), Duration::ZERO);
        let seldom = WakeupBatcher::new(Duration::from_nanos(100));
        while seldom.start.elapsed() < Duration::from_micros(2) {}
        assert_eq!(seldom.duration(), Duration::ZERO);
    }

    #[tokio::test]
    async fn runs_until_stopped_or_dropped() {
        for stop in [true, false] {
            let (alive, mut gone) = tokio::sync::mpsc::channel::<()>(1);
            let (sender, begun) = oneshot::channel();
            let task = async move {
                let _ = sender.send(thread::current().name().map(str::to_owned));
                std::future::pending::<()>().await;
                drop(alive);
            };
            // While idle it sleeps, for longer than the test may take.
            let batcher = Arc::new(WakeupBatcher::new(Duration::from_secs(3600)));
            let worker = Worker::start(task, batcher).expect("a thread");
            assert_eq!(begun.await.expect("it runs").as_deref(), Some("kubernetes"));
            if stop {
                worker.stop().await;
            } else {
                drop(worker);
            }
            assert_eq!(gone.recv().await, None);
        }
    }
}
