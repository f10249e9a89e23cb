//! CRC-32 of joined texts from the CRCs of the parts.
//!
//! The CRC of A followed by B is that of A times x^(8·len B), plus that of B, in the polynomials over
//! GF(2) modulo the CRC's own (Mark Adler's method, as zlib's `crc32_combine` has it since 1.2.12). A
//! segment's CRC is therefore computed once for each change of it, not for each scrape.

/// The CRC polynomial, bit-reversed.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// x^(8·n·16^k) modulo the polynomial, for k from 0 to 7 and n from 0 to 15: what so many bytes multiply by.
/// As x^(2^32) is x again, k counts round.
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

/// What the four highest powers of a polynomial are after they were raised by four.
const RAISED: [u32; 16] = {
    let mut raised = [0; 16];
    let mut n = 0;
    while n < 16 {
        raised[n] = raise(raise(raise(raise(n as u32))));
        n += 1;
    }
    raised
};

/// a·x modulo the polynomial.
const fn raise(a: u32) -> u32 {
    if a & 1 != 0 { (a >> 1) ^ POLYNOMIAL } else { a >> 1 }
}

/// a·b modulo the polynomial, four powers of `a` at a time.
const fn multiply(mut a: u32, b: u32) -> u32 {
    // b times each of the polynomials of four powers, of which the lowest is the highest bit.
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
