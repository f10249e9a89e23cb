use proptest::prelude::*;

use super::*;
use crate::wire::varint::varint;
use crate::wire::view::decode;

/// Bodies recorded from kube-apiserver 1.36.3.
mod recorded {
    pub const LIST_PB: &[u8] = include_bytes!("testdata/list.pb");
    pub const LIST_JSON: &[u8] = include_bytes!("testdata/list.json");
    pub const WATCH_PB: &[u8] = include_bytes!("testdata/watch.pb");
    pub const WATCH_JSON: &[u8] = include_bytes!("testdata/watch.json");
    pub const EXPIRED_PB: &[u8] = include_bytes!("testdata/expired.pb");
    pub const EXPIRED_JSON: &[u8] = include_bytes!("testdata/expired.json");
    pub const FORBIDDEN_PB: &[u8] = include_bytes!("testdata/forbidden.pb");
    pub const FORBIDDEN_JSON: &[u8] = include_bytes!("testdata/forbidden.json");
}

/// The items and the metadata of a list.
type Listed = Result<(Vec<Vec<u8>>, ListMeta), String>;

fn bytes(object: ObjectBytes<'_>) -> Vec<u8> {
    match object {
        ObjectBytes::Protobuf(bytes) | ObjectBytes::Json(bytes) => bytes.to_vec(),
    }
}

/// Splits `body` into chunks of `step` bytes.
fn chunks(body: &[u8], step: usize) -> impl Iterator<Item = Bytes> {
    body.chunks(step.max(1)).map(Bytes::copy_from_slice)
}

fn list(encoding: Encoding, body: &[u8], step: usize) -> Listed {
    listed(ListReader::new(encoding), body, step)
}

fn listed(mut reader: ListReader, body: &[u8], step: usize) -> Listed {
    let mut items = Vec::new();
    for chunk in chunks(body, step) {
        reader.feed(chunk);
        while let Some(item) = reader.next().map_err(|error| error.to_string())? {
            items.push(bytes(item));
        }
    }
    let meta = reader.finish().map_err(|error| error.to_string())?;
    Ok((items, meta))
}

fn watch(
    encoding: Encoding,
    body: &[u8],
    step: usize,
) -> Result<Vec<(EventKind, Vec<u8>)>, String> {
    let mut reader = WatchReader::new(encoding);
    let mut events = Vec::new();
    for chunk in chunks(body, step) {
        reader.feed(chunk);
        while let Some(event) = reader.next().map_err(|error| error.to_string())? {
            events.push((event.kind, bytes(event.object)));
        }
    }
    reader.finish().map_err(|error| error.to_string())?;
    Ok(events)
}

fn name(encoding: Encoding, object: &[u8]) -> String {
    let view: IdentifiedObject<'_> = decode(encoding.object(object)).expect("an object");
    assert_eq!(view.metadata.uid.len(), 36);
    view.metadata.name.to_string()
}

#[test]
fn recorded_lists_in_chunks_of_any_size() {
    for (encoding, body) in
        [(Encoding::Protobuf, recorded::LIST_PB), (Encoding::Json, recorded::LIST_JSON)]
    {
        let whole = list(encoding, body, body.len());
        let (items, meta) = whole.clone().expect("a list");
        let names: Vec<String> = items.iter().map(|item| name(encoding, item)).collect();
        assert_eq!(names, ["default", "kube-node-lease"]);
        assert!(!meta.continue_token.is_empty());
        assert!(meta.resource_version.parse::<u64>().is_ok(), "{meta:?}");
        for step in 1..body.len() {
            assert_eq!(list(encoding, body, step), whole, "in steps of {step}");
        }
        // The last four bytes of the envelope are two optional empty fields.
        for len in 0..body.len() - 4 {
            let error = list(encoding, &body[..len], 100).expect_err("a part is an error");
            assert!(error.contains("ends at byte"), "{error}");
        }
    }
}

#[test]
fn recorded_watches_in_chunks_of_any_size() {
    for (encoding, body) in
        [(Encoding::Protobuf, recorded::WATCH_PB), (Encoding::Json, recorded::WATCH_JSON)]
    {
        let whole = watch(encoding, body, body.len()).expect("a watch");
        let (last, objects) = whole.split_last().expect("events");
        let names: Vec<String> = objects.iter().map(|(_, item)| name(encoding, item)).collect();
        assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
        assert!(objects.iter().all(|(kind, _)| *kind == EventKind::Added));
        assert_eq!(last.0, EventKind::Bookmark);
        let bookmark: Bookmark<'_> = decode(encoding.object(&last.1)).expect("a bookmark");
        assert!(bookmark.ends_initial_events());
        assert!(bookmark.metadata.resource_version.parse::<u64>().is_ok());
        for step in 1..body.len() {
            assert_eq!(watch(encoding, body, step).as_ref(), Ok(&whole), "in steps of {step}");
        }
    }
}

#[test]
fn recorded_errors() {
    for (encoding, body) in
        [(Encoding::Protobuf, recorded::EXPIRED_PB), (Encoding::Json, recorded::EXPIRED_JSON)]
    {
        let events = watch(encoding, body, 10).expect("a watch");
        let [(EventKind::Error, object)] = &events[..] else {
            panic!("{events:?}");
        };
        let status: Status<'_> = decode(encoding.object(object)).expect("a status");
        assert_eq!((status.code, &*status.reason), (410, "Expired"));
        assert!(status.message.contains("too old resource version"), "{}", &*status.message);
    }
    for (encoding, body) in
        [(Encoding::Protobuf, recorded::FORBIDDEN_PB), (Encoding::Json, recorded::FORBIDDEN_JSON)]
    {
        let status = Status::from_body(encoding, body).expect("a status");
        assert_eq!((status.code, &*status.reason), (403, "Forbidden"));
    }
    assert!(Status::from_body(Encoding::Json, b"upstream down").is_err());
}

#[test]
fn json_list_syntax() {
    let read = |body: &str| {
        let (items, meta) = list(Encoding::Json, body.as_bytes(), 3)?;
        let items = items.into_iter().map(|item| String::from_utf8(item).expect("UTF-8"));
        Ok::<_, String>((items.collect::<Vec<_>>(), meta.resource_version))
    };
    let expect = |items: &[&str], version: &str| {
        Ok((items.iter().map(|item| (*item).to_owned()).collect(), version.to_owned()))
    };
    let empty = r#"{"items":null,"metadata":{"resourceVersion":"7"}}"#;
    assert_eq!(read(empty), expect(&[], "7"));
    assert_eq!(
        read(
            r#" { "items" : [ { } , {"a":"]}\"\\"} ] , "metadata":{"resourceVersion":"7"},"x":[1,{"items":[{}]}],"y":-1.5e3,"z":true,"w":null,"v":"\"}" } "#
        ),
        expect(&["{ }", r#"{"a":"]}\"\\"}"#], "7")
    );
    for (body, complaint) in [
        ("", "ends at byte 0"),
        ("[]", "expected a JSON object at byte 0 of the response, found `[`"),
        ("{]", "expected a member name or `}` at byte 1"),
        ("{,", "expected a member name or `}` at byte 1"),
        (r#"{"a" 1}"#, "expected `:` at byte 5"),
        (r#"{"a":}"#, "expected a JSON value at byte 5"),
        (r#"{"items":{}}"#, "expected a JSON array at byte 9"),
        (r#"{"items":nil}"#, "malformed JSON value at byte 9"),
        (r#"{"items":[1]}"#, "expected a JSON object or `]` at byte 10"),
        (r#"{"items":[{},]}"#, "expected a JSON object at byte 13"),
        (r#"{"items":[{} {}]}"#, "expected `,` or `]` at byte 13"),
        (r#"{"items":[]]}"#, "expected `,` or `}` at byte 11"),
        (r#"{"items":[{}]} x"#, "expected the end of the list at byte 15"),
        (r#"{"metadata":7}"#, "malformed list metadata at byte 12"),
        (r#"{"metadata":}"#, "malformed list metadata at byte 12"),
        (r#"{"items":[{"#, "ends at byte 11"),
        ("{}", "not a list: no items"),
        (r#"{"items":null,"metadata":null}"#, "not a list: no resourceVersion"),
        (r#"{"kind":null,"code":"x","metadata":{"resourceVersion":"1"}}"#, "no items"),
        (
            r#"{"kind":"Status","reason":"Gone","code":410}"#,
            "Status 410 in the body of the response: Gone",
        ),
        (
            r#"{"code":503,"message":"a \"b\"","kind":"Status"}"#,
            "Status 503 in the body of the response: a \"b\"",
        ),
    ] {
        let error = read(body).expect_err(body);
        assert!(error.contains(complaint), "{body}: {error}");
    }
}

#[test]
fn json_event_syntax() {
    let read = |body: &str| watch(Encoding::Json, body.as_bytes(), 4);
    assert_eq!(
        read("\n{ \"object\" : {\"a\":[\"}\"]} , \"type\" : \"DELETED\", \"more\":1 }\r\n \n"),
        Ok(vec![(EventKind::Deleted, br#"{"a":["}"]}"#.to_vec())])
    );
    for (body, complaint) in [
        ("x\n", "expected a JSON object at byte 0 of the response, found `x`"),
        ("{}\n", "expected a member name at byte 1"),
        ("{\"type\":\"GONE\",\"object\":{}}\n", "watch event of type \"GONE\" at byte 0"),
        ("{\"object\":{}}\n", "watch event of type \"\""),
        ("{\"object\":{\n", "ends at byte 11"),
        ("{\"type\":\"ADDED\"} {\n", "expected the end of the line at byte 17"),
        ("{\"type\":\"ADDED\",\"object\":{}}", "ends at byte 28"),
        ("{\"kind\":\"Status\",\"code\":410}\n", "Status 410 in the body"),
        ("{\"kind\":\"Status\",\"code\":410}", "Status 410 in the body"),
    ] {
        let error = read(body).expect_err(body);
        assert!(error.contains(complaint), "{body}: {error}");
    }
}

fn delimited(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    varint(&mut out, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

fn enveloped(raw: &[u8]) -> Vec<u8> {
    [b"k8s\0".to_vec(), delimited(1, b"\x0a\x02v1"), delimited(2, raw), delimited(3, b"")].concat()
}

#[test]
fn protobuf_list_syntax() {
    let meta = delimited(1, &delimited(2, b"9"));
    let unknown = [vec![7 << 3, 0x96, 0x01], delimited(9, &[0; 300]), vec![8 << 3 | 5, 1, 2, 3, 4]];
    let items = [delimited(2, b"one"), delimited(2, b""), delimited(2, &[5; 200])].concat();
    let raw = [&items[..], &unknown.concat(), &meta].concat();
    for step in [1, 2, 3, 7, 1000] {
        let (items, meta) = list(Encoding::Protobuf, &enveloped(&raw), step).expect("a list");
        assert_eq!(items, [b"one".to_vec(), vec![], vec![5; 200]]);
        assert_eq!(meta.resource_version, "9");
    }
    let read = |body: &[u8]| list(Encoding::Protobuf, body, 5).expect_err("an error");
    let over = [delimited(2, b"")[..1].to_vec(), vec![0xff; 4], vec![0x0f]].concat();
    for (body, complaint) in [
        (b"{\"kind\"".to_vec(), "expected `k8s\\0` at byte 0 of the response, found `{\\\"ki"),
        (b"k8s\0".to_vec(), "ends at byte 4, within a list"),
        (enveloped(b""), "not a list: no resourceVersion"),
        (recorded::FORBIDDEN_PB.to_vec(), "Status 403 in the body"),
        (enveloped(&[2 << 3 | 2, 5, 1]), "malformed length in a protobuf list at byte 12"),
        (enveloped(&[0xff; 30]), "malformed protobuf varint at byte 12"),
        (enveloped(&[2 << 3 | 3]), "malformed protobuf field at byte 12"),
        (
            [b"k8s\0\x12\xff\xff\xff\xff\x7f".to_vec(), over].concat(),
            "list item of 4294967295 bytes at byte 10",
        ),
    ] {
        let error = read(&body);
        assert!(error.contains(complaint), "{error}");
    }
}

#[test]
fn protobuf_event_syntax() {
    let framed = |event: &[u8]| [&(event.len() as u32).to_be_bytes()[..], event].concat();
    let object = delimited(2, &delimited(1, &enveloped(b"raw")));
    let body = framed(&[&object[..], &delimited(1, b"MODIFIED")].concat());
    for step in 1..body.len() {
        let events = watch(Encoding::Protobuf, &body.repeat(2), step).expect("a watch");
        assert_eq!(events, vec![(EventKind::Modified, b"raw".to_vec()); 2]);
    }
    let bare = delimited(2, &delimited(1, b"raw"));
    for (body, complaint) in [
        (framed(&[&delimited(1, b"ADDED")[..], &bare].concat()), "expected `k8s\\0` at byte 0"),
        (framed(&delimited(1, b"NEW")), "watch event of type \"NEW\""),
        (framed(&[1 << 3, 1]), "malformed watch event at byte 0"),
        (b"k8s\0".to_vec(), "Status 0 in the body"),
        (recorded::FORBIDDEN_PB.to_vec(), "Status 403 in the body"),
        (vec![0x7f, 0, 0, 0], "watch frame of 2130706432 bytes at byte 0"),
        (body[..9].to_vec(), "ends at byte 9, within a watch frame"),
    ] {
        let error = watch(Encoding::Protobuf, &body, 4).expect_err(complaint);
        assert!(error.contains(complaint), "{error}");
    }
}

#[test]
fn content_types() {
    let parse = |value| Encoding::from_content_type(value).ok();
    assert_eq!(parse("application/vnd.kubernetes.protobuf;stream=watch"), Some(Encoding::Protobuf));
    assert_eq!(parse("application/json"), Some(Encoding::Json));
    assert_eq!(parse("application/json; charset=utf-8"), Some(Encoding::Json));
    assert_eq!(parse("text/html"), None);
    assert_eq!(parse(""), None);
}

proptest! {
    /// The result does not depend on how arbitrary bytes are split into chunks.
    #[test]
    fn chunk_sizes_do_not_matter(
        mut body in proptest::collection::vec(any::<u8>(), 0..200),
        prefix in 0..4usize,
        step in 1..20usize,
    ) {
        let start: [&[u8]; 4] = [b"", b"k8s\0\x12\x7f", b"{\"items\":[{", b"\0\0\0\x10"];
        body.splice(0..0, start[prefix].iter().copied());
        for encoding in [Encoding::Protobuf, Encoding::Json] {
            prop_assert_eq!(list(encoding, &body, step), list(encoding, &body, 1));
            prop_assert_eq!(watch(encoding, &body, step), watch(encoding, &body, 1));
        }
    }
}

const COLUMN: Column = Column { heading: "Type", member: "type" };

#[test]
fn tables_in_chunks_of_any_size() {
    let rows = r#"[{"cells":["a", "x\\" ,1], "object":{"metadata":{"name":"a"}}},{"object":{},"cells":[null,"y"]}]"#;
    let body = format!(
        r#"{{"kind":"Table","metadata":{{"resourceVersion":"7","remainingItemCount":3}},"columnDefinitions":[{{"name":"Name"}},{{"description":"Name, \"Type\"]","name":"Type"}}],"rows":{rows}}}"#
    );
    for step in 1..body.len() {
        let reader = ListReader::new(Encoding::Json).with_table(Some(COLUMN));
        let (items, meta) = listed(reader, body.as_bytes(), step).expect("a table");
        let items: Vec<_> = items.iter().map(|item| String::from_utf8_lossy(item)).collect();
        assert_eq!(items, [r#"{"type":"x\\","metadata":{"name":"a"}}"#, r#"{"type":"y"}"#]);
        assert_eq!((&*meta.resource_version, meta.remaining, &*meta.kind), ("7", Some(3), "Table"));
    }
    for (from, to, missing) in [
        (r#""name":"Type""#, r#""name":"Kind""#, "no Type"),
        ("columnDefinitions", "columns", "no columnDefinitions"),
        (r#","y""#, "", "no Type"),
        (r#""object":{},"#, "", "no object"),
    ] {
        let reader = ListReader::new(Encoding::Json).with_table(Some(COLUMN));
        let body = body.replace(from, to);
        let error = listed(reader, body.as_bytes(), body.len()).expect_err("no table");
        assert!(error.contains(missing), "{error}");
    }
    // Tables are rejected unless requested.
    assert!(list(Encoding::Json, body.as_bytes(), body.len()).is_err());
}
