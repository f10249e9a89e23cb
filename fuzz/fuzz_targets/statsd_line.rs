//! Any bytes as a StatsD line: parsing ends in linear time, with sorted and unique labels.
//!
//! The first byte sets the parser's flags.
#![no_main]

use kstatd::statsd::line::{
    Event, MAX_WEIGHT, ParserFlags, SampleError, Sink, parse, split_simple,
};
use libfuzzer_sys::fuzz_target;

#[derive(Default)]
struct Check {
    events: u64,
    samples: u64,
    errors: u64,
}

impl Sink for Check {
    fn event(&mut self, event: &Event<'_>) {
        assert!((1..=MAX_WEIGHT).contains(&event.weight));
        assert!(event.labels.is_sorted_by(|a, b| a.name < b.name));
        self.events += 1;
    }
    fn sample(&mut self) {
        self.samples += 1;
    }
    fn sample_error(&mut self, _: SampleError, count: u64) {
        self.errors += count;
    }
    fn tag_errors(&mut self, count: u64) {
        assert!(count > 0);
    }
    fn tags(&mut self) {}
}

fuzz_target!(|data: &[u8]| {
    let Some((&bits, line)) = data.split_first() else { return };
    let flags = ParserFlags {
        dogstatsd: bits & 1 != 0,
        influxdb: bits & 2 != 0,
        librato: bits & 4 != 0,
        signalfx: bits & 8 != 0,
        sets: bits & 16 != 0,
        origins: bits & 32 != 0,
    };
    let mut check = Check::default();
    parse(line, flags, &mut check);
    assert!(check.events <= check.samples);
    assert!(line.is_empty() || check.samples + check.errors > 0);
    if split_simple(line).is_some() {
        assert!(check.samples <= 1);
    }
});
