//! Threads that must not be missing: one that panics is started again, and that is counted.
//!
//! What the thread does and what of its state survives is its own business: the body is called again on the same
//! state, so it has to begin by putting that in order. It knows nothing of sockets and lines.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause before the first restart, doubled with each that follows soon.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// A body that ran for so long was well; the pauses begin anew.
const WELL: Duration = Duration::from_secs(60);

/// Starts a thread that runs `body` until it returns. When it panics, `restarted` is called and `body` once more after a
/// pause that grows while panics follow each other.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn spawn(
    name: &str,
    restarted: impl Fn() + Send + 'static,
    mut body: impl FnMut() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = name.to_owned();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            // The body puts its state in order when it is called again.
            let Err(cause) = catch_unwind(AssertUnwindSafe(&mut body)) else { return };
            restarted();
            if begun.elapsed() >= WELL {
                pause = FIRST_PAUSE;
            }
            tracing::error!(
                thread,
                cause = text(&*cause),
                "a thread panicked, it is started again in {pause:?}"
            );
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    })
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
        let thread = spawn(
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
        thread.join().expect("it returns in the end");
        assert_eq!(restarts.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_a_panic_says_is_read() {
        let cause = |panics: fn()| match catch_unwind(panics) {
            Ok(()) => String::new(),
            Err(cause) => text(&*cause).to_owned(),
        };
        assert_eq!(cause(|| panic!("plain")), "plain");
        assert_eq!(cause(|| panic!("{} values", 2)), "2 values");
    }
}
