//! Per-page results that gzip scrapes reuse.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use super::crc32::Checksum;
use super::encoded_segment::EncodedSegment;
use super::huffman::HuffmanCode;
use super::identity_diff::IdentityDiffs;
use super::segment::Segment;

/// The memoized results of one page: checksums, identity diffs and encoded segments. Each is computed by the first
/// scrape that needs it and dropped when an object changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageMemo {
    /// Checksum of each family's text: CRC and length.
    sums: Vec<OnceLock<(u32, u32)>>,
    /// Diffs of the identities in one code.
    diffs: Memoized<IdentityDiffs>,
    /// Encoded segments of the most expensive families.
    encoded: Memoized<Vec<(usize, Arc<EncodedSegment>)>>,
}

impl PageMemo {
    /// Creates an empty memo for `families` families.
    pub(crate) fn new(families: usize) -> Self {
        Self { sums: vec![OnceLock::new(); families], ..Self::default() }
    }

    /// Drops all results, after a change of identities.
    pub(crate) fn clear(&mut self) {
        (self.diffs, self.encoded) = Default::default();
        self.sums.fill(OnceLock::new());
    }

    /// Drops the results of one family.
    pub(crate) fn forget(&mut self, family: usize) {
        self.sums[family] = OnceLock::new();
        self.encoded.forget(family);
    }

    /// Returns the checksum of a family's text, computing it if necessary.
    pub(super) fn checksum(&self, family: usize, compute: impl FnOnce() -> Checksum) -> Checksum {
        let Some(memoized) = self.sums.get(family) else { return compute() };
        if let Some(&(crc, len)) = memoized.get() {
            return Checksum { crc, len: u64::from(len) };
        }
        let sum = compute();
        // Checksums of texts of 4 GiB or more are not memoized.
        if let Ok(len) = u32::try_from(sum.len) {
            let _ = memoized.set((sum.crc, len));
        }
        sum
    }

    /// Returns the diffs of the identities in `code`, computing them if necessary.
    pub(super) fn diffs(
        &self,
        code: &HuffmanCode,
        identities: Option<&Segment>,
    ) -> Arc<IdentityDiffs> {
        match self.diffs.0.load_full() {
            Some(diffs) if diffs.are_of(code) => diffs,
            _ => {
                let identities = identities.into_iter().flat_map(Segment::iter);
                let diffs = Arc::new(IdentityDiffs::new(Some(code), identities));
                self.diffs.0.store(Some(Arc::clone(&diffs)));
                diffs
            }
        }
    }

    /// Returns the encoded segment of a family in `code`, computing it if necessary.
    pub(super) fn encoded(
        &self,
        family: usize,
        code: &HuffmanCode,
        encode: impl FnOnce() -> EncodedSegment,
    ) -> Arc<EncodedSegment> {
        let segments = self.encoded.0.load();
        let segments = segments.iter().flat_map(|segments| segments.iter());
        let known = segments.clone().find(|(other, known)| *other == family && known.is_in(code));
        if let Some((_, known)) = known {
            return Arc::clone(known);
        }
        let new = Arc::new(encode());
        self.encoded.0.rcu(|segments| {
            let others = segments.iter().flat_map(|segments| segments.iter());
            let others = others.filter(|(other, _)| *other != family).cloned();
            Some(Arc::new(others.chain([(family, Arc::clone(&new))]).collect()))
        });
        new
    }

    /// Returns the size of the encoded segments, in bytes.
    #[cfg(test)]
    pub(crate) fn encoded_bytes(&self) -> usize {
        let segments = self.encoded.0.load();
        segments.iter().flat_map(|segments| segments.iter()).map(|(_, encoded)| encoded.len()).sum()
    }
}

/// A lazily computed value; empty at first.
#[derive(Debug)]
struct Memoized<T>(ArcSwapOption<T>);

impl<T> Default for Memoized<T> {
    fn default() -> Self {
        Self(ArcSwapOption::empty())
    }
}

impl<T> Clone for Memoized<T> {
    fn clone(&self) -> Self {
        Self(ArcSwapOption::new(self.0.load_full()))
    }
}

impl Memoized<Vec<(usize, Arc<EncodedSegment>)>> {
    fn forget(&mut self, family: usize) {
        let old = self.0.load_full();
        if let Some(old) = old.filter(|old| old.iter().any(|(other, _)| *other == family)) {
            let mut others = Vec::clone(&old);
            others.retain(|(other, _)| *other != family);
            self.0.store((!others.is_empty()).then(|| Arc::new(others)));
        }
    }
}
