//! Manifests of `kstatd check`: an error that names the place, or a report that is safe for a terminal.
#![no_main]

use kstatd::fuzzed::checked;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match checked(text) {
        Ok(report) => {
            assert!(report.chars().all(|c| c == '\n' || !c.is_control()), "{report}");
            assert!(report.ends_with(" failed\n"), "{report}");
        }
        Err(error) => assert!(error.starts_with("input, document "), "{error}"),
    }
});
