//! The configuration hash that dashboards compare between replicas. It is not used for security.

/// Returns the first six bytes of the MD5 digest as a little-endian number.
pub fn config_hash(content: &[u8]) -> u64 {
    let md5::Digest(digest) = md5::compute(content);
    digest.iter().take(6).rev().fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
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
}
