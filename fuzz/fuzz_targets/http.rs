//! Any text in the headers and the query that select an exposition.
#![no_main]

use kstatd::exposition::negotiate::{Dialect, format, gzip_by_item, gzip_by_weight};
use kstatd::server::query;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for dialect in [
        Dialect::KubeStateMetrics,
        Dialect::ClientGolang { protobuf: true },
        Dialect::Native { protobuf: true },
    ] {
        let choice = format(text, dialect);
        // The content type is a valid header value.
        assert!(choice.content_type().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    }
    // Both rules agree if a single coding is requested.
    if text.trim() == "gzip" {
        assert!(gzip_by_item(text) && gzip_by_weight([text]));
    }
    gzip_by_item(text);
    gzip_by_weight(text.lines());
    for (name, value) in query::pairs(text) {
        assert!(name.len() + value.len() <= text.len() * 3);
        assert!(query::first(text, &name).is_some());
    }
    let decoded = query::decode_path(text);
    assert!(decoded.is_none_or(|path| path.len() <= text.len() * 3));
});
