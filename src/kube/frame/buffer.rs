//! The window over a response body: the current chunk and the unread rest of earlier ones.

use bytes::Bytes;

use super::message::WireError;

/// The largest capacity of the carry to keep once it has been read.
const MAX_KEPT_CAPACITY: usize = 256 * 1024;

/// The unread bytes of a body. Any prefix is available as one slice.
///
/// Bytes within one chunk are read in place. Bytes that continue in the next chunk are copied to the carry once, so at
/// most one unit of framing and one chunk are in memory.
#[derive(Debug, Default)]
pub struct Buffer {
    carry: Vec<u8>,
    /// The number of bytes of `carry` that have been taken.
    taken: usize,
    chunk: Bytes,
    /// The number of bytes of `chunk` that have been taken or moved to `carry`.
    at: usize,
    /// The number of bytes taken so far, for error messages.
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

    /// Returns the number of bytes of the body taken so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the error of a body that ends within a `what`.
    pub(super) fn truncated(&self, what: &'static str) -> WireError {
        WireError::Truncated { what, offset: self.offset + self.len() as u64 }
    }

    /// Returns the number of unread bytes.
    pub(super) fn len(&self) -> usize {
        self.carried() + self.chunk.len() - self.at
    }

    /// Returns unread bytes as one slice, at least `want` of them if that many have arrived.
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

    /// Returns the unread bytes after the first `skip` that are contiguous in memory, without moving any.
    pub(super) fn unread_after(&self, skip: usize) -> &[u8] {
        match skip.checked_sub(self.carried()) {
            None => &self.carry[self.taken + skip..],
            Some(skip) => self.chunk.get(self.at + skip..).unwrap_or_default(),
        }
    }

    /// Takes the first `count` unread bytes, or all if there are fewer.
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

    /// Drops up to `count` unread bytes and returns how many.
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

    /// Clears the carry once all of it has been read.
    fn reclaim(&mut self) {
        if self.taken == self.carry.len() && self.taken > 0 {
            self.taken = 0;
            self.carry.clear();
            if self.carry.capacity() > MAX_KEPT_CAPACITY {
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
        assert_eq!(buffer.unread_after(1), b"def");
        buffer.feed(Bytes::from_static(b"ghi"));
        assert_eq!(buffer.len(), 7);
        assert_eq!(buffer.unread_after(1), b"def");
        assert_eq!(buffer.unread_after(5), b"hi");
        assert_eq!(buffer.unread_after(7), b"");
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
