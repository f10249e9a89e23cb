//! The StatsD side: both exporters and a receiver that only counts, under the same datagrams.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::kube::{Cost, scrape_cost};
use super::mmsg;
use super::process::{Memory, Server, free_port};
use super::programs::Programs;
use super::scrape;

/// Distinct series of the datagram load, typical of a few services.
const SERIES: usize = 1_000;
/// Longest wait until a server has processed all sent lines.
pub const DRAIN: Duration = Duration::from_secs(240);

/// The measured program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The original.
    Peer,
    /// kstatd under the original's name.
    Ours,
    /// A receiver that only counts.
    Limit,
}

/// A server that receives lines.
pub struct Target {
    /// The process.
    pub server: Server,
    /// Port of `/metrics`.
    pub web: u16,
    /// Port of UDP.
    pub udp: u16,
    /// Port of TCP.
    pub tcp: u16,
}

impl Target {
    /// Starts a server.
    pub fn start(who: Subject, programs: &Programs) -> Result<Self> {
        Self::start_with(who, programs, &[])
    }

    /// Starts a server with additional flags.
    pub fn start_with(who: Subject, programs: &Programs, more: &[String]) -> Result<Self> {
        let (web, udp, tcp) = (free_port()?, free_port()?, free_port()?);
        let flags = [
            format!("--web.listen-address=127.0.0.1:{web}"),
            format!("--statsd.listen-udp=127.0.0.1:{udp}"),
            format!("--statsd.listen-tcp=127.0.0.1:{tcp}"),
        ];
        let flags = [&flags, more].concat();
        let (name, program, arguments, web) = match who {
            Subject::Peer => ("statsd_exporter", &programs.statsd_exporter, flags, web),
            Subject::Ours => {
                let word = vec!["statsd_exporter".to_owned()];
                ("kstatd-statsd", &programs.kstatd, [word, flags].concat(), web)
            }
            Subject::Limit => {
                let arguments = ["udp-counter".to_owned(), udp.to_string()];
                ("udp-counter", &programs.own, arguments.to_vec(), udp)
            }
        };
        let server = Server::start(name, program, &arguments, &programs.scratch)?;
        scrape::wait_for(web, "/metrics", Duration::from_secs(30))?;
        Ok(Self { server, web, udp, tcp })
    }

    /// Returns the number of processed lines.
    pub fn lines(&self) -> Result<u64> {
        lines(self.web)
    }
}

/// Returns the number of lines processed by the server with this listener.
pub fn lines(port: u16) -> Result<u64> {
    let body = scrape::body(port, "/metrics")?;
    String::from_utf8_lossy(&body)
        .lines()
        .find_map(|line| {
            line.strip_prefix("statsd_exporter_lines_total ")?.trim().parse::<f64>().ok()
        })
        .map(|count| count as u64)
        .context("no statsd_exporter_lines_total in /metrics")
}

/// A stream of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Datagrams per second.
    pub datagrams: f64,
    /// Lines per datagram.
    pub lines: usize,
    /// Duration.
    pub window: Duration,
}

/// The result of a load.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadResult {
    /// CPU seconds of the server for each processed line.
    pub cpu_per_line: f64,
    /// Share of the lines that were not processed.
    pub lost: f64,
    /// Sent datagrams per second.
    pub rate: f64,
}

/// Sends a load and waits until it has been processed.
pub fn run_load(target: &Target, load: Load) -> Result<LoadResult> {
    // A first run creates the series and warms the caches.
    send(target.udp, Load { window: Duration::from_secs(1), ..load })?;
    target.server.settle(DRAIN)?;
    let (lines, cpu) = (target.lines()?, target.server.cpu()?);
    let start = Instant::now();
    let sent = send(target.udp, load)?;
    let rate = sent as f64 / start.elapsed().as_secs_f64();
    target.server.settle(DRAIN)?;
    // Reading the count costs a scrape, so the time is taken first.
    let cpu = target.server.cpu()? - cpu;
    let lines = target.lines()? - lines;
    let sent = sent * load.lines as u64;
    Ok(LoadResult {
        cpu_per_line: cpu / lines as f64,
        lost: 1.0 - lines as f64 / sent as f64,
        rate,
    })
}

/// Sends for the duration of the load and returns the number of datagrams.
pub fn send(port: u16, load: Load) -> Result<u64> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, port))?;
    let _ = socket2::SockRef::from(&socket).set_send_buffer_size(4 << 20);
    let datagrams = datagrams(load.lines);
    let mut next = datagrams.iter().cycle();
    let start = Instant::now();
    let mut sent = 0_u64;
    while start.elapsed() < load.window {
        let due = (start.elapsed().as_secs_f64() * load.datagrams) as u64;
        if due <= sent {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        let count = ((due - sent) as usize).min(mmsg::BATCH);
        let batch: Vec<&[u8]> = next.by_ref().take(count).map(Vec::as_slice).collect();
        let mut left = batch.as_slice();
        while !left.is_empty() {
            let taken = mmsg::send(&socket, left)?;
            sent += taken as u64;
            left = left.get(taken..).unwrap_or_default();
        }
    }
    Ok(sent)
}

/// Typical lines of services: mostly counters, some gauges and timers, every fourth with tags.
pub fn datagrams(lines: usize) -> Vec<Vec<u8>> {
    let line = |at: usize| {
        let series = at % SERIES;
        let service = ["cart", "checkout", "login", "search"][series % 4];
        let tags = match at % 4 {
            0 => "|#region:eu-west-1,version:v2",
            _ => "",
        };
        match series % 10 {
            0 => format!("shop.{service}.latency{series}:{}.25|ms{tags}", at % 400),
            1 | 2 => format!("shop.{service}.sessions{series}:{}|g{tags}", at % 1_000),
            _ => format!("shop.{service}.requests{series}:1|c{tags}"),
        }
    };
    (0..SERIES * 4)
        .map(|at| {
            let part = (0..lines).map(|offset| line(at * lines + offset));
            part.collect::<Vec<_>>().join("\n").into_bytes()
        })
        .collect()
}

/// The measurements of a large number of series.
pub struct ManySeries {
    /// Memory before the first scrape.
    pub filled: Memory,
    /// Memory after the scrapes.
    pub scraped: Memory,
    /// The cost of a scrape.
    pub scrape: Cost,
}

/// Creates series, each with one line over TCP, which loses none.
pub fn fill(target: &Target, series: usize) -> Result<()> {
    // About 140 bytes of exposition.
    let line = |at| {
        format!(
            "load.requests:1|c|#instance:i-{at:08x},route:/api/v1/items/{},\
             service:service-{},zone:eu-west-1{}",
            at % 100_000,
            at % 50,
            ["a", "b", "c"][at % 3],
        )
    };
    send_lines(target, (0..series).map(line))
}

/// Sends lines over TCP, which loses none, and waits until they have been processed.
pub fn send_lines(target: &Target, lines: impl Iterator<Item = String>) -> Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, target.tcp))?;
    let mut block = Vec::with_capacity(128 * 1024);
    for line in lines {
        writeln!(block, "{line}")?;
        if block.len() > 64 * 1024 {
            stream.write_all(&block)?;
            block.clear();
        }
    }
    stream.write_all(&block)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    target.server.settle(DRAIN)?;
    Ok(())
}

/// File with the text that the limit program of the scrape sends.
pub const BODY: &str = "series.txt";

/// Measures a server with this many series.
pub fn measure_series(who: Subject, programs: &Programs, series: usize) -> Result<ManySeries> {
    let target = Target::start(who, programs)?;
    fill(&target, series)?;
    let filled = target.server.memory()?;
    let scrape = scrape_cost(&target.server, target.web, "/metrics", false, 3)?;
    let scraped = target.server.memory()?;
    let body = scrape::body(target.web, "/metrics")?;
    let count =
        body.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"load_requests{"));
    let count = count.count();
    if count != series {
        bail!("{who:?} has {count} of {series} series");
    }
    if who == Subject::Ours {
        std::fs::write(programs.scratch.join(BODY), body)?;
    }
    Ok(ManySeries { filled, scraped, scrape })
}
