//! The states of a scope, and the lines that a scrape shows of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::limits::{FOLDED, LABELLED};
use crate::kube::shard::{Ownership, Shard};
use crate::tests::hash;

/// The state of one scope between two changes.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The start of the period.
    pub since: Instant,
    /// The series of all objects, sorted.
    pub lines: Arc<[String]>,
    /// The hash of each series, in the same order: most states differ from a scrape in the first of them.
    hashes: Arc<[u64]>,
    /// The hash of the UID of the object of each series, which determines its shard.
    owners: Arc<[u64]>,
    /// The hash of the UID of each object, with the number of its series.
    pub objects: Arc<[(u64, u64)]>,
    /// The hashes of the series with a label whose values have a budget.
    pub labelled: Arc<[u64]>,
}

impl Snapshot {
    /// Makes the state of these series, each with the hash of the UID of its object.
    pub fn new(mut lines: Vec<(String, u64)>) -> Self {
        lines.sort();
        Self::of_sorted(Instant::now(), lines.into_iter())
    }

    fn of_sorted(since: Instant, lines: impl Iterator<Item = (String, u64)>) -> Self {
        let (lines, owners): (Vec<String>, Vec<u64>) = lines.unzip();
        let hashes: Vec<u64> = lines.iter().map(|line| hash(line.as_bytes())).collect();
        let mut objects: BTreeMap<u64, u64> = BTreeMap::new();
        for owner in &owners {
            *objects.entry(*owner).or_default() += 1;
        }
        let labelled = lines.iter().zip(&hashes).filter(|(line, _)| line.contains(LABELLED));
        Self {
            since,
            objects: objects.into_iter().collect(),
            labelled: labelled.map(|(_, hash)| *hash).collect(),
            lines: lines.into(),
            hashes: hashes.into(),
            owners: owners.into(),
        }
    }

    /// Returns true if the state has the series with this hash.
    pub fn has(&self, series: u64) -> bool {
        self.hashes.contains(&series)
    }

    /// Returns the numbers of the series that a shard shows.
    fn shown_by(&self, shard: Shard) -> impl Iterator<Item = usize> {
        let is_shown = move |owner: u64| {
            matches!(shard.ownership_of_hash(owner), Ownership::Kept | Ownership::Lost)
        };
        let owners = self.owners.iter().enumerate();
        owners.filter(move |(_, owner)| is_shown(**owner)).map(|(at, _)| at)
    }

    /// Returns the part of the state that a shard shows.
    pub fn of_shard(&self, shard: Shard) -> Self {
        let shown = self.shown_by(shard).map(|at| (self.lines[at].clone(), self.owners[at]));
        Self::of_sorted(self.since, shown)
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

    /// Returns true if the lines are exactly those of a state, or of the part of it that a shard shows.
    pub fn is_all_of(&self, snapshot: &Snapshot, shard: Option<Shard>) -> bool {
        let Some(shard) = shard else {
            return *snapshot.hashes == *self.hashes
                && snapshot.lines.iter().map(String::as_str).eq(self.lines.iter().copied());
        };
        let lines = || snapshot.shown_by(shard);
        lines().map(|at| snapshot.hashes[at]).eq(self.hashes.iter().copied())
            && lines().map(|at| &*snapshot.lines[at]).eq(self.lines.iter().copied())
    }
}
