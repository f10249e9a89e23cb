//! The Kubernetes side: both exporters against the same cluster of the API double.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kstatd::resources::registry;
use kstatd_double::Double;
use tokio::runtime::Runtime;

use super::data_set::DataSet;
use super::process::{Memory, Server, free_port};
use super::programs::Programs;
use super::scrape::{self, scrape};

/// Longest time to list the largest cluster. The original needs about 20 s for 100,000 pods.
const LISTING: Duration = Duration::from_secs(240);
/// Concurrent scrapes of the memory rows.
const PARALLEL: usize = 20;

/// The measured program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The original.
    Peer,
    /// kstatd under the original's name.
    Ours,
}

/// A running double.
pub struct Cluster {
    /// The runtime of the double.
    _runtime: Runtime,
    double: Double,
}

impl Cluster {
    /// Creates an unchanging cluster with this many pods.
    pub fn new(pods: u32, data: DataSet) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let double = runtime.block_on(Double::start(&data.options(pods)?))?;
        Ok(Self { _runtime: runtime, double })
    }

    /// Returns the number of objects that an exporter with default resources fetches. Changes add and remove some.
    fn watched(&self) -> u64 {
        let watched = registry().iter().filter(|resource| resource.api().default_enabled);
        watched.map(|resource| self.double.objects_of(resource.name()) as u64).sum()
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        self.double.url()
    }

    /// Starts changes at this rate per second.
    pub fn churn(&self, rate: f64) {
        self.double.set_events_per_second(rate);
    }

    /// Starts an exporter and waits until it has listed everything.
    pub fn list(&self, who: Subject, programs: &Programs) -> Result<Listed> {
        self.list_with(who, programs, &[])
    }

    /// The same with additional flags, which must not reduce the requested objects.
    pub fn list_with(&self, who: Subject, programs: &Programs, flags: &[&str]) -> Result<Listed> {
        let (port, telemetry) = (free_port()?, free_port()?);
        let (name, program, mut arguments) = match who {
            Subject::Peer => ("kube-state-metrics", &programs.kube_state_metrics, vec![]),
            Subject::Ours => {
                ("kstatd-kube", &programs.kstatd, vec!["kube-state-metrics".to_owned()])
            }
        };
        arguments.extend([
            format!("--apiserver={}", self.url()),
            "--host=127.0.0.1".to_owned(),
            format!("--port={port}"),
            "--telemetry-host=127.0.0.1".to_owned(),
            format!("--telemetry-port={telemetry}"),
            "--enable-gzip-encoding".to_owned(),
            // Twenty concurrent compressed responses take the original longer than its default limit of a minute.
            "--server-write-timeout=1h".to_owned(),
        ]);
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let before = self.double.delivered();
        let server = Server::start(name, program, &arguments, &programs.scratch)?;
        self.fetched(before, &server)?;
        let ready = server.settle(LISTING)?.duration_since(server.started());
        let cpu = server.cpu()?;
        Ok(Listed { server, port, ready: ready.as_secs_f64(), cpu })
    }

    /// Waits until every object has been fetched once more than `before`.
    fn fetched(&self, before: u64, server: &Server) -> Result<()> {
        let deadline = Instant::now() + LISTING;
        let watched = self.watched();
        while self.double.delivered() - before < watched {
            server.cpu()?;
            if Instant::now() > deadline {
                bail!(
                    "only {} of {} objects were fetched in {} s",
                    self.double.delivered() - before,
                    watched,
                    LISTING.as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns the CPU seconds of one watch event, at `rate` events per second over `window`.
    pub fn event_cost(&self, listed: &Listed, rate: f64, window: Duration) -> Result<f64> {
        self.churn(rate);
        std::thread::sleep(Duration::from_secs(1));
        let (cpu, changes) = (listed.server.cpu()?, self.double.changes());
        std::thread::sleep(window);
        let (cpu, changes) = (listed.server.cpu()? - cpu, self.double.changes() - changes);
        self.churn(0.0);
        listed.server.settle(LISTING)?;
        Ok(cpu / changes as f64)
    }
}

/// An exporter that has listed everything.
pub struct Listed {
    /// The process.
    pub server: Server,
    /// Port of `/metrics`.
    pub port: u16,
    /// Seconds from the start until everything was listed.
    pub ready: f64,
    /// CPU seconds until then.
    pub cpu: f64,
}

/// The cost of a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Median wall-clock seconds until the last byte.
    pub wall: f64,
    /// Mean CPU seconds of the server.
    pub cpu: f64,
    /// Bytes sent.
    pub bytes: f64,
}

/// Scrapes `times` times, after a first scrape that is not counted.
pub fn scrape_cost(
    server: &Server,
    port: u16,
    path: &str,
    gzip: bool,
    times: usize,
) -> Result<Cost> {
    let scrape = || scrape(port, path, gzip).with_context(|| server.name().to_owned());
    scrape()?;
    server.settle(LISTING)?;
    let cpu = server.cpu()?;
    let mut walls = Vec::new();
    let mut bytes = 0;
    for _ in 0..times {
        let answer = scrape()?;
        walls.push(answer.wall.as_secs_f64());
        bytes = answer.bytes;
    }
    walls.sort_by(f64::total_cmp);
    let wall = walls.get(times / 2).copied().unwrap_or_default();
    Ok(Cost { wall, cpu: (server.cpu()? - cpu) / times as f64, bytes: bytes as f64 })
}

/// Scrapes from this many threads concurrently and returns the seconds until the last of them is done.
///
/// # Errors
///
/// A response is missing or truncated; the error names the program.
pub fn scrape_at_once(server: &Server, port: u16, gzip: bool, scrapers: usize) -> Result<f64> {
    let start = Instant::now();
    let threads: Vec<_> = (0..scrapers)
        .map(|_| std::thread::spawn(move || scrape(port, "/metrics", gzip).map(|_| ())))
        .collect();
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a scraper panicked"))?
            .with_context(|| format!("{}, {scrapers} scrapes at once", server.name()))?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// All measurements of a large cluster.
pub struct LargeCluster {
    /// Seconds until everything was listed.
    pub ready: f64,
    /// CPU seconds until then.
    pub ready_cpu: f64,
    /// Memory before the first scrape; the peak is that of the list.
    pub listed: Memory,
    /// An uncompressed scrape.
    pub plain: Cost,
    /// A compressed scrape, from the second one on.
    pub gzip: Cost,
    /// Memory after concurrent scrapes, first plain, then compressed; the peak is that of the scrapes.
    pub parallel: [Memory; 2],
}

/// Measures an exporter on a cluster.
pub fn measure_cluster(
    cluster: &Cluster,
    who: Subject,
    programs: &Programs,
    quick: bool,
) -> Result<LargeCluster> {
    let listed = cluster.list(who, programs)?;
    let memory = listed.server.memory()?;
    let times = if quick { 3 } else { 5 };
    let plain = scrape_cost(&listed.server, listed.port, "/metrics", false, times)?;
    let gzip = scrape_cost(&listed.server, listed.port, "/metrics", true, times.min(3))?;
    if who == Subject::Ours {
        save_bodies(listed.port, &programs.scratch)?;
    }
    let mut parallel = [Memory::default(); 2];
    for (gzip, memory) in [false, true].into_iter().zip(&mut parallel) {
        listed.server.reset_peak()?;
        scrape_at_once(&listed.server, listed.port, gzip, PARALLEL)?;
        listed.server.settle(LISTING)?;
        // Freed pages are returned to the system after about a second.
        std::thread::sleep(Duration::from_secs(2));
        *memory = listed.server.memory()?;
    }
    Ok(LargeCluster {
        ready: listed.ready,
        ready_cpu: listed.cpu,
        listed: memory,
        plain,
        gzip,
        parallel,
    })
}

/// File with the text that the limit program of a plain scrape sends.
pub const BODY: &str = "body.txt";
/// File with as many bytes as a compressed scrape sends.
pub const GZIP_BODY: &str = "body.gz";

fn save_bodies(port: u16, scratch: &Path) -> Result<()> {
    let body = scrape::body(port, "/metrics")?;
    let compressed = scrape(port, "/metrics", true)?.bytes as usize;
    // The content of the bytes does not matter to the socket.
    let sent = body.get(..compressed).context("compression has made the body longer")?;
    std::fs::write(scratch.join(GZIP_BODY), sent)?;
    std::fs::write(scratch.join(BODY), &body)?;
    Ok(())
}

/// Returns the cost of sending the bytes of a file from memory.
pub fn measure_memory_writer(programs: &Programs, file: &str) -> Result<Cost> {
    let port = free_port()?;
    let path = programs.scratch.join(file);
    let arguments = ["memory-writer".to_owned(), port.to_string(), path.display().to_string()];
    let server = Server::start("memory-writer", &programs.own, &arguments, &programs.scratch)?;
    scrape::wait_for(port, "/", Duration::from_secs(30))?;
    scrape_cost(&server, port, "/", false, 5)
}

/// An idle exporter.
pub struct Idle {
    /// Resident bytes.
    pub memory: f64,
    /// Share of one core.
    pub cpu: f64,
    /// Wake-ups of its threads per second.
    pub wake_ups: f64,
}

/// Measures idle exporters for `window`.
pub fn at_rest(servers: &[&Server], window: Duration) -> Result<Vec<Idle>> {
    for server in servers {
        server.settle(LISTING)?;
    }
    // Allocators return memory and idle connections time out first.
    std::thread::sleep(window / 2);
    let read = |server: &&Server| Ok((server.cpu()?, server.wake_ups()?));
    let before = servers.iter().map(read).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(window);
    let after = servers.iter().map(read).collect::<Result<Vec<_>>>()?;
    let idle = servers.iter().zip(before.iter().zip(&after)).map(|(server, (before, after))| {
        Ok(Idle {
            memory: server.memory()?.resident,
            cpu: (after.0 - before.0) / window.as_secs_f64(),
            wake_ups: (after.1 - before.1) / window.as_secs_f64(),
        })
    });
    idle.collect()
}
