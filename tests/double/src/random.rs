//! Reproducible pseudo-random numbers: the same seed yields the same cluster on every platform and with every version
//! of every crate.

/// Mixes 64 bits (the output function of SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom
/// Number Generators").
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A sequence of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `end`, 0 if `end` is 0.
    pub fn below(&mut self, end: u32) -> u32 {
        // Multiplying maps the upper half onto the range; its bias is below 2⁻³² × end.
        (((self.next() >> 32) * u64::from(end)) >> 32) as u32
    }

    /// Returns a number in `start..=end`.
    pub fn between(&mut self, start: u32, end: u32) -> u32 {
        start + self.below(end - start + 1)
    }

    /// Returns one of `values`, which must not be empty.
    pub fn pick<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.below(values.len() as u32) as usize]
    }
}

/// Returns `len` characters of the alphabet of Kubernetes' name suffixes.
pub fn suffix(mut bits: u64, len: usize) -> String {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut text = String::with_capacity(len);
    for _ in 0..len {
        text.push(char::from(ALPHABET[(bits % 27) as usize]));
        bits /= 27;
    }
    text
}

/// Formats `bits` as `len` (up to 64) hexadecimal digits.
pub fn hex(bits: u64, len: usize) -> String {
    let mut text = String::with_capacity(64);
    for part in 0..4 {
        push_hex(&mut text, mix(bits.wrapping_add(part)), 16);
    }
    text.truncate(len);
    text
}

/// Formats `bits` as a version 4 UUID.
pub fn uuid(bits: u64) -> String {
    let (high, low) = (mix(bits), mix(!bits));
    let mut text = String::with_capacity(36);
    push_hex(&mut text, high >> 32, 8);
    text.push('-');
    push_hex(&mut text, high >> 16, 4);
    text.push('-');
    push_hex(&mut text, 0x4000 | high & 0x0fff, 4);
    text.push('-');
    push_hex(&mut text, 0x8000 | low >> 48 & 0x3fff, 4);
    text.push('-');
    push_hex(&mut text, low, 12);
    text
}

fn push_hex(text: &mut String, bits: u64, digits: u32) {
    for at in (0..digits).rev() {
        text.push(char::from(b"0123456789abcdef"[(bits >> (4 * at) & 15) as usize]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_their_shape() {
        let id = uuid(7);
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&id.as_bytes()[19]));
        assert_eq!(suffix(mix(1), 5).len(), 5);
        assert_eq!(hex(1, 64).len(), 64);
    }

    #[test]
    fn ranges_are_kept_and_reached() {
        let mut random = Random::new(3);
        let seen: std::collections::BTreeSet<u32> =
            (0..1000).map(|_| random.between(5, 9)).collect();
        assert_eq!(seen, (5..=9).collect());
    }
}
