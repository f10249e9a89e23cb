//! Any sequence of lists, watches, faults, changes and scrapes against a simulated API server, in simulated time: each scrape shows each
//! scope as the cluster had it at one moment, never a part of it and never anything twice, and at the end as it is.
//!
//! `kstatd::kube::history` says how bytes are read. `KSTATD_TOLD=FILE cargo test --lib histories_that_bytes_tell` runs an input under a
//! debugger, with `KSTATD_TRACE=1` all requests are printed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(violation) = kstatd::kube::history::told(data) {
        panic!("{violation}");
    }
});
