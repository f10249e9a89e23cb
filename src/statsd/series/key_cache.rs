//! The key cache of an ingest thread: maps the bytes around the value of a line to its series.
//!
//! The key of a simple line is everything except its value: name with name tags, type, rate and tag section.
//! An entry stores 80 bits of two independently keyed hashes instead of these bytes, and 6 more bits choose
//! its shard. An entry is 20 bytes; the key itself would cost more than the series. The probability that any
//! two of a million keys collide is about 10^-14. Any entry may be evicted: the next line with that key is
//! parsed and cached again.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;

use super::cell::{Handle, SlotId};
use crate::statsd::line::SimpleLine;

/// The number of shards. Each shard grows on its own, so growth never moves many entries at once.
const SHARDS: usize = 64;
/// The minimum capacity of a shard, and the minimum by which it grows.
const FIRST_CAPACITY: usize = 16;
/// The maximum number of distinct plans.
pub(crate) const MAX_PLANS: usize = 1 << 16;

/// The cached result for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachedLine {
    /// The series; `None` if a rule drops the event.
    pub(crate) handle: Option<Handle>,
    /// The index of the plan.
    pub(crate) plan: u16,
}

/// The hash of a line without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    place: u64,
    check: u64,
}

/// The generation of an entry without a series. Generations of series have 31 bits.
const NO_SERIES: u32 = u32::MAX;

/// An entry of 32-bit words, because 64-bit words would pad it to 24 bytes. All zeros mark a free place.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    place_low: u32,
    place_high: u32,
    slot: u32,
    generation: u32,
    check: u16,
    plan: u16,
}

impl Entry {
    fn new(fingerprint: Fingerprint, known: CachedLine) -> Self {
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
            plan: known.plan,
        }
    }

    fn place(&self) -> u64 {
        u64::from(self.place_low) | u64::from(self.place_high) << 32
    }

    fn is(&self, fingerprint: Fingerprint) -> bool {
        self.place() == fingerprint.place && self.check == (fingerprint.check >> 48) as u16
    }

    fn known(&self) -> CachedLine {
        CachedLine {
            handle: (self.generation != NO_SERIES).then_some(Handle {
                slot: SlotId::from_bits(self.slot),
                generation: self.generation,
            }),
            plan: self.plan,
        }
    }
}

/// An open-addressing hash table with linear probing. It grows by an eighth instead of doubling, because its
/// free space costs memory for every series.
#[derive(Debug, Default)]
struct Shard {
    entries: Vec<Entry>,
    used: usize,
}

impl Shard {
    /// Returns the first place to probe.
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

    /// Stores an entry. The table must have a free place.
    fn store(&mut self, entry: Entry) {
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

    /// Empties the shard and returns the entries to keep.
    fn drain_live(&mut self, keep: impl Fn(CachedLine) -> bool) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut self.entries);
        self.used = 0;
        entries.retain(|entry| entry.place() != 0 && keep(entry.known()));
        entries
    }

    /// Allocates room for more than `entries` and inserts them.
    fn refill(&mut self, entries: &[Entry]) {
        let capacity = entries.len() * 9 / 7 + FIRST_CAPACITY;
        self.entries = vec![Entry::default(); capacity];
        for entry in entries {
            self.store(*entry);
        }
    }
}

/// The key cache.
#[derive(Debug)]
pub(crate) struct KeyCache {
    shards: Vec<Shard>,
    place: RandomState,
    check: RandomState,
    /// The maximum number of entries per shard.
    limit: usize,
    /// The number of entries.
    len: usize,
    /// The origin of the last line that stated one, and its salt.
    last_origin: Vec<u8>,
    last_salt: u64,
}

impl KeyCache {
    /// Creates a cache for about `limit` keys. With 0 it stays empty.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            place: RandomState::default(),
            check: RandomState::default(),
            limit: limit.div_ceil(SHARDS),
            len: 0,
            last_origin: Vec::new(),
            last_salt: 0,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the origin of the last line that stated one.
    #[inline]
    pub(crate) fn last_origin(&self) -> &[u8] {
        &self.last_origin
    }

    /// Returns a number that distinguishes the keys of lines with this origin from others.
    #[inline]
    pub(crate) fn salt_of(&mut self, origin: &[u8]) -> u64 {
        if origin.is_empty() {
            return 0;
        }
        if self.last_origin != origin {
            self.last_salt = self.place.hash_one(origin);
            self.last_origin.clear();
            self.last_origin.extend_from_slice(origin);
        }
        self.last_salt
    }

    /// Hashes a line without its value. The salt stands for its origin or its sender.
    #[inline]
    pub(crate) fn fingerprint(&self, line: &SimpleLine<'_>, salt: u64) -> Fingerprint {
        let hash = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(line.key);
            // Delimits the parts: type, presence and order of sections, length of the key.
            let shape = (line.key.len() as u64) << 8
                | u64::from(line.origin_is_first) << 7
                | u64::from(line.rate.is_some()) << 5
                | u64::from(!line.origin.is_empty()) << 6
                | u64::from(line.tags.is_some()) << 4
                | line.kind as u64;
            hasher.write_u64(salt ^ shape);
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

    /// Returns the cached result for a line.
    #[inline]
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<CachedLine> {
        let shard = self.shards.get(fingerprint.check as usize % SHARDS)?;
        shard.find(fingerprint).map(Entry::known)
    }

    /// Caches a line. If the shard needs room, entries that are not `alive` are removed first. Returns the
    /// number of live entries evicted.
    pub(crate) fn insert(
        &mut self,
        fingerprint: Fingerprint,
        known: CachedLine,
        alive: impl Fn(CachedLine) -> bool,
    ) -> usize {
        let limit = self.limit;
        let Some(shard) = self.shards.get_mut(fingerprint.check as usize % SHARDS) else {
            return 0;
        };
        if limit == 0 {
            return 0;
        }
        let mut evicted = 0;
        let before = shard.used;
        let at_limit = shard.used >= limit;
        if shard.is_full() || at_limit {
            let mut living = shard.drain_live(alive);
            if at_limit && living.len() * 4 >= limit * 3 {
                // Evicts all entries: choosing among them would cost more than parsing those lines again, and
                // a little room would soon be used up.
                evicted = living.len();
                living.clear();
            }
            shard.refill(&living);
        }
        shard.store(Entry::new(fingerprint, known));
        self.len = self.len + shard.used - before;
        evicted
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        for shard in &mut self.shards {
            *shard = Shard::default();
        }
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::line::split_simple;
    use std::collections::HashSet;

    fn known(slot: u32) -> CachedLine {
        CachedLine {
            handle: Some(Handle { slot: SlotId::scalar(slot), generation: slot }),
            plan: (slot % 7) as u16,
        }
    }

    fn fingerprint(table: &KeyCache, line: &str) -> Fingerprint {
        table.fingerprint(&split_simple(line.as_bytes()).expect("simple"), 0)
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<Entry>(), 20);
    }

    #[test]
    fn the_fingerprint_excludes_only_the_value() {
        let table = KeyCache::new(100);
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
    fn inserted_keys_are_found() {
        let mut table = KeyCache::new(10_000);
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
    fn the_cache_is_bounded_and_evicts_dead_entries_first() {
        let mut table = KeyCache::new(64);
        let mut evicted = 0;
        for number in 0..10_000u32 {
            let print = fingerprint(&table, &format!("m{number}:1|c"));
            evicted += table.insert(print, known(number), |_| true);
        }
        let entries: usize = table.shards.iter().map(|shard| shard.used).sum();
        assert!(entries <= 64, "{entries}");
        assert_eq!(table.len(), entries);
        assert_eq!(evicted + entries, 10_000);

        let mut table = KeyCache::new(64);
        for number in 0..10_000u32 {
            let print = fingerprint(&table, &format!("m{number}:1|c"));
            assert_eq!(table.insert(print, known(number), |_| false), 0);
        }
    }

    #[test]
    fn a_cache_of_size_0_stays_empty() {
        let mut table = KeyCache::new(0);
        let print = fingerprint(&table, "a:1|c");
        table.insert(print, known(1), |_| true);
        assert_eq!(table.get(print), None);
    }
}
