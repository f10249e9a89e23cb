//! Splits a stream into lines.

/// The maximum length of a line including its line feed.
pub(super) const MAX_LINE: usize = 4_096;

/// The error for a line that is too long.
pub(super) struct TooLong;

/// Splits a stream into lines and stores the unfinished one.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    rest: Vec<u8>,
}

impl LineBuffer {
    /// Takes the unfinished line.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Calls `each` with every line that `bytes` completes.
    ///
    /// # Errors
    /// Fails if a line and its line feed exceed [`MAX_LINE`]. The lines before it have been processed.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if self.rest.len() + end >= MAX_LINE {
                return Err(TooLong);
            }
            let line = bytes.get(..end).unwrap_or_default();
            if self.rest.is_empty() {
                each(line);
            } else {
                let mut whole = self.take_rest();
                whole.extend_from_slice(line);
                each(&whole);
            }
            bytes = bytes.get(end + 1..).unwrap_or_default();
        }
        if self.rest.len() + bytes.len() >= MAX_LINE {
            return Err(TooLong);
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream` in pieces of `size`. Returns the lines, the rest, and true if a line was too long.
    fn lines(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, Vec<u8>, bool) {
        let mut buffer = LineBuffer::default();
        let mut out = Vec::new();
        for piece in stream.chunks(size) {
            if buffer.feed(piece, |line| out.push(line.to_vec())).is_err() {
                return (out, Vec::new(), true);
            }
        }
        (out, buffer.take_rest(), false)
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
