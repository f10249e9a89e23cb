//! The path of a line, and the scrape of many series.
//!
//! Goals, measured on two cores: 345 ns of CPU a line with 20 lines per datagram, 2.3 µs with one, both with
//! `recvmmsg` (3 × and 1.3 × of a program that only receives and counts); 0.24 s for a scrape of a million series (3
//! × of writing as many bytes from memory). The listener's CPU is read from the scheduler's accounting of its thread,
//! so it excludes the sender and other load.

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::mapper::Mapper;
use kstatd::statsd::{Listener, Offline, OfflineConfig, Pipeline, PipelineConfig, SelfMetrics};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Twenty typical lines of an application: counters, gauges and timers, most with tags.
fn mixed(round: u32) -> String {
    let mut packet = String::new();
    for line in 0..20u32 {
        let number = round % 50;
        let _ = match line % 5 {
            0 => writeln!(
                packet,
                "api.requests.route{number}:1|c|#service:checkout,region:eu-west-1,status:200"
            ),
            1 => writeln!(
                packet,
                "api.latency.route{number}:{}.5|ms|#service:checkout,region:eu-west-1",
                line + number
            ),
            2 => writeln!(packet, "queue.depth.q{number}:{}|g", line * 7 + number),
            3 => writeln!(packet, "cache.hits.c{number}:1|c|@0.1|#host:node-{line}"),
            _ => writeln!(packet, "jobs.done.j{line}:{}|c", number + 1),
        };
    }
    packet.pop();
    packet
}

fn offline() -> Offline {
    Offline::new(Mapper::default(), OfflineConfig::default())
}

fn lines(c: &mut Criterion) {
    let packets: Vec<String> = (0..50).map(mixed).collect();
    let mut known = offline();
    for packet in &packets {
        known.lines(packet.as_bytes());
    }
    let mut group = c.benchmark_group("ingest");
    group.throughput(Throughput::Elements(20));
    let mut next = packets.iter().cycle();
    group.bench_function("mixed packet of 20 known lines", |b| {
        b.iter(|| known.lines(next.next().map_or(b"", |packet| packet.as_bytes())));
    });
    let mut forgetful = Offline::new(
        Mapper::default(),
        OfflineConfig { key_cache_size: 0, ..OfflineConfig::default() },
    );
    for packet in &packets {
        forgetful.lines(packet.as_bytes());
    }
    group.bench_function("mixed packet of 20 lines, the long way", |b| {
        b.iter(|| forgetful.lines(next.next().map_or(b"", |packet| packet.as_bytes())));
    });
    group.throughput(Throughput::Elements(1_000));
    let fresh: String =
        (0..1_000).map(|n| format!("new.series.number.{n}:1|c|#service:checkout\n")).collect();
    group.bench_function("1,000 new series", |b| {
        b.iter_batched_ref(
            offline,
            |offline| offline.lines(fresh.as_bytes()),
            BatchSize::LargeInput,
        );
    });
    group.finish();
}

/// Returns the CPU time of the listener thread so far.
fn listener_cpu() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads {
        let read =
            |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        if read("comm").trim() == "statsd-in-0" {
            let spent = read("schedstat");
            let nanos = spent.split(' ').next().and_then(|nanos| nanos.parse().ok());
            return Duration::from_nanos(nanos.unwrap_or_default());
        }
    }
    Duration::ZERO
}

/// Sends `count` datagrams at `rate` a second, waits for the last one, and returns the listener's CPU time.
fn drive(
    pipeline: &Pipeline,
    packets: &[String],
    count: u64,
    rate: u64,
    lost: &mut u64,
) -> Duration {
    let Some(address) = pipeline.udp_address() else {
        return Duration::ZERO;
    };
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else {
        return Duration::ZERO;
    };
    let lines = |packet: &String| packet.lines().count() as u64;
    let (before, seen) = (listener_cpu(), pipeline.lines(Some(Listener::Udp)));
    let start = Instant::now();
    let mut sent = 0;
    for (number, packet) in (0..count).zip(packets.iter().cycle()) {
        while start.elapsed() < Duration::from_micros(number * 1_000_000 / rate) {
            std::hint::spin_loop();
        }
        if socket.send_to(packet.as_bytes(), address).is_ok() {
            sent += lines(packet);
        }
    }
    let deadline = Instant::now() + Duration::from_millis(500);
    while pipeline.lines(Some(Listener::Udp)) < seen + sent && Instant::now() < deadline {
        std::thread::yield_now();
    }
    *lost += seen + sent - pipeline.lines(Some(Listener::Udp));
    listener_cpu().saturating_sub(before)
}

fn udp(c: &mut Criterion) {
    let pipeline = Pipeline::start(PipelineConfig {
        udp: Some(([127, 0, 0, 1], 0).into()),
        self_metrics: SelfMetrics::None,
        ..PipelineConfig::default()
    });
    let Ok(pipeline) = pipeline else {
        return;
    };
    let mut group = c.benchmark_group("listener CPU");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    let mut lost = 0;
    let twenty: Vec<String> = (0..50).map(mixed).collect();
    group.throughput(Throughput::Elements(20));
    group.bench_function("50,000 datagrams a second of 20 lines", |b| {
        b.iter_custom(|count| drive(&pipeline, &twenty, count, 50_000, &mut lost));
    });
    let one: Vec<String> =
        twenty.iter().flat_map(|packet| packet.lines().map(str::to_owned)).collect();
    group.throughput(Throughput::Elements(1));
    group.bench_function("100,000 datagrams a second of one line", |b| {
        b.iter_custom(|count| drive(&pipeline, &one, count, 100_000, &mut lost));
    });
    group.finish();
    eprintln!("lines lost in the whole run: {lost}");
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1_024.0
}

fn scrape(c: &mut Criterion) {
    let mut group = c.benchmark_group("scrape");
    group.sample_size(10);
    type Line = fn(u32) -> String;
    let shapes: [(&str, Line); 2] = [
        ("of one family with tags", |n| {
            format!(
                "checkout.requests:{}|c|#service:checkout-api,region:eu-west-1,instance:pod-{:07},path:/v1/orders/{:04},code:200",
                n % 1_000,
                n.wrapping_mul(2_654_435_761) % 9_999_991,
                n % 9_973
            )
        }),
        ("of as many families", |n| {
            format!("checkout.{:08x}.orders:{}|c", n.wrapping_mul(2_654_435_761), n % 1_000)
        }),
    ];
    for (name, line) in shapes {
        let empty = resident();
        let mut offline = offline();
        let start = Instant::now();
        for block in 0..1_000 {
            let text: String = (0..1_000).map(|n| line(block * 1_000 + n) + "\n").collect();
            offline.lines(text.as_bytes());
        }
        let (took, full) = (start.elapsed(), resident());
        let bytes: usize =
            offline.frames(Format::Text, &ScrapeQuery::default()).map(|frame| frame.len()).sum();
        eprintln!(
            "a million series {name}: {bytes} bytes of text, {:.0} MiB resident, {:.0} MiB after a scrape, made in {took:?}",
            full - empty,
            resident() - empty
        );
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(format!("a million series {name}"), |b| {
            b.iter(|| {
                let frames = offline.frames(Format::Text, &ScrapeQuery::default());
                frames.map(|frame| black_box(frame).len()).sum::<usize>()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, lines, udp, scrape);
criterion_main!(benches);
