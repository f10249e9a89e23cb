//! The stages of the Kubernetes side, from the bytes of an object to those of a scrape.
//!
//! For comparison, one 10 KB pod takes 17 µs in Go's protobuf decoder, 11 µs with full prost types and 26 µs with
//! serde_json into full types. The last benchmark copies the bytes of a scrape in memory.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kstatd::cache::Rendered;
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::server::gzip::Member;

mod fixture;
use fixture::{Pods, updates};

/// Pods of the updated and scraped store.
const STORED: u32 = 10_000;

/// Decodes a different pod each time, so that the CPU cache is cold.
fn decode_and_render(c: &mut Criterion) {
    for (name, json) in [("protobuf", false), ("JSON", true)] {
        let pods = Pods::new(2_000, json, 0);
        let (mut out, mut at) = (Rendered::default(), 0);
        c.bench_function(&format!("decode and render a pod, {name}"), |b| {
            b.iter(|| {
                pods.render(at, &mut out);
                at += 1;
                black_box(out.lines.len())
            });
        });
    }
}

/// Measures the update of the cache by one watch event, and by a list.
fn update(c: &mut Criterion) {
    let (_, store) = Pods::new(STORED, false, 0).catalog();
    let updates = updates(STORED);
    let mut at = 0;
    c.bench_function("update one of 10,000 pods", |b| {
        b.iter(|| {
            let pair = &updates[at % updates.len()];
            store.apply(&pair[at / updates.len() % 2]);
            at += 1;
        });
    });
    let listed = Pods::new(1_000, false, 0).rendered();
    let mut group = c.benchmark_group("list");
    group.throughput(Throughput::Elements(listed.len() as u64));
    group.bench_function("store 1,000 pods", |b| {
        b.iter_batched_ref(
            || store.replace(),
            |list| listed.iter().for_each(|rendered| list.push(rendered)),
            BatchSize::PerIteration,
        );
    });
}

/// A snapshot and the whole body of 10,000 pods.
fn scrape(c: &mut Criterion) {
    let (catalog, store) = Pods::new(STORED, false, 0).catalog();
    let query = ScrapeQuery::default();
    let mut group = c.benchmark_group("scrape of 10,000 pods");
    group.sample_size(20);
    let text: Vec<u8> = catalog.frames(Format::Text, &query).flatten().collect();
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("text", |b| {
        b.iter(|| catalog.frames(Format::Text, &query).map(|frame| frame.len()).sum::<usize>());
    });
    let deflated = || {
        Member::new(catalog.deflated(Format::Text, &query)).map(|part| part.len()).sum::<usize>()
    };
    group.bench_function("gzip", |b| b.iter(deflated));
    let updates = updates(STORED);
    let mut at = 0;
    group.bench_function("gzip, 1,000 pods changed since the last", |b| {
        b.iter_batched(
            || {
                for _ in 0..1_000 {
                    let pair = &updates[at % updates.len()];
                    store.apply(&pair[at / updates.len() % 2]);
                    at += 1;
                }
            },
            |()| deflated(),
            BatchSize::PerIteration,
        );
    });
    let mut copy = vec![0_u8; text.len()];
    group.bench_function("limit: copying the text", |b| {
        b.iter(|| {
            copy.copy_from_slice(black_box(&text));
            black_box(copy.last().copied())
        });
    });
}

criterion_group!(benches, decode_and_render, update, scrape);
criterion_main!(benches);
