//! Waiting for a time or a value that may never come, and values that wake those who wait only when they differ.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Completes at `instant`; never if there is none.
pub(crate) async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Completes when there is a new value; never once the sender is gone.
pub(crate) async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Sends a value, unless it equals the latest one.
pub(crate) fn publish<T: PartialEq>(sender: &watch::Sender<T>, value: T) {
    sender.send_if_modified(|latest| {
        let differs = *latest != value;
        *latest = value;
        differs
    });
}
