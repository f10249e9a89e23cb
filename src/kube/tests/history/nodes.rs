//! Compares the transitions of nodes' conditions with the world's own account, by the rules of the
//! [ledger](super::ledger).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::accounts::{Account, Accounts};
use super::cluster::Kind;
use super::ledger::{ARRIVAL, Conditions, Range};
use super::status::{CONDITIONS, Status, Transition};
use crate::kube::shard::{Ownership, Shard};

/// The counts of a node, by condition and status.
type Counts<'b> = BTreeMap<(&'b str, &'b str), i64>;

/// What is known about a condition of a node.
#[derive(Debug)]
struct Track {
    /// The number of transitions that are not counted, because they are older than the counter or were hidden.
    missing: Range,
    /// The largest number of transitions that a scrape has shown.
    seen: i64,
    counts: BTreeMap<String, i64>,
    /// The number of transitions and their count at the last scrape that had to show the present.
    settled: (i64, i64),
}

/// A node that is shown.
#[derive(Debug)]
struct NodeTrack {
    uid: String,
    removals: u32,
    conditions: Vec<Track>,
    /// The number of times that a backup has set its status back.
    set_backs: u32,
    /// True until a scrape shows the status as the last backup had it.
    is_awaited: bool,
    /// The number of backups whose status no scrape has shown. The process may not have seen it either, and counts what the
    /// node then reports again, with a new time, as another transition.
    unseen: i64,
}

impl NodeTrack {
    /// Takes the number of times that the status has been set back, and the status that is shown.
    fn note(&mut self, account: &Account, shown: &Status) {
        let new = account.set_backs - std::mem::replace(&mut self.set_backs, account.set_backs);
        self.unseen += i64::from(new);
        self.is_awaited |= new > 0;
        let mut conditions = shown.conditions.iter().zip(&self.conditions);
        if self.is_awaited && conditions.any(|(shown, known)| (shown.len() as i64) <= known.seen) {
            self.unseen -= 1;
            self.is_awaited = false;
        }
    }
}

#[derive(Default)]
pub(super) struct NodeChecker {
    nodes: BTreeMap<String, NodeTrack>,
}

impl NodeChecker {
    /// Compares the counters with the nodes that are shown, which have these statuses and UIDs. Those of nodes of other
    /// shards are not shown.
    pub(super) fn check(
        &mut self,
        accounts: &Accounts,
        shard: Shard,
        counters: &BTreeMap<&str, Counts<'_>>,
        shown: &[(&str, &Arc<Status>)],
        conditions: Conditions,
    ) -> Result<(), String> {
        let mut names = Vec::new();
        for (uid, status) in shown {
            let Some(account) = accounts.get(uid) else { continue };
            let name = &*account.object.name;
            names.push(name);
            // While a list is in progress, the counters may be those of a successor.
            let is_replaced = !account.is_present;
            if is_replaced || conditions.may_be_dropped {
                self.nodes.remove(name);
            }
            if is_replaced {
                continue;
            }
            let of_same =
                |track: &NodeTrack| track.uid == *uid && track.removals == account.removals;
            if !self.nodes.get(name).is_some_and(of_same) {
                let new = |transitions: &Vec<Transition>| Track {
                    missing: Range { least: 0, most: transitions.len() as i64 },
                    seen: 0,
                    counts: BTreeMap::new(),
                    settled: (0, 0),
                };
                let conditions = account.status.conditions.iter().map(new).collect();
                let track = NodeTrack {
                    uid: (*uid).to_owned(),
                    removals: account.removals,
                    conditions,
                    set_backs: account.set_backs - u32::from(account.is_set_back),
                    is_awaited: false,
                    unseen: 0,
                };
                self.nodes.insert(name.to_owned(), track);
            }
            let Some(track) = self.nodes.get_mut(name) else { continue };
            track.note(account, status);
            let unseen = track.unseen;
            let counts = counters.get(name);
            if !matches!(shard.ownership(uid.as_bytes()), Ownership::Kept | Ownership::Lost) {
                if counts.is_some() {
                    return Err(format!("node {name} has counters, but belongs to another shard"));
                }
                continue;
            }
            // A status that has come back while it was set back is not reported at all.
            let is_set_back =
                account.is_set_back || account.reported_at.is_some_and(|at| at.elapsed() < ARRIVAL);
            let conditions =
                Conditions { may_be_stale: conditions.may_be_stale || is_set_back, ..conditions };
            for (number, condition) in CONDITIONS.iter().enumerate() {
                let world = &account.status.conditions[number];
                let first = account
                    .initial
                    .as_ref()
                    .map_or(0, |initial| initial.conditions[number].len() as i64 - 1);
                let shown = status.conditions[number].len() as i64 - 1;
                track.conditions[number]
                    .check(
                        condition,
                        (first, shown, world, unseen),
                        counts,
                        (conditions, is_set_back),
                    )
                    .map_err(|why| {
                        format!("{condition} of {name}: {why}; {track:?} {account:?}")
                    })?;
            }
        }
        self.nodes.retain(|name, _| names.contains(&&**name));
        let known = || accounts.of_kind(Kind::Node).filter(|(_, account)| account.is_present);
        match counters.keys().find(|name| {
            !names.contains(*name) && !known().any(|(_, account)| account.object.name == **name)
        }) {
            Some(name) if !conditions.may_be_stale => {
                Err(format!("node {name} has counters, but does not exist"))
            }
            _ => Ok(()),
        }
    }
}

impl Track {
    /// Compares the counts with the numbers of transitions at the beginning and in the state that is shown, with all
    /// statuses of the world, and with the number of those that may count again.
    fn check(
        &mut self,
        condition: &str,
        (first, shown, world, again): (i64, i64, &[Transition], i64),
        counts: Option<&Counts<'_>>,
        (conditions, is_set_back): (Conditions, bool),
    ) -> Result<(), String> {
        let mut sum = 0;
        for (status, text) in [("true", "True"), ("false", "False"), ("unknown", "Unknown")] {
            let count = counts.and_then(|counts| counts.get(&(condition, status)));
            let count = *count.ok_or_else(|| format!("no counter of {status}"))?;
            sum += count;
            let transitions = world.iter().skip(first as usize + 1);
            let most = transitions.filter(|one| one.status == text).count() as i64 + again;
            if count > most {
                return Err(format!("{count} transitions to {status}, at most {most}"));
            }
            let before = self.counts.insert(status.to_owned(), count).unwrap_or(0);
            if count < before {
                return Err(format!("{before} transitions to {status} have become {count}"));
            }
        }
        self.seen = self.seen.max(shown);
        let all = world.len() as i64 - 1;
        if conditions.may_be_stale {
            self.missing.most = i64::MAX;
        }
        if is_set_back {
            self.settled = (0, 0);
        }
        let before = self.missing;
        if !self.missing.restrict(self.seen - sum, all - sum + again) {
            let seen = self.seen;
            return Err(format!("{sum} transitions of {seen} to {all} without {before:?}"));
        }
        if !conditions.may_be_stale && shown == all {
            let (seen, counted) = std::mem::replace(&mut self.settled, (shown, sum));
            if seen > 0 && shown > seen && sum == counted {
                return Err(format!("none of the transitions {seen} to {shown} has been counted"));
            }
        }
        Ok(())
    }
}
