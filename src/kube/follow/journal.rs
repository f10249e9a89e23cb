//! What the log says of failing list/watches: few lines, whatever their number.
//!
//! Failures and recoveries of single list/watches flow in, lines for the log flow out a moment later, so
//! that those of one outage come as one. A failure that is over within that moment has no line (it has
//! its counter). Nothing here knows requests or answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::telemetry::kube::Reason;

/// How long failures gather before they have a line.
const GATHER: Duration = Duration::from_secs(2);
/// How long the end of an outage waits for those that still fail.
const STRAGGLERS: Duration = Duration::from_secs(30);
/// After so long what still fails is said again.
const REPEAT: Duration = Duration::from_secs(3600);
/// How many list/watches a line names.
const NAMES: usize = 8;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Something fails.
    Fails {
        /// Why.
        reason: Reason,
        /// The words of the latest failure.
        error: String,
        /// How many fail for this reason.
        count: usize,
        /// Their names, not more than a few.
        names: String,
        /// For how long they have, if this was said before.
        since: Option<Duration>,
    },
    /// What was said to fail does not any more.
    Works {
        /// How many had failed.
        count: usize,
        /// Their names, not more than a few.
        names: String,
        /// How long it took since the first of them failed.
        after: Duration,
    },
}

/// A list/watch that fails.
#[derive(Debug)]
struct Failing {
    name: Arc<str>,
    reason: Reason,
    error: String,
    since: Instant,
    /// Whether a line has told of it.
    told: bool,
}

/// What was said about one reason.
#[derive(Clone, Copy, Debug)]
struct Said {
    at: Instant,
    count: usize,
}

/// A list/watch that works again.
#[derive(Debug)]
struct Works {
    name: Arc<str>,
    /// Since when it had failed.
    since: Instant,
    again: Instant,
}

/// The reason that stands for all that are one trouble: a server that has gone away is found to be frozen by one request,
/// does not answer the next and refuses connections in the end.
fn trouble(reason: Reason) -> Reason {
    match reason {
        Reason::Timeout | Reason::Frozen | Reason::Slow => Reason::Broken,
        other => other,
    }
}

#[derive(Debug, Default)]
struct Book {
    failing: BTreeMap<usize, Failing>,
    /// Those that work again, of which a line has told.
    works: BTreeMap<usize, Works>,
    /// By [`trouble`].
    said: BTreeMap<Reason, Said>,
    /// Whether a flush is under way.
    due: bool,
}

impl Book {
    fn failed(&mut self, id: usize, name: &Arc<str>, reason: Reason, error: &str, now: Instant) {
        let before = self.works.remove(&id).map(|works| (works.since, true));
        let failing = self.failing.entry(id).or_insert_with(|| {
            let (since, told) = before.unwrap_or((now, false));
            Failing { name: Arc::clone(name), reason, error: String::new(), since, told }
        });
        if trouble(failing.reason) != trouble(reason) {
            failing.told &= self.said.contains_key(&trouble(reason));
        }
        failing.reason = reason;
        error.clone_into(&mut failing.error);
    }

    fn works(&mut self, id: usize, now: Instant) {
        if let Some(Failing { name, reason, since, told, .. }) = self.failing.remove(&id)
            && (told || self.covers(reason))
        {
            self.works.insert(id, Works { name, since, again: now });
        }
    }

    /// Whether a line about the server has told of all that fail for this reason.
    fn covers(&self, reason: Reason) -> bool {
        reason.is_of_the_server() && self.said.contains_key(&trouble(reason))
    }

    /// The lines that are due.
    fn flush(&mut self, total: usize, now: Instant) -> Vec<Line> {
        let mut lines = Vec::new();
        for reason in Reason::ALL.into_iter().filter(|reason| trouble(*reason) == *reason) {
            let is_of_it = |failing: &&Failing| trouble(failing.reason) == reason;
            let all = self.failing.values().filter(is_of_it);
            let count = all.clone().count();
            let Some(first) = all.clone().map(|failing| failing.since).min() else {
                self.said.remove(&reason);
                continue;
            };
            let said = self.said.get(&reason).copied();
            let due = match said {
                None => true,
                Some(said) if now.duration_since(said.at) >= REPEAT => true,
                // A few failed, now it is the server.
                Some(said) if reason.is_of_the_server() => {
                    count == total && said.count * 2 <= total
                }
                Some(_) => all.clone().any(|failing| !failing.told),
            };
            if !due {
                continue;
            }
            let again = said.is_some_and(|said| now.duration_since(said.at) >= REPEAT);
            let told = |failing: &&Failing| reason.is_of_the_server() || again || !failing.told;
            let named = all.filter(told).map(|failing| &*failing.name);
            let (count, names) = if reason.is_of_the_server() || again {
                (count, names(named))
            } else {
                (named.clone().count(), names(named))
            };
            let latest = self.failing.values().rfind(is_of_it);
            let (cause, error) = latest
                .map_or((reason, String::new()), |latest| (latest.reason, latest.error.clone()));
            let since = again.then(|| now.duration_since(first));
            lines.push(Line::Fails { reason: cause, error, count, names, since });
            let all = self.failing.values_mut().filter(|failing| trouble(failing.reason) == reason);
            all.for_each(|failing| failing.told = true);
            self.said.insert(reason, Said { at: now, count });
        }
        // An outage is over when nothing of the server fails any more, or what does has kept to itself for a while; a
        // kind's own trouble when it works.
        let server_fails = self.failing.values().any(|failing| failing.reason.is_of_the_server());
        let last = self.works.values().map(|works| works.again).max();
        let is_over = |last| !server_fails || now.duration_since(last) >= STRAGGLERS;
        if last.is_some_and(is_over) {
            let works = std::mem::take(&mut self.works);
            let first = works.values().map(|works| works.since).min().unwrap_or(now);
            let (count, after) = (works.len(), now.duration_since(first));
            let names = names(works.values().map(|works| &*works.name));
            lines.push(Line::Works { count, names, after });
        }
        lines
    }
}

fn names<'n>(names: impl Iterator<Item = &'n str> + Clone) -> String {
    let count = names.clone().count();
    let mut text = names.take(NAMES).collect::<Vec<_>>().join(", ");
    if count > NAMES {
        text.push_str(&format!(" and {} more", count - NAMES));
    }
    text
}

/// The failures of all list/watches of one server.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// How many list/watches there are.
    total: AtomicUsize,
    /// Numbers them.
    next: AtomicUsize,
    book: Mutex<Book>,
}

/// A list/watch of which a [`Journal`] tells. Dropping it takes it out without a word.
#[derive(Debug)]
pub(crate) struct Member {
    journal: Arc<Journal>,
    id: usize,
    name: Arc<str>,
}

impl Member {
    /// How the log names it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// It fails.
    pub(crate) fn failed(&self, reason: Reason, error: &str) {
        let mut book = self.journal.lock();
        book.failed(self.id, &self.name, reason, error, Instant::now());
        self.journal.flush_soon(book);
    }

    /// It works.
    pub(crate) fn works(&self) {
        let mut book = self.journal.lock();
        book.works(self.id, Instant::now());
        if !book.works.is_empty() {
            self.journal.flush_soon(book);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.journal.total.fetch_sub(1, Ordering::Relaxed);
        self.journal.lock().failing.remove(&self.id);
    }
}

impl Journal {
    /// Tells of one more list/watch.
    pub(crate) fn enrol(self: &Arc<Self>, name: Arc<str>) -> Member {
        self.total.fetch_add(1, Ordering::Relaxed);
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        Member { journal: Arc::clone(self), id, name }
    }

    /// Whether every list/watch fails: then it is the server, or what stands before it.
    pub(crate) fn is_all_failing(&self) -> bool {
        self.lock().failing.len() >= self.total.load(Ordering::Relaxed)
    }

    fn flush_soon(self: &Arc<Self>, mut book: MutexGuard<'_, Book>) {
        if std::mem::replace(&mut book.due, true) {
            return;
        }
        drop(book);
        let journal = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(GATHER).await;
            let mut book = journal.lock();
            book.due = false;
            let total = journal.total.load(Ordering::Relaxed);
            let lines = book.flush(total, Instant::now());
            drop(book);
            for line in lines {
                line.write(total);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn write(&self, total: usize) {
        match self {
            Self::Fails { reason, error, count, names, since } => {
                let reason = reason.label();
                let seconds = since.map(|since| since.as_secs());
                if *count == total && total > 1 {
                    tracing::warn!(
                        reason,
                        error,
                        count,
                        seconds,
                        "the API server fails: nothing can be listed or watched"
                    );
                } else {
                    tracing::warn!(
                        reason,
                        error,
                        count,
                        resources = names,
                        seconds,
                        "failed to list or watch"
                    );
                }
            }
            Self::Works { count, names, after } => {
                let seconds = after.as_secs();
                if *count == total && total > 1 {
                    tracing::info!(
                        count,
                        seconds,
                        "the API server works again: everything is listed and watched"
                    );
                } else {
                    tracing::info!(count, resources = names, seconds, "listed and watched again");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        book: Book,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self { book: Book::default(), now: Instant::now() }
        }

        fn fails(&mut self, ids: impl IntoIterator<Item = usize>, reason: Reason) {
            for id in ids {
                self.book.failed(id, &format!("kind{id:02}").into(), reason, "because", self.now);
            }
        }

        fn works(&mut self, ids: impl IntoIterator<Item = usize>) {
            for id in ids {
                self.book.works(id, self.now);
            }
        }

        /// The lines after so many seconds, as `reason count names` and `works count names`.
        fn after(&mut self, seconds: u64) -> Vec<String> {
            self.now += Duration::from_secs(seconds);
            let lines = self.book.flush(40, self.now).into_iter().map(|line| match line {
                Line::Fails { reason, error, count, names, since } => {
                    assert_eq!(error, "because");
                    let since = since.map(|since| format!(" for {}", since.as_secs()));
                    format!("{} {count} {names}{}", reason.label(), since.unwrap_or_default())
                }
                Line::Works { count, names, after } => {
                    format!("works {count} {names} after {}", after.as_secs())
                }
            });
            lines.collect()
        }
    }

    const ALL: &str = "kind00, kind01, kind02, kind03, kind04, kind05, kind06, kind07 and 32 more";

    #[test]
    fn an_outage_is_one_line_and_its_end_another() {
        let mut bench = Bench::new();
        bench.fails(0..40, Reason::Broken);
        assert_eq!(bench.after(2), [format!("broken 40 {ALL}")]);
        bench.fails(0..40, Reason::Broken);
        assert!(bench.after(1000).is_empty());
        bench.works(0..39);
        assert!(bench.after(2).is_empty());
        bench.works(39..40);
        assert_eq!(bench.after(2), [format!("works 40 {ALL} after 1006")]);
        assert!(bench.after(9999).is_empty());
    }

    #[test]
    fn a_server_that_is_gone_is_one_trouble_however_it_shows() {
        let mut bench = Bench::new();
        bench.fails(0..40, Reason::Frozen);
        assert_eq!(bench.after(2), [format!("frozen 40 {ALL}")]);
        for reason in [Reason::Timeout, Reason::Broken, Reason::Slow, Reason::Timeout] {
            bench.fails(0..40, reason);
            assert!(bench.after(20).is_empty());
        }
        assert_eq!(bench.after(3600), [format!("timeout 40 {ALL} for 3682")]);
        bench.works(0..40);
        assert_eq!(bench.after(2), [format!("works 40 {ALL} after 3684")]);
    }

    #[test]
    fn one_that_fails_for_good_hides_the_end_of_an_outage_for_a_while_only() {
        let mut bench = Bench::new();
        bench.fails([7], Reason::ServerError);
        assert_eq!(bench.after(2), ["server_error 1 kind07"]);
        bench.fails(0..40, Reason::Broken);
        assert_eq!(bench.after(2), [format!("broken 40 {ALL}")]);
        bench.works((0..40).filter(|id| *id != 7));
        bench.fails([7], Reason::ServerError);
        assert_eq!(bench.after(2), ["server_error 1 kind07"]);
        bench.fails([7], Reason::ServerError);
        let names = ALL.replace("kind07 and 32", "kind08 and 31");
        assert_eq!(bench.after(30), [format!("works 39 {names} after 34")]);
        assert!(bench.after(2).is_empty());
    }

    #[test]
    fn what_is_over_at_once_has_no_line() {
        let mut bench = Bench::new();
        bench.fails(0..40, Reason::Broken);
        bench.works(0..40);
        assert!(bench.after(2).is_empty());
    }

    #[test]
    fn one_that_fails_is_named_and_all_are_said_once_more() {
        let mut bench = Bench::new();
        bench.fails([3], Reason::ServerError);
        assert_eq!(bench.after(2), ["server_error 1 kind03"]);
        bench.fails(3..20, Reason::ServerError);
        assert!(bench.after(2).is_empty());
        bench.fails(0..40, Reason::ServerError);
        assert_eq!(bench.after(2), [format!("server_error 40 {ALL}")]);
        bench.fails(0..40, Reason::Throttled);
        assert_eq!(bench.after(2), [format!("throttled 40 {ALL}")]);
        bench.works(0..40);
        assert_eq!(bench.after(2), [format!("works 40 {ALL} after 10")]);
    }

    #[test]
    fn refused_kinds_are_named_each_once_and_again_after_an_hour() {
        let mut bench = Bench::new();
        bench.fails([1, 2], Reason::Forbidden);
        assert_eq!(bench.after(2), ["forbidden 2 kind01, kind02"]);
        bench.fails([1, 2, 3], Reason::Forbidden);
        assert_eq!(bench.after(2), ["forbidden 1 kind03"]);
        assert!(bench.after(600).is_empty());
        assert_eq!(bench.after(3600), ["forbidden 3 kind01, kind02, kind03 for 4204"]);
        bench.works([2]);
        assert_eq!(bench.after(2), ["works 1 kind02 after 4206"]);
        bench.fails([2], Reason::Forbidden);
        assert_eq!(bench.after(2), ["forbidden 1 kind02"]);
    }

    #[test]
    fn what_works_for_a_moment_only_has_no_lines() {
        let mut bench = Bench::new();
        bench.fails(0..40, Reason::Broken);
        assert_eq!(bench.after(2).len(), 1);
        for _ in 0..5 {
            bench.works(0..40);
            bench.fails(0..40, Reason::Broken);
            assert!(bench.after(2).is_empty());
        }
    }
}
