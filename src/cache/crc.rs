//! CRC-32 of joined texts from the CRCs of the parts.
//!
//! The CRC of A followed by B is that of A times x^(8·len B), plus that of B, in the polynomials over
//! GF(2) modulo the CRC's own (Mark Adler's method, as zlib's `crc32_combine` has it since 1.2.12). A
//! segment's CRC is therefore computed once for each change of it, not for each scrape.

/// The CRC polynomial, bit-reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// x^(2^n) modulo the polynomial, for n from 0 to 31.
const POWERS: [u32; 32] = {
    let mut powers = [0; 32];
    // x itself, bit-reversed.
    powers[0] = 1 << 30;
    let mut n = 1;
    while n < 32 {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// a·b modulo the polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
        bit >>= 1;
    }
    product
}

/// A text's CRC-32 and length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checksum {
    pub(super) crc: u32,
    pub(super) len: u64,
}

impl Checksum {
    /// Of `text`.
    pub(super) fn of(text: &[u8]) -> Self {
        Self { crc: crc32fast::hash(text), len: text.len() as u64 }
    }

    /// Adds what comes behind.
    pub(super) fn append(&mut self, next: Self) {
        let mut factor = 1 << 31;
        let mut len = next.len;
        // The factor is x^(8·len): 8 shifts the powers by three.
        let mut power = 3;
        while len != 0 {
            if len & 1 != 0 {
                factor = multiply(POWERS[power & 31], factor);
            }
            len >>= 1;
            power += 1;
        }
        self.crc = multiply(factor, self.crc) ^ next.crc;
        self.len += next.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn of_parts_is_of_the_whole(a: Vec<u8>, b: Vec<u8>, c in proptest::collection::vec(0u8.., 0..5000)) {
            let mut sum = Checksum::default();
            for part in [&a, &b, &c] {
                sum.append(Checksum::of(part));
            }
            proptest::prop_assert_eq!(sum, Checksum::of(&[a, b, c].concat()));
        }
    }
}
