//! The thread of the Kubernetes side, and how often it wakes up.
//!
//! All list/watches run on one thread with an event loop of its own. While they follow changes, what
//! the loop costs is being woken for each packet, not what is in it. So when wake-ups come close upon
//! one another, the thread sleeps for a moment without looking at its sockets, and finds all that has
//! come in the meantime with one wake-up; what is shown is behind by that moment. It sleeps for longer
//! when nothing came that is shown: before watches end together, servers send each its bookmark, one by
//! one. While something is being listed it never sleeps, and a quiet cluster is followed at once.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};

/// With more bytes than this since the last wake-up there is no need to let more gather.
const ENOUGH: usize = 64 * 1024;

/// How many times as long to sleep when nothing came that is shown.
const LULL: u32 = 6;

/// Decides how often the thread wakes up, and when it ends.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How long to let events gather.
    gather: Duration,
    start: Instant,
    /// When the thread last had nothing to do, in microseconds since `start`.
    idle: AtomicU64,
    /// Bytes received since then, and whether objects were among them.
    received: AtomicUsize,
    news: AtomicBool,
    /// How many list/watches cannot wait.
    hurried: AtomicUsize,
    /// What ends a rest.
    call: Mutex<Call>,
    called: Condvar,
    /// Tells the event loop that it is time to end.
    end: Notify,
}

/// What was said to the thread from outside; it cannot wait until a rest is over.
#[derive(Debug, Default, PartialEq)]
enum Call {
    #[default]
    None,
    /// An order is waiting in the event loop.
    Order,
    /// It is time to end.
    End,
}

impl Pace {
    /// Lets events gather for so long; zero for never.
    pub(crate) fn new(gather: Duration) -> Self {
        Self {
            gather,
            start: Instant::now(),
            idle: AtomicU64::default(),
            received: AtomicUsize::default(),
            news: AtomicBool::default(),
            hurried: AtomicUsize::default(),
            call: Mutex::default(),
            called: Condvar::new(),
            end: Notify::new(),
        }
    }

    /// Notes that so many bytes were received.
    pub(crate) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that an object has come or gone.
    pub(super) fn changed(&self) {
        self.news.store(true, Ordering::Relaxed);
    }

    /// Keeps the thread awake as long as the result lives.
    pub(crate) fn hurry(self: &Arc<Self>) -> Hurry {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        Hurry(Arc::clone(self))
    }

    /// Lets events gather, now that there is nothing to do.
    fn rest(&self) {
        let duration = self.duration();
        if !duration.is_zero() {
            let call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
            let rested = self.called.wait_timeout_while(call, duration, |call| *call == Call::None);
            let (mut call, _) = rested.unwrap_or_else(PoisonError::into_inner);
            if *call == Call::Order {
                *call = Call::None;
            }
        }
    }

    /// Ends a rest, or keeps the thread from the next one: a task of it was woken from another thread.
    pub(crate) fn rouse(&self) {
        let mut call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        if *call == Call::None {
            *call = Call::Order;
            self.called.notify_all();
        }
    }

    /// Ends a rest, and the thread.
    fn finish(&self) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = Call::End;
        self.called.notify_all();
        self.end.notify_one();
    }

    /// How long to rest now.
    fn duration(&self) -> Duration {
        let now = u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX);
        let since = Duration::from_micros(now - self.idle.swap(now, Ordering::Relaxed).min(now));
        let enough = self.received.swap(0, Ordering::Relaxed) > ENOUGH;
        let hurried = self.hurried.load(Ordering::Relaxed) > 0;
        let news = self.news.swap(false, Ordering::Relaxed);
        let rest = if news { self.gather } else { self.gather * LULL };
        if hurried || enough || since >= 2 * rest { Duration::ZERO } else { rest }
    }
}

/// Something that cannot wait.
#[derive(Debug)]
pub(crate) struct Hurry(Arc<Pace>);

impl Drop for Hurry {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread with its task and those that it spawns. Dropping it tells the thread to end them.
#[derive(Debug)]
pub(crate) struct Worker {
    pace: Arc<Pace>,
    stopped: oneshot::Receiver<()>,
}

impl Worker {
    /// Ends a rest of the thread, for a task that was woken from outside.
    pub(crate) fn rouse(&self) {
        self.pace.rouse();
    }

    /// Runs `task` on a thread of its own until the worker is stopped or dropped.
    ///
    /// # Errors
    /// The system has no thread or no event loop to give.
    pub(crate) fn start<F>(task: F, pace: Arc<Pace>) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let resting = Arc::clone(&pace);
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || resting.rest())
            .build()?;
        let (ended, stopped) = oneshot::channel();
        let ending = Arc::clone(&pace);
        thread::Builder::new().name("kubernetes".to_owned()).spawn(move || {
            // Not in the loop's own future: that is woken after a rest only.
            let task = runtime.spawn(task);
            runtime.block_on(async {
                tokio::select! {
                    () = ending.end.notified() => {}
                    result = task => {
                        if let Err(error) = result {
                            tracing::error!(%error, "the Kubernetes side has ended, what it has is stale");
                        }
                    }
                }
            });
            // With its tasks, which give up their connections.
            drop(runtime);
            // Nobody waits for it when the worker was dropped.
            let _ = ended.send(());
        })?;
        Ok(Self { pace, stopped })
    }

    /// Runs `task` on the event loop of the caller, which never rests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn here<F>(task: F, pace: Arc<Pace>) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (ended, stopped) = oneshot::channel();
        let ending = Arc::clone(&pace);
        tokio::spawn(async move {
            tokio::select! {
                () = ending.end.notified() => {}
                () = task => {}
            }
            let _ = ended.send(());
        });
        Self { pace, stopped }
    }

    /// Ends the tasks and waits for it.
    pub(crate) async fn stop(mut self) {
        self.pace.finish();
        // An error says that the thread has ended without a message, which is an end too.
        let _ = (&mut self.stopped).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.pace.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_only_when_woken_often_and_nothing_presses() {
        let gather = Duration::from_secs(3600);
        let pace = Arc::new(Pace::new(gather));
        let duration = |pace: &Pace| {
            pace.changed();
            pace.duration()
        };
        assert_eq!(duration(&pace), gather);
        assert_eq!(pace.duration(), LULL * gather);
        pace.changed();
        pace.received(ENOUGH);
        assert_eq!(pace.duration(), gather);
        pace.received(ENOUGH + 1);
        assert_eq!(duration(&pace), Duration::ZERO);
        assert_eq!(duration(&pace), gather);
        let (one, two) = (pace.hurry(), pace.hurry());
        drop(one);
        assert_eq!(duration(&pace), Duration::ZERO);
        drop(two);
        assert_eq!(duration(&pace), gather);
        assert_eq!(Pace::new(Duration::ZERO).duration(), Duration::ZERO);
        let seldom = Pace::new(Duration::from_nanos(100));
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
            // Without anything to do it rests, for longer than a test may take.
            let pace = Arc::new(Pace::new(Duration::from_secs(3600)));
            let worker = Worker::start(task, pace).expect("a thread");
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
