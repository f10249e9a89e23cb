//! The end of the process at the second signal that asks for it, whatever the rest of it is doing.
//!
//! The first one begins a clean end, which waits for scrapes, sockets and threads. Any of that may hang, and so may what
//! the process was doing when it came. So a thread with an event queue of its own counts these signals and needs nothing
//! from anybody.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// A log that nobody reads must not keep the process.
const LONGEST_LINE: Duration = Duration::from_millis(200);
/// It calls next to nothing.
const STACK: usize = 256 << 10;

/// Watches SIGTERM and SIGINT from here on. Later calls change nothing.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
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
                        // Nobody is left to hear it if whoever asked has gone.
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
                    Ok(signal) => end(signal),
                    Err(error) => {
                        tracing::warn!(%error, "a second signal will wait for its turn");
                    }
                }
            });
        match thread {
            // A signal that comes before it watches would not be counted.
            Ok(_) => {
                let _ = begun.recv();
            }
            Err(error) => tracing::warn!(%error, "a second signal will wait for its turn"),
        }
    });
}

/// Ends the process now.
pub fn end(signal: &'static str) -> ! {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::AcqRel) {
        let (done, logged) = channel::<()>();
        let logging = std::thread::Builder::new().spawn(move || {
            tracing::warn!(signal, "ending at once");
            drop(done);
        });
        if logging.is_ok() {
            // Said or not, it ends now.
            let _ = logged.recv_timeout(LONGEST_LINE);
        }
        std::process::exit(0)
    }
    // Another thread is ending it.
    loop {
        std::thread::park();
    }
}
