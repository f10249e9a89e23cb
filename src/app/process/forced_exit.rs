//! Immediate exit on the second termination signal.
//!
//! The first signal starts a clean shutdown, which waits for scrapes, sockets and threads. Any of them may hang. A
//! separate thread with its own event queue therefore counts the signals and depends on nothing else.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Limit for writing the log line, whose reader may be blocked.
const LOG_TIMEOUT: Duration = Duration::from_millis(200);
/// Stack size of the thread, which makes no deep calls.
const STACK: usize = 256 << 10;

/// Starts to count SIGTERM and SIGINT. Later calls have no effect.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let (ready, begun) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("kstatd-signals".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
                let counted = runtime.and_then(|runtime| {
                    runtime.block_on(async {
                        let mut terminate = signal(SignalKind::terminate())?;
                        let mut interrupt = signal(SignalKind::interrupt())?;
                        // The receiver waits for this, or failed to start.
                        let _ = ready.send(());
                        let mut next = async || {
                            tokio::select! {
                                _ = terminate.recv() => "terminated",
                                _ = interrupt.recv() => "interrupt",
                            }
                        };
                        next().await;
                        Ok(next().await)
                    })
                });
                match counted {
                    Ok(signal) => exit_now(signal),
                    Err(error) => {
                        tracing::warn!(%error, "A second signal will not end the process at once");
                    }
                }
            });
        match thread {
            // Signals before this point would not be counted.
            Ok(_) => {
                let _ = begun.recv();
            }
            Err(error) => {
                tracing::warn!(%error, "A second signal will not end the process at once")
            }
        }
    });
}

/// Exits at once.
pub fn exit_now(signal: &'static str) -> ! {
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    if !IS_LOGGED.swap(true, Ordering::AcqRel) {
        let (done, logged) = channel::<()>();
        let logging = std::thread::Builder::new().spawn(move || {
            tracing::warn!(signal, "Exiting immediately");
            drop(done);
        });
        if logging.is_ok() {
            // Exit even if the line could not be logged.
            let _ = logged.recv_timeout(LOG_TIMEOUT);
        }
        std::process::exit(0)
    }
    // Another thread is exiting.
    loop {
        std::thread::park();
    }
}
