//! The window over a response body: the chunk at hand, and what is left over from the ones before.

use bytes::Bytes;

use crate::resources::Column;

/// Takes the chunks of a body of one kind in one encoding.
pub trait Body: Default {
    /// Adds the next chunk of the body.
    fn feed(&mut self, chunk: Bytes);

    /// The same, which also takes tables, where the encoding has them, and makes objects of their rows with what this
    /// column shows.
    #[must_use]
    fn or_table(self, _column: Column) -> Self {
        self
    }
}

/// A carry larger than this is given back once it has been read.
const KEEP: usize = 256 * 1024;

/// The unread bytes of a body, of which any prefix can be had as one slice.
///
/// What lies within one chunk is read where it lies. What crosses into the next chunk is copied to the
/// carry, once, so that at most one unit of framing and one chunk are in memory.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    carry: Vec<u8>,
    /// Bytes of `carry` that have been taken.
    taken: usize,
    chunk: Bytes,
    /// Bytes of `chunk` that have been taken or moved to `carry`.
    at: usize,
    /// Bytes of the body taken so far: the place in error messages.
    offset: u64,
}

impl Buffer {
    /// Adds the next chunk of the body.
    pub(super) fn feed(&mut self, chunk: Bytes) {
        self.reclaim();
        if self.at < self.chunk.len() {
            if self.taken > 0 {
                self.carry.drain(..self.taken);
                self.taken = 0;
            }
            self.carry.extend_from_slice(&self.chunk[self.at..]);
        }
        self.chunk = chunk;
        self.at = 0;
    }

    /// Bytes of the body that were taken so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Unread bytes.
    pub(super) fn len(&self) -> usize {
        self.carried() + self.chunk.len() - self.at
    }

    /// Makes the first `want` unread bytes, or all if there are fewer, one slice, and returns the slice
    /// that they begin.
    pub(super) fn peek(&mut self, want: usize) -> &[u8] {
        self.reclaim();
        if self.carry.is_empty() {
            return &self.chunk[self.at..];
        }
        let missing = want.saturating_sub(self.carried());
        let more = missing.min(self.chunk.len() - self.at);
        if more > 0 {
            if self.taken > 0 {
                self.carry.drain(..self.taken);
                self.taken = 0;
            }
            self.carry.reserve(missing);
            self.carry.extend_from_slice(&self.chunk[self.at..self.at + more]);
            self.at += more;
        }
        &self.carry[self.taken..]
    }

    /// The unread bytes after the first `skip`, as far as they lie in one slice; moves nothing.
    pub(super) fn beyond(&self, skip: usize) -> &[u8] {
        match skip.checked_sub(self.carried()) {
            None => &self.carry[self.taken + skip..],
            Some(skip) => self.chunk.get(self.at + skip..).unwrap_or_default(),
        }
    }

    /// Takes the first `count` bytes of what [`Buffer::peek`] returns.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let available = self.peek(count).len();
        let count = count.min(available);
        self.offset += count as u64;
        if self.carry.is_empty() {
            self.at += count;
            &self.chunk[self.at - count..self.at]
        } else {
            self.taken += count;
            &self.carry[self.taken - count..self.taken]
        }
    }

    /// Drops up to `count` unread bytes; tells how many.
    pub(super) fn discard(&mut self, count: u64) -> u64 {
        let count = count.min(self.len() as u64);
        let from_carry = count.min(self.carried() as u64);
        self.taken += from_carry as usize;
        self.at += (count - from_carry) as usize;
        self.offset += count;
        count
    }

    fn carried(&self) -> usize {
        self.carry.len() - self.taken
    }

    /// Empties a carry that has been read to its end.
    fn reclaim(&mut self) {
        if self.taken == self.carry.len() && self.taken > 0 {
            self.taken = 0;
            self.carry.clear();
            if self.carry.capacity() > KEEP {
                self.carry = Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_within_and_across_chunks() {
        let mut buffer = Buffer::default();
        buffer.feed(Bytes::from_static(b"abcdef"));
        assert_eq!(buffer.take(2), b"ab");
        assert_eq!(buffer.beyond(1), b"def");
        buffer.feed(Bytes::from_static(b"ghi"));
        assert_eq!(buffer.len(), 7);
        assert_eq!(buffer.beyond(1), b"def");
        assert_eq!(buffer.beyond(5), b"hi");
        assert_eq!(buffer.beyond(7), b"");
        assert_eq!(buffer.peek(1), b"cdef");
        assert_eq!(buffer.take(5), b"cdefg");
        buffer.feed(Bytes::from_static(b"j"));
        assert_eq!(buffer.take(9), b"hij");
        assert_eq!(buffer.offset(), 10);
        assert_eq!(buffer.len(), 0);
    }

    #[test]
    fn discards_across_carry_and_chunk() {
        let mut buffer = Buffer::default();
        buffer.feed(Bytes::from_static(b"abc"));
        buffer.feed(Bytes::from_static(b"def"));
        assert_eq!(buffer.discard(4), 4);
        assert_eq!(buffer.take(1), b"e");
        assert_eq!(buffer.discard(9), 1);
        assert_eq!(buffer.offset(), 6);
    }
}
