//! CRC-32 of concatenated texts, computed from the CRCs of the parts.
//!
//! crc(A ‖ B) is crc(A) · x^(8·len B) + crc(B) over GF(2) modulo the CRC polynomial (Mark Adler's method, used by
//! zlib's `crc32_combine` since 1.2.12). The CRC of a segment is therefore computed once per change, not once per
//! scrape.

/// The CRC-32 polynomial, bit-reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Powers x^(8·n·16^k) modulo the polynomial, for k in 0..8 and n in 0..16: the factors for n·16^k bytes. x^(2^32) =
/// x, so k wraps around.
const POWERS: [[u32; 16]; 8] = {
    let mut powers = [[0; 16]; 8];
    // x^8, bit-reversed.
    let mut base = 1 << 23;
    let mut k = 0;
    while k < 8 {
        powers[k][0] = 1 << 31;
        let mut n = 1;
        while n < 16 {
            powers[k][n] = multiply(powers[k][n - 1], base);
            n += 1;
        }
        base = multiply(powers[k][15], base);
        k += 1;
    }
    powers
};

/// Products of each 4-bit polynomial and x^4, for the four highest powers.
const RAISED: [u32; 16] = {
    let mut raised = [0; 16];
    let mut n = 0;
    while n < 16 {
        raised[n] = raise(raise(raise(raise(n as u32))));
        n += 1;
    }
    raised
};

/// Returns a·x modulo the polynomial.
const fn raise(a: u32) -> u32 {
    if a & 1 != 0 { (a >> 1) ^ POLYNOMIAL } else { a >> 1 }
}

/// Returns a·b modulo the polynomial, four powers of `a` at a time.
const fn multiply(mut a: u32, b: u32) -> u32 {
    // Products of `b` and each 4-bit polynomial, whose lowest power is the highest bit.
    let mut times = [0; 16];
    times[8] = b;
    times[4] = raise(b);
    times[2] = raise(times[4]);
    times[1] = raise(times[2]);
    let mut n = 3;
    while n < 16 {
        times[n] = times[n & (n - 1)] ^ times[n & n.wrapping_neg()];
        n += 1;
    }
    let mut product = 0_u32;
    let mut step = 0;
    while step < 8 {
        product = (product >> 4) ^ RAISED[(product & 15) as usize] ^ times[(a & 15) as usize];
        a >>= 4;
        step += 1;
    }
    product
}

/// The CRC-32 and the length in bytes of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub(crate) crc: u32,
    pub(crate) len: u64,
}

impl Checksum {
    /// Computes the checksum of `text`.
    pub(crate) fn of(text: &[u8]) -> Self {
        Self { crc: crc32fast::hash(text), len: text.len() as u64 }
    }

    /// Appends the checksum of the text that follows.
    pub(crate) fn append(&mut self, next: Self) {
        let (mut len, mut k) = (next.len, 0);
        while len != 0 {
            let n = (len & 15) as usize;
            if n != 0 {
                self.crc = multiply(POWERS[k & 7][n], self.crc);
            }
            len >>= 4;
            k += 1;
        }
        self.crc ^= next.crc;
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
