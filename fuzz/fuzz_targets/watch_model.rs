//! Any sequence of lists, watches, faults, changes and scrapes against a simulated API server, in simulated time:
//! each scrape shows one past state of each kind and namespace, complete and without duplicates, and the last one the
//! final state.
//!
//! `kstatd::kube::history` decodes the bytes. `KSTATD_HISTORY=FILE cargo test --lib histories_from_bytes` runs an
//! input under a debugger; `KSTATD_TRACE=1` prints all requests.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(violation) = kstatd::kube::history::run_bytes(data) {
        panic!("{violation}");
    }
});
