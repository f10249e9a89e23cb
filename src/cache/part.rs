//! The objects of a virtual shard.
//!
//! An object belongs to the virtual shard whose index is the jump hash of its uid's FNV-1a hash, as in a process with
//! `--shard` and `--total-shards`. The jump hashes of the objects of such a process are correlated: of the second of two
//! processes, no object would be in the first of four virtual shards. There, the hash is mixed first, which divides any
//! share evenly.

use super::objects::Key;
use crate::exposition::VirtualShard;
use crate::util::jump_hash::jump_hash;

/// A virtual shard of the objects of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    shard: VirtualShard,
    /// True if the process has only a share of the objects itself.
    of_share: bool,
}

/// Mixes all bits of a hash: the finalizer of MurmurHash3 (A. Appleby, public domain).
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

impl Part {
    /// Returns a virtual shard. `of_share` states whether the process is itself one of several shards.
    pub(super) fn new(shard: VirtualShard, of_share: bool) -> Self {
        Self { shard, of_share }
    }

    /// Returns the number of virtual shards that divide the objects, and whether these are a share.
    pub(super) fn partitioning(&self) -> (u32, bool) {
        (self.shard.total, self.of_share)
    }

    /// Returns true if the object with this key belongs to the part.
    pub(super) fn has(&self, key: Key) -> bool {
        // The lower half of a key is the hash for sharding.
        let hash = if self.of_share { mixed(key as u64) } else { key as u64 };
        jump_hash(hash, i64::from(self.shard.total)) == i64::from(self.shard.index)
    }

    /// Returns a bit mask of the objects of a page that belong to the part.
    pub(super) fn slots_of(&self, keys: &[Key]) -> u64 {
        let has = |(slot, key): (usize, &Key)| u64::from(self.has(*key)) << slot;
        keys.iter().enumerate().map(has).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::fnv1a64;

    fn part(index: u32, total: u32, of_share: bool) -> Part {
        Part::new(VirtualShard { index, total }, of_share)
    }

    fn keys() -> Vec<Key> {
        (0..12_000).map(|number| Key::from(fnv1a64(format!("uid-{number}").as_bytes()))).collect()
    }

    /// Every object belongs to exactly one virtual shard, and these are of about the same size, in a real shard of any
    /// size as well.
    #[test]
    fn shares_are_divided_evenly() {
        for real in [1, 2, 3, 4, 6] {
            for index in 0..real {
                let keys = keys().into_iter();
                let share: Vec<Key> =
                    keys.filter(|&key| jump_hash(key as u64, real) == index).collect();
                for total in [1, 2, 3, 4, 8] {
                    let mut sizes = vec![0; total as usize];
                    for &key in &share {
                        let has = |index: &u32| part(*index, total, real > 1).has(key);
                        let owners: Vec<u32> = (0..total).filter(has).collect();
                        assert_eq!(owners.len(), 1);
                        sizes[owners[0] as usize] += 1;
                    }
                    let even = share.len() / total as usize;
                    let is_even = |size: &usize| size.abs_diff(even) * 4 < even;
                    assert!(sizes.iter().all(is_even), "{index} of {real}: {sizes:?}");
                }
            }
        }
    }
}
