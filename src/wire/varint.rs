//! Numbers in protobuf: seven bits to a byte, the lowest first, the top bit set on all bytes but the last.

/// The most bytes that a number has.
const MOST: usize = 10;

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRead {
    /// The bytes end before the number does.
    CutOff,
    /// It goes on for more bytes than any number has.
    TooLong,
}

/// Appends a number.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// How many bytes [`varint`] appends.
#[inline]
#[must_use]
pub const fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// The number at the front of `bytes`, and what follows it.
///
/// # Errors
/// There is no whole number.
#[inline]
pub(crate) fn read_varint(bytes: &[u8]) -> Result<(u64, &[u8]), NotRead> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().enumerate().take(MOST) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Ok((value, bytes.get(at + 1..).unwrap_or_default()));
        }
    }
    Err(if bytes.len() < MOST { NotRead::CutOff } else { NotRead::TooLong })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_told_from_what_is_too_long() {
        assert_eq!(read_varint(&[0x96, 0x01, 0x08]), Ok((150, &[0x08][..])));
        assert_eq!(read_varint(&[]), Err(NotRead::CutOff));
        assert_eq!(read_varint(&[0x80; 9]), Err(NotRead::CutOff));
        assert_eq!(read_varint(&[0x80; 10]), Err(NotRead::TooLong));
        assert_eq!(read_varint(&[&[0xff; 9][..], &[1]].concat()), Ok((u64::MAX, &[][..])));
    }
}
