//! An LZ77 match finder for text that the previous objects do not predict.
//!
//! Most of a line is predicted by the page layout. The rest, such as optional labels or values shared with other
//! objects, is found by a hash table of recent positions, as in a general-purpose compressor.

use crate::util::short_search::common_prefix;

/// Size of the deflate window in bytes.
pub(super) const WINDOW: u64 = 32 * 1024;
/// Minimum length of a match; shorter ones cost as much as literals.
const SHORTEST: usize = 5;
/// Maximum distance of a match of minimum length, beyond which its distance costs too many bits.
const NEAR: usize = 1024;
/// Number of hashed bytes at the start of a label: its name and the beginning of its value.
const LABEL: usize = 14;
/// Minimum length of a match that ends the search.
const LONG: usize = 24;
/// Number of positions per hash.
const WAYS: usize = 4;
const HASH_BITS: u32 = 12;

/// A match with earlier text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Match {
    /// Position in the text.
    pub(super) at: u64,
    /// Length of the match in bytes.
    pub(super) len: usize,
}

/// The recent text of the current family, with a hash table of its positions.
#[derive(Debug)]
pub(super) struct MatchFinder {
    text: Vec<u8>,
    /// Position of the first byte of `text`.
    base: u64,
    /// The last positions for each hash, truncated to 32 bits. Stale positions are harmless, because bytes are
    /// compared.
    places: Vec<[u32; WAYS]>,
}

impl MatchFinder {
    pub(super) fn new() -> Self {
        Self { text: Vec::new(), base: 0, places: vec![[0; WAYS]; 1 << HASH_BITS] }
    }

    /// Returns the position of the next byte.
    pub(super) fn end(&self) -> u64 {
        self.base + self.text.len() as u64
    }

    /// Removes all text and continues at position `at`.
    pub(super) fn restart(&mut self, at: u64) {
        self.text.clear();
        self.base = at;
    }

    /// Appends text to search in.
    pub(super) fn push(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
    }

    /// Removes text that is out of reach for all further positions.
    pub(super) fn trim(&mut self) {
        let window = WINDOW as usize;
        if self.text.len() > 4 * window {
            let gone = self.text.len() - window;
            self.text.drain(..gone);
            self.base += gone as u64;
        }
    }

    /// Returns the longest match at `at`.
    #[inline]
    pub(super) fn find(&self, at: u64) -> Option<Match> {
        let (here, bytes) = self.bytes::<8>(at)?;
        let found = self.longest(here, hash(u64::from_le_bytes(*bytes) << 24))?;
        let near = here - (found.at - self.base) as usize <= NEAR;
        (found.len > SHORTEST || found.len == SHORTEST && near).then_some(found)
    }

    /// Returns the longest match of the label that starts at `at`.
    #[inline]
    pub(super) fn find_label(&self, at: u64) -> Option<Match> {
        let (here, bytes) = self.bytes::<LABEL>(at)?;
        self.longest(here, hash_label(bytes)).filter(|found| found.len > SHORTEST)
    }

    /// Adds position `at` to the hash table.
    #[inline]
    pub(super) fn insert(&mut self, at: u64) {
        if let Some((_, bytes)) = self.bytes::<8>(at) {
            let hash = hash(u64::from_le_bytes(*bytes) << 24);
            self.add(hash, at);
        }
    }

    /// Adds the label at position `at`.
    #[inline]
    pub(super) fn insert_label(&mut self, at: u64) {
        if let Some((_, bytes)) = self.bytes::<LABEL>(at) {
            let hash = hash_label(bytes);
            self.add(hash, at);
        }
    }

    #[inline]
    fn add(&mut self, hash: usize, at: u64) {
        let places = &mut self.places[hash];
        places.copy_within(..WAYS - 1, 1);
        places[0] = at as u32;
    }

    /// Returns the bytes at `at` and their index in `text`.
    #[inline]
    fn bytes<const N: usize>(&self, at: u64) -> Option<(usize, &[u8; N])> {
        let here = usize::try_from(at.checked_sub(self.base)?).ok()?;
        Some((here, self.text.get(here..)?.first_chunk()?))
    }

    #[inline]
    fn longest(&self, here: usize, hash: usize) -> Option<Match> {
        let at = (self.base + here as u64) as u32;
        let mut best: Option<(usize, usize)> = None;
        for &place in &self.places[hash] {
            let distance = at.wrapping_sub(place) as usize;
            if distance == 0 || distance > here || distance as u64 > WINDOW {
                continue;
            }
            let len = common_prefix(&self.text[here..], &self.text[here - distance..]);
            if best.is_none_or(|(longest, _)| len > longest) {
                best = Some((len, distance));
                if len >= LONG {
                    break;
                }
            }
        }
        let (len, distance) = best?;
        Some(Match { at: self.base + (here - distance) as u64, len })
    }
}

#[inline]
fn hash(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH_BITS)) as usize
}

#[inline]
fn hash_label(bytes: &[u8; LABEL]) -> usize {
    let half = |at: usize| word(&bytes[at..]);
    hash(half(0).rotate_left(29).wrapping_mul(0xff51_afd7_ed55_8ccd) ^ half(LABEL - 8))
}

#[inline]
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every match is equal text within the window, before the queried position.
    #[test]
    fn what_is_found_is_the_same_text() {
        let mut search = MatchFinder::new();
        let mut random = 1u32;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let (mut whole, start) = (Vec::new(), u64::from(u32::MAX) - 100_000);
        search.restart(start);
        let mut found_any = 0;
        for _ in 0..4_000 {
            search.trim();
            let line = format!(",label_{}=\"value-{}\"", next(30), next(9_000));
            let at = search.end();
            search.push(line.as_bytes());
            whole.extend_from_slice(line.as_bytes());
            for at in at..search.end() {
                for found in [search.find(at), search.find_label(at)].into_iter().flatten() {
                    assert!(found.at < at && at - found.at <= WINDOW);
                    let text = |at: u64| &whole[(at - start) as usize..][..found.len];
                    assert!(text(found.at) == text(at));
                    found_any += 1;
                }
                search.insert(at);
                search.insert_label(at);
            }
        }
        assert!(found_any > 10_000 && search.text.len() < 5 * WINDOW as usize);
    }
}
