//! Returns the memory of tables that have lost most of their entries. The standard tables keep their largest capacity.

use std::collections::{self, VecDeque};
use std::hash::{BuildHasher, Hash};

/// The capacity up to which a table is left alone: it costs little, and is soon needed again.
pub(crate) const SMALL: usize = 16;

/// A table that can return memory.
pub(crate) trait Shrink {
    /// Halves the capacity or more if less than a quarter is used. Called after each removal, it costs as little as growth
    /// does, because a quarter of the entries must leave or as many enter before the table is moved again.
    fn shrink(&mut self);

    /// Makes room in a full table after a purge, so that the next one is at least as many insertions away as entries are left: a purge
    /// that finds little to remove is not repeated at once.
    fn make_room(&mut self);
}

macro_rules! shrink {
    ($($table:ty, [$($generics:tt)*];)*) => {$(
        impl<$($generics)*> Shrink for $table {
            fn shrink(&mut self) {
                if self.capacity() > SMALL && self.len() < self.capacity() / 4 {
                    self.shrink_to(self.len() * 2);
                }
            }

            fn make_room(&mut self) {
                let left = self.len();
                if left > self.capacity() / 2 {
                    self.reserve(left);
                }
            }
        }
    )*};
}

shrink! {
    collections::HashMap<K, V, S>, [K: Eq + Hash, V, S: BuildHasher];
    collections::HashSet<K, S>, [K: Eq + Hash, S: BuildHasher];
    hashbrown::HashMap<K, V, S>, [K: Eq + Hash, V, S: BuildHasher];
    hashbrown::HashSet<K, S>, [K: Eq + Hash, S: BuildHasher];
    VecDeque<T>, [T];
    Vec<T>, [T];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_follows_the_entries_without_frequent_moves() {
        let mut map: collections::HashMap<u32, u32> = (0..10_000).map(|key| (key, key)).collect();
        let (mut capacity, mut moves) = (map.capacity(), 0);
        for key in 0..10_000 {
            map.remove(&key);
            map.shrink();
            // The place of a removed entry may be lost until the next move, one at a time.
            moves += u32::from(map.capacity() + 1 < capacity);
            capacity = map.capacity();
            assert!(capacity <= SMALL || map.len() >= capacity / 4, "{capacity} for {}", map.len());
        }
        assert!((1..=12).contains(&moves), "{moves}");
    }
}
