//! The key cache of an ingest thread: maps the bytes around the value of a line to its series.
//!
//! The key of a simple line is everything except its value: name with name tags, type, rate and tag section.
//! An entry stores 80 bits of two independently keyed hashes instead of these bytes, and 6 more bits choose
//! its shard. An entry is 20 bytes; the key itself would cost more than the series. The probability that any
//! two of a million keys collide is about 10^-14. Any entry may be evicted: the next line with that key is
//! parsed and cached again.

use std::hash::BuildHasher;

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

/// The constant of multiplicative hashing: 2^64 divided by the golden ratio, made odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Fingerprint {
    /// Returns the shard, which depends on neither the place nor the bits that are compared.
    fn shard(self) -> usize {
        (self.check >> 32) as usize % SHARDS
    }
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

/// Two hashes of one text with independent keys, by folded multiplication as in foldhash.
#[derive(Clone, Copy, Debug)]
struct PairHasher {
    states: [u64; 2],
    keys: [u64; 2],
}

#[inline(always)]
fn folded_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl PairHasher {
    #[inline(always)]
    fn mix(&mut self, low: u64, high: u64) {
        for (state, key) in self.states.iter_mut().zip(self.keys) {
            *state = folded_product(*state ^ low, key ^ high);
        }
    }

    #[inline(always)]
    fn mix_block(&mut self, block: &[u8; 16]) {
        let block = u128::from_le_bytes(*block);
        self.mix(block as u64, (block >> 64) as u64);
    }

    /// Adds a text, whose length must be added separately.
    #[inline(always)]
    fn write(&mut self, text: &[u8]) {
        if let Some(last) = text.last_chunk() {
            let (blocks, rest) = text.as_chunks::<16>();
            blocks.iter().for_each(|block| self.mix_block(block));
            if !rest.is_empty() {
                self.mix_block(last);
            }
        } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            self.mix(u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        } else if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            self.mix(u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
        } else if let [first, .., last] | [first @ last] = text {
            let middle = text[text.len() / 2];
            self.mix((*first).into(), u16::from_le_bytes([middle, *last]).into());
        }
    }
}

/// The key cache.
#[derive(Debug)]
pub(crate) struct KeyCache {
    shards: Vec<Shard>,
    hasher: PairHasher,
    /// The maximum number of entries per shard.
    limit: usize,
    /// The number of entries.
    len: usize,
}

impl KeyCache {
    /// Creates a cache for about `limit` keys. With 0 it stays empty.
    pub(crate) fn new(limit: usize) -> Self {
        let random = RandomState::default();
        let hasher = PairHasher {
            states: [0, 1].map(|number| random.hash_one(number)),
            keys: [2, 3].map(|number| random.hash_one(number)),
        };
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher,
            limit: limit.div_ceil(SHARDS),
            len: 0,
        }
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Hashes a line without its value. The salt stands for its origin or its sender.
    #[inline]
    pub(crate) fn fingerprint(&self, line: &SimpleLine<'_>, salt: u64) -> Fingerprint {
        let length = |section: Option<&[u8]>| section.map_or(0, |section| section.len() as u64 + 1);
        // Delimits the parts: type, presence and order of sections, lengths.
        let shape = line.kind as u64
            | u64::from(!line.origin.is_empty()) << 3
            | u64::from(line.origin_is_first) << 4;
        let lengths =
            (line.key.len() as u64) << 5 | length(line.rate) << 24 | length(line.tags) << 44;
        let mut hasher = self.hasher;
        hasher.mix(shape ^ lengths, salt);
        hasher.write(line.key);
        if let Some(rate) = line.rate {
            hasher.write(rate);
        }
        if let Some(tags) = line.tags {
            hasher.write(tags);
        }
        // With some keys the bits of similar texts are not evenly distributed, and some of them decide about shard and place.
        let [place, check] = hasher.states.map(|hash| (hash ^ hash >> 32).wrapping_mul(SPREAD));
        // 0 marks a free place.
        Fingerprint { place: place.max(1), check }
    }

    /// Returns the cached result for a line.
    #[inline]
    pub(crate) fn get(&self, fingerprint: Fingerprint) -> Option<CachedLine> {
        let shard = self.shards.get(fingerprint.shard())?;
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
        let Some(shard) = self.shards.get_mut(fingerprint.shard()) else {
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
    fn each_byte_changes_both_hashes() {
        let table = KeyCache::new(100);
        let mut seen = [HashSet::new(), HashSet::new()];
        let mut add = |key: &[u8], tags: &[u8]| {
            let line = [key, b":1|c|#", tags].concat();
            let Fingerprint { place, check } =
                table.fingerprint(&split_simple(&line).expect("simple"), 0);
            assert!(seen[0].insert(place) && seen[1].insert(check), "{line:?}");
        };
        for len in 0..70 {
            for at in 0..=len {
                // The last one has no other byte.
                let mut text = vec![b'a'; len];
                text.iter_mut().skip(at).take(1).for_each(|byte| *byte = b'b');
                add(&[b"n", text.as_slice()].concat(), b"");
                add(b"other", &text);
            }
        }
    }

    #[test]
    fn similar_keys_are_spread_evenly() {
        let table = KeyCache::new(100);
        let (mut shards, mut places) = ([0; SHARDS], [0; SHARDS]);
        for number in 0..SHARDS * 1_000 {
            let print = fingerprint(&table, &format!("api.requests.route{number}:1|c"));
            shards[print.shard()] += 1;
            places[(print.place >> 58) as usize] += 1;
        }
        // The standard deviation is 31.
        let counts = shards.iter().chain(&places);
        assert!(counts.clone().all(|count| (800..1_200).contains(count)), "{shards:?} {places:?}");
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
