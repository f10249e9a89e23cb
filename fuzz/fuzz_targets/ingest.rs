//! Any datagrams under a small mapping: all expositions are valid and equivalent, every line and every sample has one
//! outcome, and known lines have the same effect as unknown ones.
//!
//! The first byte selects mapping and flags; a NUL ends a datagram and advances the clock.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kstatd::exposition::budget::{Budget, BudgetMode};
use kstatd::exposition::message::{self, Delimited, ProtoText};
use kstatd::exposition::prototext::Layout;
use kstatd::exposition::tests::text_converter::TextConverter;
use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::statsd::line::ParserFlags;
use kstatd::mapper::Mapper;
use kstatd::statsd::{Clock, Offline, OfflineConfig, is_own_name};
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../tests/support/exposition.rs"]
mod exposition;

/// One mapping for each value of two bits of the first byte.
const MAPPINGS: [&str; 4] = [
    "",
    "defaults: {observer_type: histogram, ttl: 3s}\n",
    "mappings:\n\
     - {match: a.*, name: m, labels: {kk: \"$1\"}, help: one, ttl: 2s}\n\
     - {match: b.*, name: m, labels: {other: \"$1\"}, observer_type: histogram, scale: 0.5}\n\
     - {match: c.*, name: \"m_$1\", honor_labels: true, labels: {kk: rule}}\n\
     - {match: d.*, name: gone, action: drop}\n\
     - {match: e.*, name: le, labels: {quantile: \"$1\", le: \"$1\"}}\n",
    "mappings:\n\
     - {match: \"^(.*)$\", match_type: regex, name: \"$1\", labels: {whole: \"${1}\"}, ttl: 1s}\n",
];

fn offline(bits: u8, key_cache_size: usize, clock: &Clock) -> Offline {
    let on = |bit: u8| bits & 1 << bit == 0;
    let mapping = MAPPINGS[usize::from(bits >> 6)];
    Offline::new(
        Mapper::from_yaml(mapping).expect("a valid mapping"),
        OfflineConfig {
            flags: ParserFlags {
                dogstatsd: on(0),
                influxdb: on(1),
                librato: on(2),
                signalfx: on(3),
                sets: !on(4),
                origins: false,
            },
            key_cache_size,
            budget: if on(5) { Budget::default() } else { budget() },
            keep_empty_labels: true,
            // Both or none count them for budgets.
            openmetrics_created: key_cache_size == 0 || !on(5),
            reserved: Arc::new(|name| name.starts_with("kube_") || is_own_name(name)),
            clock: clock.clone(),
            ..OfflineConfig::default()
        },
    )
}

/// Small limits, so that most streams exceed them.
fn budget() -> Budget {
    Budget {
        mode: BudgetMode::Enforce,
        series: 40,
        series_per_metric: 20,
        values_per_label: 2,
        value_bytes: 8,
        name_bytes: 24,
        memory: 100_000,
        ..Budget::default()
    }
}

fn body(frames: impl Iterator<Item = Bytes>) -> Vec<u8> {
    frames.flat_map(|frame| frame.to_vec()).collect()
}

fn text(frames: impl Iterator<Item = Bytes>) -> String {
    String::from_utf8(body(frames)).expect("UTF-8")
}

/// Returns the sum of the samples of an own family.
fn sum(own: &str, family: &str) -> f64 {
    own.lines()
        .filter(|line| line.starts_with(family))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

fuzz_target!(|data: &[u8]| {
    let Some((&bits, stream)) = data.split_first() else { return };
    let clock = Clock::manual();
    let mut short = offline(bits, 1 << 10, &clock);
    let mut long = offline(bits, 0, &clock);
    let mut lines = 0;
    for datagram in stream.split(|&byte| byte == 0) {
        lines += 1 + datagram.iter().filter(|&&byte| byte == b'\n').count();
        short.lines(datagram);
        long.lines(datagram);
        clock.advance(Duration::from_millis(700));
        short.expire();
        long.expire();
    }
    let query = ScrapeQuery::default();
    let plain = text(short.frames(Format::Text, &query));
    assert_eq!(exposition::check_text(&plain), Ok(()), "{plain}");
    if bits & 1 << 5 != 0 {
        assert!(plain.lines().filter(|line| !line.starts_with('#')).count() <= 40, "{plain}");
    }
    let open_metrics = text(short.frames(Format::OpenMetrics, &query));
    assert_eq!(exposition::check_open_metrics(&open_metrics), Ok(()), "{open_metrics}");
    let with_created = text(long.frames(Format::OpenMetrics, &query));
    assert_eq!(exposition::check_open_metrics(&with_created), Ok(()), "{with_created}");
    assert_eq!(plain, text(long.frames(Format::Text, &query)));
    let protobuf = body(message::frames(vec![short.typed(&query)], Delimited::default()));
    assert_eq!(exposition::text_samples(&plain), Ok(exposition::protobuf_samples(&protobuf)));

    for layout in [Layout::Lines, Layout::Compact] {
        let translated = TextConverter::new([Bytes::from(protobuf.clone())].into_iter(), layout);
        let direct = message::frames(vec![short.typed(&query)], ProtoText::new(layout));
        assert_eq!(text(direct), text(translated));
    }

    let own = text(short.self_metrics());
    // Only one of them caches lines. Which of those it evicts depends on the keys of its hash function.
    let rest = |own: &str| -> Vec<String> {
        let of_cache = |line: &str| line.contains("mapper_cache") || line.contains("key_evictions");
        own.lines().filter(|line| !of_cache(line)).map(str::to_owned).collect()
    };
    assert_eq!(rest(&own), rest(&text(long.self_metrics())));
    assert_eq!(sum(&own, "statsd_exporter_lines_total "), lines as f64);
    assert_eq!(sum(&own, "kstatd_statsd_lines_total{"), lines as f64);
    let samples = sum(&own, "statsd_exporter_samples_total ");
    assert_eq!(sum(&own, "kstatd_statsd_samples_total{"), samples, "{own}");
});
