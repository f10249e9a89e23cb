//! The states of a scope, and the lines that a scrape shows of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::completed::Dropped;
use super::limits::{FOLDED, LABELLED};
use super::object_shards::ExposedShards;
use crate::tests::hash;

/// The object of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The hash of its UID, which determines its shard.
    pub uid: u64,
    /// The second in which it ended, if it is a completed pod.
    pub ended: Option<u64>,
}

/// The objects that a process shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selected {
    /// The shards, in histories with changes of the shard.
    pub shards: Option<ExposedShards>,
    /// The completed pods, in histories in which they are dropped.
    pub dropped: Option<Dropped>,
}

impl Selected {
    /// Returns whether the series of an object are shown, or `None` if they need not be.
    pub fn shows(self, owner: Owner) -> Option<bool> {
        let is_of_shard = self.shards.is_none_or(|shards| shards.show(owner.uid));
        match self.dropped {
            Some(dropped) if is_of_shard => dropped.shows(owner.ended),
            _ => Some(is_of_shard),
        }
    }
}

/// The state of one scope between two changes.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The start of the period.
    pub since: Instant,
    /// The series of all objects, sorted.
    pub lines: Arc<[String]>,
    /// The hash of each series, in the same order: most states differ from a scrape in the first of them.
    hashes: Arc<[u64]>,
    /// The object of each series.
    owners: Arc<[Owner]>,
    /// The hash of the UID of each object, with the number of its series.
    pub objects: Arc<[(u64, u64)]>,
    /// The hashes of the UIDs of objects and of their values of the label that has a budget.
    pub labelled: Arc<[(u64, u64)]>,
}

impl Snapshot {
    /// Makes the state of these series, each with its object.
    pub fn new(mut lines: Vec<(String, Owner)>) -> Self {
        lines.sort();
        Self::of_sorted(Instant::now(), lines.into_iter())
    }

    fn of_sorted(since: Instant, lines: impl Iterator<Item = (String, Owner)>) -> Self {
        let (lines, owners): (Vec<String>, Vec<Owner>) = lines.unzip();
        let hashes: Vec<u64> = lines.iter().map(|line| hash(line.as_bytes())).collect();
        let mut objects: BTreeMap<u64, u64> = BTreeMap::new();
        for owner in &owners {
            *objects.entry(owner.uid).or_default() += 1;
        }
        let labelled = lines.iter().zip(&owners).filter_map(|(line, owner)| {
            let (value, _) = line.split_once(LABELLED)?.1.split_once('"')?;
            Some((owner.uid, hash(value.as_bytes())))
        });
        Self {
            since,
            objects: objects.into_iter().collect(),
            labelled: labelled.collect(),
            lines: lines.into(),
            hashes: hashes.into(),
            owners: owners.into(),
        }
    }

    /// Returns true if the state has the series with this hash.
    pub fn has(&self, series: u64) -> bool {
        self.hashes.contains(&series)
    }

    /// Returns each series with its object, in order.
    pub fn series(&self) -> impl Iterator<Item = (&String, Owner)> {
        self.lines.iter().zip(self.owners.iter().copied())
    }

    /// Returns the part of the state that a process shows. Of what it need not show, that is part which it does (`shown`).
    pub fn selected(&self, selected: Selected, shown: &[&str]) -> Self {
        let lines = self.lines.iter().cloned().zip(self.owners.iter().copied());
        let lines = lines.filter(|(line, owner)| {
            selected.shows(*owner).unwrap_or_else(|| shown.contains(&&**line))
        });
        Self::of_sorted(self.since, lines)
    }
}

/// The sorted lines of a scope in a scrape.
pub struct Shown<'b> {
    pub lines: Vec<&'b str>,
    /// The hash of each line.
    hashes: Vec<u64>,
    /// The hashes of those whose labels are not folded.
    exact: Vec<u64>,
}

impl<'b> Shown<'b> {
    pub fn new(lines: Vec<&'b str>) -> Self {
        let hashes: Vec<u64> = lines.iter().map(|line| hash(line.as_bytes())).collect();
        let exact = lines.iter().zip(&hashes).filter(|(line, _)| !line.contains(FOLDED));
        let exact = exact.map(|(_, hash)| *hash).collect();
        Self { lines, hashes, exact }
    }

    /// Returns false if a state lacks one of the lines whose labels are not folded.
    pub fn may_be_of(&self, snapshot: &Snapshot) -> bool {
        let mut states = snapshot.hashes.iter();
        self.exact.iter().all(|line| states.any(|state| state == line))
    }

    /// Returns true if the lines are exactly those of a state that a process shows. It shows all series of an object or none.
    pub fn is_all_of(&self, snapshot: &Snapshot, selected: Selected) -> bool {
        if selected.shards.is_none() && selected.dropped.is_none() {
            return *snapshot.hashes == *self.hashes
                && snapshot.lines.iter().map(String::as_str).eq(self.lines.iter().copied());
        }
        let mut shown = self.lines.iter().zip(&self.hashes).peekable();
        let mut optional: BTreeMap<u64, bool> = BTreeMap::new();
        let states = snapshot.lines.iter().zip(&*snapshot.hashes).zip(&*snapshot.owners);
        for ((line, hash), owner) in states {
            let is_next = shown.next_if(|next| next.1 == hash && *next.0 == line).is_some();
            let is_right = match selected.shows(*owner) {
                Some(is_shown) => is_shown == is_next,
                None => *optional.entry(owner.uid).or_insert(is_next) == is_next,
            };
            if !is_right {
                return false;
            }
        }
        shown.peek().is_none()
    }
}
