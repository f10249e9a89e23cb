//! Restarts threads that panic, and counts the restarts.
//!
//! The body is called again on the same state, so it must begin by restoring that state.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::util::lock::Lock;

/// The pause before the first restart; it doubles with each further panic.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// A body that ran this long is considered healthy, and the pauses start over.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// A running thread.
#[derive(Debug)]
pub(crate) struct SupervisedThread(pub(super) Lock<Option<JoinHandle<()>>>);

impl SupervisedThread {
    /// Starts a thread that runs `body` until it returns. After a panic, calls `on_restart` and, after a growing
    /// pause, `body` again.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(crate) fn spawn(
        name: &str,
        on_restart: impl Fn() + Send + 'static,
        mut body: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let thread = name.to_owned();
        let supervise = move || {
            let mut pause = MIN_PAUSE;
            loop {
                let begun = Instant::now();
                // The body restores its state when it is called again.
                let Err(cause) = catch_unwind(AssertUnwindSafe(&mut body)) else { return };
                on_restart();
                if begun.elapsed() >= STABLE_AFTER {
                    pause = MIN_PAUSE;
                }
                tracing::error!(
                    thread,
                    cause = text(&*cause),
                    "A thread panicked, restarting it in {pause:?}"
                );
                std::thread::sleep(pause);
                pause = (pause * 2).min(MAX_PAUSE);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(supervise)?;
        Ok(Self(Lock::new(Some(thread))))
    }

    /// Waits until `body` has returned.
    pub(crate) fn join(&self) {
        let thread = self.0.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("A thread panicked and was not restarted");
        }
    }
}

fn text(cause: &(dyn std::any::Any + Send)) -> &str {
    let text = cause.downcast_ref::<&str>().copied();
    text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_body_that_panics_is_called_again_until_it_returns() {
        let restarts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&restarts);
        let mut calls = 0;
        let thread = SupervisedThread::spawn(
            "statsd-test",
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
            },
            move || {
                calls += 1;
                assert!(calls > 2, "call {calls}");
            },
        )
        .expect("a thread");
        thread.join();
        assert_eq!(restarts.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_panic_message_is_extracted() {
        let cause = |panics: fn()| match catch_unwind(panics) {
            Ok(()) => String::new(),
            Err(cause) => text(&*cause).to_owned(),
        };
        assert_eq!(cause(|| panic!("plain")), "plain");
        assert_eq!(cause(|| panic!("{} values", 2)), "2 values");
    }
}
