//! Tests of the size and cost of pieces.

use super::*;
use crate::exposition::ScrapeQuery;
use crate::exposition::prototext::Layout;
use crate::exposition::tests::text_converter::TextConverter;
use crate::mapper::Mapper;
use crate::statsd::line::ParserFlags;
use crate::statsd::{Offline, OfflineConfig};

const SERIES: usize = 12_000;

const MAPPING: &str = "mappings:\n\
    - {match: histogram, name: histogram, observer_type: histogram}\n\
    - {match: native, name: native, observer_type: histogram, \
       histogram_options: {native_histogram_bucket_factor: 1.1, buckets: []}}\n\
    - {match: below, name: below, observer_type: histogram, histogram_options: {buckets: [-1, 1]}}\n\
    - {match: above, name: above, observer_type: histogram, histogram_options: {buckets: [-1, 2]}}\n\
    - {match: summary, name: summary, observer_type: summary}\n";

fn offline(lines: impl Iterator<Item = String>) -> Offline {
    let mapper = Mapper::from_yaml(MAPPING).expect("a valid mapping");
    let flags = ParserFlags { sets: true, ..ParserFlags::default() };
    let mut offline = Offline::new(mapper, OfflineConfig { flags, ..OfflineConfig::default() });
    for line in lines {
        assert!(offline.line(line.as_bytes()).is_empty(), "{line}");
    }
    offline
}

type Body = Box<dyn Iterator<Item = Bytes> + Send>;

/// Returns a body in every format.
fn bodies(offline: &Offline, query: &ScrapeQuery) -> Vec<(&'static str, Body)> {
    let lines = offline.prototext_frames(Layout::Lines, query);
    let compact = offline.prototext_frames(Layout::Compact, query);
    vec![
        ("text", Box::new(offline.frames(Format::Text, query))),
        ("OpenMetrics", Box::new(offline.frames(Format::OpenMetrics, query))),
        ("delimited", Box::new(offline.protobuf_frames(query))),
        ("protobuf text", Box::new(lines)),
        ("compact text", Box::new(compact)),
    ]
}

/// A lower bound on the number of series per page, except for the last one.
const MIN_SERIES_PER_PAGE: usize = 40;

#[test]
fn pieces_of_a_large_family_are_bounded() {
    let query = ScrapeQuery::default();
    let kinds = [
        "counter:3|c",
        "gauge:-1.5|g",
        "histogram:3|h",
        "native:7|h",
        "below:-3|h",
        "summary:5|h",
        "set:x|s",
    ];
    for kind in kinds {
        let (name, rest) = kind.split_once(':').expect("a name");
        let offline = offline((0..SERIES).map(|id| format!("{name}:{rest}|#id:{id:06}")));
        for (format, body) in bodies(&offline, &query) {
            let pieces: Vec<usize> = body.map(|piece| piece.len()).collect();
            let longest = pieces.iter().max().copied().unwrap_or_default();
            assert!(longest <= 2 * FRAME, "{longest} bytes of {name} in {format}");
            // A piece is limited in bytes and in work.
            let least = SERIES / (MAX_PAGES * 160);
            assert!(pieces.len() >= least, "{} pieces of {name} in {format}", pieces.len());
        }
    }
}

#[test]
fn work_without_output_is_split_into_pieces() {
    let offline = offline((0..SERIES).map(|id| format!("counter:3|c|#id:{id:06}")));
    let empty = |body: Body| body.take_while(|piece| piece.is_empty()).count();
    let least = SERIES / (MAX_PAGES * 160);
    // A message begins with its length.
    assert!(empty(Box::new(offline.protobuf_frames(&ScrapeQuery::default()))) >= least);
    // No family is selected.
    let other = ScrapeQuery { names: Some(["other".to_owned()].into()), ..ScrapeQuery::default() };
    for (format, body) in bodies(&offline, &other) {
        let pieces = empty(body);
        assert!((least..=SERIES / MIN_SERIES_PER_PAGE).contains(&pieces), "{pieces} in {format}");
    }
}

#[test]
fn all_protobuf_formats_agree() {
    let kinds = [
        "counter:3|c",
        "gauge:-1.5|g",
        "histogram:3|h",
        "native:7|h",
        "above:1.5|h",
        "below:-3|h",
        "summary:5|h",
        "set:x|s",
    ];
    let series =
        |id: usize| kinds.iter().map(move |kind| format!("{kind}|#id:{id},quoted:a\"b\\c ü"));
    let offline = offline((0..300).flat_map(series));
    let query = ScrapeQuery::default();
    for layout in [Layout::Lines, Layout::Compact] {
        let direct: Vec<u8> = offline.prototext_frames(layout, &query).flatten().collect();
        let binary = offline.protobuf_frames(&query);
        let converted: Vec<u8> = TextConverter::new(binary, layout).flatten().collect();
        assert_eq!(String::from_utf8(direct), String::from_utf8(converted));
    }
}

/// The written message is as long as the measured one, even if its series change in between.
#[test]
fn a_message_matches_its_length_while_series_change() {
    let mapping = "defaults: {observer_type: histogram, ttl: 10s}\n";
    let clock = Clock::manual();
    let config = OfflineConfig { clock: clock.clone(), ..OfflineConfig::default() };
    let mut offline = Offline::new(Mapper::from_yaml(mapping).expect("a mapping"), config);
    let send = |offline: &mut Offline, value: u64| {
        for id in 0..6_000 {
            offline.line(format!("requests:{value}|c|#id:{id}").as_bytes());
            offline.line(format!("times:{value}|h|@0.001|#id:{id}").as_bytes());
        }
    };
    send(&mut offline, 1);
    for gone in [false, true] {
        let mut body = offline.protobuf_frames(&ScrapeQuery::default());
        let mut bytes = Vec::new();
        while bytes.is_empty() {
            bytes.extend(body.next().expect("the first bytes"));
        }
        if gone {
            clock.advance(Duration::from_secs(60));
            offline.expire();
        }
        // New series reuse the slots of the expired ones.
        send(&mut offline, 1 << 40);
        bytes.extend(body.flatten());
        let mut rest = bytes.as_slice();
        let mut families = 0;
        while let Some((length, after)) = crate::exposition::protobuf::read_varint(rest) {
            let length = usize::try_from(length).expect("a length");
            rest = after.get(length..).expect("a whole message");
            families += 1;
        }
        assert!(rest.is_empty());
        // In the second round the other family has expired before it is measured.
        assert_eq!(families, if gone { 1 } else { 2 });
    }
}
