//! Compressing text for a gzip body by a general compressor, as raw deflate.

use flate2::{Compress, Compression, FlushCompress};

/// The level of zlib-rs: within a few hundredths of the size that Go's default level leaves, above and
/// below. The next higher ones take up to ten times the time on series that are much alike.
const LEVEL: u32 = 5;
/// Room for output is made in steps of so many bytes.
const ROOM: usize = 16 * 1024;

/// One stream after the other: each ends on a byte boundary without a final block, and none copies from
/// before its beginning.
#[derive(Debug, Default)]
pub struct Deflater(Option<Compress>);

impl Deflater {
    /// Compresses more text. Output comes when there is enough of it, so mostly later.
    pub fn add(&mut self, text: &[u8], out: &mut Vec<u8>) {
        let new = || Compress::new(Compression::new(LEVEL), false);
        compress(self.0.get_or_insert_with(new), text, FlushCompress::None, out);
    }

    /// Ends the stream, if one has begun.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        if let Some(mut state) = self.0.take() {
            compress(&mut state, b"", FlushCompress::Sync, out);
        }
    }
}

/// Compresses all of `text`.
fn compress(state: &mut Compress, mut text: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
    loop {
        out.reserve(ROOM);
        let (taken, written) = (state.total_in(), out.len());
        // Fails only after a final block, which is never asked for.
        let _ = state.compress_vec(text, out, flush);
        text = &text[(state.total_in() - taken) as usize..];
        // With room left, nothing is held back that was asked for.
        if text.is_empty() && out.len() < out.capacity() || out.len() == written {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn inflate(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend_from_slice(&[3, 0]);
        let mut text = Vec::new();
        flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut text).expect("deflate");
        text
    }

    /// Text that compresses well, badly and not at all, short and long, in pieces of any size.
    #[test]
    fn everything_comes_back() {
        let mut random = 1u32;
        let mut text = Vec::new();
        while text.len() < 3 << 20 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match random >> 30 {
                0 => text.extend_from_slice(&random.to_le_bytes()),
                1 => text.resize(text.len() + (random >> 20) as usize % 2_000, b' '),
                _ => text
                    .extend_from_slice(format!("series{{n=\"{}\"}} 1\n", random >> 16).as_bytes()),
            }
        }
        for (len, step) in [(0, 1), (1, 1), (5_000, 7), (300_000, 40_000), (text.len(), 50_001)] {
            let (mut out, mut deflater) = (Vec::new(), Deflater::default());
            for piece in text[..len].chunks(step) {
                deflater.add(piece, &mut out);
            }
            deflater.end(&mut out);
            assert!(inflate(out) == text[..len], "{len} bytes by {step}");
        }
    }

    /// What was given to another stream in between is not copied from.
    #[test]
    fn streams_stand_for_themselves() {
        let (mut out, mut deflater) = (Vec::new(), Deflater::default());
        let text = b"up{job=\"a\"} 1\n".repeat(50);
        deflater.add(&text, &mut out);
        deflater.end(&mut out);
        let first = out.len();
        deflater.add(&text, &mut out);
        deflater.end(&mut out);
        assert!(inflate(out[first..].to_vec()) == text);
    }
}
