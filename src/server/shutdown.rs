//! One switch that ends everything, and the handles that wait for it.

use tokio::sync::watch;

/// The side that throws the switch. Dropping it throws it too, so that no server outlives its owner.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// The side that waits; cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// A new switch.
pub fn switch() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    /// Ends everything that holds the other side. Later calls change nothing.
    pub fn fire(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// Completes when the switch is thrown, at once if it already was.
    pub async fn wait(mut self) {
        // An error means that the trigger is gone, which counts as thrown.
        drop(self.0.wait_for(|thrown| *thrown).await);
    }

    /// Whether the switch was thrown.
    #[cfg(test)]
    fn is_thrown(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn firing_wakes_every_waiter() {
        let (trigger, shutdown) = switch();
        assert!(!shutdown.is_thrown());
        let waiter = tokio::spawn(shutdown.clone().wait());
        trigger.fire();
        waiter.await.expect("no panic");
        assert!(shutdown.is_thrown());
    }

    #[tokio::test]
    async fn a_dropped_trigger_counts_as_fired() {
        let (trigger, shutdown) = switch();
        drop(trigger);
        assert!(shutdown.is_thrown());
        shutdown.wait().await;
    }
}
