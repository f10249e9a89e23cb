//! Finds the end of a request's head and escapes its request line.

/// Finds the empty line that ends a head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadEnd {
    /// True if anything but line ends was received; leading empty lines are ignored.
    begun: bool,
    in_line: bool,
    /// True if the first line is complete.
    has_line: bool,
}

impl HeadEnd {
    /// Returns the number of bytes up to the end of the head, if it ends here.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.begun && !self.in_line => return Some(index + 1),
                b'\n' => (self.in_line, self.has_line) = (false, self.begun),
                b'\r' => {}
                _ => (self.begun, self.in_line) = (true, true),
            }
        }
        None
    }

    /// Escapes the characters of the request line that Go's server accepts in a query and hyper
    /// rejects with an empty 400. Must be called before [`Self::find`] with the same bytes.
    pub(super) fn escape(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if self.has_line {
            return None;
        }
        let begin = bytes.iter().position(|byte| self.begun || !b"\r\n".contains(byte))?;
        let length = bytes.get(begin..)?.iter().position(|byte| *byte == b'\n');
        let line_end = length.map_or(bytes.len(), |length| begin + length);
        let (line, rest) = bytes.split_at(line_end);
        if !line.iter().any(|byte| b"<>".contains(byte)) {
            return None;
        }
        let escaped = line.iter().flat_map(|byte| match byte {
            b'<' => b"%3C",
            b'>' => b"%3E",
            byte => std::slice::from_ref(byte),
        });
        Some(escaped.chain(rest).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_at_the_first_empty_line() {
        for (bytes, end) in [
            ("GET / HTTP/1.1\r\nA: b\r\n\r\nGET", Some(24)),
            ("GET / HTTP/1.1\n\nGET", Some(16)),
            ("\r\n\r\n\nGET / HTTP/1.0\r\n\r\n", Some(23)),
            ("GET / HTTP/1.1\r\nA: b\r\n", None),
            ("\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(HeadEnd::default().find(bytes.as_bytes()), end, "{bytes:?}");
            let mut head = HeadEnd::default();
            let piecewise = bytes.bytes().position(|byte| head.find(&[byte]).is_some());
            assert_eq!(piecewise.map(|index| index + 1), end, "{bytes:?}");
        }
    }

    /// In one piece or byte by byte.
    #[test]
    fn invalid_query_characters_are_escaped() {
        for (bytes, escaped) in [
            (
                "GET /?a=<b> HTTP/1.1\r\nA: <b>\r\n\r\n",
                "GET /?a=%3Cb%3E HTTP/1.1\r\nA: <b>\r\n\r\n",
            ),
            ("\r\n\nGET /<\n\n", "\r\n\nGET /%3C\n\n"),
            ("GET / HTTP/1.1\r\nA: <\r\n\r\n", "GET / HTTP/1.1\r\nA: <\r\n\r\n"),
        ] {
            for piece in [bytes.len(), 1] {
                let mut head = HeadEnd::default();
                let mut read = Vec::new();
                for piece in bytes.as_bytes().chunks(piece) {
                    read.extend(head.escape(piece).unwrap_or_else(|| piece.to_vec()));
                    head.find(piece);
                }
                assert_eq!(String::from_utf8(read).as_deref(), Ok(escaped), "{bytes:?}");
            }
        }
    }
}
