//! Test helper: decompresses a body.

use std::io::Read;

use crate::exposition::{DeflatePart, Piece};

/// Returns the text of a body, and checks the checksum and length of each run of parts.
pub(crate) fn inflated(pieces: impl Iterator<Item = Piece>) -> Vec<u8> {
    let (mut text, mut run) = (Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(bytes) => {
                inflate(&std::mem::take(&mut run), &mut text);
                text.extend_from_slice(&bytes);
            }
            Piece::Deflated(part) => run.push(part),
        }
    }
    inflate(&run, &mut text);
    text
}

fn inflate(parts: &[DeflatePart], text: &mut Vec<u8>) {
    let mut stream: Vec<u8> = parts.iter().flat_map(|part| part.bytes.clone()).collect();
    stream.extend_from_slice(&[3, 0]);
    let mut own = Vec::new();
    flate2::read::DeflateDecoder::new(&stream[..]).read_to_end(&mut own).expect("deflate");
    let mut sum = crc32fast::Hasher::new();
    for part in parts {
        sum.combine(&crc32fast::Hasher::new_with_initial_len(part.crc, part.text_len));
    }
    assert_eq!(sum.finalize(), crc32fast::hash(&own));
    assert_eq!(parts.iter().map(|part| part.text_len).sum::<u64>(), own.len() as u64);
    text.extend_from_slice(&own);
}
