//! Reconciliation: applies a changed set of plans kind by kind, while the old state stays served.
//!
//! The input is a set of plans, of which only the newest counts; the output is changes of the catalog.
//!
//! - A kind with an unchanged plan is left alone.
//! - A new or changed kind is listed into new stores. The old stores are served and kept up to date until the new ones are
//!   complete. One kind is listed at a time, so that at most one kind is in memory twice.
//! - A kind that cannot be listed yields to the others and is retried later, not before the time in a `Retry-After`.
//! - A removed kind is dropped at once, unless nothing would be left to serve: then it is dropped when the first new kind
//!   is complete.
//!
//! A scope (a kind in a namespace) blocks no other scope. A scope that the server refuses to list counts as complete if it
//! was not served before. Otherwise its old state stays served together with the new state of the other scopes, until the list
//! succeeds or has been refused for `--staleness-limit`. The same applies to a scope whose list fails while others of its
//! kind succeed.
//!
//! At startup there is no old state: all kinds are listed together.
//!
//! The list/watches themselves run in [`following`](super::following); this module sends no requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::following::{Following, Plan, WatchContext};
use super::progress::Progress;
use super::shared::Shared;
use super::worker::WakeupBatcher;
use crate::cache::Catalog;
use crate::telemetry::KubeMetrics;
use crate::util::lock::Lock;
use crate::util::waiting::{publish, until};

/// The time after which a kind whose list neither fails nor ends yields to others. It doubles each time.
const LISTING_TIME: Duration = Duration::from_secs(20);

/// The first retry delay of a kind that could not be listed. It doubles each time.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The longest retry delay, to which jitter adds up to 100%. It is short, so that the kind is listed soon after the
/// fault ends.
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(4);

/// The minimum time between two retries of kinds that could not be listed, regardless of their number.
const SPACING: Duration = Duration::from_secs(1);

/// The resources to list and watch.
pub(crate) struct Wanted {
    /// The number of the change, from 1.
    pub(crate) number: u64,
    /// The plan of each kind.
    pub(crate) plans: Arc<[Plan]>,
}

/// The progress of the latest change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReconcileStatus {
    /// The number of the change, 0 before the first.
    pub(crate) number: u64,
    /// The kinds to which the change has not been applied yet.
    pub(crate) pending: Arc<[String]>,
    /// Nothing is in progress: the pending kinds are only waiting for scopes that the server refuses to list.
    pub(crate) refused: bool,
    /// All kinds have been listed or refused once.
    pub(crate) ready: bool,
}

/// The progress of all list/watches, by kind, in the order of the configuration.
pub(crate) type ProgressByKind = Vec<Arc<[Arc<Progress>]>>;

/// The number of times that a kind has yielded to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Yields {
    all: u32,
    /// Those because its list did not end.
    overruns: u32,
}

impl Yields {
    /// Returns the number after another one.
    fn next(self, overran: bool) -> Self {
        Self { all: self.all + 1, overruns: self.overruns + u32::from(overran) }
    }

    /// Returns the time after which its next list has to yield.
    fn listing_time(self) -> Duration {
        LISTING_TIME.saturating_mul(1 << self.overruns.min(16))
    }

    /// Returns the delay before its next list. `jitter` (0 to 1) adds up to 100%.
    fn retry_delay(self, jitter: f64) -> Duration {
        let doubled = 1 << self.all.saturating_sub(1).min(16);
        let pause = FIRST_RETRY_DELAY.saturating_mul(doubled).min(LONGEST_RETRY_DELAY);
        pause + pause.mul_f64(jitter)
    }
}

/// A kind that is waiting to be listed.
struct Candidate {
    plan: Plan,
    yields: Yields,
    /// The time of the next attempt.
    due: Instant,
    /// The time before which the server has asked not to be requested.
    earliest: Instant,
}

/// The kind that is being listed.
struct Listing {
    following: Following,
    yields: Yields,
    /// The time after which it yields to others.
    until: Instant,
}

/// The current and pending list/watches of all kinds.
pub(crate) struct Reconciler {
    catalog: Catalog,
    context: WatchContext,
    wanted: watch::Receiver<Wanted>,
    status: watch::Sender<ReconcileStatus>,
    parts: Arc<Lock<ProgressByKind>>,
    number: u64,
    /// The names of the wanted kinds, in the order of the configuration.
    order: Vec<String>,
    /// The kinds that are served.
    served: BTreeMap<String, Following>,
    /// The kinds that are waiting to be listed.
    queue: BTreeMap<String, Candidate>,
    /// The kind that is being listed.
    listing: Option<Listing>,
    /// The earliest time of the next retry of a kind that could not be listed.
    next_retry: Instant,
    /// The removed kinds that are still served.
    removed: BTreeSet<String>,
    ready: bool,
}

impl Reconciler {
    pub(crate) fn new(
        catalog: Catalog,
        metrics: KubeMetrics,
        batcher: Arc<WakeupBatcher>,
        shared: Arc<Shared>,
        mut wanted: watch::Receiver<Wanted>,
        status: watch::Sender<ReconcileStatus>,
        parts: Arc<Lock<ProgressByKind>>,
    ) -> Self {
        wanted.mark_changed();
        let context = WatchContext {
            batcher,
            metrics,
            updates: catalog.update_lock(),
            shared,
            changes: watch::Sender::new(0),
            join_set: JoinSet::new(),
        };
        Self {
            catalog,
            context,
            wanted,
            status,
            parts,
            number: 0,
            order: Vec::new(),
            served: BTreeMap::new(),
            queue: BTreeMap::new(),
            listing: None,
            next_retry: Instant::now(),
            removed: BTreeSet::new(),
            ready: false,
        }
    }

    /// Reconciles until the task is aborted or the sender of plans is dropped.
    pub(crate) async fn run(mut self) {
        let mut changes = self.context.changes.subscribe();
        loop {
            // Before `advance`, so that changes during it lead to another iteration.
            changes.mark_unchanged();
            let next = self.advance();
            tokio::select! {
                biased;
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.take_plans(),
                    Err(_) => return,
                },
                Some(ended) = self.context.join_set.join_next_with_id() => self.ended(ended),
                // The sender is in `context`.
                _ = changes.changed() => {}
                () = until(next) => {}
            }
        }
    }

    /// Compares the wanted plans with the running ones.
    fn take_plans(&mut self) {
        let (number, plans) = {
            let wanted = self.wanted.borrow_and_update();
            (wanted.number, Arc::clone(&wanted.plans))
        };
        self.number = number;
        // The plans may have changed because CRDs were added, which the API server may serve by now.
        self.context.shared.retry_missing_kinds();
        self.order = plans.iter().map(|plan| plan.name().to_owned()).collect();
        let wanted: BTreeSet<&str> = plans.iter().map(Plan::name).collect();
        let first = self.served.is_empty();
        self.queue.retain(|name, _| wanted.contains(name.as_str()));
        self.listing.take_if(|listing| !wanted.contains(listing.following.plan.name()));
        self.removed =
            self.served.keys().filter(|name| !wanted.contains(name.as_str())).cloned().collect();
        for plan in plans.iter() {
            let name = plan.name();
            if let Some(served) = self.served.get_mut(name)
                && plan.shard.stage().is_some()
            {
                // All pods switch shards together, even if the plan has other changes that cannot be listed yet.
                served.show(plan.shard);
            }
            let listing = self.listing.take_if(|listing| listing.following.plan.name() == name);
            let asked_until = self.asked_until(plan, listing.as_ref());
            let listing = listing.filter(|listing| listing.following.follows(plan));
            let served = self.served.get_mut(name);
            let is_unlisted = served.as_ref().is_some_and(|served| served.is_unlisted());
            if let Some(served) = served.filter(|served| served.follows(plan)) {
                self.queue.remove(name);
                served.adopt(plan);
            } else if let Some(mut listing) = listing {
                self.queue.remove(name);
                listing.following.adopt(plan);
                self.listing = Some(listing);
            } else if first || is_unlisted {
                // There is no old state to keep.
                self.queue.remove(name);
                let following = Following::start(plan.clone(), asked_until, &mut self.context);
                self.serve(following, &[]);
            } else {
                match self.queue.get_mut(name) {
                    // The stage of its shard change may differ.
                    Some(other) if other.plan.is_same(plan) => other.plan = plan.clone(),
                    _ => {
                        let now = Instant::now();
                        let earliest = asked_until.map_or(now, |until| until.max(now));
                        let (plan, yields) = (plan.clone(), Yields::default());
                        let candidate = Candidate { plan, yields, due: earliest, earliest };
                        self.queue.insert(name.to_owned(), candidate);
                    }
                }
            }
        }
    }

    /// Returns the time until which the server of a plan has asked former list/watches of the kind to wait. Another server has not
    /// asked.
    fn asked_until(&self, plan: &Plan, listing: Option<&Listing>) -> Option<Instant> {
        let queued = self.queue.get(plan.name());
        let queued = queued.filter(|queued| queued.plan.has_same_client(plan));
        let listed = [listing.map(|listing| &listing.following), self.served.get(plan.name())];
        let listed = listed.into_iter().flatten();
        let listed = listed.filter(|following| following.plan.has_same_client(plan));
        let asked = listed.filter_map(Following::asked_until);
        asked.chain(queued.map(|queued| queued.earliest)).max()
    }

    /// Serves a kind, in place of its old state and of the kinds that are `gone`.
    fn serve(&mut self, mut following: Following, gone: &[String]) {
        let updates = self.context.updates.clone();
        let _update = updates.hold();
        if let Some(old) = self.served.remove(following.plan.name()) {
            following.supersede(old);
        }
        show(&self.catalog, &mut following, gone);
        for name in gone {
            self.end(name);
            self.removed.remove(name);
        }
        self.served.insert(following.plan.name().to_owned(), following);
    }

    /// Ends a served kind.
    fn end(&mut self, name: &str) {
        if let Some(following) = self.served.remove(name) {
            following.close();
        }
    }

    /// Does everything that can be done now. Returns when to call it again if nothing changes before.
    fn advance(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let followings = self.served.values_mut();
        for following in
            followings.chain(self.listing.as_mut().map(|listing| &mut listing.following))
        {
            following.restart(now, &mut self.context);
        }
        for following in self.served.values_mut().filter(|following| following.is_outdated()) {
            if following.retire() {
                let _update = self.context.updates.hold();
                show(&self.catalog, following, &[]);
            }
        }
        while self.finish_listing(now) || self.requeue_listing(now) || self.start_listing(now) {}
        self.drop_removed();
        self.publish();
        self.next_advance(now)
    }

    /// Serves the kind that was being listed, if it can replace its old state.
    fn finish_listing(&mut self, now: Instant) -> bool {
        let served = &self.served;
        let complete = |listing: &mut Listing| {
            let old = served.get(listing.following.plan.name());
            listing.following.can_supersede(old, listing.until <= now)
        };
        let Some(listing) = self.listing.take_if(complete) else { return false };
        let gone: Vec<String> = self.removed.iter().cloned().collect();
        let (resource, objects) = (listing.following.plan.name(), listing.following.objects());
        let unlisted = listing.following.unlisted();
        if unlisted.is_empty() {
            tracing::info!(resource, objects, "The new configuration is served");
        } else {
            tracing::warn!(
                resource,
                objects,
                namespaces = ?unlisted,
                "The new configuration is served, but for namespaces that cannot be listed: what was shown of them stays"
            );
        }
        let works = !listing.following.is_unlisted();
        self.serve(listing.following, &gone);
        if listing.yields != Yields::default() && works {
            // The fault that delayed this kind may have affected all of them.
            let due = |candidate: &mut Candidate| candidate.due = now.max(candidate.earliest);
            self.queue.values_mut().for_each(due);
        }
        true
    }

    /// Requeues the kind being listed if it is in backoff or overdue and others are waiting.
    fn requeue_listing(&mut self, now: Instant) -> bool {
        let others = self.queue.values().any(|candidate| candidate.due <= now);
        let stuck = |listing: &mut Listing| {
            others && (listing.following.is_waiting() || listing.until <= now)
        };
        let Some(listing) = self.listing.take_if(stuck) else { return false };
        let yields = listing.yields.next(!listing.following.is_waiting());
        let slot = self.next_retry.max(now);
        self.next_retry = slot + SPACING;
        let earliest = listing.following.asked_until().unwrap_or(now);
        let candidate = Candidate {
            plan: listing.following.plan.clone(),
            yields,
            due: slot.max(now + yields.retry_delay(fastrand::f64())).max(earliest),
            earliest,
        };
        let name = candidate.plan.name().to_owned();
        if yields.all == 1 {
            tracing::warn!(
                resource = name,
                "Cannot be listed as the new configuration says, what it was stays until it can be"
            );
        }
        self.queue.insert(name, candidate);
        true
    }

    /// Starts to list the kind that has waited longest, if none is being listed.
    fn start_listing(&mut self, now: Instant) -> bool {
        if self.listing.is_some() {
            return false;
        }
        let due = self.queue.iter().filter(|(_, candidate)| candidate.due <= now);
        let Some(name) = due.min_by_key(|(_, candidate)| candidate.due).map(|(name, _)| name)
        else {
            return false;
        };
        let name = name.clone();
        let Some(candidate) = self.queue.remove(&name) else { return false };
        let Candidate { plan, yields, .. } = candidate;
        let following = Following::start(plan, None, &mut self.context);
        let until = now + yields.listing_time();
        self.listing = Some(Listing { following, yields, until });
        true
    }

    /// Drops the removed kinds, unless nothing would be left to serve.
    fn drop_removed(&mut self) {
        if self.removed.is_empty() {
            return;
        }
        let mut stays = self.served.iter().filter(|(name, _)| !self.removed.contains(*name));
        let something_stays = stays.any(|(_, following)| following.objects() > 0);
        let listing = self.listing.iter().map(|listing| listing.following.plan.name());
        let something_comes = self
            .queue
            .keys()
            .map(String::as_str)
            .chain(listing)
            .any(|name| !self.served.contains_key(name));
        if something_stays || !something_comes {
            let gone: Vec<String> = std::mem::take(&mut self.removed).into_iter().collect();
            let updates = self.context.updates.clone();
            let _update = updates.hold();
            self.catalog.exchange(None, &gone);
            gone.iter().for_each(|name| self.end(name));
        }
    }

    /// Publishes the progress of the change and of all list/watches.
    fn publish(&mut self) {
        let listing = self.listing.as_ref().map(|listing| &listing.following);
        let is_pending = |following: &Following| !following.is_settled() || following.is_outdated();
        let unsettled = self.served.iter().filter(|(_, following)| is_pending(following));
        let pending: BTreeSet<&str> = unsettled
            .map(|(name, _)| name.as_str())
            .chain(self.queue.keys().map(String::as_str))
            .chain(self.removed.iter().map(String::as_str))
            .chain(listing.map(|following| following.plan.name()))
            .collect();
        let refused = self.listing.is_none()
            && self.queue.is_empty()
            && self.removed.is_empty()
            && self.served.values().all(|served| served.is_settled() && !served.is_behind());
        self.ready |= self.number > 0 && self.served.values().all(Following::is_settled);
        let known = Arc::clone(&self.status.borrow().pending);
        let pending = match known.iter().map(String::as_str).eq(pending.iter().copied()) {
            true => known,
            false => pending.into_iter().map(str::to_owned).collect(),
        };
        let status = ReconcileStatus { number: self.number, pending, refused, ready: self.ready };
        publish(&self.status, status);
        let named = |name: &String| {
            let candidate = listing.filter(|following| following.plan.name() == name);
            self.served.get(name).into_iter().chain(candidate)
        };
        let parts = self.order.iter().flat_map(named).map(Following::progress).cloned().collect();
        *self.parts.lock() = parts;
    }

    /// Returns when to advance again if nothing changes before.
    fn next_advance(&self, now: Instant) -> Option<Instant> {
        let listing = self.listing.as_ref();
        let due = self.queue.values().map(|candidate| candidate.due).min();
        let due = due.map(|due| match listing {
            // A kind being listed yields when its time is over.
            Some(listing) if !listing.following.is_waiting() => due.max(listing.until),
            _ => due,
        });
        let followings = self.served.values().chain(listing.map(|listing| &listing.following));
        let overdue = listing.map(|listing| listing.until).filter(|until| *until > now);
        followings.filter_map(Following::next_restart).chain(due).chain(overdue).min()
    }

    /// Handles the end of a list/watch task: it was aborted or has panicked.
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (id, reason) = match ended {
            Ok((id, ())) => (id, "it came to an end".to_owned()),
            // Its list/watch is no longer needed.
            Err(error) if error.is_cancelled() => return,
            Err(error) => (error.id(), error.to_string()),
        };
        let listing = self.listing.as_mut().map(|listing| &mut listing.following);
        for following in self.served.values_mut().chain(listing) {
            following.ended(id, &reason, &self.context.metrics);
        }
    }
}

/// Puts the stores of a kind into the catalog, in place of its old ones and of the kinds that are `gone`.
fn show(catalog: &Catalog, following: &mut Following, gone: &[String]) {
    let new = (Arc::clone(&following.plan.schema), following.show_stores());
    catalog.exchange(Some(new), gone);
    following.end_retired();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_yield_are_retried_later_and_listed_for_longer() {
        let (mut delays, mut times) = (Vec::new(), vec![Yields::default().listing_time()]);
        let mut yields = Yields::default();
        for overran in [false, true, false, true, true] {
            yields = yields.next(overran);
            delays.push(yields.retry_delay(0.0).as_millis());
            times.push(yields.listing_time());
        }
        assert_eq!(delays, [500, 1000, 2000, 4000, 4000]);
        assert_eq!(times, [20, 20, 40, 40, 80, 160].map(Duration::from_secs));
        let delay = |jitter| yields.retry_delay(jitter).as_millis();
        assert_eq!([0.5, 1.0].map(delay), [6000, 8000]);
    }
}
