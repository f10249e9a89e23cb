//! MD5 (RFC 1321), for the configuration hash that dashboards compare between replicas. It is not
//! used for security.

/// Shift amounts of the four rounds.
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// Returns the first six bytes of the digest as a little-endian number.
pub fn config_hash(content: &[u8]) -> u64 {
    let digest = md5(content);
    digest.iter().take(6).rev().fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

fn md5(content: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let mut padded = content.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(content.len() as u64).wrapping_mul(8).to_le_bytes());
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte));
        }
        round(&mut state, &words);
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

fn round(state: &mut [u32; 4], words: &[u32; 16]) {
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64_usize {
        let (mixed, word) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), (7 * step) % 16),
        };
        // RFC 1321 defines the table as the integer part of 2^32 times |sin(step + 1)|.
        let constant = (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(words[word]);
        let rotated = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
        (a, b, c, d) = (d, rotated, b, c);
    }
    for (word, value) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_kube_state_metrics() {
        for case in crate::recorded::cases("ksm/config_hash.json", 6) {
            let content = case["content"].as_str().expect("content");
            assert_eq!(
                config_hash(content.as_bytes()).to_string(),
                case["value"].as_str().expect("value")
            );
        }
    }

    #[test]
    fn padding_at_block_borders() {
        let digest = |len: usize| {
            let hex: Vec<String> =
                md5(&vec![b'a'; len]).iter().map(|b| format!("{b:02x}")).collect();
            hex.concat()
        };
        assert_eq!(digest(55), "ef1772b6dff9a122358552954ad0df65");
        assert_eq!(digest(56), "3b0c8ac703f828b04c6c197006d17218");
        assert_eq!(digest(64), "014842d480b571495a4a0363793f7367");
    }
}
