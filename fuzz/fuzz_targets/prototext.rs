//! Any bytes as a stream of protobuf messages: the same text for every split of the stream.
//!
//! The first byte sets the layout and the size of the pieces.
#![no_main]

use bytes::Bytes;
use kstatd::exposition::prototext::Layout;
use kstatd::exposition::tests::text_converter::TextConverter;
use libfuzzer_sys::fuzz_target;

fn text(body: &[u8], step: usize, layout: Layout) -> Vec<u8> {
    let chunks = body.chunks(step).map(Bytes::copy_from_slice);
    TextConverter::new(chunks, layout).flatten().collect()
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, body)) = data.split_first() else { return };
    let layout = if how & 1 == 0 { Layout::Lines } else { Layout::Compact };
    let whole = text(body, usize::MAX, layout);
    assert!(std::str::from_utf8(&whole).is_ok());
    assert_eq!(whole, text(body, usize::from(how >> 1).max(1), layout));
});
