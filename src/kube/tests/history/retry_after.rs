//! Requests that come before the time in `Retry-After`, and lists that start over after a temporary refusal of a page.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Kind;

/// A kind, and the namespace of its list/watch, if it has one.
type ListWatch = (Kind, Option<String>);

/// The last refusals of each list/watch.
#[derive(Default)]
pub(super) struct RetryAfter {
    /// The times in `Retry-After`.
    waits: BTreeMap<ListWatch, Instant>,
    /// The tokens of the pages that it has refused for a moment.
    pages: BTreeMap<ListWatch, String>,
    /// A new configuration is not applied yet, so two list/watches may request the same.
    is_replacing: bool,
    /// Describes a request that has come too early, or begins a list again.
    first_violation: Option<String>,
}

impl RetryAfter {
    /// Notes that a request has been refused for some time.
    pub(super) fn refused(&mut self, list_watch: ListWatch, time: Duration) {
        if !self.is_replacing {
            self.waits.insert(list_watch, Instant::now() + time);
        }
    }

    /// Notes that a page of a list has been refused for a moment.
    pub(super) fn refused_page(&mut self, list_watch: ListWatch, token: &str) {
        if !self.is_replacing {
            self.pages.insert(list_watch, token.to_owned());
        }
    }

    /// Notes that a request has arrived, for the page with this token if it has one.
    pub(super) fn arrived(&mut self, list_watch: &ListWatch, token: Option<&str>) {
        if let Some(refused) = self.pages.remove(list_watch)
            && token != Some(&refused)
        {
            let kind = list_watch.0;
            self.first_violation.get_or_insert(format!(
                "{kind:?}: the request after the refusal of page {refused} is for {token:?}"
            ));
        }
        let Some(until) = self.waits.remove(list_watch) else { return };
        let early = until.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            let (kind, namespace) = list_watch;
            let namespace = namespace.as_deref().unwrap_or("all namespaces");
            self.first_violation.get_or_insert(format!(
                "{kind:?} of {namespace} are requested {} ms before the time in Retry-After",
                early.as_millis()
            ));
        }
    }

    /// Notes that responses may get lost.
    pub(super) fn excuse(&mut self) {
        self.waits.clear();
        self.pages.clear();
    }

    /// Notes that list/watches are replaced, or have been.
    pub(super) fn replacing(&mut self, is_replacing: bool) {
        self.is_replacing = is_replacing;
        if is_replacing {
            self.excuse();
        }
    }

    /// Describes a request that has come too early, or begins a list again.
    pub(super) fn violation(&self) -> Option<String> {
        self.first_violation.clone()
    }
}
