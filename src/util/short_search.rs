//! Searches and compares mostly short texts, where the call of `memchr` or `memcmp` takes longer than the work.

/// Returns the index of the first `byte` in a mostly short text, eight bytes at a time ("haszero", Bit Twiddling Hacks
/// by S. E. Anderson). It is inlined, unlike `memchr`.
#[inline]
pub(crate) fn first(byte: u8, text: &[u8]) -> Option<usize> {
    const LOW: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = LOW << 7;
    let mut at = 0;
    while let Some(eight) = text[at..].first_chunk() {
        let zero = u64::from_le_bytes(*eight) ^ (LOW * u64::from(byte));
        // The lowest bit is exact, higher ones may be false positives.
        let found = zero.wrapping_sub(LOW) & !zero & HIGH;
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    text[at..].iter().position(|&other| other == byte).map(|behind| at + behind)
}

/// Returns the index of occurrence number `passed` (from 0) of `byte`.
#[inline]
pub(crate) fn nth(byte: u8, text: &[u8], passed: usize) -> Option<usize> {
    let mut at = first(byte, text)?;
    for _ in 0..passed {
        at += 1 + first(byte, &text[at + 1..])?;
    }
    Some(at)
}

/// Returns the length of the common prefix of two texts, in bytes.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let difference = |a: &[u8; 8], b: &[u8; 8]| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    let mut at = 0;
    for (a, b) in a.as_chunks().0.iter().zip(b.as_chunks().0) {
        let difference = difference(a, b);
        if difference != 0 {
            return at + (difference.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    if let (Some(a), Some(b)) = (a.last_chunk(), b.last_chunk()) {
        // Overlaps with bytes that are equal.
        return len - 8 + (difference(a, b).trailing_zeros() / 8) as usize;
    }
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_where_they_are_first_and_nth() {
        let mut random = 1u32;
        for len in 0..70 {
            for _ in 0..50 {
                // Includes bytes next to the wanted one, and its value with the high bit set.
                let text: Vec<u8> = std::iter::repeat_with(|| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    b"!\"#\xa2\xa3\x00\xff"[(random >> 24) as usize % 7]
                })
                .take(len)
                .collect();
                let places: Vec<_> = memchr::memchr_iter(b'"', &text).collect();
                assert_eq!(first(b'"', &text), places.first().copied());
                for passed in 0..=places.len() {
                    assert_eq!(nth(b'"', &text, passed), places.get(passed).copied());
                }
            }
        }
    }

    #[test]
    fn the_common_prefix_ends_at_the_first_difference() {
        let text: Vec<u8> = (0..40).collect();
        for len in 0..=text.len() {
            let a = &text[..len];
            for other in 0..=text.len() {
                assert_eq!(common_prefix(a, &text[..other]), len.min(other));
            }
            for at in 0..len {
                let mut b = a.to_vec();
                b[at] ^= 0x80;
                assert_eq!(common_prefix(a, &b), at);
                b[len - 1] ^= 1;
                assert_eq!(common_prefix(&b, a), at);
            }
        }
    }
}
