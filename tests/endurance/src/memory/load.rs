//! The loads of the memory test, and the states in which memory is read.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use kstatd_endurance::process::{Server, free_port};
use kstatd_endurance::scrape;

use crate::cluster::Cluster;

/// Longest wait for any state.
const PATIENCE: Duration = Duration::from_secs(240);
/// Freed memory is returned to the system after a second.
const DECAY: Duration = Duration::from_secs(2);
/// Concurrent scrapes.
const PARALLEL: usize = 20;
/// Virtual shards.
const SHARDS: usize = 4;
/// Slow scrapers.
const READERS: usize = 200;

/// A load.
#[derive(Clone, Copy)]
pub enum Case {
    /// `kstatd run` with a cluster of 50 pods, without lines.
    Rest,
    /// This many series, each from one line, under the name statsd_exporter.
    Series(usize),
    /// This many TCP connections that sent nothing or one line, under the name statsd_exporter.
    Senders(usize),
    /// This many pods with related objects, under the name kube-state-metrics.
    Pods(u32),
    /// The same, scraped in virtual shards only.
    VirtualShards(u32),
}

/// A state and its memory in bytes.
type StateMemory = (&'static str, f64);

impl Case {
    /// Returns the name in the table.
    pub fn name(self) -> String {
        match self {
            Self::Rest => "both sides, 50 pods".to_owned(),
            Self::Series(count) => format!("{} series", thousands(count)),
            Self::Senders(count) => format!("{} idle senders over TCP", thousands(count)),
            Self::Pods(count) => format!("{} pods", thousands(count as usize)),
            Self::VirtualShards(count) => {
                format!("{} pods in {SHARDS} virtual shards", thousands(count as usize))
            }
        }
    }

    /// Creates the load and measures each state.
    pub fn measure(self, program: &Path) -> Result<Vec<StateMemory>> {
        match self {
            Self::Rest => rest(program),
            Self::Series(count) => series(program, count),
            Self::Senders(count) => senders(program, count),
            Self::Pods(count) => pods(program, count),
            Self::VirtualShards(count) => virtual_shards(program, count),
        }
    }
}

fn thousands(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{},{:03}", number / 1_000, number % 1_000),
        _ => format!("{},{:03},{:03}", number / 1_000_000, number / 1_000 % 1_000, number % 1_000),
    }
}

/// Returns the resident memory of an idle process.
fn resident(server: &Server) -> Result<f64> {
    server.settle(PATIENCE)?;
    sleep(DECAY);
    Ok(server.memory()?.resident)
}

/// Returns the peak of resident memory since the last call.
fn peak(server: &Server) -> Result<f64> {
    server.settle(PATIENCE)?;
    let peak = server.memory()?.peak;
    sleep(DECAY);
    server.reset_peak()?;
    Ok(peak)
}

/// Scrapes from many threads concurrently, half of them compressed.
fn scrapes(port: u16) -> Result<()> {
    scope(|scope| {
        let threads = Vec::from_iter(
            (0..PARALLEL)
                .map(|at| scope.spawn(move || scrape::scrape(port, "/metrics", at % 2 == 0))),
        );
        for thread in threads {
            thread.join().map_err(|_| anyhow!("a scraper panicked"))??;
        }
        Ok(())
    })
}

fn rest(program: &Path) -> Result<Vec<StateMemory>> {
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::new(50)?;
    let (port, telemetry, statsd) = (free_port()?, free_port()?, free_port()?);
    let arguments = [
        "run".to_owned(),
        format!("--apiserver={}", cluster.url()),
        format!("--listen=127.0.0.1:{port}"),
        format!("--telemetry-listen=127.0.0.1:{telemetry}"),
        format!("--statsd.listen-udp=127.0.0.1:{statsd}"),
        format!("--statsd.listen-tcp=127.0.0.1:{statsd}"),
    ];
    let server = Server::start("kstatd", program, &arguments, directory.path())?;
    scrape::wait_for(port, "/readyz", PATIENCE)?;
    // The pages of startup are released after some seconds.
    let steady = wait_until_steady(&server)?;
    Ok(vec![("steady state", steady)])
}

/// Returns the resident memory once it has been constant for five seconds.
fn wait_until_steady(server: &Server) -> Result<f64> {
    let deadline = Instant::now() + PATIENCE;
    let mut before = resident(server)?;
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(5) {
        ensure!(Instant::now() < deadline, "memory does not come to rest");
        sleep(Duration::from_millis(500));
        let now = server.memory()?.resident;
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
    Ok(before)
}

/// Starts the program under the name statsd_exporter; returns it with the ports of `/metrics` and of lines.
fn statsd_exporter(program: &Path, directory: &Path) -> Result<(Server, u16, u16)> {
    let (port, statsd) = (free_port()?, free_port()?);
    let mapping = directory.join("mapping.yaml");
    let rule = "mappings:\n- {match: shop.*.latency, name: latency, labels: {service: $1}}\n";
    std::fs::write(&mapping, rule)?;
    let arguments = [
        "statsd_exporter".to_owned(),
        format!("--web.listen-address=127.0.0.1:{port}"),
        format!("--statsd.listen-udp=127.0.0.1:{statsd}"),
        format!("--statsd.listen-tcp=127.0.0.1:{statsd}"),
        format!("--statsd.mapping-config={}", mapping.display()),
    ];
    let server = Server::start("kstatd", program, &arguments, directory)?;
    scrape::wait_for(port, "/metrics", PATIENCE)?;
    Ok((server, port, statsd))
}

fn senders(program: &Path, count: usize) -> Result<Vec<StateMemory>> {
    // This process needs as many descriptors as the server, which raises its own limit.
    let files = format!("--nofile={}", count + 1_000);
    let own = std::process::id().to_string();
    let raised = Command::new("prlimit").args(["--pid", &own, &files]).status()?;
    ensure!(raised.success(), "{count} connections need more open files than are allowed");
    let directory = tempfile::tempdir()?;
    let (server, port, statsd) = statsd_exporter(program, directory.path())?;
    let before = resident(&server)?;
    let mut senders = Vec::new();
    for number in 0..count {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, statsd))?;
        if number % 2 == 0 {
            stream.write_all(b"hello:1|c\n")?;
        }
        senders.push(stream);
    }
    let hello = format!("hello {}\n", count.div_ceil(2));
    until(&server, || {
        let text = String::from_utf8(scrape::body(port, "/metrics")?)?;
        Ok(text.contains(&hello))
    })?;
    let steady = resident(&server)?;
    drop(senders);
    Ok(vec![("before they connect", before), ("steady state", steady)])
}

fn series(program: &Path, count: usize) -> Result<Vec<StateMemory>> {
    let directory = tempfile::tempdir()?;
    let (server, port, statsd) = statsd_exporter(program, directory.path())?;
    fill(statsd, count)?;
    let steady = resident(&server)?;
    server.reset_peak()?;
    let mut shown = 0;
    let mut rest = Vec::new();
    scrape::get(port, "/metrics", "", |part| {
        rest.extend_from_slice(part);
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = rest.drain(..whole);
        shown += lines
            .as_slice()
            .split(|byte| *byte == b'\n')
            .filter(|line| line.starts_with(b"load_"))
            .count();
    })?;
    ensure!(shown == count, "{shown} of {count} series are shown");
    scrapes(port)?;
    let scraped = peak(&server)?;
    server.signal("HUP")?;
    fill(statsd, count)?;
    let reloaded = peak(&server)?;
    Ok(vec![
        ("steady state", steady),
        ("peak of 20 concurrent scrapes", scraped),
        ("peak of a mapping reload with all lines resent", reloaded),
    ])
}

/// Sends a line over TCP for each series: about 140 bytes of exposition.
fn fill(port: u16, count: usize) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let mut block = Vec::with_capacity(128 * 1024);
    for at in 0..count {
        writeln!(
            block,
            "load.requests:1|c|#instance:i-{at:08x},route:/api/v1/items/{},service:service-{},zone:eu-west-1{}",
            at % 100_000,
            at % 50,
            ["a", "b", "c"].get(at % 3).copied().unwrap_or_default(),
        )?;
        if block.len() > 64 * 1024 {
            stream.write_all(&block)?;
            block.clear();
        }
    }
    Ok(stream.write_all(&block)?)
}

/// Options files that differ in one family of nearly every kind.
const OPTIONS: [&str; 2] = ["metric_denylist: {}\n", "metric_denylist: {_created$: {}}\n"];

fn pods(program: &Path, count: u32) -> Result<Vec<StateMemory>> {
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::new(count)?;
    let options = directory.path().join("options.yaml");
    std::fs::write(&options, OPTIONS[0])?;
    let config = format!("--config={}", options.display());
    let (server, port) = kube_state_metrics(program, directory.path(), &cluster, &[config])?;
    let listed = server.memory()?.peak;
    let steady = resident(&server)?;
    server.reset_peak()?;
    // With expired versions, every kind is relisted.
    let delivered = cluster.delivered();
    cluster.forget_history()?;
    let whole = delivered / 100 * 99;
    until(&server, || Ok(cluster.delivered() >= delivered + whole))?;
    let relisted = peak(&server)?;
    let after_list = server.memory()?.resident;
    std::fs::write(&options, OPTIONS[1])?;
    until(&server, || Ok(server.output()?.contains("The new configuration is in force")))?;
    let reloaded = peak(&server)?;
    let after_reload = server.memory()?.resident;
    scrapes(port)?;
    scrapes(port)?;
    let scraped = peak(&server)?;
    let after_scrapes = server.memory()?.resident;
    let readers = slow_readers(port)?;
    let with_readers = peak(&server)?;
    drop(readers);
    Ok(vec![
        ("steady state", steady),
        ("peak of the first list", listed),
        ("peak of a relist of all kinds", relisted),
        ("after the relist", after_list),
        ("peak of a reload that changes every kind", reloaded),
        ("after the reload", after_reload),
        ("peak of 20 concurrent scrapes", scraped),
        ("after the scrapes", after_scrapes),
        ("200 scrapers that read 1 KB/s", with_readers),
    ])
}

fn virtual_shards(program: &Path, count: u32) -> Result<Vec<StateMemory>> {
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::new(count)?;
    let (server, port) = kube_state_metrics(program, directory.path(), &cluster, &[])?;
    let steady = resident(&server)?;
    server.reset_peak()?;
    for shard in 0..SHARDS {
        let path = format!("/metrics?shard={shard}&total_shards={SHARDS}");
        for gzip in [false, true] {
            scrape::scrape(port, &path, gzip)?;
        }
    }
    let scraped = peak(&server)?;
    let after_scrapes = server.memory()?.resident;
    Ok(vec![
        ("steady state before they are scraped", steady),
        ("peak of their first scrapes", scraped),
        ("after the scrapes", after_scrapes),
    ])
}

/// Starts the program under the name kube-state-metrics and waits until everything is listed; returns it with its port.
fn kube_state_metrics(
    program: &Path,
    directory: &Path,
    cluster: &Cluster,
    more: &[String],
) -> Result<(Server, u16)> {
    let (port, telemetry) = (free_port()?, free_port()?);
    let arguments = [
        "kube-state-metrics".to_owned(),
        format!("--apiserver={}", cluster.url()),
        "--host=127.0.0.1".to_owned(),
        format!("--port={port}"),
        "--telemetry-host=127.0.0.1".to_owned(),
        format!("--telemetry-port={telemetry}"),
        "--enable-gzip-encoding".to_owned(),
    ];
    let server = Server::start("kstatd", program, &[&arguments[..], more].concat(), directory)?;
    ready(telemetry, &server)?;
    Ok((server, port))
}

/// Opens scrapers that read 1 KB a second. After the second kilobyte each has an open response.
fn slow_readers(port: u16) -> Result<Vec<TcpStream>> {
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")?;
        readers.push(stream);
    }
    for _ in 0..3 {
        for reader in &mut readers {
            reader.read_exact(&mut [0; 1024])?;
        }
        sleep(Duration::from_secs(1));
    }
    Ok(readers)
}

/// HealthTimes until everything is listed.
fn ready(telemetry: u16, server: &Server) -> Result<()> {
    scrape::wait_for(telemetry, "/metrics", PATIENCE)?;
    until(server, || {
        let own = scrape::body(telemetry, "/metrics")?;
        Ok(own.split(|byte| *byte == b'\n').any(|line| line == b"kstatd_ready 1"))
    })
}

fn until(server: &Server, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > deadline {
            bail!("timed out; its output: {}", server.output()?);
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}
