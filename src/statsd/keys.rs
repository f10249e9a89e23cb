//! The table of known lines of one ingest thread: from the bytes around the value straight to the series.
//!
//! A line of the dominant shape is hashed without its value: name with name tags, type, rate, tag section. An entry
//! holds 96 bits of two independently keyed hashes instead of the bytes (24 bytes an entry where bytes would cost more
//! than the series itself); that two of a million keys agree by chance has odds of about 1 in 10^17. The table is a
//! cache: any entry may go, the next such line takes the long way and returns it.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::cell::Handle;
use super::line::SimpleLine;

/// Parts of the table. Each grows by itself, so that no growth moves many entries at once.
const SHARDS: usize = 64;

/// Where a known line leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The series, `None` where a rule drops the event.
    pub(crate) handle: Option<Handle>,
    /// Number of the treatment of the value.
    pub(crate) treatment: u32,
}

/// Hash of a line without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    place: u64,
    check: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Entry {
    place_low: u32,
    place_high: u32,
    check_high: u32,
    treatment: u32,
    slot: Option<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    slot: super::cell::SlotId,
    /// Generation plus one; generations have 31 bits.
    generation: std::num::NonZeroU32,
}

impl Entry {
    fn place(&self) -> u64 {
        u64::from(self.place_low) | u64::from(self.place_high) << 32
    }

    fn is(&self, fingerprint: Fingerprint) -> bool {
        self.place() == fingerprint.place && self.check_high == (fingerprint.check >> 32) as u32
    }

    fn known(&self) -> Known {
        Known {
            handle: self
                .slot
                .map(|slot| Handle { slot: slot.slot, generation: slot.generation.get() - 1 }),
            treatment: self.treatment,
        }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct KeyTable {
    shards: Vec<HashTable<Entry>>,
    place: RandomState,
    check: RandomState,
    /// Entries allowed in a shard.
    limit: usize,
}

impl KeyTable {
    /// A table for up to about `limit` keys; 0 remembers nothing.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            place: RandomState::default(),
            check: RandomState::default(),
            limit: limit.div_ceil(SHARDS),
        }
    }

    /// Hashes a line without its value.
    #[inline]
    pub(crate) fn fingerprint(&self, line: &SimpleLine<'_>) -> Fingerprint {
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(line.key);
            // What delimits the parts: kind, presence of rate and tags, and the length of the key.
            let shape = (line.key.len() as u64) << 8
                | u64::from(line.rate.is_some()) << 5
                | u64::from(line.tags.is_some()) << 4
                | line.kind as u64;
            hasher.write_u64(shape);
            if let Some(rate) = line.rate {
                hasher.write(rate);
                hasher.write_u32(rate.len() as u32);
            }
            if let Some(tags) = line.tags {
                hasher.write(tags);
            }
            hasher.finish()
        };
        Fingerprint { place: hash(&self.place), check: hash(&self.check) }
    }

    /// Where a line leads, if it is known.
    #[inline]
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<Known> {
        let shard = self.shards.get(fingerprint.check as usize % SHARDS)?;
        shard.find(fingerprint.place, |entry| entry.is(fingerprint)).map(Entry::known)
    }

    /// Remembers a line. Entries that are not `alive` go when room is needed; returns how many others had to.
    pub(crate) fn insert(
        &mut self,
        fingerprint: Fingerprint,
        known: Known,
        alive: impl Fn(Known) -> bool,
    ) -> usize {
        let limit = self.limit;
        let Some(shard) = self.shards.get_mut(fingerprint.check as usize % SHARDS) else {
            return 0;
        };
        if limit == 0 {
            return 0;
        }
        let entry = Entry {
            place_low: fingerprint.place as u32,
            place_high: (fingerprint.place >> 32) as u32,
            check_high: (fingerprint.check >> 32) as u32,
            treatment: known.treatment,
            slot: known.handle.and_then(|handle| {
                Some(Slot {
                    slot: handle.slot,
                    generation: std::num::NonZeroU32::new(handle.generation + 1)?,
                })
            }),
        };
        if let Some(old) = shard.find_mut(fingerprint.place, |entry| entry.is(fingerprint)) {
            *old = entry;
            return 0;
        }
        let mut evicted = 0;
        if shard.len() == shard.capacity() || shard.len() >= limit {
            shard.retain(|entry| alive(entry.known()));
            if shard.len() >= limit {
                // All at once: choosing among entries would cost more than learning them again.
                evicted = shard.len();
                shard.clear();
            }
        }
        shard.insert_unique(fingerprint.place, entry, Entry::place);
        evicted
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        for shard in &mut self.shards {
            *shard = HashTable::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::cell::SlotId;
    use crate::statsd::line::split_simple;
    use std::collections::HashSet;

    fn known(slot: u32) -> Known {
        Known {
            handle: Some(Handle { slot: SlotId::scalar(slot), generation: slot }),
            treatment: slot % 7,
        }
    }

    fn fingerprint(table: &KeyTable, line: &str) -> Fingerprint {
        table.fingerprint(&split_simple(line.as_bytes()).expect("simple"))
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn only_the_value_does_not_count() {
        let table = KeyTable::new(100);
        let lines = [
            "a:1|c",
            "a:1|g",
            "a:1|ms",
            "a:1|h",
            "a:1|d",
            "b:1|c",
            "a:1|c|@0.1",
            "a:1|c|@0.2",
            "a:1|c|#",
            "a:1|c|#a:b",
            "a:1|c|@0.1|#a:b",
            "a:1|c|@0.1|#",
            "aa:1|c|#b",
            "a:1|c|#ab",
            "a#k=v:1|c",
        ];
        let different: HashSet<_> = lines
            .iter()
            .map(|line| fingerprint(&table, line))
            .map(|fingerprint| (fingerprint.place, fingerprint.check))
            .collect();
        assert_eq!(different.len(), lines.len());
        assert_eq!(
            fingerprint(&table, "a:1|c|@0.1|#x:y"),
            fingerprint(&table, "a:-77.5|c|@0.1|#x:y")
        );
    }

    #[test]
    fn what_was_inserted_is_found() {
        let mut table = KeyTable::new(10_000);
        for number in 0..5_000 {
            let print = fingerprint(&table, &format!("m{number}:1|c"));
            assert_eq!(table.insert(print, known(number), |_| true), 0);
        }
        for number in 0..5_000 {
            let print = fingerprint(&table, &format!("m{number}:1|c"));
            assert_eq!(table.get(print), Some(known(number)));
        }
        let print = fingerprint(&table, "m7:1|c");
        table.insert(print, known(9_999), |_| true);
        assert_eq!(table.get(print), Some(known(9_999)));
        table.clear();
        assert_eq!(table.get(print), None);
    }

    #[test]
    fn the_table_is_bounded_and_drops_the_dead_first() {
        let mut table = KeyTable::new(64);
        let mut evicted = 0;
        for number in 0..10_000u32 {
            let print = fingerprint(&table, &format!("m{number}:1|c"));
            evicted += table.insert(print, known(number), |_| true);
        }
        let entries: usize = table.shards.iter().map(HashTable::len).sum();
        assert!(entries <= 64, "{entries}");
        assert_eq!(evicted + entries, 10_000);

        let mut table = KeyTable::new(64);
        for number in 0..10_000u32 {
            let print = fingerprint(&table, &format!("m{number}:1|c"));
            assert_eq!(table.insert(print, known(number), |_| false), 0);
        }
    }

    #[test]
    fn a_table_of_size_0_remembers_nothing() {
        let mut table = KeyTable::new(0);
        let print = fingerprint(&table, "a:1|c");
        table.insert(print, known(1), |_| true);
        assert_eq!(table.get(print), None);
    }
}
