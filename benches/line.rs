//! Parsing one line. The goal for the whole path of a line is 3 × 115 ns with 20 lines per datagram.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use kstatd::statsd::line::{Event, ParserFlags, SampleError, Sink, parse, split_simple};

/// Sums up all events, so that nothing is optimised away.
#[derive(Default)]
struct Sum(f64);

impl Sink for Sum {
    fn event(&mut self, event: &Event<'_>) {
        self.0 += event.value + (event.name.len() + event.labels.len()) as f64;
    }
    fn sample(&mut self) {
        self.0 += 1.0;
    }
    fn sample_error(&mut self, _: SampleError, count: u64) {
        self.0 += count as f64;
    }
    fn tag_errors(&mut self, count: u64) {
        self.0 += count as f64;
    }
    fn tags(&mut self) {}
}

fn lines(c: &mut Criterion) {
    let lines = [
        ("plain", "api.requests.checkout:1|c"),
        ("timer with rate", "api.latency.checkout:12.75|ms|@0.1"),
        ("DogStatsD tags", "api.requests:1|c|#service:checkout,region:eu-west-1,status:200"),
        ("InfluxDB tags", "api.requests,service=checkout,region=eu-west-1:1|c"),
        ("extended aggregation", "api.latency:1:2:3:4:5:6:7:8|ms|#service:checkout"),
        ("bad type", "api.requests.checkout:1|x"),
    ];
    for (name, line) in lines {
        c.bench_function(&format!("parse, {name}"), |b| {
            let mut sum = Sum::default();
            b.iter(|| parse(black_box(line.as_bytes()), ParserFlags::default(), &mut sum));
            black_box(sum.0);
        });
    }
    for (name, line) in lines {
        c.bench_function(&format!("split_simple, {name}"), |b| {
            b.iter(|| black_box(split_simple(black_box(line.as_bytes()))));
        });
    }
}

criterion_group!(benches, lines);
criterion_main!(benches);
