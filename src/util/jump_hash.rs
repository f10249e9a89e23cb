//! Assigns hashes to buckets.

/// Returns the bucket of `key` among `buckets`, or -1 if there are no buckets. J. Lamping and E. Veach, "A Fast,
/// Minimal Memory, Consistent Hash Algorithm" (2014).
pub fn jump_hash(mut key: u64, buckets: i64) -> i64 {
    let (mut bucket, mut next) = (-1i64, 0i64);
    while next < buckets {
        bucket = next;
        key = key.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let stride = f64::from(1u32 << 31) / ((key >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * stride) as i64;
    }
    bucket
}
