//! The interface of the Kubernetes side to histories of both sides.

use std::time::Duration;

use tokio::time::Instant;

use super::super::cluster::{Kind, scopes};
use super::{DROPPED, LEFT_OUT, World};

impl World {
    /// Returns the time since which an active fault has refused pods.
    pub fn pods_refused_since(&self) -> Option<Instant> {
        let of_pods = scopes(&[Kind::Pod]).into_iter();
        of_pods.filter_map(|scope| self.refused_since(scope)).min()
    }

    /// Returns the names of the active faults.
    pub fn active_faults(&self) -> impl Iterator<Item = &'static str> {
        self.pending.iter().map(|fault| fault.result.name)
    }

    /// Returns the features of this history that not all have and that are active now: changes of the last 20 s,
    /// objects that a budget leaves out, and completed pods.
    pub fn active_features(&self) -> impl Iterator<Item = &'static str> {
        let recently = |at: &Instant| at.elapsed() < Duration::from_secs(20);
        let changed = self.feature_changes.iter().filter(move |(_, at)| recently(at));
        let is_left_out = self.limits.is_some() && !self.pipeline.handle().rejected().is_empty();
        let is_dropped = self.completed.as_ref().is_some_and(|completed| {
            let cluster = self.server.cluster();
            let (now, second) = (Instant::now(), cluster.second());
            let dropped = completed.dropped(now, second, self.may_be_stale_until);
            cluster.of_kind(Kind::Pod).any(|pod| dropped.shows(pod.ended()) != Some(true))
        });
        let changed = changed.map(|(name, _)| *name);
        changed.chain(is_left_out.then_some(LEFT_OUT)).chain(is_dropped.then_some(DROPPED))
    }
}
