//! CPU time of each kind of request relative to a plain scrape, and the delay of other requests meanwhile.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use kstatd_endurance::process::{Server, free_port};
use kstatd_endurance::scrape;

use crate::cluster::Cluster;

/// Longest wait for the lists.
const LISTING: Duration = Duration::from_secs(240);
/// Interval between two health requests.
const BETWEEN: Duration = Duration::from_millis(2);
/// Concurrent scrapers that read nearly nothing.
const READERS: usize = 200;

/// Options of the measurement.
#[derive(Args)]
pub struct Options {
    /// The program
    #[arg(long, value_name = "PATH")]
    kstatd: PathBuf,
    /// Pods of the cluster
    #[arg(long, default_value_t = 10_000)]
    pods: u32,
    /// Requests of each kind
    #[arg(long, default_value_t = 10)]
    times: u32,
}

/// The header line of a Prometheus with native histograms.
const PROTOBUF: &str = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n";
const PROTOBUF_GZIP: &str = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\nAccept-Encoding: gzip\r\n";
/// The path of a virtual shard.
const SHARD: &str = "/metrics?shard=1&total_shards=4";

/// The requests: name, path, and header lines.
const KINDS: [(&str, &str, &str); 18] = [
    ("plain", "/metrics", ""),
    ("gzip, for the first time", "/metrics", scrape::GZIP),
    ("gzip", "/metrics", scrape::GZIP),
    ("OpenMetrics", "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n"),
    ("protobuf", "/metrics", PROTOBUF),
    ("protobuf, gzip", "/metrics", PROTOBUF_GZIP),
    ("virtual shard of 4, for the first time", SHARD, ""),
    ("virtual shard of 4", SHARD, ""),
    ("virtual shard of 4, gzip, for the first time", SHARD, scrape::GZIP),
    ("virtual shard of 4, gzip", SHARD, scrape::GZIP),
    ("one resource", "/metrics?resources=nodes", ""),
    ("all but one resource", "/metrics?exclude_resources=nodes", ""),
    ("one family", "/metrics?name[]=kube_pod_info", ""),
    ("a family that is not there", "/metrics?name[]=nothing", ""),
    ("report of series", "/api/v1/status/tsdb", ""),
    ("status page", "/status", ""),
    ("readiness of each kind", "/readyz?verbose", ""),
    ("own metrics", "", ""),
];

/// Response times of health requests during other work.
struct HealthTimes(Vec<Duration>);

impl HealthTimes {
    /// Sends health requests while `work` runs.
    fn during<T>(port: u16, work: impl FnOnce() -> Result<T>) -> Result<(T, Self)> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut waits = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    scrape::get(port, "/healthz", "", |_| {})?;
                    waits.push(start.elapsed());
                    std::thread::sleep(BETWEEN);
                }
                waits.sort_unstable();
                anyhow::Ok(Self(waits))
            });
            let done = work();
            over.store(true, Ordering::Relaxed);
            let waits = asking.join().expect("the one who asks does not panic");
            Ok((done?, waits?))
        })
    }

    /// Returns the quantile in thousandths, in milliseconds.
    fn at(&self, thousandths: usize) -> f64 {
        let at = self.0.len().saturating_sub(1) * thousandths / 1_000;
        self.0.get(at).map_or(0.0, Duration::as_secs_f64) * 1e3
    }
}

impl std::fmt::Display for HealthTimes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (middle, most, longest) = (self.at(500), self.at(990), self.at(1_000));
        write!(out, "alive after {middle:.2} ms, 99% {most:.2} ms, longest {longest:.2} ms")
    }
}

/// Prints the costs.
pub fn run(options: &Options) -> Result<bool> {
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::new(options.pods)?;
    let (port, telemetry) = (free_port()?, free_port()?);
    let arguments = [
        "run".to_owned(),
        format!("--apiserver={}", cluster.url()),
        format!("--listen=127.0.0.1:{port}"),
        format!("--telemetry-listen=127.0.0.1:{telemetry}"),
        "--statsd.listen-udp=".to_owned(),
        "--statsd.listen-tcp=".to_owned(),
        "--enable-gzip-encoding".to_owned(),
    ];
    let server = Server::start("kstatd", &options.kstatd, &arguments, directory.path())?;
    scrape::wait_for(port, "/readyz", LISTING)?;
    server.settle(LISTING)?;
    scrape::scrape(port, "/metrics", false)?;
    let cost = |port, path, headers, times: u32| -> Result<(f64, u64)> {
        let before = server.nanoseconds()?;
        let mut bytes = 0;
        for _ in 0..times {
            bytes = scrape::get(port, path, headers, |_| {})?;
        }
        Ok(((server.nanoseconds()? - before) / f64::from(times) / 1e6, bytes))
    };
    // Costs are measured without concurrent health requests.
    let waits = |port, path, headers, times: u32| -> Result<HealthTimes> {
        let ask =
            || (0..times).try_for_each(|_| scrape::get(port, path, headers, |_| {}).map(drop));
        Ok(HealthTimes::during(telemetry, ask)?.1)
    };
    let rest = || {
        std::thread::sleep(Duration::from_secs(2));
        Ok(())
    };
    let idle = HealthTimes::during(telemetry, rest)?.1;
    println!("at rest: {idle}");
    let mut plain = 0.0;
    for (name, path, headers) in KINDS {
        let (port, path) = if path.is_empty() { (telemetry, "/metrics") } else { (port, path) };
        let times = if name.ends_with("first time") { 1 } else { options.times };
        let (milliseconds, bytes) = cost(port, path, headers, times)?;
        if name == "plain" {
            plain = milliseconds;
        }
        let waits = waits(port, path, headers, times.max(2))?;
        println!(
            "{name}: {milliseconds:.2} ms, {:.2} of a plain scrape, {:.1} MB; {waits}",
            milliseconds / plain,
            bytes as f64 / 1e6
        );
    }
    let walls = |times: u32| -> Result<f64> {
        let walls = (0..times).map(|_| scrape::scrape(port, "/metrics", false));
        let mut walls = walls.map(|answer| Ok(answer?.wall.as_secs_f64() * 1e3));
        walls.try_fold(f64::INFINITY, |least, wall: Result<f64>| Ok(least.min(wall?)))
    };
    let alone = (cost(port, "/metrics", "", options.times)?.0, walls(options.times)?);
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")?;
        stream.read_exact(&mut [0; 1024])?;
        readers.push(stream);
    }
    server.settle(LISTING)?;
    let (beside, _) = cost(port, "/metrics", "", options.times)?;
    let wall = walls(options.times)?;
    println!(
        "plain beside {READERS} that take nothing: {beside:.2} ms, {:.2} of the CPU just before; shortest {wall:.2} ms, {:.2}",
        beside / alone.0,
        wall / alone.1
    );
    let waits = waits(port, "/metrics", "", options.times)?;
    println!("the same: {waits}");
    let memory = server.memory()?;
    println!("memory: {:.1} MB", memory.resident / 1e6);
    Ok(true)
}
