//! The runtime, signals, start and end of the process.

pub(crate) mod file_watch;
pub(crate) mod forced_exit;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use crate::config_file::reader;
use crate::tools::CommandError;
use crate::util::lock::Lock;

/// Grace period for requests in flight at the end of the process.
pub const GRACE: Duration = Duration::from_secs(10);

/// Worker threads. Serving and watching need little CPU, and each thread costs memory.
const WORKERS: usize = 2;

/// Runs a future on a new runtime. Signals end the process at once until `run` drops its argument.
///
/// # Errors
///
/// Returns an error if the system provides no threads, event queue or signals, and that of `run`.
pub(crate) fn block_on<F>(run: impl FnOnce(StartupGuard) -> F) -> Result<(), CommandError>
where
    F: Future<Output = Result<(), CommandError>>,
{
    // Must precede the division of the limit.
    if let Err(error) = crate::util::descriptors::raise_limit() {
        tracing::warn!(%error, "Cannot raise the limit of open files");
    }
    let runtime = runtime().map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(async { run(StartupGuard::new()?).await });
    // Do not wait for threads that resolve names or write profiles.
    runtime.shutdown_background();
    outcome
}

fn runtime() -> io::Result<Runtime> {
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
    /// Caught because they do not end the originals.
    _ignored: Vec<Signal>,
}

impl Signals {
    /// Installs the signal handlers. Call it before starting anything that needs a clean shutdown.
    ///
    /// # Errors
    ///
    /// Returns an error if the system rejects a handler.
    pub fn new() -> Result<Self, CommandError> {
        forced_exit::start();
        let install =
            |kind| signal(kind).map_err(|error| format!("cannot handle signals: {error}"));
        let ignored = IGNORED.iter().map(|number| install(SignalKind::from_raw(*number)));
        Ok(Self {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
            hangup: install(SignalKind::hangup())?,
            _ignored: ignored.collect::<Result<_, String>>()?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End("terminated"),
            _ = self.interrupt.recv() => Request::End("interrupt"),
            _ = self.hangup.recv() => Request::Reload,
        }
    }
}

/// Exits at once on a signal while this value lives, that is while the process starts. There is little to clean up
/// then, and much that may block: an unresponsive API server, a credential plugin, a DNS lookup.
pub struct StartupGuard {
    task: JoinHandle<()>,
    cleanup: Arc<Lock<Vec<Cleanup>>>,
}

/// A cleanup to run before exiting.
type Cleanup = Pin<Box<dyn Future<Output = ()> + Send>>;

impl StartupGuard {
    /// Watches for signals in a separate task.
    ///
    /// # Errors
    ///
    /// Returns an error if the system rejects a handler.
    pub fn new() -> Result<Self, CommandError> {
        let mut signals = Signals::new()?;
        let cleanup = Arc::<Lock<Vec<Cleanup>>>::default();
        let last = Arc::clone(&cleanup);
        let task = tokio::spawn(async move {
            loop {
                let signal = tokio::select! {
                    request = signals.next() => match request {
                        Request::End(signal) => signal,
                        // The files are being read right now.
                        Request::Reload => continue,
                    },
                    () = tokio::time::sleep(reader::READ_TIMEOUT) => {
                        reader::log_hanging();
                        continue;
                    }
                };
                tracing::info!(signal, "Received os signal, exiting");
                let cleanups = std::mem::take(&mut *last.lock());
                for cleanup in cleanups {
                    cleanup.await;
                }
                std::process::exit(0);
            }
        });
        Ok(Self { task, cleanup })
    }

    /// Adds a cleanup to run before a signal ends the process.
    pub fn on_exit(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        self.cleanup.lock().push(Box::pin(cleanup));
    }
}

impl Drop for StartupGuard {
    fn drop(&mut self) {
        self.task.abort();
    }
}
