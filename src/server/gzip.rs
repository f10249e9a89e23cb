//! Assembles one gzip member from text and from deflate fragments that were compressed in advance.
//!
//! RFC 1952 frames a deflate stream with a header, the CRC-32 of the text and its length. The
//! output of [`Deflater`] and the fragments in [`Piece::Deflated`] end on a byte boundary without a
//! final block, so they can be concatenated; the total CRC is combined from theirs without reading
//! the text again. A sequence of members would be simpler, but curl, reqwest and httpx stop after
//! the first. Adjacent text of several sources is compressed as one stream, so that a short body
//! has a single Huffman code and can refer back to earlier text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::exposition::Piece;
use crate::exposition::deflate::Deflater;

/// No name, no time stamp, unknown system, fastest algorithm.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// An empty final block with fixed Huffman codes.
const FINAL_BLOCK: [u8; 2] = [0x03, 0x00];

/// Yields the member in frames, which may be empty.
pub struct Member {
    pieces: Box<dyn Iterator<Item = Piece> + Send>,
    deflater: Deflater,
    crc: crc32fast::Hasher,
    /// The length of the text so far, for readers elsewhere too.
    progress: Arc<AtomicU64>,
    /// The frame to yield next.
    next: Option<Bytes>,
    is_done: bool,
}

impl Member {
    /// Creates a member from `pieces`.
    pub fn new(pieces: Box<dyn Iterator<Item = Piece> + Send>) -> Self {
        Self {
            pieces,
            deflater: Deflater::default(),
            crc: crc32fast::Hasher::new(),
            progress: Arc::default(),
            next: Some(Bytes::from_static(&HEADER)),
            is_done: false,
        }
    }

    /// Returns the length of the text produced so far, in bytes; it follows the progress.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    fn sum(&mut self, crc: u32, text_len: u64) {
        self.crc.combine(&crc32fast::Hasher::new_with_initial_len(crc, text_len));
        self.progress.fetch_add(text_len, Ordering::Relaxed);
    }
}

impl Iterator for Member {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let Some(next) = self.next.take() {
            return Some(next);
        }
        if self.is_done {
            return None;
        }
        let mut out = Vec::new();
        match self.pieces.next() {
            Some(Piece::Text(text)) if text.is_empty() => return Some(text),
            Some(Piece::Text(text)) => {
                self.sum(crc32fast::hash(&text), text.len() as u64);
                self.deflater.add(&text, &mut out);
            }
            Some(Piece::Deflated(part)) => {
                self.sum(part.crc, part.text_len);
                self.deflater.end(&mut out);
                if out.is_empty() {
                    return Some(part.bytes);
                }
                self.next = Some(part.bytes);
            }
            None => {
                self.is_done = true;
                self.deflater.end(&mut out);
                out.extend_from_slice(&FINAL_BLOCK);
                out.extend_from_slice(&self.crc.clone().finalize().to_le_bytes());
                // The format stores the length modulo 2^32.
                let length = self.progress.load(Ordering::Relaxed) as u32;
                out.extend_from_slice(&length.to_le_bytes());
            }
        }
        Some(Bytes::from(out))
    }
}

/// Compresses `text` to one member, for complete bodies.
pub fn compress(text: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(
        Vec::with_capacity(text.len() / 4),
        flate2::Compression::fast(),
    );
    // Writing to a Vec cannot fail.
    encoder.write_all(text).and_then(|()| encoder.finish()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{DeflatePart, Format, ScrapeQuery, Source};
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

    /// Text, a precompressed fragment, text again.
    #[test]
    fn several_sources_form_one_member() {
        let first = Fixed(vec![Bytes::from("a 1\n".repeat(9000)), Bytes::from("b 2\n".repeat(3))]);
        let second = Fixed(vec![Bytes::from("a 1\n".repeat(50))]);
        let query = ScrapeQuery::default();
        let part = || {
            let mut bytes = vec![0, 8, 0, !8, !0];
            bytes.extend_from_slice(b"a 1\na 1\n");
            let crc = crc32fast::hash(&bytes[5..]);
            Piece::Deflated(DeflatePart { bytes: bytes.into(), crc, text_len: 8 })
        };
        let pieces = first
            .deflated(Format::OpenMetrics, &query)
            .chain([part(), part()])
            .chain(second.deflated(Format::OpenMetrics, &query))
            .chain([part(), Piece::Text(Bytes::from_static(b"# EOF\n"))]);
        let member: Vec<u8> = Member::new(Box::new(pieces)).flatten().collect();
        let [part, two] = ["a 1\n".repeat(2), "a 1\n".repeat(4)];
        let text = ["a 1\n".repeat(9000), "b 2\n".repeat(3), two, "a 1\n".repeat(50), part];
        assert_eq!(inflate(&member), (text.concat() + "# EOF\n").into_bytes());
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
