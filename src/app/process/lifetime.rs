//! The start and end of the process.

use super::{Request, Signals, StartupGuard, dump_threads_and_exit, forced_exit, runtime};
use crate::tools::CommandError;

/// Runs a future on a new runtime. Signals end the process at once until `run` drops its argument.
pub(crate) fn block_on<F>(run: impl FnOnce(StartupGuard) -> F) -> Result<(), CommandError>
where
    F: Future<Output = Result<(), CommandError>>,
{
    // Must precede the division of the limit.
    if let Err(error) = crate::util::descriptors::raise_limit() {
        tracing::warn!(%error, "Cannot raise the limit of open files");
    }
    let runtime = runtime().map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(async {
        let guard =
            StartupGuard::new().map_err(|error| format!("cannot handle signals: {error}"))?;
        run(guard).await
    });
    // Do not wait for threads that resolve names or write profiles.
    runtime.shutdown_background();
    outcome
}

/// Waits for a clean shutdown, or exits at once on a second signal.
pub(crate) async fn or_exit_on_signal(signals: &mut Signals, end: impl Future<Output = ()>) {
    tokio::select! {
        () = end => {}
        signal = termination_signal(signals) => forced_exit::exit_now(signal),
    }
}

pub(crate) fn signals() -> Result<Signals, CommandError> {
    Signals::new().map_err(|error| format!("cannot handle signals: {error}").into())
}

/// Waits for a signal that ends the process, ignoring others.
async fn termination_signal(signals: &mut Signals) -> &'static str {
    loop {
        match signals.next().await {
            Request::End(signal) => return signal,
            Request::Dump => dump_threads_and_exit(),
            Request::Reload => {}
        }
    }
}
