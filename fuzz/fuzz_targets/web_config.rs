//! Any bytes as a web configuration: refused with the place, or loaded; and reading stays within bounds.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static FILE: LazyLock<tempfile::NamedTempFile> =
    LazyLock::new(|| tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory"));

/// What an error begins with: the line of a problem, or a key which the file has once.
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
        // It names other files.
        None => {}
        Some(Ok((tls, http2))) => assert!(std::str::from_utf8(data).is_ok() && (tls || !http2)),
        Some(Err(reason)) => {
            assert!(PLACES.iter().any(|place| reason.starts_with(place)), "{reason}");
            // Each problem quotes one value at most.
            assert!(
                reason.len() <= 4096 + 300 * data.len().max(1) + data.len() * data.len() / 16,
                "{}",
                reason.len()
            );
        }
    }
});
