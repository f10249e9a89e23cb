//! Reloads that change which kinds are watched, and the options of those that stay. A kind may leave and return before the
//! reload in between has taken effect. Once one has, the kinds that it removes are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::checker::Expectation;
use super::cluster::{Kind, Scope};
use super::run::RELOAD;
use super::setup::{watched, watched_with};
use crate::kube::WatchedResource;

/// The kinds that come and go. Nothing else in a history depends on them.
pub const KINDS: [Kind; 3] = [Kind::ConfigMap, Kind::Secret, Kind::Widget];

/// The kinds of a history.
pub struct KindReloads {
    rng: Rng,
    /// Another reload always follows at once.
    is_double: bool,
    kinds: Vec<Kind>,
    removed: BTreeSet<Kind>,
    /// The number of changes of each kind's options.
    options: BTreeMap<Kind, u32>,
    /// The last time that each kind left or returned.
    changed: BTreeMap<Kind, Instant>,
    /// A reload has changed the options of a kind whose objects are followed by counters.
    pub may_miss_events: bool,
}

impl KindReloads {
    /// Starts with all of these kinds. If it `is_double`, another reload follows each one at once.
    pub fn new(seed: u64, kinds: &[Kind], is_double: bool) -> Self {
        Self {
            rng: Rng::with_seed(seed ^ 0x428a_2f98_d728_ae22),
            is_double,
            kinds: kinds.to_vec(),
            removed: BTreeSet::new(),
            options: BTreeMap::new(),
            changed: BTreeMap::new(),
            may_miss_events: false,
        }
    }

    /// Makes the next reload. Returns a description, and the time until another one that follows at once, if one does.
    pub fn reload(&mut self) -> (String, Option<Duration>) {
        let (now, rng) = (Instant::now(), &mut self.rng);
        let mut removed = self.removed.clone();
        match rng.u32(0..4) {
            // Others take the place of all that are watched.
            0 if !removed.is_empty() => {
                let present = KINDS.into_iter().filter(|kind| !removed.contains(kind)).collect();
                removed = present;
            }
            1 => {}
            _ => {
                removed = KINDS.into_iter().filter(|_| rng.bool()).collect();
                if removed.len() == KINDS.len() {
                    removed.pop_first();
                }
            }
        }
        for kind in removed.symmetric_difference(&self.removed) {
            self.changed.insert(*kind, now);
        }
        self.removed = removed;
        for kind in self.kinds.iter().filter(|kind| !matches!(kind, Kind::Event | Kind::Widget)) {
            // What a new list/watch shows first may count as old.
            if rng.u32(0..if kind.has_account() { 20 } else { 3 }) == 0 {
                self.may_miss_events |= kind.has_account();
                *self.options.entry(*kind).or_default() += 1;
            }
        }
        // Another one often comes while the lists of this one are on their way.
        let longest = [30, 1_500][rng.usize(0..2)];
        let next =
            (rng.bool() || self.is_double).then(|| Duration::from_millis(rng.u64(0..longest)));
        (format!("without {:?}, options {:?}", self.removed, self.options), next)
    }

    /// Returns what is watched.
    pub fn watched(&self) -> Vec<WatchedResource> {
        let kinds = self.kinds.iter().filter(|kind| **kind != Kind::Event);
        let kinds = kinds.filter(|kind| !self.removed.contains(*kind));
        kinds
            .map(|kind| match self.options.get(kind) {
                None => watched(*kind),
                Some(number) => watched_with(*kind, *number),
            })
            .collect()
    }

    /// Returns the kinds that have left or returned at this time.
    pub fn changed_at(&self, time: Instant) -> impl Iterator<Item = Kind> {
        self.changed.iter().filter(move |(_, at)| **at == time).map(|(kind, _)| *kind)
    }

    /// Returns the expectation of a scope, which is `other` for kinds that were watched all the time. With `is_applied`, the last reload
    /// has taken effect, so that kinds that it removed are gone for good, and the others are there.
    pub fn expectation(
        &self,
        scope: Scope,
        may_be_stale_until: Instant,
        is_applied: bool,
        other: Expectation,
    ) -> Expectation {
        let Some(changed) = self.changed.get(&scope.kind) else { return other };
        let is_late = Instant::now() < may_be_stale_until.max(*changed) + *RELOAD;
        match self.removed.contains(&scope.kind) {
            true if is_applied => Expectation::Empty,
            // A list from the server's cache may be old at first.
            false if is_applied && is_late && other == Expectation::Present => Expectation::Past,
            false if is_applied => other,
            _ if is_late => Expectation::PastOrEmpty,
            true => Expectation::Empty,
            false => other,
        }
    }
}
