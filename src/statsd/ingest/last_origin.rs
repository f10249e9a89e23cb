//! The origin of the last line that stated one. A client states the same origin on all lines.

use crate::statsd::line::KnownOrigin;

/// An origin, and what is computed once for it.
#[derive(Debug, Default)]
pub(super) struct LastOrigin {
    text: Vec<u8>,
    is_container: bool,
    /// A keyed hash of the origin, which distinguishes its lines from those of other origins.
    pub(super) hash: u64,
}

impl LastOrigin {
    /// Replaces the origin.
    pub(super) fn set(&mut self, origin: &[u8], hash: u64) {
        let KnownOrigin { text, is_container } = origin.into();
        self.text.clear();
        self.text.extend_from_slice(text);
        (self.is_container, self.hash) = (is_container, hash);
    }

    #[inline]
    pub(super) fn known(&self) -> KnownOrigin<'_> {
        KnownOrigin { text: &self.text, is_container: self.is_container }
    }

    /// Returns true if a split line has this origin by reference.
    #[inline]
    pub(super) fn is_of(&self, origin: &[u8]) -> bool {
        std::ptr::eq(origin, &*self.text)
    }
}
