//! Bringing what is followed in line with what is wanted, kind by kind.
//!
//! In go plans (the newest wins), out come changes of the catalog. A kind whose plan is the same goes on
//! untouched. One that has changed, or is new, is listed into stores of its own beside the old ones, which
//! are served and kept up to date until the new ones are complete, however long that takes. One kind is
//! listed at a time, so that memory is one kind above what is steady at most. A kind that cannot be listed
//! gives way to the others and is tried again. A kind that is no longer wanted goes at once, unless
//! nothing would be left to serve: then it goes with the first kind that comes.
//!
//! At the start there is nothing to keep: all kinds are registered and listed together.
//!
//! List/watches run in [`following`](super::following); nothing here sends a request.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::following::{Following, Ground, Plan};
use super::progress::Progress;
use super::watch::Shared;
use super::worker::Pace;
use crate::cache::Catalog;
use crate::telemetry::KubeMetrics;

/// How long a kind may hold up others with a list that neither fails nor ends. It doubles each time.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first pause of a kind that could not be listed, which doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// What the pause grows to, jitter of up to as much again not counted. Short, because it has to end soon
/// after the fault that led to it.
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// What is to be followed.
pub(crate) struct Wanted {
    /// Counts the changes, from 1 on.
    pub(crate) number: u64,
    /// The kinds.
    pub(crate) plans: Arc<[Plan]>,
}

/// How far the latest change is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Situation {
    /// Its number, 0 before the first was taken.
    pub(crate) number: u64,
    /// The kinds that are not yet what it wants.
    pub(crate) pending: Arc<[String]>,
    /// Whether the server refuses to list all of these, so that nothing is to be expected of them.
    pub(crate) refused: bool,
    /// Whether all kinds were settled once.
    pub(crate) ready: bool,
}

/// A kind that waits to be listed.
struct Candidate {
    plan: Plan,
    /// How often it had to give way.
    failures: u32,
    /// How often it did because its list did not end.
    overruns: u32,
    /// Whether the server has refused to list it.
    refused: bool,
    /// When it may be tried.
    due: Instant,
}

/// The kind that is being listed.
struct Turn {
    following: Following,
    failures: u32,
    overruns: u32,
    /// Whether the server refused it the time before.
    refused: bool,
    /// When it has to give way to others.
    until: Instant,
}

impl Turn {
    /// Whether the server refuses to list it.
    fn is_refused(&self) -> bool {
        self.refused || self.following.is_settled() && !self.following.is_listed()
    }
}

/// The kinds, and what is to become of them.
pub(crate) struct Reconciler {
    catalog: Catalog,
    ground: Ground,
    orders: watch::Receiver<Wanted>,
    situation: watch::Sender<Situation>,
    statuses: Arc<Mutex<Vec<Arc<Progress>>>>,
    number: u64,
    /// The names of the wanted kinds, in the order of the configuration.
    order: Vec<String>,
    served: BTreeMap<String, Following>,
    queue: BTreeMap<String, Candidate>,
    turn: Option<Turn>,
    /// Served, but no longer wanted.
    leaving: BTreeSet<String>,
    ready: bool,
}

impl Reconciler {
    pub(crate) fn new(
        catalog: Catalog,
        metrics: KubeMetrics,
        pace: Arc<Pace>,
        shared: Arc<Shared>,
        mut orders: watch::Receiver<Wanted>,
        situation: watch::Sender<Situation>,
        statuses: Arc<Mutex<Vec<Arc<Progress>>>>,
    ) -> Self {
        orders.mark_changed();
        let ground = Ground {
            pace,
            metrics,
            shared,
            changes: watch::Sender::new(0),
            tasks: JoinSet::new(),
            owners: HashMap::new(),
            next: 0,
        };
        Self {
            catalog,
            ground,
            orders,
            situation,
            statuses,
            number: 0,
            order: Vec::new(),
            served: BTreeMap::new(),
            queue: BTreeMap::new(),
            turn: None,
            leaving: BTreeSet::new(),
            ready: false,
        }
    }

    /// Follows what is wanted until the task is aborted, or nobody can want anything any more.
    pub(crate) async fn run(mut self) {
        let mut changes = self.ground.changes.subscribe();
        loop {
            // Before looking, so that what changes meanwhile is looked at again.
            changes.mark_unchanged();
            let next = self.advance();
            tokio::select! {
                changed = self.orders.changed() => match changed {
                    Ok(()) => self.take_orders(),
                    Err(_) => return,
                },
                Some(ended) = self.ground.tasks.join_next_with_id() => self.ended(ended),
                // The other end is in `ground`.
                _ = changes.changed() => {}
                () = until(next) => {}
            }
        }
    }

    /// Compares what is wanted with what there is.
    fn take_orders(&mut self) {
        let (number, plans) = {
            let wanted = self.orders.borrow_and_update();
            (wanted.number, Arc::clone(&wanted.plans))
        };
        self.number = number;
        // What is wanted changes with what the cluster defines, too.
        self.ground.shared.look_again();
        self.order = plans.iter().map(|plan| plan.name().to_owned()).collect();
        let wanted: BTreeSet<&str> = plans.iter().map(Plan::name).collect();
        let first = self.served.is_empty();
        self.queue.retain(|name, _| wanted.contains(name.as_str()));
        self.turn.take_if(|turn| !wanted.contains(turn.following.plan.name()));
        self.leaving =
            self.served.keys().filter(|name| !wanted.contains(name.as_str())).cloned().collect();
        for plan in plans.iter() {
            let name = plan.name();
            let same = |following: &Following| following.plan.is_same(plan);
            let served = self.served.get(name);
            let is_turn = self.turn.as_ref().is_some_and(|turn| turn.following.plan.name() == name);
            if served.is_some_and(same) {
                self.queue.remove(name);
                self.turn.take_if(|_| is_turn);
                if let Some(served) = self.served.get_mut(name) {
                    served.go_on(plan);
                }
            } else if is_turn && self.turn.as_ref().is_some_and(|turn| same(&turn.following)) {
                self.queue.remove(name);
                if let Some(turn) = &mut self.turn {
                    turn.following.go_on(plan);
                }
            } else if first || served.is_some_and(Following::is_blank) {
                // There is nothing to keep.
                self.queue.remove(name);
                self.turn.take_if(|_| is_turn);
                let following = Following::start(plan.clone(), &mut self.ground);
                self.serve(following, &[]);
            } else {
                self.turn.take_if(|_| is_turn);
                match self.queue.get_mut(name) {
                    // What it is to show may have changed.
                    Some(other) if other.plan.is_same(plan) => other.plan = plan.clone(),
                    _ => {
                        let candidate = Candidate {
                            plan: plan.clone(),
                            failures: 0,
                            overruns: 0,
                            refused: false,
                            due: Instant::now(),
                        };
                        self.queue.insert(name.to_owned(), candidate);
                    }
                }
            }
        }
    }

    /// Serves a kind from here on, in place of its older state and of the kinds that are `gone`.
    fn serve(&mut self, following: Following, gone: &[String]) {
        following.progress().for_each(|progress| progress.show());
        let new = (Arc::clone(following.plan.schema()), following.stores());
        self.catalog.exchange(Some(new), gone);
        for name in gone {
            self.served.remove(name);
            self.leaving.remove(name);
        }
        self.served.insert(following.plan.name().to_owned(), following);
    }

    /// Does what can be done now; tells when there may be more to do without anything having changed.
    fn advance(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let followings = self.served.values_mut();
        for following in followings.chain(self.turn.as_mut().map(|turn| &mut turn.following)) {
            following.restart(now, &mut self.ground);
        }
        while self.finish_turn() || self.give_way(now) || self.begin_turn(now) {}
        self.let_go();
        self.publish();
        self.next_look()
    }

    /// Serves the kind that was being listed, if it is complete.
    fn finish_turn(&mut self) -> bool {
        let (served, leaving) = (&self.served, &self.leaving);
        let complete = |turn: &mut Turn| {
            let following = &turn.following;
            // What the server refuses and nobody has seen before is as complete as it will be.
            let is_new = !served.contains_key(following.plan.name());
            following.is_listed() || is_new && following.is_settled()
        };
        let Some(turn) = self.turn.take_if(complete) else { return false };
        let gone: Vec<String> = leaving.iter().cloned().collect();
        tracing::info!(
            resource = turn.following.plan.name(),
            objects = turn.following.objects(),
            "listed as the new configuration says, served from here on"
        );
        self.serve(turn.following, &gone);
        if turn.failures > 0 {
            // Whatever was in the way of this one may have been in the way of all.
            self.queue.values_mut().for_each(|candidate| candidate.due = Instant::now());
        }
        true
    }

    /// Ends the list that is under way if it cannot go on now, or does not end, and others wait.
    fn give_way(&mut self, now: Instant) -> bool {
        let others = self.queue.values().any(|candidate| candidate.due <= now);
        let stuck = |turn: &mut Turn| others && (turn.following.is_waiting() || turn.until <= now);
        let Some(turn) = self.turn.take_if(stuck) else { return false };
        let overran = !turn.following.is_waiting();
        let pause = FIRST_PAUSE.saturating_mul(1 << turn.failures.min(16)).min(LONGEST_PAUSE);
        let candidate = Candidate {
            plan: turn.following.plan.clone(),
            failures: turn.failures + 1,
            overruns: turn.overruns + u32::from(overran),
            refused: turn.is_refused(),
            due: now + pause + pause.mul_f64(fastrand::f64()),
        };
        let name = candidate.plan.name().to_owned();
        if candidate.failures == 1 {
            tracing::warn!(
                resource = name,
                "cannot be listed as the new configuration says, what it was stays until it can be"
            );
        }
        self.queue.insert(name, candidate);
        true
    }

    /// Begins to list the kind that has waited longest, if none is being listed.
    fn begin_turn(&mut self, now: Instant) -> bool {
        if self.turn.is_some() {
            return false;
        }
        let due = self.queue.iter().filter(|(_, candidate)| candidate.due <= now);
        let Some(name) = due.min_by_key(|(_, candidate)| candidate.due).map(|(name, _)| name)
        else {
            return false;
        };
        let name = name.clone();
        let Some(candidate) = self.queue.remove(&name) else { return false };
        let Candidate { plan, failures, overruns, refused, .. } = candidate;
        let following = Following::start(plan, &mut self.ground);
        let until = now + PATIENCE.saturating_mul(1 << overruns.min(16));
        self.turn = Some(Turn { following, failures, overruns, refused, until });
        true
    }

    /// Takes out what is no longer wanted.
    fn let_go(&mut self) {
        if self.leaving.is_empty() {
            return;
        }
        let mut stays = self.served.iter().filter(|(name, _)| !self.leaving.contains(*name));
        let something_stays = stays.any(|(_, following)| following.objects() > 0);
        let turn = self.turn.iter().map(|turn| turn.following.plan.name());
        let something_comes = self
            .queue
            .keys()
            .map(String::as_str)
            .chain(turn)
            .any(|name| !self.served.contains_key(name));
        if something_stays || !something_comes {
            let gone: Vec<String> = std::mem::take(&mut self.leaving).into_iter().collect();
            self.catalog.exchange(None, &gone);
            gone.iter().for_each(|name| drop(self.served.remove(name)));
        }
    }

    /// Tells how far things are.
    fn publish(&mut self) {
        let turn = self.turn.as_ref().map(|turn| &turn.following);
        let unsettled = self.served.iter().filter(|(_, following)| !following.is_settled());
        let pending: BTreeSet<&str> = unsettled
            .map(|(name, _)| name.as_str())
            .chain(self.queue.keys().map(String::as_str))
            .chain(self.leaving.iter().map(String::as_str))
            .chain(turn.map(|following| following.plan.name()))
            .collect();
        let refused = self.turn.as_ref().is_none_or(Turn::is_refused)
            && self.queue.values().all(|candidate| candidate.refused)
            && self.leaving.is_empty()
            && self.served.values().all(Following::is_settled);
        self.ready |= self.number > 0 && self.served.values().all(Following::is_settled);
        let situation = Situation {
            number: self.number,
            pending: pending.into_iter().map(str::to_owned).collect(),
            refused,
            ready: self.ready,
        };
        self.situation.send_if_modified(|published| {
            let differs = *published != situation;
            *published = situation;
            differs
        });
        let named = |name: &String| {
            let candidate = turn.filter(|following| following.plan.name() == name);
            self.served.get(name).into_iter().chain(candidate)
        };
        let statuses = self.order.iter().flat_map(named);
        let statuses = statuses.flat_map(Following::progress).cloned().collect();
        *self.statuses.lock().unwrap_or_else(PoisonError::into_inner) = statuses;
    }

    fn next_look(&self) -> Option<Instant> {
        let turn = self.turn.as_ref();
        let due = self.queue.values().map(|candidate| candidate.due).min();
        let due = due.map(|due| match turn {
            // One that goes on gives way when its time is over.
            Some(turn) if !turn.following.is_waiting() => due.max(turn.until),
            _ => due,
        });
        let followings = self.served.values().chain(turn.map(|turn| &turn.following));
        followings.filter_map(Following::next_restart).chain(due).min()
    }

    /// A list/watch has ended: it was aborted, or it has a fault.
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let (id, reason) = match ended {
            Ok((id, ())) => (id, "it came to an end".to_owned()),
            Err(error) => (error.id(), error.to_string()),
        };
        let Some(place) = self.ground.owners.remove(&id) else { return };
        let turn = self.turn.as_mut().map(|turn| &mut turn.following);
        let mut followings = self.served.values_mut().chain(turn);
        // Those that are no longer there were aborted.
        if let Some(following) = followings.find(|following| following.id == place.following) {
            following.ended(place, &reason, &self.ground.metrics);
        }
    }
}

/// Completes at `instant`, never without one.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
