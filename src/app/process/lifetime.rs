//! From the start of the process to its end.

use super::{Request, Signals, Starting, at_once, dump, runtime};

/// Runs it on a runtime of its own. Until `run` drops what it is given, a signal ends the process at once.
pub(crate) fn block_on<F>(run: impl FnOnce(Starting) -> F) -> Result<(), String>
where
    F: Future<Output = Result<(), String>>,
{
    // Before anything asks for its share of them.
    if let Err(error) = crate::descriptors::raise_limit() {
        tracing::warn!(%error, "the limit of open files stays what it is");
    }
    let runtime = runtime().map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(async {
        let starting =
            Starting::new().map_err(|error| format!("cannot handle signals: {error}"))?;
        run(starting).await
    });
    // Threads that look up names or write profiles are not waited for.
    runtime.shutdown_background();
    outcome
}

/// Waits for a clean end, until a second signal says not to.
pub(crate) async fn unless_asked_again(signals: &mut Signals, end: impl Future<Output = ()>) {
    tokio::select! {
        () = end => {}
        signal = ended(signals) => at_once::end(signal),
    }
}

pub(crate) fn signals() -> Result<Signals, String> {
    Signals::new().map_err(|error| format!("cannot handle signals: {error}"))
}

/// The next signal that ends the process; what else arrives meanwhile is dropped.
async fn ended(signals: &mut Signals) -> &'static str {
    loop {
        match signals.next().await {
            Request::End(signal) => return signal,
            Request::Dump => dump(),
            Request::Reload => {}
        }
    }
}
