//! The times at which counters of workloads end or begin again, by the rules of the [ledger](super::ledger): those of a
//! workload that is gone are removed in time and not earlier.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

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
    /// The workloads that the ledger certainly knows to be gone: when they ceased to exist, and since when that is certain.
    gone: BTreeMap<String, Span>,
    /// The time of the last occurrence of a Kubernetes Event, by workload.
    touched: BTreeMap<String, Span>,
    /// The time since which objects may have been dropped.
    dropped_since: Option<Instant>,
    last_scrape: Instant,
    last_quiet: Instant,
}

impl Lives {
    pub(super) fn new(retention: Duration) -> Self {
        let (gone, touched, now) = (BTreeMap::new(), BTreeMap::new(), Instant::now());
        Self { retention, gone, touched, dropped_since: None, last_scrape: now, last_quiet: now }
    }

    /// Notes a change of the shard: a workload that is counted from now on may not be known to be gone.
    pub(super) fn reshard(&mut self) {
        self.gone.clear();
    }

    /// Compares the `present` workloads, which have counters, with the world. Returns those of the `decreased` ones whose
    /// counters may have begun again at 0. Events have occurred for the `touched` ones.
    ///
    /// # Errors
    /// Describes counters that should have been removed.
    pub(super) fn check(
        &mut self,
        scrape: &Comparison<'_>,
        present: &BTreeSet<&str>,
        touched: &BTreeSet<&str>,
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
        for workload in touched {
            let span = Span { earliest: self.last_scrape, latest: now };
            self.touched.insert((*workload).to_owned(), span);
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
            let is_alone = workload.ends_with("//");
            let (gone, touched) = (self.gone.get(workload), self.touched.get(workload));
            let last = gone.into_iter().chain(touched).map(|span| span.latest).max();
            let is_over = |at: Instant| at + self.retention + EXPIRY < now;
            if (is_alone || gone.is_some()) && last.is_some_and(is_over) {
                return Err(format!("the counters of {workload} have not been removed"));
            }
        }
        self.last_scrape = now;
        if is_quiet {
            self.last_quiet = now;
        }
        Ok(restarted)
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
        let seen = self.last_quiet.min(now - ARRIVAL);
        scrape.accounts.workload(workload).is_some_and(|life| {
            let was_absent = |absence: &(Instant, Instant)| is_over(absence.0) && absence.1 >= seen;
            life.absent_since.is_some_and(is_over) || life.absences.iter().any(was_absent)
        })
    }
}
