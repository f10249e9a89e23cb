//! Assigns objects to shards by UID.
//!
//! The API server sends every object to every shard, and a shard keeps the objects whose UIDs hash to it. All functions
//! are pure; [`autosharding`](super::autosharding) determines the number of shards.

use crate::cache::fnv1a64;
use crate::util::jump_hash::jump_hash;
use crate::util::reasons::reason;

/// One of several processes that share the objects of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The zero-based index. A shard whose index is not below `total` keeps nothing.
    pub index: i32,
    /// The number of shards. If it is not positive, no shard keeps anything.
    pub total: i64,
    /// The transition from previous assignments, if there was one.
    transition: Option<Transition>,
}

/// A transition from previous assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transition {
    /// The previous assignments, newest first. There is more than one if a change overtook another one while both
    /// assignments were exposed.
    previous: [Option<Assignment>; MAX_PREVIOUS],
    stage: Stage,
}

/// The index of a shard among `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Assignment {
    index: i32,
    total: i64,
}

/// The maximum number of previous assignments; older ones are dropped.
const MAX_PREVIOUS: usize = 3;

/// The stage of a transition from one assignment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Gained objects are followed, but not exposed.
    Preparing,
    /// Gained and lost objects are exposed.
    Overlap,
    /// Lost objects are no longer exposed.
    Done,
}

/// The relation of an object to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The object belongs to the shard.
    Kept,
    /// The object will be exposed later in the transition.
    Gained,
    /// The object is exposed until the end of the transition.
    Lost,
    /// The object belongs to another shard.
    Foreign,
}

impl Ownership {
    /// Returns whether the object is exposed now.
    pub fn is_exposed(self) -> bool {
        matches!(self, Self::Kept | Self::Lost)
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self::ALL
    }
}

impl Shard {
    /// A shard without objects.
    pub const NONE: Self = Self::new(-1, 0);

    /// The only shard, which keeps everything.
    pub const ALL: Self = Self::new(0, 1);

    /// Returns the shard with this index.
    pub const fn new(index: i32, total: i64) -> Self {
        Self { index, total, transition: None }
    }

    /// Starts a transition from `before` to this assignment: objects of both are followed, those of `before` are
    /// exposed.
    #[must_use]
    pub const fn replacing(self, before: Self) -> Self {
        let previous = Assignment { index: before.index, total: before.total };
        let previous = [Some(previous), None, None];
        Self { transition: Some(Transition { previous, stage: Stage::Preparing }), ..self }
    }

    /// Starts a transition from everything that is exposed now to another assignment.
    #[must_use]
    pub fn retargeted(self, to: Self) -> Self {
        match self.transition {
            Some(transition @ Transition { stage: Stage::Preparing, .. }) => {
                Self { transition: Some(transition), ..to }
            }
            Some(Transition { mut previous, stage: Stage::Overlap }) => {
                previous.rotate_right(1);
                previous[0] = Some(Assignment { index: self.index, total: self.total });
                Self { transition: Some(Transition { previous, stage: Stage::Preparing }), ..to }
            }
            Some(Transition { stage: Stage::Done, .. }) | None => to.replacing(self),
        }
    }

    /// Returns the same transition at another stage.
    #[must_use]
    pub fn at(self, stage: Stage) -> Self {
        let transition = self.transition.map(|transition| Transition { stage, ..transition });
        Self { transition, ..self }
    }

    /// Returns the stage of the transition, or `None` if there was none.
    pub fn stage(&self) -> Option<Stage> {
        self.transition.map(|transition| transition.stage)
    }

    /// Returns true if both follow the same objects, regardless of what they expose.
    pub fn follows_same(&self, other: &Self) -> bool {
        self.at(Stage::Preparing) == other.at(Stage::Preparing)
    }

    /// Returns the relation of the object with this UID to the shard.
    #[inline]
    pub fn ownership(&self, uid: &[u8]) -> Ownership {
        if *self == Self::ALL { Ownership::Kept } else { self.ownership_of_hash(fnv1a64(uid)) }
    }

    /// Like [`Shard::ownership`], for the [hash](fnv1a64) of a UID.
    pub fn ownership_of_hash(&self, hash: u64) -> Ownership {
        // With no buckets every hash maps to -1, which is not a valid index.
        let is = |index: i32, total: i64| {
            index >= 0 && ((index, total) == (0, 1) || jump_hash(hash, total) == i64::from(index))
        };
        let now = is(self.index, self.total);
        let Some(Transition { previous, stage }) = self.transition else {
            return if now { Ownership::Kept } else { Ownership::Foreign };
        };
        let was = previous.iter().flatten().any(|&Assignment { index, total }| is(index, total));
        match (now, was) {
            (true, false) if stage < Stage::Overlap => Ownership::Gained,
            (true, _) => Ownership::Kept,
            (false, true) if stage < Stage::Done => Ownership::Lost,
            (false, _) => Ownership::Foreign,
        }
    }

    /// Returns the index of the shard that the object with this UID belongs to.
    pub(crate) fn owner(&self, uid: &[u8]) -> i64 {
        jump_hash(fnv1a64(uid), self.total)
    }

    /// Returns true if the object with this UID is followed by the shard.
    pub fn keeps(&self, uid: &[u8]) -> bool {
        self.ownership(uid) != Ownership::Foreign
    }
}

reason! {
    /// A pod name that does not end in a shard number.
    pub struct OrdinalError;
}

/// Returns the ordinal of a pod of a StatefulSet: the number after the StatefulSet's name and a dash.
///
/// # Errors
///
/// Returns an error if that is not a decimal 32-bit integer.
pub fn ordinal(pod: &str, stateful_set: &str) -> Result<i32, OrdinalError> {
    let rest = pod.strip_prefix(stateful_set).and_then(|rest| rest.strip_prefix('-'));
    let number = rest.unwrap_or(pod);
    number.parse().map_err(|_| {
        format!(
            "pod {pod:?} of StatefulSet {stateful_set:?}: {number:?} is not a shard number; \
             expected the name of the StatefulSet, a dash and a 32-bit integer"
        )
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{cases, file};

    #[test]
    fn recorded_shards() {
        let data = file("ksm/sharding.json");
        let samples = data["samples"].as_array().unwrap();
        assert!(samples.len() > 100);
        for sample in samples {
            let uid = sample["uid"].as_str().unwrap().as_bytes();
            assert_eq!(fnv1a64(uid).to_string(), sample["hash"], "{sample}");
            for (total, index) in (1..).zip(sample["shard"].as_array().unwrap()) {
                let index = i32::try_from(index.as_i64().unwrap()).unwrap();
                assert_eq!(jump_hash(fnv1a64(uid), total), i64::from(index), "{sample}");
                for other in 0..=i32::try_from(total).unwrap() {
                    assert_eq!(Shard::new(other, total).keeps(uid), other == index);
                }
            }
        }
    }

    /// A server that filters by ranges of the hash would be of no use: shards are not ranges.
    #[test]
    fn shards_are_not_hash_ranges() {
        for (total, start) in [(2, 0), (3, 1u64 << 63), (8, 0x1234_5678_9abc_def0)] {
            let shares: Vec<i64> =
                (0..100_000).map(|step| jump_hash(start.wrapping_add(step), total)).collect();
            let runs = shares.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(runs > 25_000, "{total}: {runs}");
        }
    }

    #[test]
    fn shards_that_keep_nothing() {
        for (index, total) in [(0, 0), (-1, 0), (0, -1), (1, 1), (5, 3), (-1, 3)] {
            let kept = (0..200)
                .filter(|uid: &i32| Shard::new(index, total).keeps(uid.to_string().as_bytes()));
            assert_eq!(kept.count(), 0, "{index} of {total}");
        }
    }

    #[test]
    fn recorded_ordinals() {
        for case in cases("ksm/autosharding.json", 11) {
            let text = |key: &str| case[key].as_str().unwrap();
            let ordinal = ordinal(text("pod"), text("statefulset"));
            assert_eq!(ordinal.is_err(), !case["error"].is_null(), "{case}");
            if let Ok(ordinal) = ordinal {
                assert_eq!(ordinal, case["shard"], "{case}");
            }
        }
    }

    #[test]
    fn ordinal_errors_name_the_pod() {
        let error = ordinal("ksm-x", "ksm").unwrap_err().to_string();
        assert!(error.starts_with("pod \"ksm-x\" of StatefulSet \"ksm\": \"x\" is not"), "{error}");
    }
}
