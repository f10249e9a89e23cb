//! Since when the server has refused scopes, and whether the client must have noticed it.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

use super::checker::Expectation;
use super::cluster::Scope;
use super::faults::RECOVERY;
use super::setup::STALENESS_LIMIT;
use crate::tests::time_bound;

/// The time until a watch has ended, the refusal has been noticed and the request has been repeated once. The server does
/// not end a watch whose permission is revoked.
static DENIAL_NOTICED: LazyLock<Duration> =
    LazyLock::new(|| time_bound("a revoked permission is noticed"));

/// The time from a cut until the refusal of a request that is answered late has been noticed, and the request repeated.
const LATE_REFUSAL: Duration = Duration::from_secs(45);

/// The time for which a scope has been refused, possibly by several faults in a row.
struct Refusal {
    since: Instant,
    /// The same, with other faults in between that also kept the scope from being listed.
    unlisted_since: Instant,
    last: Instant,
}

/// The refusals of all scopes.
#[derive(Default)]
pub(super) struct Refusals {
    by_scope: BTreeMap<Scope, Refusal>,
    /// When all watches were cut, since the last other fault.
    cuts: Vec<Instant>,
    /// The time after the end of a refusal in which requests may still have a rejected token.
    late: Duration,
}

impl Refusals {
    /// A plugin runs seldom, so that a new token may be used late.
    pub(super) fn new(has_plugin: bool) -> Self {
        let late = if has_plugin { *RECOVERY } else { Duration::ZERO };
        Self { late, ..Self::default() }
    }

    /// Returns true if requests may have been refused up to a time.
    fn may_last(&self, refusal: &Refusal, until: Instant) -> bool {
        refusal.last <= until && until - refusal.last <= self.late
    }

    /// Notes that all watches are cut while nothing but a refusal goes on, so that the requests that follow are answered.
    pub(super) fn cut(&mut self, now: Instant) {
        self.cuts.push(now);
    }

    /// Notes another fault, which may keep the client from noticing a refusal.
    pub(super) fn disturb(&mut self) {
        self.cuts.clear();
    }

    /// Notes that a fault refuses the scope, `since` when it began.
    pub(super) fn note(&mut self, scope: Scope, since: Instant, now: Instant) {
        let refusal = self.by_scope.entry(scope).or_insert(Refusal {
            since,
            unlisted_since: since,
            last: now,
        });
        // A shorter gap may fall between two of its requests, so that it is not noticed.
        if now - refusal.last > *RECOVERY {
            refusal.since = since;
        }
        refusal.last = now;
    }

    /// Forgets the refusals that ended long ago. Everything has been listed since.
    pub(super) fn forget_ended(&mut self, now: Instant) {
        self.by_scope.retain(|_, refusal| now - refusal.last <= *RECOVERY);
    }

    /// Returns the scopes that have been refused for so long that their objects may have been dropped.
    pub(super) fn dropped(&self, now: Instant) -> impl Iterator<Item = Scope> {
        let is_dropped = move |refusal: &Refusal| {
            self.may_last(refusal, now) && now - refusal.unlisted_since > STALENESS_LIMIT
        };
        self.by_scope
            .iter()
            .filter(move |(_, refusal)| is_dropped(refusal))
            .map(|(scope, _)| *scope)
    }

    /// Returns what a refused scope must expose. `last_check` is the time of the last scrape; with `is_alone`, no other fault
    /// goes on or has just ended.
    pub(super) fn expectation(
        &self,
        scope: Scope,
        (last_check, now): (Instant, Instant),
        is_alone: bool,
    ) -> Option<Expectation> {
        // Objects may have left just before the end of the refusal.
        let refusal = self.by_scope.get(&scope)?;
        if ![now, last_check].into_iter().any(|at| self.may_last(refusal, at)) {
            return None;
        }
        if is_alone && refusal.last == now && self.is_noticed(now - refusal.since, now) {
            return Some(Expectation::Empty);
        }
        let is_unlisted = now - refusal.unlisted_since > STALENESS_LIMIT;
        is_unlisted.then_some(Expectation::PastOrEmpty)
    }

    /// Returns whether a refusal must have been noticed for longer than the staleness limit. It certainly is once the
    /// watches have been cut.
    fn is_noticed(&self, since: Duration, now: Instant) -> bool {
        let cut = self.cuts.iter().find(|cut| **cut >= now - since);
        let noticed = cut.map_or(*DENIAL_NOTICED, |cut| *cut - (now - since) + LATE_REFUSAL);
        since > STALENESS_LIMIT + noticed
    }
}
