//! The table of known lines of one ingest thread: from the bytes around the value straight to the series.
//!
//! A line of the dominant shape is hashed without its value: name with name tags, type, rate, tag section. An entry
//! holds 80 bits of two independently keyed hashes instead of the bytes (20 bytes an entry, where the bytes would cost
//! more than the series itself), and 6 more choose its shard; that any two of a million keys agree by chance has odds of
//! about 1 in 10^14. The table is a cache: any entry may go, the next such line takes the long way and returns it.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;

use super::cell::{Handle, SlotId};
use crate::statsd::line::SimpleLine;

/// Parts of the table. Each grows by itself, so that no growth moves many entries at once.
const SHARDS: usize = 64;
/// Places of the first entries of a shard, and what every growth adds at least.
const FIRST_CAPACITY: usize = 16;
/// Different treatments an entry can name.
pub(crate) const MAX_TREATMENTS: usize = 1 << 16;

/// Where a known line leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The series, `None` where a rule drops the event.
    pub(crate) handle: Option<Handle>,
    /// Number of the treatment of the value.
    pub(crate) treatment: u16,
}

/// Hash of a line without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    place: u64,
    check: u64,
}

/// The generation of an entry without series. Those of series have 31 bits.
const NO_SERIES: u32 = u32::MAX;

/// Words of 32 bits, as 64-bit ones would pad the entry to 24 bytes. All zero is a free place.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    place_low: u32,
    place_high: u32,
    slot: u32,
    generation: u32,
    check: u16,
    treatment: u16,
}

impl Entry {
    fn new(fingerprint: Fingerprint, known: Known) -> Self {
        let (slot, generation) = match known.handle {
            Some(handle) => (handle.slot.bits(), handle.generation),
            None => (0, NO_SERIES),
        };
        Self {
            place_low: fingerprint.place as u32,
            place_high: (fingerprint.place >> 32) as u32,
            slot,
            generation,
            check: (fingerprint.check >> 48) as u16,
            treatment: known.treatment,
        }
    }

    fn place(&self) -> u64 {
        u64::from(self.place_low) | u64::from(self.place_high) << 32
    }

    fn is(&self, fingerprint: Fingerprint) -> bool {
        self.place() == fingerprint.place && self.check == (fingerprint.check >> 48) as u16
    }

    fn known(&self) -> Known {
        Known {
            handle: (self.generation != NO_SERIES).then_some(Handle {
                slot: SlotId::from_bits(self.slot),
                generation: self.generation,
            }),
            treatment: self.treatment,
        }
    }
}

/// Open addressing with linear probing. It grows by an eighth, not by doubling, as its slack is paid for every series.
#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Entry>,
    used: usize,
}

impl Shard {
    /// The first place to look at.
    #[inline]
    fn first(&self, place: u64) -> usize {
        ((u128::from(place) * self.entries.len() as u128) >> 64) as usize
    }

    #[inline]
    fn find(&self, fingerprint: Fingerprint) -> Option<&Entry> {
        let (before, from) = self.entries.split_at_checked(self.first(fingerprint.place))?;
        from.iter()
            .chain(before)
            .find(|entry| entry.place() == fingerprint.place || entry.place() == 0)
            .filter(|entry| entry.is(fingerprint))
    }

    /// Puts an entry in its place; there is one.
    fn put(&mut self, entry: Entry) {
        let first = self.first(entry.place());
        let Some((before, from)) = self.entries.split_at_mut_checked(first) else {
            return;
        };
        let there = from
            .iter_mut()
            .chain(before)
            .find(|there| there.place() == entry.place() || there.place() == 0);
        if let Some(there) = there {
            self.used += usize::from(there.place() == 0);
            *there = entry;
        }
    }

    fn is_full(&self) -> bool {
        (self.used + 1) * 8 > self.entries.len() * 7
    }

    /// Takes out the entries to keep.
    fn take(&mut self, keep: impl Fn(Known) -> bool) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut self.entries);
        self.used = 0;
        entries.retain(|entry| entry.place() != 0 && keep(entry.known()));
        entries
    }

    /// Makes room for more than `entries` and puts them in.
    fn refill(&mut self, entries: &[Entry]) {
        let capacity = entries.len() * 9 / 7 + FIRST_CAPACITY;
        self.entries = vec![Entry::default(); capacity];
        for entry in entries {
            self.put(*entry);
        }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct KeyTable {
    shards: Vec<Shard>,
    place: RandomState,
    check: RandomState,
    /// Entries allowed in a shard.
    limit: usize,
}

impl KeyTable {
    /// A table for up to about `limit` keys; 0 remembers nothing.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
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
        Fingerprint {
            // 0 marks a free place.
            place: hash(&self.place).max(1),
            check: hash(&self.check),
        }
    }

    /// Where a line leads, if it is known.
    #[inline]
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<Known> {
        let shard = self.shards.get(fingerprint.check as usize % SHARDS)?;
        shard.find(fingerprint).map(Entry::known)
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
        let mut evicted = 0;
        let at_limit = shard.used >= limit;
        if shard.is_full() || at_limit {
            let mut living = shard.take(alive);
            if at_limit && living.len() * 4 >= limit * 3 {
                // All at once: choosing among entries would cost more than learning them again, and making a little
                // room would have to be done again soon.
                evicted = living.len();
                living.clear();
            }
            shard.refill(&living);
        }
        shard.put(Entry::new(fingerprint, known));
        evicted
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        for shard in &mut self.shards {
            *shard = Shard::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::line::split_simple;
    use std::collections::HashSet;

    fn known(slot: u32) -> Known {
        Known {
            handle: Some(Handle { slot: SlotId::scalar(slot), generation: slot }),
            treatment: (slot % 7) as u16,
        }
    }

    fn fingerprint(table: &KeyTable, line: &str) -> Fingerprint {
        table.fingerprint(&split_simple(line.as_bytes()).expect("simple"))
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 20);
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
        let entries: usize = table.shards.iter().map(|shard| shard.used).sum();
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
