//! Any bytes as a web configuration: rejected with the position, or loaded, in bounded time.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static FILE: LazyLock<tempfile::NamedTempFile> =
    LazyLock::new(|| tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory"));

/// Beginnings of errors: the line of a problem, or a key that occurs once in the file.
const PLACES: [&str; 10] = [
    "line ",
    "the hash of user ",
    "missing one of cert ",
    "missing one of key ",
    "cert: ",
    "key: ",
    "client_ca: ",
    "client CAs are configured",
    "client_auth_type is ",
    "cipher_suites has none ",
];
fuzz_target!(|data: &[u8]| {
    std::fs::write(FILE.path(), data).expect("written");
    match kstatd::fuzzed::web_config(FILE.path()) {
        // It refers to other files.
        None => {}
        Some(Ok((tls, http2))) => {
            let is_utf16 = data.starts_with(&[0xfe, 0xff]) || data.starts_with(&[0xff, 0xfe]);
            assert!((is_utf16 || std::str::from_utf8(data).is_ok()) && (tls || !http2));
        }
        Some(Err(reason)) => {
            assert!(PLACES.iter().any(|place| reason.starts_with(place)), "{reason}");
            // Each problem quotes at most one value.
            assert!(
                reason.len() <= 4096 + 300 * data.len().max(1) + data.len() * data.len() / 16,
                "{}",
                reason.len()
            );
        }
    }
});
