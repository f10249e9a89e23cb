//! The runtime, signals, start and end of the process.

pub(crate) mod file_watch;
pub(crate) mod forced_exit;
pub(crate) mod lifetime;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use crate::config_file::reader;

/// Grace period for requests in flight at the end of the process.
pub const GRACE: Duration = Duration::from_secs(10);

/// Worker threads. Serving and watching need little CPU, and each thread costs memory.
const WORKERS: usize = 2;

/// Builds the runtime of the process.
///
/// # Errors
///
/// Returns an error if the system provides no threads or no event queue.
pub fn runtime() -> io::Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.min(WORKERS))
        .max_blocking_threads(8)
        .thread_name("kstatd")
        .enable_all()
        .build()
}

/// A signal to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// SIGTERM or SIGINT; the name is for the log.
    End(&'static str),
    /// SIGHUP.
    Reload,
    /// SIGQUIT: print the state of all threads and exit at once.
    Dump,
}

/// Signals that do not end a Go program.
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

/// The handled signals.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    quit: Signal,
    /// Caught because they do not end the originals.
    _ignored: Vec<Signal>,
}

impl Signals {
    /// Installs the signal handlers. Call it before starting anything that needs a clean shutdown.
    ///
    /// # Errors
    ///
    /// Returns an error if the system rejects a handler.
    pub fn new() -> io::Result<Self> {
        super::process::forced_exit::start();
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

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End("terminated"),
            _ = self.interrupt.recv() => Request::End("interrupt"),
            _ = self.hangup.recv() => Request::Reload,
            _ = self.quit.recv() => Request::Dump,
        }
    }
}

/// Exits at once on a signal while this value lives, that is while the process starts. There is little to clean up
/// then, and much that may block: an unresponsive API server, a credential plugin, a DNS lookup.
pub struct StartupGuard {
    task: JoinHandle<()>,
    cleanup: Arc<Mutex<Vec<Cleanup>>>,
}

/// A cleanup to run before exiting.
type Cleanup = Pin<Box<dyn Future<Output = ()> + Send>>;

impl StartupGuard {
    /// Watches for signals in a separate task.
    ///
    /// # Errors
    ///
    /// Returns an error if the system rejects a handler.
    pub fn new() -> io::Result<Self> {
        let mut signals = Signals::new()?;
        let cleanup = Arc::<Mutex<Vec<Cleanup>>>::default();
        let last = Arc::clone(&cleanup);
        let task = tokio::spawn(async move {
            loop {
                let request = tokio::select! {
                    request = signals.next() => request,
                    () = tokio::time::sleep(reader::READ_TIMEOUT) => {
                        reader::log_hanging();
                        continue;
                    }
                };
                match request {
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
                    Request::Dump => dump_threads_and_exit(),
                    // The files are being read right now.
                    Request::Reload => {}
                }
            }
        });
        Ok(Self { task, cleanup })
    }

    /// Adds a cleanup to run before a signal ends the process.
    pub fn on_exit(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        let mut cleanup_of_all = self.cleanup.lock().unwrap_or_else(PoisonError::into_inner);
        cleanup_of_all.push(Box::pin(cleanup));
    }
}

impl Drop for StartupGuard {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Prints the state of all threads and exits, as Go programs do on SIGQUIT.
pub fn dump_threads_and_exit() {
    crate::telemetry::log::print_last(&crate::telemetry::process::threads());
    std::process::exit(2);
}
