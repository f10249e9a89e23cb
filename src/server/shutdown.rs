//! A shutdown signal and the handles that wait for it.

use tokio::sync::watch;

/// The sender of the signal. Dropping it sends the signal too: no server outlives its owner.
#[derive(Debug)]
pub struct Trigger {
    _held: watch::Sender<()>,
}

/// The receiver of the signal; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<()>);

/// Creates a signal.
pub fn switch() -> (Trigger, Shutdown) {
    let (held, receiver) = watch::channel(());
    (Trigger { _held: held }, Shutdown(receiver))
}

impl Shutdown {
    /// Waits for the signal; completes at once if it was sent before.
    pub async fn wait(mut self) {
        // Nothing is ever sent: the channel closes with the trigger.
        while self.0.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropping_the_trigger_wakes_every_waiter() {
        let (trigger, shutdown) = switch();
        let waiter = tokio::spawn(shutdown.clone().wait());
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(trigger);
        waiter.await.expect("no panic");
        shutdown.wait().await;
    }
}
