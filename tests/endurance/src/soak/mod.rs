//! The soak test: an API server that changes and restarts, lines over all listeners, scrapes in all formats, edited
//! files. At the end every line is accounted for, nothing is missing and nothing has grown.

mod exporter;
mod observer;
mod senders;
mod verdict;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;

use crate::cluster::Cluster;
use crate::duration;
use crate::figures::{Line, median, picture, quantile};
use exporter::Exporter;
use observer::{FORMS, Observations, Observer};
use senders::Sent;
use verdict::Verdict;

/// Alternating outages of the API server: watches resume after the short one, and relist after the long one because
/// too much has changed.
const OUTAGES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];

/// Options of the soak test.
#[derive(Args)]
pub struct Options {
    /// The program
    #[arg(long, value_name = "PATH")]
    kstatd: PathBuf,
    /// Duration
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = duration)]
    lasts: Duration,
    /// Pods of the cluster
    #[arg(long, default_value_t = 2_000)]
    pods: u32,
    /// Changes of the cluster per second
    #[arg(long, default_value_t = 2_000.0)]
    events: f64,
    /// Lines per second over UDP
    #[arg(long, default_value_t = 200_000.0)]
    lines: f64,
    /// Time between two scrapes
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    scrape_every: Duration,
    /// Time between two edits of the files
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    reload_every: Duration,
    /// Time between two restarts of the API server
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    restart_every: Duration,
    /// Allowed growth of memory in MB, in addition to 5%; short runs have not levelled out
    #[arg(long, value_name = "MB", default_value_t = 2.0)]
    may_grow: f64,
    /// Write soak-memory.svg and soak-scrapes.svg to this folder
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
    /// Write all figures to this file, as CSV
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// The disturbances so far.
#[derive(Default)]
struct Disturbances {
    restarts: Vec<Duration>,
    edits: usize,
}

/// Runs the soak test; true if all checks pass.
pub fn run(options: &Options) -> Result<bool> {
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::new(options.pods)?;
    let exporter = Exporter::start(&options.kstatd, cluster.url(), directory.path())?;
    let (sent, seen, is_over) =
        (Sent::new(), Mutex::new(Observations::default()), AtomicBool::new(false));
    let start = Instant::now();
    let observer =
        Observer { exporter: &exporter, cluster: &cluster, start, is_over: &is_over, seen: &seen };
    cluster.churn(options.events);
    let done = scope(|scope| {
        let parts = [
            scope.spawn(|| senders::udp(&sent, exporter.statsd, options.lines)),
            scope.spawn(|| senders::tcp(&sent, exporter.statsd)),
            scope.spawn(|| senders::unix(&sent, &exporter.socket)),
            scope.spawn(|| observer.watch()),
            scope.spawn(|| observer.scrape(options.scrape_every)),
        ];
        let done = disturb(options, start, &cluster, &exporter, &parts);
        sent.is_over.store(true, Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        for part in parts {
            part.join().map_err(|_| anyhow!("a part panicked"))??;
        }
        done
    })?;
    let lasted = start.elapsed();
    cluster.churn(0.0);
    let seen = seen.into_inner().map_err(|_| anyhow!("an observer panicked"))?;
    report(options, &done, &seen, &sent, cluster.changes(), lasted);
    let mut verdict = Verdict::default();
    verdict::ledger(&mut verdict, &exporter, &sent)?;
    let (_fresh, port) = exporter.fresh(&options.kstatd, cluster.url(), directory.path())?;
    verdict::cluster(&mut verdict, &exporter, port, cluster.objects_of("pods"))?;
    verdict::health(&mut verdict, &exporter, done.edits)?;
    let failures = seen.failures.get(..seen.failures.len().min(5));
    verdict.line(
        seen.failures.is_empty(),
        format!("{} scrapes that are not whole {failures:?}", seen.failures.len()),
    );
    verdict::level(&mut verdict, &seen, warm_up(options), options.may_grow)?;
    if let Some(folder) = &options.pictures {
        pictures(folder, &seen, &done)?;
    }
    if let Some(file) = &options.record {
        std::fs::write(file, record(&seen)).with_context(|| file.display().to_string())?;
    }
    if !verdict.passed() {
        println!("--- the end of its log\n{}", tail(&exporter.server.output()?));
    }
    Ok(verdict.passed())
}

fn tail(text: &str) -> String {
    let lines = Vec::from_iter(text.lines());
    lines.get(lines.len().saturating_sub(30)..).unwrap_or_default().join("\n")
}

/// Restarts and edits until the time is over or a thread has ended. The last edit is early enough to take effect.
fn disturb(
    options: &Options,
    start: Instant,
    cluster: &Cluster,
    exporter: &Exporter,
    parts: &[ScopedJoinHandle<'_, Result<()>>],
) -> Result<Disturbances> {
    let mut done = Disturbances::default();
    let mut back = None;
    while start.elapsed() < options.lasts && !parts.iter().any(ScopedJoinHandle::is_finished) {
        let now = start.elapsed();
        if now >= options.reload_every * (done.edits as u32 + 1) {
            done.edits += 1;
            exporter.edit(done.edits)?;
        }
        if back.is_some_and(|back| now >= back) {
            cluster.open()?;
            back = None;
        } else if back.is_none() && now >= options.restart_every * (done.restarts.len() as u32 + 1)
        {
            let away =
                OUTAGES.get(done.restarts.len() % OUTAGES.len()).copied().unwrap_or_default();
            cluster.close();
            done.restarts.push(now);
            back = Some(now + away);
        }
        sleep(Duration::from_millis(20));
    }
    if back.is_some() {
        cluster.open()?;
    }
    Ok(done)
}

/// Time until tables and buffers have reached their sizes: each version of the files has been in force.
fn warm_up(options: &Options) -> Duration {
    (options.lasts / 6).min(options.reload_every * 4)
}

fn report(
    options: &Options,
    done: &Disturbances,
    seen: &Observations,
    sent: &Sent,
    changes: u64,
    lasted: Duration,
) {
    let seconds = lasted.as_secs_f64();
    println!(
        "{seconds:.0} s: {:.0} events/s, {:.0} of {:.0} lines/s over UDP and {:.0} over TCP and a Unix socket, {} restarts of \
         the API server, {} edits of both files; {:.1}% of a core",
        changes as f64 / seconds,
        (sent.datagrams() * senders::LINES) as f64 / seconds,
        options.lines,
        sent.streamed() as f64 / seconds,
        done.restarts.len(),
        done.edits,
        100.0 * seen.cpu / seconds
    );
    for ((name, _), (points, bytes)) in FORMS.iter().zip(seen.scrapes.iter().zip(&seen.bytes)) {
        let values = || points.iter().map(|(_, value)| *value);
        println!(
            "scrapes as {name}: {} of {:.1} MB, {:.1} ms in the middle, {:.1} ms 99%, {:.1} ms at most",
            points.len(),
            *bytes as f64 / 1e6,
            median(values()),
            quantile(values(), 0.99),
            values().fold(0.0, f64::max)
        );
    }
}

fn pictures(folder: &Path, seen: &Observations, done: &Disturbances) -> Result<()> {
    let memory = [Line { name: "resident", colour: "#1f5fbf", points: &seen.memory }];
    let title = "Memory; thin lines are restarts of the API server";
    std::fs::write(folder.join("soak-memory.svg"), picture(title, "MB", &memory, &done.restarts))?;
    let colours = ["#1f5fbf", "#b3541e", "#2e7d32"];
    let named = FORMS.iter().zip(colours).zip(&seen.scrapes);
    let lines = named.map(|(((name, _), colour), points)| Line { name, colour, points });
    let scrapes = picture("Time of a scrape", "ms", &Vec::from_iter(lines), &done.restarts);
    Ok(std::fs::write(folder.join("soak-scrapes.svg"), scrapes)?)
}

fn record(seen: &Observations) -> String {
    let mut text = String::from("seconds,what,value\n");
    let mut add = |what: &str, points: &[(Duration, f64)]| {
        for (at, value) in points {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:.1},{what},{value}", at.as_secs_f64());
        }
    };
    add("memory_mb", &seen.memory);
    add("descriptors", &seen.descriptors);
    add("threads", &seen.threads);
    for ((name, _), points) in FORMS.iter().zip(&seen.scrapes) {
        add(&format!("scrape_{name}_ms"), points);
    }
    text
}
