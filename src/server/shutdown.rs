//! One switch that ends everything, and the handles that wait for it.

use tokio::sync::watch;

/// The side that throws the switch, which dropping it does: no server outlives its owner.
#[derive(Debug)]
pub struct Trigger {
    _held: watch::Sender<()>,
}

/// The side that waits; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<()>);

/// A new switch.
pub fn switch() -> (Trigger, Shutdown) {
    let (held, receiver) = watch::channel(());
    (Trigger { _held: held }, Shutdown(receiver))
}

impl Shutdown {
    /// Completes when the switch is thrown, at once if it already was.
    pub async fn wait(mut self) {
        // Nothing is ever sent: this ends with the trigger.
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
