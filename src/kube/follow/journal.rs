//! The log of failing list/watches: few lines, even if many of them fail.
//!
//! Failures and recoveries of single list/watches are collected for a moment and logged together, so that an outage
//! is one line. A failure that is over within that moment is not logged, only counted in the metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use crate::status::words::some_names;
use crate::telemetry::kube::Reason;
use crate::util::lock::Lock;

/// The time for which failures are collected before a line is logged.
const COLLECT_TIME: Duration = Duration::from_secs(2);
/// The time that the line about the end of an outage waits for list/watches that still fail.
const STRAGGLERS: Duration = Duration::from_secs(30);
/// The interval at which continuing failures are logged again.
const REPEAT_INTERVAL: Duration = Duration::from_secs(3600);
/// The maximum number of list/watches named in a line.
const MAX_NAMES: usize = 8;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// List/watches fail.
    Fails {
        /// The reason of the latest failure.
        reason: Reason,
        /// The error message of the latest failure.
        error: String,
        /// The number of list/watches that fail for this reason.
        count: usize,
        /// Their names, not more than a few.
        names: String,
        /// The time since the first failure, if it was logged before.
        since: Option<Duration>,
        /// Nothing can be listed or watched.
        is_server: bool,
    },
    /// List/watches that were logged as failing work again.
    Works {
        /// The number of list/watches that had failed.
        count: usize,
        /// Their names, not more than a few.
        names: String,
        /// The time since the first failure.
        after: Duration,
        /// Nothing could be listed or watched.
        is_server: bool,
    },
}

/// A list/watch that fails.
#[derive(Debug)]
struct Failing {
    name: Arc<str>,
    reason: Reason,
    error: String,
    /// The time of the first failure.
    since: Instant,
    /// The failure was logged.
    logged: bool,
}

/// The last log line about one reason.
#[derive(Clone, Copy, Debug)]
struct LastLine {
    at: Instant,
    count: usize,
}

/// A list/watch that works again.
#[derive(Debug)]
struct Works {
    name: Arc<str>,
    /// The time of the first failure.
    since: Instant,
    /// The time of the recovery.
    again: Instant,
}

/// Returns the reason under which a failure is logged. An unavailable server shows as a frozen stream, a timeout or a
/// refused connection, one after the other; these are logged as one outage.
fn log_reason(reason: Reason) -> Reason {
    match reason {
        Reason::Timeout | Reason::Frozen | Reason::Slow => Reason::Broken,
        other => other,
    }
}

/// The state behind a [`Journal`].
#[derive(Debug, Default)]
struct JournalState {
    /// The failing list/watches by number.
    failing: BTreeMap<usize, Failing>,
    /// Their number by reason.
    reasons: BTreeMap<Reason, usize>,
    /// List/watches that work again after their failure was logged.
    works: BTreeMap<usize, Works>,
    /// The last log lines by [`log_reason`].
    last_lines: BTreeMap<Reason, LastLine>,
    /// A flush is scheduled.
    due: bool,
    /// It was logged that the server fails, and not that it works again.
    is_outage: bool,
}

impl JournalState {
    fn failed(&mut self, id: usize, name: &Arc<str>, reason: Reason, error: &str, now: Instant) {
        let before = self.works.remove(&id).map(|works| (works.since, true));
        let old = self.failing.get(&id).map(|failing| failing.reason);
        let failing = self.failing.entry(id).or_insert_with(|| {
            let (since, logged) = before.unwrap_or((now, false));
            Failing { name: Arc::clone(name), reason, error: String::new(), since, logged }
        });
        if log_reason(failing.reason) != log_reason(reason) {
            failing.logged &= self.last_lines.contains_key(&log_reason(reason));
        }
        failing.reason = reason;
        error.clone_into(&mut failing.error);
        *self.reasons.entry(reason).or_default() += 1;
        if let Some(old) = old {
            self.forget(old);
        }
    }

    /// Removes and returns the failure of a list/watch.
    fn remove(&mut self, id: usize) -> Option<Failing> {
        let failing = self.failing.remove(&id)?;
        self.forget(failing.reason);
        Some(failing)
    }

    /// Counts a failure for this reason no more.
    fn forget(&mut self, reason: Reason) {
        if let Some(count) = self.reasons.get_mut(&reason) {
            *count -= 1;
        }
    }

    /// Returns the number of list/watches, of `total`, that the server refuses.
    fn refused(&self, total: usize) -> usize {
        let is_all = self.failing.len() >= total;
        let absent = if is_all { self.count(Reason::NotFound) } else { 0 };
        absent + self.count(Reason::Forbidden) + self.count(Reason::Refused)
    }

    /// Returns the number of list/watches that fail for a reason.
    fn count(&self, reason: Reason) -> usize {
        self.reasons.get(&reason).copied().unwrap_or_default()
    }

    fn works(&mut self, id: usize, now: Instant) {
        if let Some(Failing { name, reason, since, logged, .. }) = self.remove(id)
            && (logged || self.covers(reason))
        {
            self.works.insert(id, Works { name, since, again: now });
        }
    }

    /// Returns whether a line about the server covers all failures for this reason.
    fn covers(&self, reason: Reason) -> bool {
        reason.is_of_the_server() && self.last_lines.contains_key(&log_reason(reason))
    }

    /// Returns the lines that are due. `total` is the number of all list/watches.
    fn flush(&mut self, total: usize, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        // Kinds that the server does not have neither fail nor recover with it.
        let served = total - self.count(Reason::NotFound).min(total);
        for reason in Reason::ALL.into_iter().filter(|reason| log_reason(*reason) == *reason) {
            let is_of_it = |failing: &&Failing| log_reason(failing.reason) == reason;
            let all = self.failing.values().filter(is_of_it);
            let count = all.clone().count();
            let Some(first) = all.clone().map(|failing| failing.since).min() else {
                self.last_lines.remove(&reason);
                continue;
            };
            let last_line = self.last_lines.get(&reason).copied();
            let total = if reason.is_of_the_server() { served } else { total };
            let again =
                last_line.is_some_and(|last| now.duration_since(last.at) >= REPEAT_INTERVAL);
            let due = match last_line {
                // A few had failed; now all have, so it is the server.
                Some(last) if reason.is_of_the_server() => {
                    count == total && last.count * 2 <= total
                }
                Some(_) => all.clone().any(|failing| !failing.logged),
                None => true,
            };
            if !due && !again {
                continue;
            }
            let is_named =
                |failing: &&Failing| reason.is_of_the_server() || again || !failing.logged;
            let named = all.filter(is_named).map(|failing| &*failing.name);
            let (count, names) = (named.clone().count(), some_names(named, MAX_NAMES));
            let latest = self.failing.values().rfind(is_of_it);
            let (cause, error) = latest
                .map_or((reason, String::new()), |latest| (latest.reason, latest.error.clone()));
            let since = again.then(|| now.duration_since(first));
            let is_server = is_all(count, total);
            self.is_outage |= is_server && reason.is_of_the_server();
            lines.push(Line::Fails { reason: cause, error, count, names, since, is_server });
            let all =
                self.failing.values_mut().filter(|failing| log_reason(failing.reason) == reason);
            all.for_each(|failing| failing.logged = true);
            self.last_lines.insert(reason, LastLine { at: now, count });
        }
        // Recoveries are logged when no list/watch fails because of the server, or none has recovered for a while. Failures
        // of single kinds, such as missing permissions, do not delay them.
        let server_fails = self.failing.values().any(|failing| failing.reason.is_of_the_server());
        let last = self.works.values().map(|works| works.again).max();
        let is_over = |last| !server_fails || now.duration_since(last) >= STRAGGLERS;
        if last.is_some_and(is_over) {
            let works = std::mem::take(&mut self.works);
            let first = works.values().map(|works| works.since).min().unwrap_or(now);
            let (count, after) = (works.len(), now.duration_since(first));
            let names = some_names(works.values().map(|works| &*works.name), MAX_NAMES);
            let is_server = is_all(count, served) || self.is_outage && !server_fails;
            self.is_outage &= server_fails;
            lines.push(Line::Works { count, names, after, is_server });
        }
        lines
    }
}

/// Returns whether these are all list/watches, so that it is the server that fails or works.
fn is_all(count: usize, total: usize) -> bool {
    count == total && total > 1
}

/// The failures of all list/watches of one server.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// The number of list/watches.
    total: AtomicUsize,
    /// The number of the next list/watch.
    next: AtomicUsize,
    state: Lock<JournalState>,
}

/// A list/watch registered in a [`Journal`]. Dropping it removes it without a log line.
#[derive(Debug)]
pub(crate) struct Member {
    journal: Arc<Journal>,
    id: usize,
    name: Arc<str>,
}

impl Member {
    /// Returns its name in the log.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Records a failure.
    pub(crate) fn failed(&self, reason: Reason, error: &str) {
        let mut state = self.journal.state.lock();
        state.failed(self.id, &self.name, reason, error, Instant::now());
        self.journal.flush_soon(state);
    }

    /// Records that it works.
    pub(crate) fn works(&self) {
        let mut state = self.journal.state.lock();
        state.works(self.id, Instant::now());
        if !state.works.is_empty() {
            self.journal.flush_soon(state);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.journal.total.fetch_sub(1, Ordering::Relaxed);
        self.journal.state.lock().remove(self.id);
    }
}

impl Journal {
    /// Registers a list/watch.
    pub(crate) fn register(self: &Arc<Self>, name: Arc<str>) -> Member {
        self.total.fetch_add(1, Ordering::Relaxed);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Member { journal: Arc::clone(self), id, name }
    }

    /// Returns whether every list/watch fails, which means that the server or a proxy before it fails.
    pub(crate) fn is_all_failing(&self) -> bool {
        self.state.lock().failing.len() >= self.members()
    }

    /// Returns the number of list/watches.
    pub(crate) fn members(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Returns the number of list/watches that the server refuses. Kinds that it does not have (404) count only if all
    /// list/watches fail.
    pub(crate) fn refused(&self) -> usize {
        self.state.lock().refused(self.members())
    }

    /// Schedules a flush and releases the lock.
    fn flush_soon(self: &Arc<Self>, mut state: MutexGuard<'_, JournalState>) {
        if std::mem::replace(&mut state.due, true) {
            return;
        }
        drop(state);
        let journal = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(COLLECT_TIME).await;
            let mut state = journal.state.lock();
            state.due = false;
            let total = journal.total.load(Ordering::Relaxed);
            let lines = state.flush(total, Instant::now());
            drop(state);
            for line in lines {
                line.write();
            }
        });
    }
}

impl Line {
    fn write(&self) {
        match self {
            Self::Fails { reason, error, count, names, since, is_server } => {
                let reason = reason.as_str();
                let seconds = since.map(|since| since.as_secs());
                let (resources, message) = if *is_server {
                    (None, "The API server fails: nothing can be listed or watched")
                } else {
                    (Some(names), "Failed to list or watch")
                };
                tracing::warn!(reason, error, count, resources, seconds, "{message}");
            }
            Self::Works { count, names, after, is_server } => {
                let seconds = after.as_secs();
                let (resources, message) = if *is_server {
                    (None, "The API server works again: everything is listed and watched")
                } else {
                    (Some(names), "Listed and watched again")
                };
                tracing::info!(count, resources, seconds, "{message}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        state: JournalState,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { state: JournalState::default(), now: Instant::now() }
        }

        fn fails(&mut self, ids: impl IntoIterator<Item = usize>, reason: Reason) {
            for id in ids {
                self.state.failed(id, &format!("kind{id:02}").into(), reason, "because", self.now);
            }
        }

        fn works(&mut self, ids: impl IntoIterator<Item = usize>) {
            for id in ids {
                self.state.works(id, self.now);
            }
        }

        /// Returns the lines due after `seconds`, as `reason count names` or `works count names`.
        fn after(&mut self, seconds: u64) -> Vec<String> {
            self.now += Duration::from_secs(seconds);
            let lines = self.state.flush(40, self.now).into_iter().map(|line| match line {
                Line::Fails { reason, error, count, names, since, is_server } => {
                    assert_eq!(error, "because");
                    let since = since.map(|since| format!(" for {}", since.as_secs()));
                    let what = if is_server { "server " } else { "" };
                    let reason = reason.as_str();
                    format!("{what}{reason} {count} {names}{}", since.unwrap_or_default())
                }
                Line::Works { count, names, after, is_server } => {
                    let what = if is_server { "server works" } else { "works" };
                    format!("{what} {count} {names} after {}", after.as_secs())
                }
            });
            lines.collect()
        }
    }

    /// The refused list/watches are counted as they change; kinds that are not there count if nothing else works.
    #[test]
    fn refused_are_counted() {
        let mut fixture = Fixture::new();
        fixture.fails(0..10, Reason::Forbidden);
        fixture.fails(10..15, Reason::Refused);
        fixture.fails(15..20, Reason::NotFound);
        fixture.fails(20..22, Reason::Broken);
        assert_eq!((fixture.state.refused(40), fixture.state.refused(22)), (15, 20));
        fixture.fails(0..3, Reason::Broken);
        fixture.fails(3..5, Reason::Forbidden);
        fixture.works(5..8);
        fixture.works(5..8);
        assert!(fixture.state.remove(8).is_some() && fixture.state.remove(8).is_none());
        assert_eq!((fixture.state.refused(40), fixture.state.refused(18)), (8, 13));
    }

    const ALL: &str = "kind00, kind01, kind02, kind03, kind04, kind05, kind06, kind07 and 32 more";

    #[test]
    fn outage_and_recovery_are_one_line_each() {
        let mut fixture = Fixture::new();
        fixture.fails(0..40, Reason::Broken);
        assert_eq!(fixture.after(2), [format!("server broken 40 {ALL}")]);
        fixture.fails(0..40, Reason::Broken);
        assert!(fixture.after(1000).is_empty());
        fixture.works(0..39);
        assert!(fixture.after(2).is_empty());
        fixture.works(39..40);
        assert_eq!(fixture.after(2), [format!("server works 40 {ALL} after 1006")]);
        assert!(fixture.after(9999).is_empty());
    }

    #[test]
    fn different_reasons_of_one_outage_are_one_line() {
        let mut fixture = Fixture::new();
        fixture.fails(0..40, Reason::Frozen);
        assert_eq!(fixture.after(2), [format!("server frozen 40 {ALL}")]);
        for reason in [Reason::Timeout, Reason::Broken, Reason::Slow, Reason::Timeout] {
            fixture.fails(0..40, reason);
            assert!(fixture.after(20).is_empty());
        }
        assert_eq!(fixture.after(3600), [format!("server timeout 40 {ALL} for 3682")]);
        fixture.works(0..40);
        assert_eq!(fixture.after(2), [format!("server works 40 {ALL} after 3684")]);
    }

    #[test]
    fn permanent_failure_delays_the_recovery_line_for_a_limited_time() {
        let mut fixture = Fixture::new();
        fixture.fails([7], Reason::ServerError);
        assert_eq!(fixture.after(2), ["server_error 1 kind07"]);
        fixture.fails(0..40, Reason::Broken);
        assert_eq!(fixture.after(2), [format!("server broken 40 {ALL}")]);
        fixture.works((0..40).filter(|id| *id != 7));
        fixture.fails([7], Reason::ServerError);
        assert_eq!(fixture.after(2), ["server_error 1 kind07"]);
        fixture.fails([7], Reason::ServerError);
        let names = ALL.replace("kind07 and 32", "kind08 and 31");
        assert_eq!(fixture.after(30), [format!("works 39 {names} after 34")]);
        assert!(fixture.after(2).is_empty());
    }

    #[test]
    fn absent_kind_does_not_hide_the_recovery_of_the_server() {
        let mut fixture = Fixture::new();
        let others = || (0..40).filter(|id| *id != 7);
        let names = ALL.replace("kind07 and 32", "kind08 and 31");
        fixture.fails([7], Reason::NotFound);
        assert_eq!(fixture.after(2), ["not_found 1 kind07"]);
        // It is requested seldom, so it may not be requested during an outage.
        fixture.fails(others(), Reason::Broken);
        assert_eq!(fixture.after(2), [format!("server broken 39 {names}")]);
        fixture.works(others());
        assert_eq!(fixture.after(2), [format!("server works 39 {names} after 4")]);
        fixture.fails(0..40, Reason::Broken);
        assert_eq!(fixture.after(2), [format!("server broken 40 {ALL}")]);
        fixture.works(others());
        fixture.fails([7], Reason::NotFound);
        let lines = ["not_found 1 kind07".to_owned(), format!("server works 39 {names} after 4")];
        assert_eq!(fixture.after(2), lines);
        fixture.fails([3], Reason::Broken);
        assert_eq!(fixture.after(2), ["broken 1 kind03"]);
        fixture.works([3]);
        assert_eq!(fixture.after(2), ["works 1 kind03 after 4"]);
    }

    #[test]
    fn short_failure_is_not_logged() {
        let mut fixture = Fixture::new();
        fixture.fails(0..40, Reason::Broken);
        fixture.works(0..40);
        assert!(fixture.after(2).is_empty());
    }

    #[test]
    fn single_failure_is_logged_by_name_and_an_outage_again() {
        let mut fixture = Fixture::new();
        fixture.fails([3], Reason::ServerError);
        assert_eq!(fixture.after(2), ["server_error 1 kind03"]);
        fixture.fails(3..20, Reason::ServerError);
        assert!(fixture.after(2).is_empty());
        fixture.fails(0..40, Reason::ServerError);
        assert_eq!(fixture.after(2), [format!("server server_error 40 {ALL}")]);
        fixture.fails(0..40, Reason::Throttled);
        assert_eq!(fixture.after(2), [format!("server throttled 40 {ALL}")]);
        fixture.works(0..40);
        assert_eq!(fixture.after(2), [format!("server works 40 {ALL} after 10")]);
    }

    #[test]
    fn refused_kinds_are_logged_once_and_again_after_an_hour() {
        let mut fixture = Fixture::new();
        fixture.fails([1, 2], Reason::Forbidden);
        assert_eq!(fixture.after(2), ["forbidden 2 kind01, kind02"]);
        fixture.fails([1, 2, 3], Reason::Forbidden);
        assert_eq!(fixture.after(2), ["forbidden 1 kind03"]);
        assert!(fixture.after(600).is_empty());
        assert_eq!(fixture.after(3600), ["forbidden 3 kind01, kind02, kind03 for 4204"]);
        fixture.works([2]);
        assert_eq!(fixture.after(2), ["works 1 kind02 after 4206"]);
        fixture.fails([2], Reason::Forbidden);
        assert_eq!(fixture.after(2), ["forbidden 1 kind02"]);
    }

    #[test]
    fn a_failure_is_logged_again_after_an_hour_and_a_recovery_after_half_a_minute() {
        let mut fixture = Fixture::new();
        fixture.fails([1], Reason::ServerError);
        assert_eq!(fixture.after(2), ["server_error 1 kind01"]);
        assert!(fixture.after(3599).is_empty());
        assert_eq!(fixture.after(1), ["server_error 1 kind01 for 3602"]);
        fixture.fails([2], Reason::ServerError);
        fixture.works([1]);
        assert!(fixture.after(29).is_empty());
        assert_eq!(fixture.after(1), ["works 1 kind01 after 3632"]);
        fixture.works([2]);
        assert_eq!(fixture.after(2), ["works 1 kind02 after 32"]);
    }

    /// An outage is logged again once all fail, unless that affects only a few more.
    #[test]
    fn growing_failures_are_logged_as_an_outage() {
        for (some, is_logged) in [(20, true), (21, false)] {
            let mut fixture = Fixture::new();
            fixture.fails(0..some, Reason::Broken);
            assert_eq!(fixture.after(2).len(), 1);
            fixture.fails(some..40, Reason::Broken);
            assert_eq!(fixture.after(2).len(), usize::from(is_logged), "{some} failed before");
        }
    }

    #[tokio::test]
    async fn a_list_watch_fails_until_it_works() {
        let journal = Arc::<Journal>::default();
        let register = |name: &str| journal.register(name.into());
        let (one, two) = (register("one"), register("two"));
        let state = || (journal.members(), journal.is_all_failing(), journal.refused());
        assert_eq!((state(), one.name()), ((2, false, 0), "one"));
        one.failed(Reason::Forbidden, "no");
        assert_eq!(state(), (2, false, 1));
        two.failed(Reason::NotFound, "no");
        assert_eq!(state(), (2, true, 2), "the kinds cannot all be absent");
        one.works();
        assert_eq!(state(), (2, false, 0));
        two.failed(Reason::Refused, "no");
        assert_eq!(state(), (2, false, 1));
        drop(one);
        assert_eq!(state(), (1, true, 1));
        drop(two);
        assert_eq!(state(), (0, true, 0));
    }

    #[test]
    fn a_single_list_watch_is_not_the_server() {
        let mut fixture = Fixture::new();
        fixture.fails([0], Reason::Broken);
        let lines = fixture.state.flush(1, fixture.now);
        assert!(
            matches!(&lines[..], [Line::Fails { is_server: false, names, .. }] if names == "kind00")
        );
        fixture.works([0]);
        let lines = fixture.state.flush(1, fixture.now);
        assert!(matches!(&lines[..], [Line::Works { is_server: false, .. }]));
    }

    #[test]
    fn short_recovery_is_not_logged() {
        let mut fixture = Fixture::new();
        fixture.fails(0..40, Reason::Broken);
        assert_eq!(fixture.after(2).len(), 1);
        for _ in 0..5 {
            fixture.works(0..40);
            fixture.fails(0..40, Reason::Broken);
            assert!(fixture.after(2).is_empty());
        }
    }
}
