//! Reloads of the options, those that change the kinds, the time within which any reload takes effect, and the cost of watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::checker::Violation;
use super::super::cluster::{Kind, NAMESPACES};
use super::super::journal::Topic;
use super::super::queue::Action;
use super::{RELOAD, World};
use crate::exposition::budget::Budget;

/// The shortest watch over a shared connection.
const SHARED_WATCH: Duration = Duration::from_secs(300);
/// The interval of the common times at which all watches with a connection of their own end.
const OWN_WATCH: Duration = Duration::from_secs(36);

/// A number of series that no history has.
const LARGE: u64 = 1 << 30;

impl World {
    /// Observes the pods again, as a reload of the options does: they are listed again and exchanged. The counters of events
    /// get another budget, which none exceeds, and keep their counts.
    pub fn reload(&mut self) {
        let mut options = self.workloads.options().clone();
        let series_per_kind = if options.ledger.budget.series_per_kind == 0 { LARGE } else { 0 };
        options.ledger.budget = Arc::new(Budget { series_per_kind, ..Budget::default() });
        self.workloads = self.workloads.renewed(&options, &self.metrics, self.shard);
        self.server.note(Topic::Line, "options of the counters".to_owned());
        self.apply();
        self.may_miss_events |= !self.is_current();
        self.reloaded = Some(Instant::now());
    }

    /// Returns true if scrapes have to show the present.
    pub fn is_current(&self) -> bool {
        Instant::now() >= self.may_be_stale_until
    }

    /// Makes the next change of the kinds.
    pub(super) fn reload_kinds(&mut self) {
        let Some(kinds) = &mut self.kinds else { return };
        let now = Instant::now();
        let (about, next) = kinds.reload();
        self.config.resources = kinds.watched();
        self.server.note(Topic::Line, about);
        if let Some(wait) = next {
            self.queue.add(now + wait, Action::ReloadKinds);
        }
        self.may_miss_events |= kinds.may_miss_events;
        // What returns is listed anew, perhaps in an older state.
        kinds.changed_at(now).for_each(|kind| self.checker.forget(kind));
        self.apply();
    }

    /// Returns true if the last reload has had the time that it may take.
    fn is_reload_due(&self) -> bool {
        let late = self.may_be_stale_until.max(self.disturbed) + *RELOAD;
        Instant::now() >= late && self.lasting.is_empty()
    }

    /// Checks that the last reload is applied in time.
    pub(super) fn check_applied(&self) -> Result<(), Violation> {
        if !self.is_reload_due() || self.pipeline.handle().is_applied(self.applied) {
            return Ok(());
        }
        let pending = self.pipeline.handle().pending();
        Err(Violation(format!("a reload has not been applied: {pending:?}")))
    }

    /// Checks that the status has each list/watch once after a reload: those that it replaced have ended.
    pub(super) fn check_status(&self) -> Result<(), Violation> {
        let handle = self.pipeline.handle();
        if !self.is_reload_due() || !handle.is_applied(self.applied) {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        let statuses = handle.status();
        match statuses.iter().find(|one| !seen.insert((&one.resource, &one.namespace))) {
            Some(twice) => Err(Violation(format!("a list/watch is there twice: {twice:?}"))),
            None => Ok(()),
        }
    }

    /// Checks that no list/watch has failed before the first fault and reload, unless the server lacks something that they use.
    pub(super) fn check_failures(&self) -> Result<(), Violation> {
        let first = self.scenario.events.iter().map(|event| event.begin).min();
        let is_undisturbed = self.disturbed == self.start
            && self.scenario.lacks.is_empty()
            && self.scenario.has_plain_watches()
            && first.is_none_or(|first| self.start.elapsed() < first);
        let lists = if is_undisturbed { self.pipeline.handle().lists() } else { Vec::new() };
        let mut lists = lists.iter().map(|one| one.facts());
        match lists.find(|one| !one.errors.is_empty()) {
            Some(one) => {
                let (errors, status) = (one.errors, one.status);
                Err(Violation(format!("{errors:?} without a fault: {status:?}")))
            }
            None => Ok(()),
        }
    }

    /// Limits the requests of watches in times without faults and reloads: one at the end of each, which lasts for minutes on a
    /// shared connection, and up to 36 s on a connection of its own. That includes those of a client that has to notice that
    /// connections can be shared again.
    pub(super) fn check_watches(&mut self) -> Result<(), Violation> {
        /// The time until short watches and those of the last fault are over, and each list/watch is in its usual state.
        const SETTLED: Duration = Duration::from_secs(60);
        let now = Instant::now();
        let is_calm = self.may_be_stale_until.max(self.disturbed) + SETTLED <= now
            && self.lasting.is_empty()
            && self.scenario.has_plain_watches();
        if !is_calm {
            self.calm = None;
            return Ok(());
        }
        let kinds = &self.scenario.kinds;
        let of_kinds: BTreeMap<Kind, u64> =
            kinds.iter().map(|kind| (*kind, self.server.requests_for(*kind))).collect();
        // A shared connection is probed in addition.
        let requests = self.server.requests() - self.server.probes();
        let (since, before, before_of_kinds) =
            self.calm.get_or_insert_with(|| (now, requests, of_kinds.clone()));
        let time = now - *since;
        let shortest = if self.scenario.http2 { SHARED_WATCH } else { OWN_WATCH };
        let lasted = time.as_secs_f64() / shortest.as_secs_f64();
        // Each may be at its end when the time begins, and a request may have to be repeated.
        let are_too_many =
            |made: u64, watches: u64| made as f64 > watches as f64 * (1.0 + 1.1 * lasted) + 1.0;
        let (made, watches) = (requests - *before, self.request_limit.watches);
        if are_too_many(made, watches) {
            let why = format!("{made} requests of {watches} watches in {time:?} without faults");
            return Err(Violation(why));
        }
        for (kind, requests) in of_kinds {
            let made = requests - before_of_kinds.get(&kind).copied().unwrap_or_default();
            let is_divided = self.scenario.each_namespace && kind.namespaced();
            let watches = if is_divided { NAMESPACES.len() as u64 } else { 1 };
            if are_too_many(made, watches) {
                let why = format!("{made} requests for {kind:?} in {time:?} without faults");
                return Err(Violation(why));
            }
        }
        Ok(())
    }
}
