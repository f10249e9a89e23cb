//! Lists and watches from any bytes: no panic, and the same result for every split of the body.
//!
//! The first byte sets the encoding and the size of the pieces.
#![no_main]

use kstatd::kube::frame::{Encoding, EventKind, ListMeta, ListReader, WatchReader};
use kstatd::resources::ObjectBytes;
use libfuzzer_sys::fuzz_target;

fn bytes(object: ObjectBytes<'_>) -> Vec<u8> {
    match object {
        ObjectBytes::Protobuf(bytes) | ObjectBytes::Json(bytes) => bytes.to_vec(),
    }
}

fn list(encoding: Encoding, body: &[u8], step: usize) -> Result<(Vec<Vec<u8>>, ListMeta), String> {
    let mut reader = ListReader::new(encoding);
    let mut items = Vec::new();
    for chunk in body.chunks(step) {
        reader.feed(chunk.to_vec().into());
        while let Some(item) = reader.next().map_err(|error| error.to_string())? {
            items.push(bytes(item));
        }
    }
    reader.finish().map(|meta| (items, meta)).map_err(|error| error.to_string())
}

fn watch(
    encoding: Encoding,
    body: &[u8],
    step: usize,
) -> (Vec<(EventKind, Vec<u8>)>, Result<(), String>) {
    let mut reader = WatchReader::new(encoding);
    let mut events = Vec::new();
    for chunk in body.chunks(step) {
        reader.feed(chunk.to_vec().into());
        loop {
            match reader.next() {
                Ok(Some(event)) => events.push((event.kind, bytes(event.object))),
                Ok(None) => break,
                Err(error) => return (events, Err(error.to_string())),
            }
        }
    }
    (events, reader.finish().map_err(|error| error.to_string()))
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, body)) = data.split_first() else { return };
    let encoding = if how & 1 == 0 { Encoding::Protobuf } else { Encoding::Json };
    let step = usize::from(how >> 1).max(1);
    assert_eq!(list(encoding, body, step), list(encoding, body, usize::MAX));
    assert_eq!(watch(encoding, body, step), watch(encoding, body, usize::MAX));
});
