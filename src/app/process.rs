//! The process around a run: its runtime, its signals, its start and end.

pub(crate) mod at_once;
pub(crate) mod file_watch;
pub(crate) mod lifetime;
pub(crate) mod startup_code;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

/// Longest wait at the end of the process for scrapes in flight.
pub const GRACE: Duration = Duration::from_secs(10);

/// Worker threads: serving and watching are light, and every thread costs an idle process memory.
const WORKERS: usize = 2;

/// A runtime for the whole process.
///
/// # Errors
///
/// When the system gives no threads or no event queue.
pub fn runtime() -> io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(WORKERS))
        .max_blocking_threads(8)
        .thread_name("kstatd")
        .enable_all()
        .build()
}

/// What the outside asks of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGTERM or SIGINT; the name is for the log.
    End(&'static str),
    /// SIGHUP.
    Reload,
    /// SIGQUIT: say what the process is doing and end at once.
    Dump,
}

/// Signals that a Go program lives through.
const IGNORED: [i32; 8] = [
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGXCPU,
];

/// The signals that mean something to every personality.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    quit: Signal,
    /// Caught so that they do not end the process, as with the originals.
    _ignored: Vec<Signal>,
}

impl Signals {
    /// Takes over the signals; call it before anything is started that must be ended cleanly.
    ///
    /// # Errors
    ///
    /// When the system refuses a handler.
    pub fn new() -> io::Result<Self> {
        super::process::at_once::watch();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            _ignored: IGNORED
                .iter()
                .map(|number| signal(SignalKind::from_raw(*number)))
                .collect::<io::Result<_>>()?,
        })
    }

    /// The next one.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End("terminated"),
            _ = self.interrupt.recv() => Request::End("interrupt"),
            _ = self.hangup.recv() => Request::Reload,
            _ = self.quit.recv() => Request::Dump,
        }
    }
}

/// Ends the process at once when a signal says so, as long as the value lives: while the process starts
/// there is nothing to end cleanly, and much that may take its time (an API server that does not answer, a
/// program that fetches credentials, a name to be looked up), some of it without giving way to anything
/// else on its thread.
pub struct Starting {
    task: JoinHandle<()>,
    cleanup: Arc<Mutex<Vec<Cleanup>>>,
}

/// What has to be ended cleanly all the same.
type Cleanup = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Starting {
    /// Watches for signals on another thread of the runtime.
    ///
    /// # Errors
    ///
    /// When the system refuses a handler.
    pub fn new() -> io::Result<Self> {
        let mut signals = Signals::new()?;
        let cleanup = Arc::<Mutex<Vec<Cleanup>>>::default();
        let last = Arc::clone(&cleanup);
        let task = tokio::spawn(async move {
            loop {
                match signals.next().await {
                    Request::End(signal) => {
                        tracing::info!(signal, "Received os signal, exiting");
                        let cleanups = std::mem::take(
                            &mut *last.lock().unwrap_or_else(PoisonError::into_inner),
                        );
                        for cleanup in cleanups {
                            cleanup.await;
                        }
                        std::process::exit(0);
                    }
                    Request::Dump => dump(),
                    // What is being read now is what there is.
                    Request::Reload => {}
                }
            }
        });
        Ok(Self { task, cleanup })
    }

    /// Part of the process has started already: a signal ends it cleanly before it ends the process.
    pub fn end_first(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        let mut cleanup_of_all = self.cleanup.lock().unwrap_or_else(PoisonError::into_inner);
        cleanup_of_all.push(Box::pin(cleanup));
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the process is doing, then its end, as SIGQUIT has it in Go programs.
pub fn dump() {
    super::output::complain(&crate::telemetry::process::threads());
    std::process::exit(2);
}
