use std::collections::BTreeMap;

use super::*;
use crate::recorded::number;
use serde_json::{Map, Value, json};

/// A sink that records everything, with runs of equal events joined.
#[derive(Debug, Default, PartialEq)]
struct Recorder {
    events: Vec<(Value, u64)>,
    samples: u64,
    sample_errors: BTreeMap<&'static str, u64>,
    tag_errors: u64,
    tags: u64,
    dogstatsd_events: u64,
    service_checks: u64,
    origins: Vec<String>,
    event_count: u64,
}

impl Recorder {
    fn push(&mut self, event: Value, count: u64) {
        match self.events.last_mut() {
            Some((last, repeat)) if *last == event => *repeat += count,
            _ => self.events.push((event, count)),
        }
    }
}

impl Sink for Recorder {
    fn event(&mut self, event: &Event<'_>) {
        let (kind, relative) = match event.kind {
            EventKind::Counter => ("counter".to_owned(), false),
            EventKind::Gauge { relative } => ("gauge".to_owned(), relative),
            EventKind::Observer => ("observer".to_owned(), false),
            EventKind::Set(member) => (format!("set {member}"), false),
        };
        assert!(
            event.labels.is_sorted_by(|a, b| a.name < b.name),
            "sorted and unique: {:?}",
            event.labels
        );
        let labels: Map<String, Value> = event
            .labels
            .iter()
            .map(|label| (label.name.clone().into_owned(), json!(label.value)))
            .collect();
        let value = number(event.value);
        let recorded = json!({"type": kind, "name": event.name, "value": value, "relative": relative, "labels": labels});
        self.push(recorded, event.weight);
        self.event_count += 1;
    }

    fn sample(&mut self) {
        self.samples += 1;
    }

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        assert!(count > 0);
        *self.sample_errors.entry(reason.as_str()).or_default() += count;
    }

    fn tag_errors(&mut self, count: u64) {
        assert!(count > 0);
        self.tag_errors += count;
    }

    fn tags(&mut self) {
        self.tags += 1;
    }

    fn origin(&mut self, section: &str) {
        self.origins.push(section.to_owned());
    }

    fn dogstatsd(&mut self, message: DogstatsdMessage) {
        match message {
            DogstatsdMessage::Event => self.dogstatsd_events += 1,
            DogstatsdMessage::ServiceCheck => self.service_checks += 1,
        }
    }
}

fn record(line: &[u8], flags: ParserFlags) -> Recorder {
    let mut recorder = Recorder::default();
    parse(line, flags, &mut recorder);
    recorder
}

fn record_default(line: &str) -> Recorder {
    record(line.as_bytes(), ParserFlags::default())
}

#[test]
fn every_flag_changes_the_parsing_of_some_line() {
    let off = ParserFlags {
        dogstatsd: false,
        influxdb: false,
        librato: false,
        signalfx: false,
        sets: false,
        origins: false,
    };
    for (on, line) in [
        (ParserFlags { dogstatsd: true, ..off }, "a:1|c|#key:value"),
        (ParserFlags { influxdb: true, ..off }, "a,key=value:1|c"),
        (ParserFlags { librato: true, ..off }, "a#key=value:1|c"),
        (ParserFlags { signalfx: true, ..off }, "a[key=value]:1|c"),
        (ParserFlags { sets: true, ..off }, "a:key|s"),
        (ParserFlags { origins: true, ..off }, "a:1|c|c:id"),
    ] {
        let (with, without) = (record(line.as_bytes(), on), record(line.as_bytes(), off));
        assert_ne!(
            with.events, without.events,
            "src/statsd/line reads {line} alike, {on:?} or not"
        );
    }
}

/// Decodes standard base64, in which the corpus has lines that are not UTF-8.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|&byte| byte != b'=') {
        let digit = ALPHABET.iter().position(|&c| c == byte).expect("base64");
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

/// Lines with a container ID but no tag section: rejected by statsd_exporter, accepted here.
const CONTAINER_ID_ALONE: [&str; 2] = ["a:1|c|c:x|T5", "m,a=b:1|c|c:x"];

#[test]
fn conformance() {
    // Values are read as text because serde_json may round the last bit of a decimal.
    let text = include_str!("../../../tests/conformance/statsd/line.json");
    let values = regex::Regex::new(r#""value":(-?[0-9][^,}]*)"#).expect("pattern");
    let text = values.replace_all(text, r#""value":"$1""#);
    let cases: Vec<Value> = serde_json::from_str(&text).expect("corpus");
    let (mut compared, mut crashes, mut containers) = (0, 0, 0);
    for case in &cases {
        let line = match case["line_b64"].as_str() {
            Some(encoded) => base64(encoded),
            None => case["line"].as_str().expect("line").as_bytes().to_vec(),
        };
        let flag = |name: &str| case["flags"][name].as_bool().expect("flag");
        let flags = ParserFlags {
            dogstatsd: flag("dogstatsd"),
            influxdb: flag("influxdb"),
            librato: flag("librato"),
            signalfx: flag("signalfx"),
            sets: false,
            origins: false,
        };
        let got = record(&line, flags);
        if case["crash"] == json!(true) {
            // `]` before `[`: one tag error, and the name is unchanged.
            assert_eq!(got.tag_errors, 1, "{}", case["name"]);
            crashes += 1;
            continue;
        }
        if CONTAINER_ID_ALONE.iter().any(|text| text.as_bytes() == line) {
            assert_eq!(got.events.len(), 1, "{}", case["name"]);
            assert_eq!(got.events[0].0["labels"]["container_id"], "x", "{}", case["name"]);
            assert!(got.sample_errors.is_empty(), "{}", case["name"]);
            containers += 1;
            continue;
        }
        let mut want = Recorder::default();
        for event in case["events"].as_array().expect("events") {
            let mut event = event.clone();
            let fields = event.as_object_mut().expect("object");
            let repeat =
                fields.remove("repeat").map_or(1, |repeat| repeat.as_u64().expect("count"));
            let value: f64 =
                fields["value"].as_str().and_then(|text| text.parse().ok()).expect("number");
            fields.insert("value".to_owned(), number(value));
            want.push(event, repeat);
        }
        assert_eq!(got.events, want.events, "{} {:?}", case["name"], case["line"]);
        let counters = json!({
            "sample_errors": got.sample_errors,
            "samples_received": got.samples,
            "tag_errors": got.tag_errors,
            "tags_received": got.tags,
        });
        assert_eq!(counters, case["counters"], "{} {:?}", case["name"], case["line"]);
        compared += 1;
    }
    assert_eq!(
        (cases.len(), crashes, containers),
        (compared + crashes + containers, 14, 5),
        "classes of cases"
    );
}

#[test]
fn a_comma_alone_is_an_empty_tag() {
    for line in ["a:1|c|#,", "a,,:1|c", "a#,:1|c", "a[,]:1|c"] {
        let got = record_default(line);
        assert_eq!((got.events.len(), got.tag_errors, got.tags), (1, 1, 0), "{line}");
    }
    for (line, errors) in [("a:1|c|#", 0), ("a:1|c|#,,", 2), ("a:1|c|#a:b,", 0), ("a[]:1|c", 0)] {
        assert_eq!(record_default(line).tag_errors, errors, "{line}");
    }
}

#[test]
fn a_bracket_closed_before_it_opens_loses_only_the_tags() {
    let got = record_default("a][:1|c|#x:y");
    assert_eq!(got.events.len(), 1);
    assert_eq!(got.events[0].0["name"], "a][");
    assert_eq!(got.events[0].0["labels"], json!({"x": "y"}));
    assert_eq!((got.tag_errors, got.tags), (1, 1));
}

#[test]
fn a_container_id_needs_no_tag_section() {
    for (line, id) in
        [("a:1|c|c:abc", "abc"), ("a:1|c|@0.5|c:a:b|T17", "a:b"), ("a:1|ms|T1|c:x|@1", "x")]
    {
        let got = record_default(line);
        assert_eq!((got.samples, got.events.len()), (1, 1), "{line}");
        assert_eq!(got.events[0].0["labels"], json!({"container_id": id}), "{line}");
        assert!(got.sample_errors.is_empty(), "{line}");
    }
    // Lines that can be read as several samples are.
    assert_eq!(record_default("a:1|c|c:2|c").samples, 2);
    assert_eq!(record_default("a:1|c:2|c").samples, 2);
    assert_eq!(record_default("a:1|c|c:").samples, 2);
    let got = record_default("a:1|c|c:7|c:3");
    assert_eq!((got.samples, got.events.len(), got.sample_errors.len()), (3, 1, 2));
    assert_eq!(got.events[0].0["value"], number(7.0));
    let origins = ParserFlags { origins: true, ..ParserFlags::default() };
    for (line, samples) in [("a:1|c|c:7|c:3", 3), ("a:1|c|c:7|e:x", 1), ("a:1|c|e:x|c:7", 1)] {
        assert_eq!(record(line.as_bytes(), origins).samples, samples, "{line}");
    }
}

#[test]
fn a_tiny_rate_is_one_event_with_a_capped_weight() {
    for (line, weight) in [
        ("t:1|ms|@0.000001", 1_000_000),
        ("t:1|ms|@1e-12", MAX_WEIGHT),
        ("t:1|ms|@1e-310", MAX_WEIGHT),
        ("t:1|ms|@0.3", 3),
    ] {
        let got = record_default(line);
        assert_eq!(got.event_count, 1, "{line}");
        assert_eq!(got.events[0].1, weight, "{line}");
    }
}

#[test]
fn a_rate_that_is_nan_is_invalid_for_observers() {
    let got = record_default("t:1|ms|@nan");
    assert_eq!(got.events[0].1, 1);
    assert_eq!(got.sample_errors, BTreeMap::from([("invalid_sample_factor", 1)]));
    let got = record_default("t:1|c|@nan");
    assert_eq!(got.events[0].0["value"], "NaN");
    assert!(got.sample_errors.is_empty());
}

#[test]
fn sets_are_events_if_enabled() {
    let line = b"users:anna|s|#a:b";
    assert_eq!(
        record(line, ParserFlags::default()).sample_errors,
        BTreeMap::from([("malformed_value", 1)])
    );
    let sets = ParserFlags { sets: true, ..ParserFlags::default() };
    let got = record(line, sets);
    assert_eq!(got.events[0].0["type"], "set anna");
    assert_eq!(got.events[0].0["labels"], json!({"a": "b"}));
    assert_eq!(record(b"users:|s", sets).sample_errors, BTreeMap::from([("malformed_value", 1)]));
}

#[test]
fn events_and_service_checks_are_recognised() {
    let event = record_default("_e{5,4}:title|text|t:warning|#env:prod");
    assert_eq!((event.dogstatsd_events, event.service_checks), (1, 0));
    assert_eq!(event.sample_errors, BTreeMap::from([("malformed_value", 1)]));
    // Lines that statsd_exporter reads as metrics are metrics here.
    for line in ["_e{a:1|c", "_sc|a:1|c", "_e{a:x|c:2|c"] {
        let metric = record_default(line);
        assert_eq!((metric.dogstatsd_events, metric.service_checks), (0, 0), "{line}");
        assert_eq!(metric.events.len(), 1, "{line}");
    }
    let check = record_default("_sc|name|0");
    assert_eq!((check.dogstatsd_events, check.service_checks), (0, 1));
    assert_eq!(check.sample_errors, BTreeMap::from([("malformed_line", 1)]));
}

#[test]
fn a_line_may_have_a_thousand_tags() {
    let tags = |count: usize| (0..count).map(|n| format!("k{n}:v,")).collect::<String>();
    for (count, events) in [(MAX_TAGS, 2), (MAX_TAGS + 1, 0)] {
        let got = record_default(&format!("a:1:2|ms|#{}", tags(count)));
        assert_eq!((got.samples, got.event_count), (2, events), "{count} tags");
        let refused = BTreeMap::from([("too_many_tags", 2)]);
        assert_eq!(got.sample_errors, if events > 0 { BTreeMap::new() } else { refused });
        let named = record_default(&format!("a,{}:1|c:2|g", tags(count).replace(':', "=")));
        assert_eq!((named.samples, named.event_count), (events, events), "{count} name tags");
        let refused = BTreeMap::from([("too_many_tags", 1)]);
        assert_eq!(named.sample_errors, if events > 0 { BTreeMap::new() } else { refused });
    }
    // All tag sections of a line share the limit, and malformed tags count.
    let half = tags(MAX_TAGS / 2);
    assert!(record_default(&format!("a:1|c|#{half}|#{half}")).sample_errors.is_empty());
    let refused = BTreeMap::from([("too_many_tags", 1)]);
    assert_eq!(record_default(&format!("a:1|c|#{half}|#{half}x:y,")).sample_errors, refused);
    assert_eq!(record_default(&format!("a:1|c|#{}", ",".repeat(1_002))).sample_errors, refused);
}

#[test]
fn simple_lines() {
    let got = split_simple(b"a,b=c:1.5|ms|@0.1|#x:y,z").expect("simple");
    assert_eq!(
        got,
        SimpleLine {
            key: b"a,b=c",
            value: b"1.5",
            kind: SimpleKind::Timer,
            rate: Some(b"0.1"),
            tags: Some(b"x:y,z"),
            origin: b"",
            origin_is_first: false,
        }
    );
    assert_eq!(split_simple(b"a:1|c|T1|c:i|e:x|#t|@1"), split_simple(b"a:1|c|@1|c:i|e:x|T|#t"));
    for (line, origin) in [
        ("a:1|c|#x:y|c:id", "|c:id"),
        ("a:1|c|c:id", "|c:id"),
        ("a:1|c|e:x", "|e:x"),
        ("a:1|c|c:id|e:x", "|c:id|e:x"),
        ("a:1|c|#|c:id|e:x", "|c:id|e:x"),
        ("a:1|c|c:id|#|c:id", "|c:id"),
        ("a:1|c|e:x|c:id", "|c:id"),
        ("a:1|c:id", "|c:id"),
    ] {
        let known = split_simple_with(line.as_bytes(), origin.as_bytes());
        assert_eq!(known, split_simple(line.as_bytes()), "{line:?}");
    }
    for empty in ["a:1|c|c:", "a:1|c|c:|#x:y", "a:1|c|#x:y|e:|@1", "a:1|c|c:||#x:y"] {
        assert_eq!(split_simple(empty.as_bytes()), None, "{empty:?}");
    }
    assert_eq!(split_simple(b"a:1|c|#").and_then(|line| line.tags), Some(&b""[..]));
    assert_eq!(
        split_simple(b"a:1|g").map(|line| (line.kind, line.tags)),
        Some((SimpleKind::Gauge, None))
    );
    for (line, origin) in [
        ("a:1|c|#x:y|c:id", "|c:id"),
        ("a:1|c|#|c:id|e:it-false,pu-u", "|c:id|e:it-false,pu-u"),
        ("a:1|c|c:id|#x:y", "|c:id"),
        ("a:1|c|T1|e:x|c:i:d|#", "|e:x|c:i:d"),
        ("a:1|c|c:id", "|c:id"),
        ("a:1|c|@0.1|c:id", "|c:id"),
    ] {
        let got = split_simple(line.as_bytes()).expect(line);
        assert_eq!(got.origin, origin.as_bytes(), "{line:?}");
    }
    for line in [
        "",
        "a",
        "a:",
        "a:1|c|#x:y|@0.5|#",
        "a:1|c|#|c:",
        "a:1|c|#x|c:1|c:2",
        "a:1|c|c:7|c:3",
        "a:1|c|c:1|#x|e:2",
        "a:1|c|T1|T2",
        "a:1|c|T1x",
        "a:1|c|e:it-false",
        "a:1|c|#x:y|c",
        "a:1",
        ":1|c",
        "a:|c",
        "a:1|",
        "a:1|x",
        "a:1|cc",
        "a:1|m",
        "a:1|s",
        "a:1|c:2|c",
        "a:1:2|ms",
        "a:1|c|@0.1:2|c",
        "a:1|c|c:",
        "a:1|c|",
        "a:1|c\r",
    ] {
        assert_eq!(split_simple(line.as_bytes()), None, "{line:?}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// Returns an origin, as of an earlier line.
    fn origins() -> impl Strategy<Value = &'static str> {
        let all = vec!["", "|c:a", "|c:a:b", "|e:a", "|e:=,#", "|c:a|e:b", "|e:a|c:b"];
        for origin in all.iter().filter(|origin| !origin.is_empty()) {
            let line = format!("a:1|c|#{origin}");
            let found = split_simple(line.as_bytes()).expect("simple").origin;
            assert_eq!(found, origin.as_bytes());
        }
        prop::sample::select(all)
    }

    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "a",
            "b",
            ":",
            ":",
            "|",
            "|",
            "#",
            ",",
            "=",
            "[",
            "]",
            "@",
            "0.1",
            "1",
            "-2",
            "c",
            "g",
            "ms",
            "h",
            "d",
            "s",
            "c:",
            "T",
            "|T1",
            "|c:x",
            "|e:y",
            "|@0.5",
            "|#container_id:z",
            "é",
            "nan",
            "1e400",
            "_e{",
            "_sc|",
            "|#",
            "|c",
            "container_id",
        ]);
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    fn flags() -> impl Strategy<Value = ParserFlags> {
        any::<[bool; 6]>().prop_map(|[dogstatsd, influxdb, librato, signalfx, sets, origins]| {
            ParserFlags { dogstatsd, influxdb, librato, signalfx, sets, origins }
        })
    }

    proptest! {
        /// Two lines that differ only in their value have equal labels and counters. The key cache relies on
        /// this.
        #[test]
        fn simple_lines_depend_on_key_and_tags_only(line in pieces(), flags in flags()) {
            if let Some(simple) = split_simple(line.as_bytes()) {
                prop_assert!(!simple.value.is_empty());
                let mut other = simple.key.to_vec();
                other.extend_from_slice(b":7");
                other.extend_from_slice(&line.as_bytes()[simple.key.len() + 1 + simple.value.len()..]);
                let mut first = simple.key.to_vec();
                first.extend_from_slice(b":8");
                first.extend_from_slice(&line.as_bytes()[simple.key.len() + 1 + simple.value.len()..]);
                let (a, b) = (record(&first, flags), record(&other, flags));
                prop_assert_eq!(&a.sample_errors, &b.sample_errors);
                prop_assert_eq!((a.samples, a.tags, a.tag_errors), (b.samples, b.tags, b.tag_errors));
                prop_assert!(a.samples <= 1);
                let labels = |got: &Recorder| got.events.first().map(|(event, _)| event["labels"].clone());
                prop_assert_eq!(labels(&a), labels(&b));
            }
        }

        /// The origin of an earlier line changes nothing.
        #[test]
        fn a_known_origin_has_no_effect(line in pieces(), origin in origins(), ends in any::<bool>()) {
            let line = if ends { [&line, origin].concat() } else { line };
            let known = split_simple_with(line.as_bytes(), origin.as_bytes());
            prop_assert_eq!(known, split_simple(line.as_bytes()));
        }

        /// A timestamp and the order of the sections, except of origin and tags, change nothing. The key cache relies on this.
        #[test]
        fn the_order_of_sections_has_no_effect(line in pieces(), flags in flags()) {
            if let Some(simple) = split_simple(line.as_bytes()) {
                let (start, rest) = line.split_once('|').expect("a type");
                let kind = rest.split('|').next().expect("a type");
                let mut sorted = format!("{start}|{kind}").into_bytes();
                if let Some(rate) = simple.rate {
                    sorted.extend([b"|@", rate].concat());
                }
                let tags = simple.tags.map(|tags| [b"|#", tags].concat()).unwrap_or_default();
                let origin = simple.origin.to_vec();
                sorted.extend(if simple.origin_is_first { [origin, tags] } else { [tags, origin] }.concat());
                let (given, sorted) = (record(line.as_bytes(), flags), record(&sorted, flags));
                // The key cache keeps only lines without errors.
                if sorted.sample_errors.is_empty() {
                    prop_assert!(given.sample_errors.is_empty());
                    prop_assert_eq!(given.events, sorted.events);
                    prop_assert_eq!((given.tags, given.tag_errors), (sorted.tags, sorted.tag_errors));
                }
            }
        }

        /// Every sample is an event, an error, or has a weight of 0.
        #[test]
        fn every_sample_is_accounted_for(line in pieces(), flags in flags()) {
            let got = record(line.as_bytes(), flags);
            let errors: u64 = got.sample_errors.values().sum();
            prop_assert!(got.event_count <= got.samples);
            prop_assert!(line.is_empty() || got.samples > 0 || errors > 0);
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(line in prop::collection::vec(any::<u8>(), 0..64), flags in flags()) {
            let got = record(&line, flags);
            prop_assert!(line.is_empty() || got.samples > 0 || !got.sample_errors.is_empty());
        }
    }
}

/// What looks like an event or a service check is one only if no sample of its line is valid.
#[test]
fn samples_that_look_like_dogstatsd_messages_are_samples() {
    let flags = ParserFlags { origins: true, ..ParserFlags::default() };
    for (name, events, service_checks) in [("_e{1}", 1, 0), ("_sc|a", 0, 1), ("x{1}", 0, 0)] {
        let sample = format!("{name}:1|c|#k:v,bad|c:id|e:data");
        let plain = record(sample.replacen(name, "n", 1).as_bytes(), flags);
        let mut recorded = record(sample.as_bytes(), flags);
        assert_eq!(recorded.events[0].0["name"], name);
        recorded.events[0].0["name"] = json!("n");
        assert_eq!(recorded, plain, "{sample}");
        assert_eq!((plain.tags, plain.tag_errors, plain.origins.len()), (1, 1, 2));
        let message = record(format!("{name}:text|x").as_bytes(), flags);
        assert_eq!((message.dogstatsd_events, message.service_checks), (events, service_checks));
        assert!(message.events.is_empty() && message.sample_errors.len() == 1);
    }
}
