//! Foreign expositions, as read by `kstatd diff` and `kstatd cardinality`: the same lines for every split, errors
//! that name the line, valid input accepted, and no differences from itself.
//!
//! The first byte sets the size of the pieces.
#![no_main]

use std::sync::LazyLock;

use kstatd::fuzzed;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../tests/support/exposition.rs"]
mod exposition;

static FILE: LazyLock<tempfile::NamedTempFile> =
    LazyLock::new(|| tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory"));

fuzz_target!(|data: &[u8]| {
    let Some((&step, body)) = data.split_first() else { return };
    let whole = fuzzed::exposition(std::iter::once(body));
    let pieces = fuzzed::exposition(body.chunks(usize::from(step).max(1)));
    assert_eq!(whole, pieces);
    let lines = body.iter().filter(|byte| **byte == b'\n').count();
    match &whole {
        Err((line, reason)) => {
            assert!(
                (1..=lines as u64 + 1).contains(line) && !reason.is_empty(),
                "{line}: {reason}"
            );
            assert!(reason.len() < 2_000, "{}", reason.len());
        }
        Ok((read, _)) => assert!(read.len() <= lines),
    }
    let text = std::str::from_utf8(body);
    if let Ok(text) = text
        && (exposition::check_text(text).is_ok() || exposition::check_open_metrics(text).is_ok())
    {
        let is_sample = |line: &&str| !line.starts_with('#') && !line.trim().is_empty();
        let samples = text.lines().filter(is_sample).count();
        let (read, _) = whole.as_ref().unwrap_or_else(|error| panic!("{error:?} in {text}"));
        let read = read.iter().filter(|line| line.starts_with("Sample")).count();
        assert_eq!(read, samples, "{text}");
    }
    // Input with the magic number of gzip is decompressed.
    if !body.starts_with(&[0x1f, 0x8b]) {
        std::fs::write(FILE.path(), body).expect("written");
        match fuzzed::differ(FILE.path(), FILE.path()) {
            Ok((same, report)) => assert!(same && whole.is_ok(), "{report}"),
            Err(error) => assert!(!error.is_empty()),
        }
    }
});
