//! Compression of text for a gzip body with a general compressor, as raw deflate.

use flate2::{Compress, Compression, FlushCompress};

/// The level of zlib-rs: its output is within a few percent of the size at Go's default level. The next higher levels
/// take up to ten times as long on similar series.
const LEVEL: u32 = 5;
/// The step by which the output buffer grows, in bytes.
const OUTPUT_STEP: usize = 16 * 1024;

/// A compressor of successive streams. Each ends on a byte boundary without a final block, and no stream refers to data
/// before its start.
#[derive(Debug, Default)]
pub struct Deflater(Option<Compress>);

impl Deflater {
    /// Compresses more text. The output is buffered and mostly appended by a later call.
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
        out.reserve(OUTPUT_STEP);
        let (taken, written) = (state.total_in(), out.len());
        // Fails only after a final block, which is never requested.
        let _ = state.compress_vec(text, out, flush);
        text = &text[(state.total_in() - taken) as usize..];
        // If room is left, zlib has returned everything that was requested.
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
    fn round_trips() {
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

    /// A stream does not refer to the data of another stream in between.
    #[test]
    fn streams_are_independent() {
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
