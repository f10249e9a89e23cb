//! Any datagrams under a small mapping: each costs at most twice the steps per byte of ordinary lines.
//!
//! The first byte selects the mapping and the parser's flags; a NUL ends a datagram.
#![no_main]

use std::sync::LazyLock;

use kstatd::fuzzed::steps;
use kstatd::statsd::line::ParserFlags;
use kstatd::mapper::Mapper;
use kstatd::statsd::{Offline, OfflineConfig};
use libfuzzer_sys::fuzz_target;

/// One mapping for each value of two bits of the first byte.
const MAPPINGS: [&str; 4] = [
    "",
    "defaults: {observer_type: histogram, normalise: {k: [url, uuid, ip, timestamp, base64]}}\n",
    "mappings:\n\
     - {match: a.*, name: m, labels: {kk: \"$1\"}}\n\
     - {match: \"*.*.c.*\", name: \"m_$3\", honor_labels: true, labels: {kk: rule}}\n\
     - {match: \"a.*.*.d\", name: gone, action: drop}\n",
    "mappings:\n\
     - {match: \"^a(.*)[.]b\", match_type: regex, name: a, labels: {whole: \"${1}\"}}\n",
];

fn offline(bits: u8) -> Offline {
    let on = |bit: u8| bits & 1 << bit == 0;
    let mapper = Mapper::from_yaml(MAPPINGS[usize::from(bits >> 6)]).expect("a valid mapping");
    let flags = ParserFlags {
        dogstatsd: on(0),
        influxdb: on(1),
        librato: on(2),
        signalfx: on(3),
        sets: !on(4),
        origins: !on(5),
    };
    Offline::new(mapper, OfflineConfig { flags, ..OfflineConfig::default() })
}

/// Steps per byte of new ordinary lines.
static ORDINARY: LazyLock<f64> = LazyLock::new(|| {
    let line = |n: usize| format!("requests.done:1|c|#route:r{n},status:200,region:eu-west-1\n");
    let lines: String = (0..1_000).map(line).collect();
    steps(&mut offline(0), lines.as_bytes()) as f64 / lines.len() as f64
});

/// Fixed steps that a datagram may cost.
const BASE: f64 = 500.0;

fuzz_target!(|data: &[u8]| {
    let Some((&bits, stream)) = data.split_first() else { return };
    let allowed = 2.0 * *ORDINARY;
    let mut offline = offline(bits);
    for datagram in stream.split(|&byte| byte == 0) {
        let steps = steps(&mut offline, datagram) as f64;
        let length = datagram.len();
        assert!(steps <= BASE + allowed * length as f64, "{steps} steps for {length} bytes");
    }
});
