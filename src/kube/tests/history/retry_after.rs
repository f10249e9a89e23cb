//! Requests that come again before the time for which the server has asked them to wait.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Kind;

/// A kind, and the namespace of its list/watch, if it has one.
type ListWatch = (Kind, Option<String>);

/// The times in the last `Retry-After` of each list/watch.
#[derive(Default)]
pub(super) struct RetryAfter {
    waits: BTreeMap<ListWatch, Instant>,
    /// A new configuration is not applied yet, so two list/watches may request the same.
    is_replacing: bool,
    /// Describes a request that has come too early.
    early: Option<String>,
}

impl RetryAfter {
    /// Notes that a request has been refused for some time.
    pub(super) fn refused(&mut self, list_watch: ListWatch, time: Duration) {
        if !self.is_replacing {
            self.waits.insert(list_watch, Instant::now() + time);
        }
    }

    /// Notes that a request has arrived.
    pub(super) fn arrived(&mut self, list_watch: &ListWatch) {
        let Some(until) = self.waits.remove(list_watch) else { return };
        let early = until.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            let (kind, namespace) = list_watch;
            let namespace = namespace.as_deref().unwrap_or("all namespaces");
            self.early.get_or_insert(format!(
                "{kind:?} of {namespace} are requested {} ms before the time in Retry-After",
                early.as_millis()
            ));
        }
    }

    /// Notes that responses may get lost.
    pub(super) fn excuse(&mut self) {
        self.waits.clear();
    }

    /// Notes that list/watches are replaced, or have been.
    pub(super) fn replacing(&mut self, is_replacing: bool) {
        self.is_replacing = is_replacing;
        if is_replacing {
            self.waits.clear();
        }
    }

    /// Describes a request that has come too early.
    pub(super) fn violation(&self) -> Option<String> {
        self.early.clone()
    }
}
