//! Protobuf varints: seven bits per byte, lowest first, with the top bit set on all bytes but the last.

/// The maximum length of a varint, in bytes.
const MAX_LENGTH: usize = 10;

/// The reason why a varint could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarintError {
    /// The input ends inside the varint.
    Truncated,
    /// The varint is longer than ten bytes.
    TooLong,
}

/// Appends a varint.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the number of bytes that [`varint`] appends.
#[inline]
pub const fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Splits a varint off the front of `bytes`; returns it and the rest.
///
/// # Errors
/// The input does not begin with a complete varint.
#[inline]
pub(crate) fn read_varint(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate().take(MAX_LENGTH) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok((value, bytes.get(at + 1..).unwrap_or_default()));
        }
    }
    Err(if bytes.len() < MAX_LENGTH { VarintError::Truncated } else { VarintError::TooLong })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_truncated_from_too_long() {
        assert_eq!(read_varint(&[0x96, 0x01, 0x08]), Ok((150, &[0x08][..])));
        assert_eq!(read_varint(&[]), Err(VarintError::Truncated));
        assert_eq!(read_varint(&[0x80; 9]), Err(VarintError::Truncated));
        assert_eq!(read_varint(&[0x80; 10]), Err(VarintError::TooLong));
        assert_eq!(read_varint(&[&[0xff; 9][..], &[1]].concat()), Ok((u64::MAX, &[][..])));
    }
}
