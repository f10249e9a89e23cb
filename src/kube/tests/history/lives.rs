//! The times at which counters of workloads end or begin again, by the rules of the [ledger](super::ledger): those of a
//! workload that is gone are removed in time and not earlier.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::accounts::Account;
use super::cluster::Kind;
use super::ledger::{ARRIVAL, Comparison};

/// The longest time after the end of a retention until counters are removed.
const EXPIRY: Duration = Duration::from_secs(31);

/// The time of something, as far as scrapes tell.
#[derive(Clone, Copy)]
struct Span {
    earliest: Instant,
    latest: Instant,
}

/// Compares the counters that exist with the workloads that do.
pub(super) struct Lives {
    retention: Duration,
    began: Instant,
    /// The workloads that the ledger certainly knows to be gone: when they ceased to exist, and since when that is certain.
    gone: BTreeMap<String, Span>,
    /// The time of the last occurrence of a Kubernetes Event, by workload.
    touched: BTreeMap<String, Span>,
    /// When the ledger last certainly knew that a workload exists.
    existing: BTreeMap<String, Instant>,
    /// The time since which objects may have been dropped.
    dropped_since: Option<Instant>,
    last_scrape: Instant,
}

impl Lives {
    pub(super) fn new(retention: Duration) -> Self {
        let (now, (gone, touched, existing)) = (Instant::now(), Default::default());
        Self {
            retention,
            began: now,
            gone,
            touched,
            existing,
            dropped_since: None,
            last_scrape: now,
        }
    }

    /// Notes a change of the shard: a workload that is counted from now on may not be known to be gone.
    pub(super) fn reshard(&mut self) {
        self.gone.clear();
    }

    /// Compares the `present` workloads, which have counters, with the world. Returns those of the `decreased` ones whose
    /// counters may have begun again at 0. Events have occurred for the `touched` ones, or only may have if the value is false.
    ///
    /// # Errors
    /// Describes counters that should have been removed.
    pub(super) fn check(
        &mut self,
        scrape: &Comparison<'_>,
        present: &BTreeSet<&str>,
        touched: &BTreeMap<&str, bool>,
        decreased: &BTreeSet<&str>,
    ) -> Result<Vec<String>, String> {
        let Comparison { accounts, conditions, now, .. } = scrape;
        let (now, is_quiet) = (*now, !conditions.may_be_stale);
        if conditions.may_be_dropped {
            self.dropped_since.get_or_insert(self.last_scrape);
        } else if is_quiet {
            self.dropped_since = None;
        }
        let may_expire = |workload: &str| self.may_have_expired(scrape, workload);
        let restarted = decreased.iter().filter(|workload| may_expire(workload));
        let restarted: Vec<String> = restarted.map(|&workload| workload.to_owned()).collect();
        for (workload, is_certain) in touched {
            let before = self.touched.get(*workload).map_or(self.began, |span| span.earliest);
            let earliest = if *is_certain { self.last_scrape } else { before };
            self.touched.insert((*workload).to_owned(), Span { earliest, latest: now });
        }
        for (workload, life) in accounts.workloads() {
            let Some(since) = life.absent_since else {
                self.gone.remove(workload);
                continue;
            };
            if self.gone.get(workload).is_some_and(|gone| gone.earliest != since) {
                self.gone.remove(workload);
            }
            if is_quiet && since + ARRIVAL < now {
                let span = Span { earliest: since, latest: now };
                self.gone.entry(workload.clone()).or_insert(span);
            }
        }
        for &workload in present {
            let alone = workload.strip_suffix("//");
            let (gone, touched) = (self.gone.get(workload), self.touched.get(workload));
            let last = gone.into_iter().chain(touched).map(|span| span.latest);
            // A counter that was removed and is there again may have the same value.
            let events = alone.into_iter().flat_map(|namespace| {
                let events = accounts.of_kind(Kind::Event).map(|(_, account)| account);
                let of_namespace =
                    events.filter(move |event| event.object.scope.namespace == namespace);
                of_namespace.filter_map(Account::last_occurrence)
            });
            let last = last.chain(events.map(|at| at + ARRIVAL)).max();
            let is_over = |at: Instant| at + self.retention + EXPIRY < now;
            if (alone.is_some() || gone.is_some()) && last.is_some_and(is_over) {
                return Err(format!("the counters of {workload} have not been removed"));
            }
        }
        self.note_existing(scrape);
        self.last_scrape = now;
        Ok(restarted)
    }

    /// Notes the workloads whose objects are shown, and those that have existed for a while without faults.
    fn note_existing(&mut self, scrape: &Comparison<'_>) {
        let shown = scrape.shown.keys().filter_map(|uid| scrape.accounts.get(uid));
        for workload in shown.filter_map(|account| account.workload.as_ref()) {
            self.existing.insert(workload.clone(), scrape.now);
        }
        let Some(quiet_since) = scrape.quiet_since else { return };
        for (workload, life) in scrape.accounts.workloads() {
            // Each absence but the first one ends a time in which it existed.
            let began = life.absences.iter().map(|absence| absence.1);
            let ended = life.absences.iter().skip(1).map(|absence| absence.0);
            let spans = began.zip(ended.chain(life.absent_since));
            let is_certain =
                |span: &(Instant, Instant)| quiet_since <= span.0 && span.1 + ARRIVAL < scrape.now;
            if let Some((_, ended)) = spans.filter(is_certain).last() {
                let known = self.existing.entry(workload.clone()).or_insert(ended);
                *known = ended.max(*known);
            }
        }
    }

    /// Returns whether the time of a workload's counters may have been over since the last scrape.
    fn may_have_expired(&self, scrape: &Comparison<'_>, workload: &str) -> bool {
        let now = scrape.now;
        let is_over = |at: Instant| at + self.retention <= now;
        if self.dropped_since.is_some_and(is_over) {
            return true;
        }
        if self.touched.get(workload).is_some_and(|touched| !is_over(touched.earliest)) {
            return false;
        }
        if workload.ends_with("//") {
            return true;
        }
        // It may have existed since without being noticed.
        let Some(life) = scrape.accounts.workload(workload) else { return false };
        let mut ends = life.absences.iter().map(|absence| absence.0).chain(life.absent_since);
        let is_unnoticed = self.existing.get(workload).is_none_or(|known| is_over(*known));
        is_unnoticed && ends.any(is_over)
    }
}
