//! Writes tar archives in the format ustar.

use std::io::{self, Write};

/// The size of a block in bytes.
const BLOCK: usize = 512;

/// Appends a file that only its owner may read, modified at `time` in Unix seconds.
///
/// # Errors
/// The output cannot be written, or the name is longer than 99 bytes.
pub(super) fn append(
    out: &mut impl Write,
    name: &str,
    content: &[u8],
    time: u64,
) -> io::Result<()> {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        let field = header.get_mut(at..at + text.len());
        field.map(|field| field.copy_from_slice(text.as_bytes()))
    };
    if name.len() > 99 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the name of a file is too long"));
    }
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{:011o}", content.len()));
    put(136, &format!("{time:011o}"));
    // The checksum counts its own field as blanks.
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\u{0} ").as_bytes());
    out.write_all(&header)?;
    out.write_all(content)?;
    out.write_all(&[0; BLOCK][..content.len().next_multiple_of(BLOCK) - content.len()])
}

/// Ends an archive.
///
/// # Errors
/// The output cannot be written.
pub(super) fn finish(out: &mut impl Write) -> io::Result<()> {
    out.write_all(&[0; 2 * BLOCK])
}
