//! The program under load: `kstatd run` with all its listeners, and its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use kstatd_endurance::process::{Server, free_port};
use kstatd_endurance::scrape;

/// Longest wait for the lists.
const LISTING: Duration = Duration::from_secs(120);

/// A running `kstatd run`.
pub struct Exporter {
    /// The process.
    pub server: Server,
    /// Port of `/metrics`.
    pub port: u16,
    telemetry: u16,
    /// Port of lines over UDP and TCP.
    pub statsd: u16,
    /// Unix socket of lines.
    pub socket: PathBuf,
    files: Files,
}

/// The edited files.
struct Files {
    mapping: PathBuf,
    options: PathBuf,
}

/// Versions of the options file. Each changes the listed data: a family of the largest kind, or a kind.
const OPTIONS: [&str; 3] = [
    "metric_opt_in_list: {}\n",
    "metric_denylist: {kube_pod_tolerations: {}}\n",
    "resources: {pods: {}, nodes: {}, deployments: {}, services: {}, endpointslices: {}}\n",
];

/// Returns the mapping file; `edited` is the metric name of one of its rules.
fn mapping(edited: &str) -> String {
    format!(
        "mappings:\n\
         - {{match: visitor.*, name: visitor, labels: {{id: $1}}, ttl: 30s}}\n\
         - {{match: edited.*, name: {edited}}}\n\
         - {{match: soak.histogram, name: soak_histogram, observer_type: histogram, \
         histogram_options: {{buckets: [0.01, 0.1, 1]}}}}\n"
    )
}

impl Files {
    fn write(&self, edit: usize) -> Result<()> {
        let options = OPTIONS.get(edit % OPTIONS.len()).copied().unwrap_or_default();
        replace(&self.options, options)?;
        replace(
            &self.mapping,
            &mapping(if edit.is_multiple_of(2) { "edited_a" } else { "edited_b" }),
        )
    }
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    Ok(std::fs::rename(beside, path)?)
}

impl Exporter {
    /// Starts the program and waits until it exposes the cluster.
    pub fn start(program: &Path, cluster: &str, directory: &Path) -> Result<Self> {
        let (port, telemetry, statsd) = (free_port()?, free_port()?, free_port()?);
        let socket = directory.join("statsd.sock");
        let files = Files {
            mapping: directory.join("mapping.yaml"),
            options: directory.join("options.yaml"),
        };
        files.write(0)?;
        let arguments = [
            "run".to_owned(),
            format!("--apiserver={cluster}"),
            format!("--listen=127.0.0.1:{port}"),
            format!("--telemetry-listen=127.0.0.1:{telemetry}"),
            format!("--statsd.listen-udp=127.0.0.1:{statsd}"),
            format!("--statsd.listen-tcp=127.0.0.1:{statsd}"),
            format!("--statsd.listen-unixgram={}", socket.display()),
            format!("--statsd.mapping-config={}", files.mapping.display()),
            format!("--config={}", files.options.display()),
            "--enable-gzip-encoding".to_owned(),
        ];
        let server = Server::start("kstatd", program, &arguments, directory)?;
        scrape::wait_for(port, "/readyz", LISTING)?;
        Ok(Self { server, port, telemetry, statsd, socket, files })
    }

    /// Starts a second program with the same files and without lines. Its series are the expected ones.
    pub fn fresh(&self, program: &Path, cluster: &str, directory: &Path) -> Result<(Server, u16)> {
        let (port, telemetry) = (free_port()?, free_port()?);
        let arguments = [
            "run".to_owned(),
            format!("--apiserver={cluster}"),
            format!("--listen=127.0.0.1:{port}"),
            format!("--telemetry-listen=127.0.0.1:{telemetry}"),
            "--statsd.listen-udp=".to_owned(),
            "--statsd.listen-tcp=".to_owned(),
            format!("--config={}", self.files.options.display()),
        ];
        let server = Server::start("kstatd-fresh", program, &arguments, directory)?;
        scrape::wait_for(port, "/readyz", LISTING)?;
        Ok((server, port))
    }

    /// Writes the next version of the files and triggers a reload.
    pub fn edit(&self, edit: usize) -> Result<()> {
        self.files.write(edit)?;
        self.server.signal("HUP")
    }

    /// Returns the own metrics, by series.
    pub fn own(&self) -> Result<BTreeMap<String, f64>> {
        series(self.telemetry)
    }
}

/// Returns all series of a listener with their values.
pub fn series(port: u16) -> Result<BTreeMap<String, f64>> {
    let text = String::from_utf8(scrape::body(port, "/metrics")?)?;
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            Ok((series.to_owned(), value.parse()?))
        })
        .collect()
}
