//! One gzip member out of deflate pieces that were compressed apart.
//!
//! RFC 1952 frames a deflate stream with a header, the CRC-32 of the text and its length. The pieces of
//! [`DeflatePart`] end on a byte boundary without a final block, so they can follow each other; the CRC
//! of the whole is combined from theirs without looking at the text again. Several members in a row would
//! be simpler, but curl, reqwest and httpx stop after the first.

use bytes::Bytes;

use crate::exposition::DeflatePart;

/// No name, no time stamp, unknown system, fastest algorithm.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// An empty final block with fixed Huffman codes.
const FINAL_BLOCK: [u8; 2] = [0x03, 0x00];

/// Yields the member piece by piece.
pub struct Member {
    parts: Box<dyn Iterator<Item = DeflatePart> + Send>,
    crc: crc32fast::Hasher,
    text_len: u64,
    state: State,
}

enum State {
    Header,
    Parts,
    Done,
}

impl Member {
    /// Frames `parts`.
    pub fn new(parts: Box<dyn Iterator<Item = DeflatePart> + Send>) -> Self {
        Self { parts, crc: crc32fast::Hasher::new(), text_len: 0, state: State::Header }
    }
}

impl Iterator for Member {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        match self.state {
            State::Header => {
                self.state = State::Parts;
                Some(Bytes::from_static(&HEADER))
            }
            State::Parts => match self.parts.next() {
                Some(part) => {
                    let piece = crc32fast::Hasher::new_with_initial_len(part.crc, part.text_len);
                    self.crc.combine(&piece);
                    self.text_len = self.text_len.wrapping_add(part.text_len);
                    Some(part.bytes)
                }
                None => {
                    self.state = State::Done;
                    let mut end = Vec::with_capacity(10);
                    end.extend_from_slice(&FINAL_BLOCK);
                    end.extend_from_slice(&self.crc.clone().finalize().to_le_bytes());
                    // The format keeps the length modulo 2^32.
                    end.extend_from_slice(&(self.text_len as u32).to_le_bytes());
                    Some(Bytes::from(end))
                }
            },
            State::Done => None,
        }
    }
}

/// `text` as a stored block: for the few bytes that the server itself adds to a body.
///
/// A stored block holds at most 65535 bytes; what the server adds is far below.
pub fn stored(text: &'static [u8]) -> DeflatePart {
    let len = text.len() as u16;
    let mut bytes = Vec::with_capacity(text.len() + 5);
    bytes.push(0);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&(!len).to_le_bytes());
    bytes.extend_from_slice(text);
    DeflatePart {
        bytes: Bytes::from(bytes),
        crc: crc32fast::hash(text),
        text_len: text.len() as u64,
    }
}

/// `text` compressed as one member, for bodies that exist as a whole.
pub fn compress(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(
        Vec::with_capacity(text.len() / 4),
        flate2::Compression::fast(),
    );
    // A Vec takes every write.
    encoder.write_all(text).and_then(|()| encoder.finish()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Format, ScrapeQuery, Source};
    use std::io::Read;

    struct Fixed(Vec<Bytes>);

    impl Source for Fixed {
        fn frames(&self, _: Format, _: &ScrapeQuery) -> Box<dyn Iterator<Item = Bytes> + Send> {
            Box::new(self.0.clone().into_iter())
        }
    }

    fn inflate(member: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        // GzDecoder stops after the first member and checks CRC and length.
        flate2::read::GzDecoder::new(member).read_to_end(&mut text).expect("valid gzip");
        text
    }

    #[test]
    fn parts_of_two_sources_and_a_stored_end_are_one_member() {
        let first = Fixed(vec![Bytes::from("a 1\n".repeat(9000)), Bytes::from("b 2\n".repeat(3))]);
        let second = Fixed(vec![Bytes::from("a 1\n".repeat(50))]);
        let query = ScrapeQuery::default();
        let parts = first
            .deflated(Format::OpenMetrics, &query)
            .chain(second.deflated(Format::OpenMetrics, &query))
            .chain(std::iter::once(stored(b"# EOF\n")));
        let member: Vec<u8> = Member::new(Box::new(parts)).flatten().collect();
        let text = inflate(&member);
        assert_eq!(
            text,
            ["a 1\n".repeat(9000), "b 2\n".repeat(3), "a 1\n".repeat(50), "# EOF\n".into()]
                .concat()
                .into_bytes()
        );
    }

    #[test]
    fn an_empty_body_is_a_valid_member() {
        let member: Vec<u8> = Member::new(Box::new(std::iter::empty())).flatten().collect();
        assert!(inflate(&member).is_empty());
    }

    #[test]
    fn whole_bodies() {
        assert_eq!(inflate(&compress(b"up 1\n")), b"up 1\n");
    }
}
