//! What each kind of request costs the program in CPU time, beside a plain scrape of the same.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use kstatd_endurance::process::{Server, free_port};
use kstatd_endurance::scrape;

use crate::cluster::Cluster;

/// For everything to be listed.
const LISTING: Duration = Duration::from_secs(240);
/// Scrapers that are served meanwhile and take next to nothing.
const READERS: usize = 200;

/// What is measured.
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

/// What is asked for: a name, the path, and header lines.
const KINDS: [(&str, &str, &str); 12] = [
    ("plain", "/metrics", ""),
    ("gzip, for the first time", "/metrics", scrape::GZIP),
    ("gzip", "/metrics", scrape::GZIP),
    ("OpenMetrics", "/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n"),
    ("one resource", "/metrics?resources=nodes", ""),
    ("all but one resource", "/metrics?exclude_resources=nodes", ""),
    ("one family", "/metrics?name[]=kube_pod_info", ""),
    ("a family that is not there", "/metrics?name[]=nothing", ""),
    ("report of series", "/api/v1/status/tsdb", ""),
    ("status page", "/status", ""),
    ("readiness of each kind", "/readyz?verbose", ""),
    ("own metrics", "", ""),
];

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
    let cost = |port, path, headers, times: u32| -> Result<f64> {
        let before = server.nanoseconds()?;
        for _ in 0..times {
            scrape::get(port, path, headers, |_| {})?;
        }
        Ok((server.nanoseconds()? - before) / f64::from(times) / 1e6)
    };
    let mut plain = 0.0;
    for (name, path, headers) in KINDS {
        let (port, path) = if path.is_empty() { (telemetry, "/metrics") } else { (port, path) };
        let times = if name.ends_with("first time") { 1 } else { options.times };
        let milliseconds = cost(port, path, headers, times)?;
        if name == "plain" {
            plain = milliseconds;
        }
        println!("{name}: {milliseconds:.2} ms, {:.2} of a plain scrape", milliseconds / plain);
    }
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n")?;
        stream.read_exact(&mut [0; 1024])?;
        readers.push(stream);
    }
    server.settle(LISTING)?;
    let beside = cost(port, "/metrics", "", options.times)?;
    println!("plain beside {READERS} that take nothing: {beside:.2} ms, {:.2}", beside / plain);
    Ok(true)
}
