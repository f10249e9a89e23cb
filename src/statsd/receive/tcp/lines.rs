//! Bytes of a stream on their way to being lines.

/// Longest line with its line feed.
pub(super) const MAX_LINE: usize = 4_096;

/// A line does not fit.
pub(super) struct TooLong;

/// Bytes of a stream, those that may take effect in front.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// How many of them have been lines already.
    done: usize,
    /// How many behind those may take effect.
    released: usize,
}

impl LineBuffer {
    /// Appends what may not take effect yet.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What may take effect and has no line feed yet.
    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.done..self.done + self.released).unwrap_or_default()
    }

    /// Releases so many bytes and takes the complete lines out.
    ///
    /// # Errors
    /// When a line has no room for its line feed within [`MAX_LINE`].
    pub(super) fn take(
        &mut self,
        bytes: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        // No line feed was in what had been released before.
        let fresh = self.released;
        self.released = (self.released + bytes).min(self.bytes.len() - self.done);
        let mut start = 0;
        let ends = memchr::memchr_iter(b'\n', self.rest().get(fresh..).unwrap_or_default());
        for end in ends.map(|end| end + fresh) {
            let line = self.rest().get(start..end).unwrap_or_default();
            if line.len() >= MAX_LINE {
                return Err(TooLong);
            }
            each(line);
            start = end + 1;
        }
        self.released -= start;
        self.done += start;
        // What is left moves to the front when that is no more than what goes.
        if start > 0 && self.done >= self.bytes.len() - self.done {
            self.bytes.drain(..std::mem::take(&mut self.done));
            // A quiet connection keeps no more than its unfinished line.
            self.bytes.shrink_to_fit();
        }
        if self.released >= MAX_LINE { Err(TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream` in pieces of `size` and returns the lines and whether one was too long.
    fn lines(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, Vec<u8>, bool) {
        let mut buffer = LineBuffer::default();
        let mut out = Vec::new();
        for piece in stream.chunks(size) {
            buffer.extend(piece);
            if buffer.take(piece.len(), |line| out.push(line.to_vec())).is_err() {
                return (out, Vec::new(), true);
            }
        }
        (out, buffer.rest().to_vec(), false)
    }

    #[test]
    fn lines_do_not_depend_on_how_they_arrive() {
        let longest = vec![b'n'; MAX_LINE - 1];
        let stream = [b"a\n\nb\r\n", &longest[..], b"\nrest"].concat();
        for size in [1, 2, 7, 4_095, 4_096, 4_097, 100_000] {
            let (out, rest, too_long) = lines(&stream, size);
            assert_eq!(out, [&b"a"[..], b"", b"b\r", &longest], "pieces of {size}");
            assert_eq!(rest, b"rest");
            assert!(!too_long);
        }
    }

    #[test]
    fn lines_do_not_depend_on_how_they_are_released() {
        let stream: Vec<u8> = (0..500).flat_map(|n| format!("line{n}\n").into_bytes()).collect();
        for size in [1, 3, 64, 1_000] {
            let mut buffer = LineBuffer::default();
            buffer.extend(&stream);
            let mut out = Vec::new();
            for piece in stream.chunks(size) {
                let taken = buffer.take(piece.len(), |line| out.extend([line, b"\n"].concat()));
                assert!(taken.is_ok());
            }
            assert_eq!(out, stream, "pieces of {size}");
            assert_eq!(buffer.bytes.capacity(), 0, "nothing is kept of what is done");
        }
    }

    #[test]
    fn a_line_of_4096_bytes_is_too_long() {
        for tail in [&b"\n"[..], b"", b"\nmore\n"] {
            let stream = [b"before\n", &vec![b'n'; MAX_LINE][..], tail].concat();
            for size in [1, 4_096, 100_000] {
                let (out, _, too_long) = lines(&stream, size);
                assert_eq!(out, [b"before"]);
                assert!(too_long);
            }
        }
    }
}
