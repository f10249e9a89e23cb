//! Which objects this process keeps when several share a cluster.
//!
//! The API server sends every object to every shard; an object is kept by the shard that its UID hashes
//! to. Pure functions of UIDs, numbers and names; who asks the API server for the number of replicas is
//! not known here.

use thiserror::Error;

/// 64-bit FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo; <http://www.isthe.com/chongo/tech/comp/fnv/>).
#[must_use]
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.iter().fold(OFFSET_BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The bucket of `key` among `buckets`, by J. Lamping and E. Veach, "A Fast, Minimal Memory, Consistent
/// Hash Algorithm" (2014). -1 when there are no buckets.
#[must_use]
pub fn jump_hash(mut key: u64, buckets: i64) -> i64 {
    let (mut bucket, mut next) = (-1i64, 0i64);
    while next < buckets {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let stride = f64::from(1u32 << 31) / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * stride) as i64;
    }
    bucket
}

/// One of several processes that share the objects of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Zero-based number of this one. One that is not below `total` keeps nothing.
    pub index: i32,
    /// How many there are. None keeps anything when this is not positive.
    pub total: i64,
    /// What was kept before, while it is kept too, and how far the change is.
    before: Option<(Shares, Stage)>,
}

/// Numbers and totals, the newest first: more than one where a change was overtaken by the next while both of its shares
/// were shown.
type Shares = [Option<(i32, i64)>; MOST_BEFORE];

/// So many shares of before are known; an older one is forgotten.
const MOST_BEFORE: usize = 3;

/// How far a change from one share to another is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// What is gained is followed, but not shown.
    Prepared,
    /// What is gained and what is lost is shown.
    Both,
    /// What is lost is not shown any more.
    Done,
}

/// What an object is to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It is kept.
    Kept,
    /// It will be shown, and is not yet.
    Gained,
    /// It is shown, and will not be for long.
    Lost,
    /// It is another's.
    Foreign,
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Shard {
    /// No shard: keeps nothing.
    pub const NOBODY: Self = Self::new(-1, 0);

    /// The only shard: keeps everything.
    pub const WHOLE: Self = Self::new(0, 1);

    /// One of `total`.
    #[must_use]
    pub const fn new(index: i32, total: i64) -> Self {
        Self { index, total, before: None }
    }

    /// This shard in place of another: both are followed, and what the other one keeps is shown.
    #[must_use]
    pub const fn instead_of(self, before: Self) -> Self {
        Self {
            before: Some(([Some((before.index, before.total)), None, None], Stage::Prepared)),
            ..self
        }
    }

    /// Another one in place of all that this one shows.
    #[must_use]
    pub fn redirected(self, to: Self) -> Self {
        match self.before {
            Some((shares, Stage::Prepared)) => {
                Self { before: Some((shares, Stage::Prepared)), ..to }
            }
            Some((mut shares, Stage::Both)) => {
                shares.rotate_right(1);
                shares[0] = Some((self.index, self.total));
                Self { before: Some((shares, Stage::Prepared)), ..to }
            }
            Some((_, Stage::Done)) | None => to.instead_of(self),
        }
    }

    /// The same, so far.
    #[must_use]
    pub fn at(self, stage: Stage) -> Self {
        let before = self.before.map(|(shares, _)| (shares, stage));
        Self { before, ..self }
    }

    /// How far it is in the place of another; `None` if it never was.
    #[must_use]
    pub fn stage(&self) -> Option<Stage> {
        self.before.map(|(_, stage)| stage)
    }

    /// Whether both follow the same objects, whatever they show of them.
    #[must_use]
    pub fn follows_same(&self, other: &Self) -> bool {
        self.at(Stage::Prepared) == other.at(Stage::Prepared)
    }

    /// Whether what is gained is shown.
    #[must_use]
    pub fn shows_gained(&self) -> bool {
        self.stage().is_none_or(|stage| stage >= Stage::Both)
    }

    /// Whether what is lost is shown.
    #[must_use]
    pub fn shows_lost(&self) -> bool {
        self.stage().is_none_or(|stage| stage <= Stage::Both)
    }

    /// What the object of this UID is to this shard.
    #[inline]
    #[must_use]
    pub fn part(&self, uid: &[u8]) -> Part {
        if *self == Self::WHOLE {
            return Part::Kept;
        }
        let hash = fnv1a64(uid);
        // Without buckets every hash is -1, which is nobody's number.
        let is = |index: i32, total: i64| {
            index >= 0 && ((index, total) == (0, 1) || jump_hash(hash, total) == i64::from(index))
        };
        let now = is(self.index, self.total);
        let Some((shares, stage)) = self.before else {
            return if now { Part::Kept } else { Part::Foreign };
        };
        let was = shares.iter().flatten().any(|&(index, total)| is(index, total));
        match (now, was) {
            (true, false) if stage < Stage::Both => Part::Gained,
            (true, _) => Part::Kept,
            (false, true) if stage < Stage::Done => Part::Lost,
            (false, _) => Part::Foreign,
        }
    }

    /// Whether the object of this UID is one of this shard.
    #[must_use]
    pub fn keeps(&self, uid: &[u8]) -> bool {
        self.part(uid) != Part::Foreign
    }
}

/// A pod name from which no shard number can be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "pod {pod:?} of StatefulSet {stateful_set:?}: {number:?} is not a shard number; \
     expected the name of the StatefulSet, a dash and a 32-bit integer"
)]
pub struct OrdinalError {
    pod: String,
    stateful_set: String,
    number: String,
}

/// The number of a pod of a StatefulSet: what follows the StatefulSet's name and a dash in the pod's name.
///
/// # Errors
///
/// That is not a decimal 32-bit integer.
pub fn ordinal(pod: &str, stateful_set: &str) -> Result<i32, OrdinalError> {
    let rest = pod.strip_prefix(stateful_set).and_then(|rest| rest.strip_prefix('-'));
    let number = rest.unwrap_or(pod);
    number.parse().map_err(|_| OrdinalError {
        pod: pod.to_owned(),
        stateful_set: stateful_set.to_owned(),
        number: number.to_owned(),
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

    /// Why a server that filters by ranges of the hash is of no use: the shares are all over.
    #[test]
    fn shares_are_no_ranges_of_hashes() {
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
