//! Signals that end the process at once: the second SIGTERM or SIGINT, and SIGQUIT.
//!
//! The first signal starts a clean shutdown, which waits for scrapes, sockets and threads. Any of them may hang. A
//! separate thread with its own event queue therefore counts the signals and depends on nothing else.

use std::io;
use std::sync::Once;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::telemetry::log;

/// Limit for writing the log line, whose reader may be blocked.
const LOG_TIMEOUT: Duration = Duration::from_millis(200);
/// Stack size of the thread, which makes no deep calls.
const STACK: usize = 256 << 10;

/// Starts to watch for the signals. Later calls have no effect.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let (ready, begun) = channel();
        let thread = std::thread::Builder::new()
            .name("kstatd-signals".to_owned())
            .stack_size(STACK)
            .spawn(|| watch(ready).unwrap_or_else(|error| warn(&error)));
        match thread {
            // Signals before this point would not be counted.
            Ok(_) => drop(begun.recv()),
            Err(error) => warn(&error),
        }
    });
}

fn warn(error: &io::Error) {
    tracing::warn!(%error, "A second signal will not end the process at once");
}

/// Waits for a signal that ends the process at once. Drops `ready` when it notices each signal.
fn watch(ready: Sender<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        drop(ready);
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => "terminated",
                _ = interrupt.recv() => "interrupt",
                // As Go programs do on SIGQUIT.
                _ = quit.recv() => exit(2, 2 * LOG_TIMEOUT, || {
                    log::print_last(&crate::telemetry::process::threads());
                }),
            }
        };
        next().await;
        let signal = next().await;
        exit(0, LOG_TIMEOUT, move || tracing::warn!(signal, "Exiting immediately"))
    })
}

/// Exits after writing to the log, or without it if that takes longer than `limit`.
fn exit(code: i32, limit: Duration, write: impl FnOnce() + Send + 'static) -> ! {
    let (done, written) = channel::<()>();
    let writing = std::thread::Builder::new().spawn(move || {
        write();
        drop(done);
    });
    if writing.is_ok() {
        let _ = written.recv_timeout(limit);
    }
    std::process::exit(code)
}
