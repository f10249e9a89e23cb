//! For any input, `/metrics` is valid, every line is counted, and the fast path for known lines gives the
//! same result as the full parser.
//!
//! Streams combine conflicting pieces: few names with the suffixes of derived metrics, all types and
//! dialects, reserved labels and names, unusual numbers and garbage.

mod support;

use std::sync::Arc;
use std::time::Duration;

use kstatd::exposition::message::{self, Delimited};
use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::mapper::Mapper;
use kstatd::statsd::line::ParserFlags;
use kstatd::statsd::{Clock, Offline, OfflineConfig, Reserved, is_own_name};
use proptest::prelude::*;
use support::exposition;

const MAPPINGS: [&str; 4] = [
    "",
    "defaults: {observer_type: histogram, ttl: 3s}\n",
    "mappings:\n\
     - {match: a.*, name: m, labels: {kk: \"$1\"}, help: one, ttl: 2s}\n\
     - {match: b.*, name: m, labels: {other: \"$1\"}, help: two, observer_type: histogram, scale: 0.5}\n\
     - {match: c.*, name: \"m_$1\", honor_labels: true, labels: {kk: rule}}\n\
     - {match: d.*, name: gone, action: drop}\n\
     - {match: e.*, name: le, labels: {quantile: \"$1\", le: \"$1\"}}\n\
     - {match: f.*, name: f, help: 'a \"quoted\" \\ help', observer_type: histogram, \
        histogram_options: {buckets: [-5, 0, 5]}}\n",
    "mappings:\n\
     - {match: \"^(.*)$\", match_type: regex, name: \"$1\", labels: {whole: \"${1}\"}, ttl: 1s}\n",
];

fn name() -> impl Strategy<Value = String> {
    let base = prop_oneof![
        Just("m"),
        Just("a.x"),
        Just("b.x"),
        Just("c.sum"),
        Just("c.count"),
        Just("d.x"),
        Just("e.x"),
        Just("f.x"),
        Just("statsd_exporter_lines_total"),
        Just("statsd_exporter_lines"),
        Just("1-2--3"),
        Just("kube_pod_info"),
        Just("kube_pod"),
        Just("kube_pod_status_ready"),
        Just(""),
    ];
    let suffix = prop_oneof![
        4 => Just(""),
        1 => Just("_sum"),
        1 => Just("_count"),
        1 => Just("_bucket"),
        1 => Just("_total"),
        1 => Just("_created"),
        1 => Just("_total_created"),
    ];
    let tags = prop_oneof![
        6 => Just(""),
        1 => Just(",k=v"),
        1 => Just("#k=v,le=1"),
        1 => Just("[quantile=0.5]"),
        1 => Just("]["),
        1 => Just(",__x=y"),
    ];
    (base, suffix, tags).prop_map(|(base, suffix, tags)| format!("{base}{suffix}{tags}"))
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        (-50i32..500).prop_map(|value| value.to_string()),
        (-5.0f64..50.0).prop_map(|value| value.to_string()),
        prop_oneof![
            Just("nan"),
            Just("-inf"),
            Just("1e308"),
            Just("0x1p4"),
            Just("+3"),
            Just("-0"),
            Just("1_0"),
            Just("x"),
            Just(""),
            Just("1:2:3"),
            Just("18446744073709551616"),
        ]
        .prop_map(str::to_owned),
    ]
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        Just("c"),
        Just("g"),
        Just("ms"),
        Just("h"),
        Just("d"),
        Just("s"),
        Just("x"),
        Just("")
    ];
    let rate = prop_oneof![
        6 => Just(""), 1 => Just("|@0.1"), 1 => Just("|@0.000001"), 1 => Just("|@0"), 1 => Just("|@2"), 1 => Just("|@x"),
    ];
    let tags = prop_oneof![
        6 => Just(""), 1 => Just("|#k:v"), 1 => Just("|#k:\"\\"), 1 => Just("|#quantile:0.5"), 1 => Just("|#le:1,k:2"),
        1 => Just("|#__name__:x"), 1 => Just("|#bare,"), 1 => Just("|#"), 1 => Just("|#a:1,b:2|c:id|T5"), 1 => Just("|c:id"),
    ];
    let usual = (name(), value(), kind, rate, tags).prop_map(|(name, value, kind, rate, tags)| {
        format!("{name}:{value}|{kind}{rate}{tags}").into_bytes()
    });
    prop_oneof![
        30 => usual,
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(|mut line| {
            line.retain(|byte| *byte != b'\n');
            line
        }),
        1 => Just(b"_e{1,1}:a|b".to_vec()),
        1 => Just(b"_sc|a|0".to_vec()),
        1 => Just(b"m:1|c:2|g:3|ms".to_vec()),
    ]
}

fn offline(mapping: &str, key_cache_size: usize, sets: bool, clock: &Clock) -> Offline {
    let mapper = Mapper::from_yaml(mapping).expect("a valid mapping");
    Offline::new(
        mapper,
        OfflineConfig {
            flags: ParserFlags { sets, ..ParserFlags::default() },
            key_cache_size,
            // Those that parse every line have start times, which text does not have.
            openmetrics_created: key_cache_size == 0,
            reserved: reserved(true),
            clock: clock.clone(),
            ..OfflineConfig::default()
        },
    )
}

/// Families of the other side in the same exposition.
const KUBERNETES: [&str; 3] = ["kube_pod_info", "kube_pod_created", "kube_pod_status_ready"];

/// Returns the names that clients may not use, with or without those of the other side.
fn reserved(with_others: bool) -> Reserved {
    Arc::new(move |name| with_others && KUBERNETES.contains(&name) || is_own_name(name))
}

fn other_side() -> String {
    let family = |name| format!("# HELP {name} Theirs.\n# TYPE {name} gauge\n{name} 1\n");
    KUBERNETES.map(family).concat()
}

fn body(frames: impl Iterator<Item = bytes::Bytes>) -> String {
    let body: Vec<u8> = frames.flat_map(|frame| frame.to_vec()).collect();
    String::from_utf8(body).expect("UTF-8")
}

/// Checks that every line and every sample has one outcome, and that the sums agree with the counters of
/// statsd_exporter.
fn check_ledger(own: &str) -> Result<(), String> {
    let sum = |family: &str, filter: &str| -> f64 {
        own.lines()
            .filter(|line| line.starts_with(family) && line.contains(filter))
            .filter_map(|line| {
                line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok())
            })
            .sum()
    };
    let pairs = [
        ("lines", sum("kstatd_statsd_lines_total{", ""), sum("statsd_exporter_lines_total ", "")),
        (
            "samples",
            sum("kstatd_statsd_samples_total{", ""),
            sum("statsd_exporter_samples_total ", ""),
        ),
    ];
    for (what, outcomes, all) in pairs {
        if outcomes != all {
            return Err(format!("{outcomes} outcomes of {all} {what}:\n{own}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stream(
        stream in prop::collection::vec(line(), 1..300),
        mapping in prop::sample::select(&MAPPINGS[..]),
        sets in any::<bool>(),
        repeats in 1usize..3,
        reloads in prop::collection::vec(any::<bool>(), 1..5),
    ) {
        let clock = Clock::manual();
        let mut short = offline(mapping, 1 << 16, sets, &clock);
        let mut long = offline(mapping, 0, sets, &clock);
        for _ in 0..repeats {
            for (number, line) in stream.iter().enumerate() {
                short.line(line);
                long.line(line);
                // The other side adds and removes its families.
                if number % 30 == 29
                    && let Some(with_others) = reloads.get(number / 30 % reloads.len())
                {
                    short.reserve(reserved(*with_others));
                    long.reserve(reserved(*with_others));
                }
                if number % 50 == 49 {
                    clock.advance(Duration::from_millis(1_300));
                    short.expire();
                    long.expire();
                }
            }
            let query = ScrapeQuery::default();
            for with_others in [false, true] {
                short.reserve(reserved(with_others));
                long.reserve(reserved(with_others));
                let others = if with_others { other_side() } else { String::new() };
                let text = body(short.frames(Format::Text, &query));
                prop_assert_eq!(exposition::check_text(&text), Ok(()));
                let open_metrics = body(short.frames(Format::OpenMetrics, &query));
                let other_lines = others.clone();
                prop_assert_eq!(exposition::check_open_metrics(&(others + &open_metrics)), Ok(()));
                let with_created = body(long.frames(Format::OpenMetrics, &query));
                prop_assert_eq!(exposition::check_open_metrics(&(other_lines + &with_created)), Ok(()));
                let is_other = |line: &&str| !line.contains("_created");
                prop_assert!(with_created.lines().filter(is_other).eq(open_metrics.lines().filter(is_other)));
                // No format lacks a series.
                prop_assert_eq!(exposition::text_samples(&text), exposition::text_samples(&open_metrics));
                prop_assert_eq!(&text, &body(long.frames(Format::Text, &query)));
                let protobuf = message::frames(vec![short.typed(&query)], Delimited::default());
                let protobuf: Vec<u8> = protobuf.flatten().collect();
                prop_assert_eq!(exposition::text_samples(&text), Ok(exposition::protobuf_samples(&protobuf)));
            }

            let own = [&short, &long].map(|offline| body(offline.self_metrics()));
            prop_assert_eq!(check_ledger(&own[0]), Ok(()));
            // Only one of them caches keys, which shows in these metrics.
            let rest = |own: &str| -> Vec<String> {
                own.lines().filter(|line| !line.contains("mapper_cache")).map(str::to_owned).collect()
            };
            prop_assert_eq!(rest(&own[0]), rest(&own[1]));
        }
    }
}

/// OpenMetrics does not allow negative quantiles or decreasing sums. The names of samples stay the same.
#[test]
fn values_below_zero_in_open_metrics() {
    let clock = Clock::manual();
    let open_metrics = |mapping: &str, lines: &[&str]| {
        let mut offline = offline(mapping, 1 << 16, false, &clock);
        for line in lines {
            assert!(offline.line(line.as_bytes()).is_empty(), "{line}");
        }
        let text = body(offline.frames(Format::OpenMetrics, &ScrapeQuery::default()));
        assert_eq!(exposition::check_open_metrics(&text), Ok(()), "{text}");
        text.lines()
            .filter(|line| !line.starts_with("# HELP"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let histograms = "defaults: {observer_type: histogram, histogram_options: {buckets: [1]}}\n";
    assert_eq!(
        open_metrics(histograms, &["x:-5|h", "y:5|h"]),
        [
            "# TYPE x_bucket unknown",
            "x_bucket{le=\"1.0\"} 1",
            "x_bucket{le=\"+Inf\"} 1",
            "# TYPE x_sum unknown",
            "x_sum -5",
            "# TYPE x_count unknown",
            "x_count 1",
            "# TYPE y histogram",
            "y_bucket{le=\"1.0\"} 0",
            "y_bucket{le=\"+Inf\"} 1",
            "y_sum 5",
            "y_count 1",
        ]
    );
    // The sum is positive but may decrease. The type stays after it has increased again.
    let summaries = "defaults: {observer_type: summary, summary_options: \
                     {quantiles: [{quantile: 0.5, error: 0.05}]}}\n";
    assert_eq!(
        open_metrics(summaries, &["x:-5|h|#a:1", "x:7|h|#a:1", "x:7|h|#a:1", "x:1|h|#a:2"]),
        [
            "# TYPE x unknown",
            "x{a=\"1\",quantile=\"0.5\"} 7",
            "x{a=\"2\",quantile=\"0.5\"} 1",
            "# TYPE x_sum unknown",
            "x_sum{a=\"1\"} 9",
            "x_sum{a=\"2\"} 1",
            "# TYPE x_count unknown",
            "x_count{a=\"1\"} 3",
            "x_count{a=\"2\"} 1",
        ]
    );
    let below = "defaults: {observer_type: histogram, histogram_options: {buckets: [-1]}}\n";
    assert_eq!(
        open_metrics(below, &["x:5|h"]),
        [
            "# TYPE x_bucket unknown",
            "x_bucket{le=\"-1.0\"} 0",
            "x_bucket{le=\"+Inf\"} 1",
            "# TYPE x_sum unknown",
            "x_sum 5",
            "# TYPE x_count unknown",
            "x_count 1",
        ]
    );
}

/// A type reserves further names, which another family may have.
#[test]
fn names_that_a_type_would_claim_in_open_metrics() {
    for (lines, types) in [
        (&["kube_pod_status_ready_total:1|c"][..], &["kube_pod_status_ready_total unknown"][..]),
        (&["a_total:1|c"], &["a counter"]),
        (&["a_total:1|c", "a:1|g"], &["a gauge", "a_total unknown"]),
        (&["a_total:1|c", "a_created:1|g"], &["a_created gauge", "a_total unknown"]),
        (
            &["a:1|ms", "a_created:1|g"],
            &["a unknown", "a_created gauge", "a_sum unknown", "a_count unknown"],
        ),
        (
            &["kube_pod:1|ms"],
            &["kube_pod unknown", "kube_pod_sum unknown", "kube_pod_count unknown"],
        ),
        (&["a:1|ms", "a_count_total:1|c"], &["a summary", "a_count_total unknown"]),
        (&["statsd_exporter_lines:1|g"], &["statsd_exporter_lines gauge"]),
    ] {
        let clock = Clock::manual();
        let mut offline = offline("", 1 << 16, false, &clock);
        for line in lines {
            assert!(offline.line(line.as_bytes()).is_empty(), "{line}");
        }
        let text = body(offline.frames(Format::OpenMetrics, &ScrapeQuery::default()));
        assert_eq!(exposition::check_open_metrics(&(other_side() + &text)), Ok(()), "{text}");
        let mut found: Vec<_> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let mut types = types.to_vec();
        found.sort_unstable();
        types.sort_unstable();
        assert_eq!(found, types, "{text}");
    }
}

/// Several values on one line share a look-up, which must not change the result.
#[test]
fn values_of_one_line_equal_separate_lines() {
    // The line, and the equivalent lines.
    let cases: [(&str, &[&str]); 8] = [
        (
            "t:1:2:3:x:4|ms|#k:v",
            &["t:1|ms|#k:v", "t:2|ms|#k:v", "t:3|ms|#k:v", "t:x|ms|#k:v", "t:4|ms|#k:v"],
        ),
        ("b.x:1:2|h|@0.1", &["b.x:1|h|@0.1", "b.x:2|h|@0.1"]),
        ("b.x,le=1:1|h:2|h", &["b.x,le=1:1|h", "b.x,le=1:2|h"]),
        ("d.x:1:2|d", &["d.x:1|d", "d.x:2|d"]),
        (
            "c.y,k=v:-1|c:2|c:nan|c:-3|c:nan|c",
            &["c.y,k=v:-1|c", "c.y,k=v:2|c", "c.y,k=v:nan|c", "c.y,k=v:-3|c", "c.y,k=v:nan|c"],
        ),
        (
            "w:1|ms|@0.5:2|ms:+3|g:-1|g:7|g:1|c",
            &["w:1|ms|@0.5", "w:2|ms", "w:+3|g", "w:-1|g", "w:7|g", "w:1|c"],
        ),
        ("l,__k=v:1|c:2|c", &["l,__k=v:1|c", "l,__k=v:2|c"]),
        ("kube_x:1|c:2|c", &["kube_x:1|c", "kube_x:2|c"]),
    ];
    for mapping in MAPPINGS {
        let clock = Clock::manual();
        let mut joined = offline(mapping, 1 << 16, true, &clock);
        let mut apart = offline(mapping, 1 << 16, true, &clock);
        for _ in 0..2 {
            for (line, lines) in &cases {
                joined.line(line.as_bytes());
                for line in *lines {
                    apart.line(line.as_bytes());
                }
            }
            let query = ScrapeQuery::default();
            for format in [Format::Text, Format::OpenMetrics] {
                assert_eq!(
                    body(joined.frames(format, &query)),
                    body(apart.frames(format, &query)),
                    "{mapping}"
                );
            }
            // All own metrics except the numbers of lines, batches and tags.
            let own = [&joined, &apart].map(|offline| {
                let own = body(offline.self_metrics());
                let counts = own.lines().filter(|line| {
                    ["lines_total", "mapper_cache", "tag_errors"]
                        .iter()
                        .all(|name| !line.contains(name))
                });
                counts.map(str::to_owned).collect::<Vec<_>>()
            });
            assert_eq!(own[0], own[1], "{mapping}");
        }
    }
}
