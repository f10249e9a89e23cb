//! Tests of the size and cost of pieces.

use super::*;
use crate::exposition::ScrapeQuery;
use crate::exposition::message::{self, Delimited, ProtoText};
use crate::exposition::prototext::Layout;
use crate::exposition::tests::text_converter::TextConverter;
use crate::exposition::typed::TypedBody;
use crate::mapper::Mapper;
use crate::statsd::line::ParserFlags;
use crate::statsd::metrics::{EventType, OwnSelection};
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
    vec![
        ("text", Box::new(offline.frames(Format::Text, query))),
        ("OpenMetrics", Box::new(offline.frames(Format::OpenMetrics, query))),
        ("delimited", delimited(offline, query)),
        ("protobuf text", prototext(offline, Layout::Lines, query)),
        ("compact text", prototext(offline, Layout::Compact, query)),
    ]
}

fn delimited(offline: &Offline, query: &ScrapeQuery) -> Body {
    Box::new(message::frames(vec![offline.typed(query)], Delimited::default()))
}

fn prototext(offline: &Offline, layout: Layout, query: &ScrapeQuery) -> Body {
    Box::new(message::frames(vec![offline.typed(query)], ProtoText::new(layout)))
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
    assert!(empty(delimited(&offline, &ScrapeQuery::default())) >= least);
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
        let direct: Vec<u8> = prototext(&offline, layout, &query).flatten().collect();
        let binary = delimited(&offline, &query);
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
        let mut body = delimited(&offline, &ScrapeQuery::default());
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

/// A client that does not read holds a piece, and the names that all scrapes share.
#[test]
fn conflicts_are_written_in_pieces() {
    let offline = offline((0..1_000).map(|id| format!("z{id}:3|c")));
    let (shared, view) = (offline.shared(), || offline.shared().registry.view());
    for number in 0..10_000 {
        let name = format!("{}{number}", "n".repeat(200));
        shared.metrics.conflict(EventType::Counter, &name, number);
    }
    let scrape = |omits_conflicts| {
        let selection = OwnSelection { all: true, names: None, omits_conflicts };
        let own = shared.own_families(&view().pages, Vec::new(), None, selection);
        let conflicts = omits_conflicts.then(|| shared.metrics.conflicts.snapshot());
        Scrape::new(view(), own, conflicts, None, shared.registry.clock.clone())
    };
    for format in [Format::Text, Format::OpenMetrics] {
        let (mut scrape_in_pieces, mut writer) =
            (scrape(true), text::TextWriter::new(format, None));
        let mut body = Vec::new();
        loop {
            let mut piece = Vec::new();
            let has_more = scrape_in_pieces.piece(&mut writer, &mut piece);
            assert!(piece.len() < 2 * FRAME, "{} bytes", piece.len());
            body.extend(piece);
            if !has_more {
                break;
            }
        }
        assert!(body.len() > 40 * FRAME);
        assert!(body.ends_with(b"z999 3\n"));
        let whole: Vec<u8> = scrape(false).text(format, false).flatten().collect();
        assert_eq!(String::from_utf8(body), String::from_utf8(whole));
    }
    for layout in [Layout::Lines, Layout::Compact] {
        let written = |omits_conflicts| -> Vec<u8> {
            let body = vec![Box::new(scrape(omits_conflicts)) as Box<dyn TypedBody>];
            message::frames(body, ProtoText::new(layout)).flatten().collect()
        };
        assert_eq!(written(true), written(false));
    }
    let binary = |omits_conflicts| -> Vec<u8> {
        let body = vec![Box::new(scrape(omits_conflicts)) as Box<dyn TypedBody>];
        message::frames(body, Delimited::default()).flatten().collect()
    };
    assert_eq!(binary(true), binary(false));
}
