//! Compares kstatd with both originals and with the limits of the machine:
//!
//! ```text
//! cargo run --release --package kstatd-compare
//! ```
//!
//! builds kstatd and, from Go modules, kube-state-metrics and statsd_exporter (Go 1.26 or later), applies the same load to
//! each and prints the table of goals and the tables of growth in Markdown. It takes 40 minutes on two otherwise idle
//! cores. `--quick` uses a tenth of the sizes, `--only NAME` runs one row or table (`--list` prints the names); `--only node`
//! runs the table of walks, which takes most of an hour.
//!
//! CPU is user and system time of the server process, memory its resident set. The load comes from this process: the API
//! double of `kstatd demo`, a sender with `sendmmsg`, and a scraper that discards what it reads. The limits are separate
//! processes: a writer that sends the same bytes from memory, and a receiver that only counts.

mod batching;
mod changing;
mod custom;
mod data_set;
mod explosion;
mod gates;
mod growth;
mod kinds;
mod kube;
mod limits;
mod mapper;
mod mmsg;
mod node;
mod programs;
mod rendering;
mod rows;
mod shards;
mod statsd;
mod table;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use kstatd_double::{Double, Options};
use kstatd_endurance::{process, scrape};

use data_set::DataSet;
use programs::{ProgramPaths, Programs};
use rows::Size;
use table::Row;

#[derive(Parser)]
#[command(about = "Compare kstatd with both originals and with the limits of the machine")]
struct Arguments {
    /// Use a tenth of the sizes; the figures only show tendencies
    #[arg(long)]
    quick: bool,
    /// Only this row or table; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Minutes of hostile lines for each budget
    #[arg(long, value_name = "MINUTES", default_value_t = 1.0)]
    hostile: f64,
    /// Files of the tree for `node`, with a tenth as many directories; one in 10,000 changes a second [default:
    /// 1000000]
    #[arg(long, value_name = "N")]
    files: Option<usize>,
    /// Passes of each walk of `node` after its first one
    #[arg(long, value_name = "N", default_value_t = 3)]
    passes: u8,
    /// Print the names of rows and tables
    #[arg(long)]
    list: bool,
    /// Write the tables to this file as well
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    given: ProgramPaths,
    #[command(subcommand)]
    program: Option<Program>,
}

/// The load programs, run alone.
#[derive(Subcommand)]
enum Program {
    /// Serve a cluster; print its URL and end with standard input
    Double {
        /// Repeat the recorded objects and rollouts instead of synthetic ones
        #[arg(long)]
        recorded: bool,
        /// Pods of the cluster
        #[arg(long, default_value_t = 1_000)]
        pods: u32,
        /// Changes per second; a number on standard input changes it
        #[arg(long, default_value_t = 0.0)]
        churn: f64,
        /// Port on 127.0.0.1
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Answer every request with the bytes of a file, from memory
    MemoryWriter {
        /// Port on 127.0.0.1
        port: u16,
        /// The file
        file: PathBuf,
    },
    /// Count the lines received over UDP, and report them on the TCP port of the same number
    UdpCounter {
        /// Port on 127.0.0.1
        port: u16,
    },
}

type Scenario = fn(&Programs, Size) -> Result<Vec<Row>>;

/// The scenarios of the table, in order.
const SCENARIOS: &[(&str, Scenario)] = &[
    ("cluster", |programs, size| rows::cluster(programs, size, DataSet::Synthetic)),
    ("cluster-recorded", |programs, size| rows::cluster(programs, size, DataSet::Recorded)),
    ("updates", |programs, size| rows::updates(programs, size, DataSet::Synthetic)),
    ("updates-recorded", |programs, size| rows::updates(programs, size, DataSet::Recorded)),
    ("rest", rows::rest),
    ("custom", rows::custom),
    ("datagrams", rows::datagrams),
    ("series", rows::series),
    ("mapper", |programs, _| rows::mapping(programs)),
];
/// The tables of growth.
const GROWTH: &[&str] = &[
    "growth-pods",
    "growth-pods-recorded",
    "groups",
    "shards",
    "growth-rules",
    "growth-series",
    "growth-scrapers",
    "interference",
    "batching",
    "explosion",
    "hostile",
    "memory-gates",
    "kinds",
    NODE,
];
/// Takes most of an hour, so it runs only if it is named.
const NODE: &str = "node";

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.program {
        Some(Program::Double { recorded, pods, churn, port }) => {
            let data = if recorded { DataSet::Recorded } else { DataSet::Synthetic };
            let options = data.options(pods)?;
            double(&Options { events_per_second: churn, port, ..options })
        }
        Some(Program::MemoryWriter { port, file }) => limits::memory_writer(port, &file),
        Some(Program::UdpCounter { port }) => limits::udp_counter(port),
        None if arguments.list => {
            let names = SCENARIOS.iter().map(|(name, _)| *name).chain(GROWTH.iter().copied());
            names.for_each(|name| println!("{name}"));
            Ok(())
        }
        None => compare(&arguments),
    }
}

fn compare(arguments: &Arguments) -> Result<()> {
    let known = |name: &String| {
        GROWTH.contains(&name.as_str()) || SCENARIOS.iter().any(|(known, _)| known == name)
    };
    if let Some(name) = arguments.only.iter().find(|name| !known(name)) {
        bail!("--only {name}: there is no such row; --list prints what there is");
    }
    let wanted = |name: &str| match arguments.only.as_slice() {
        [] => name != NODE,
        only => only.iter().any(|only| only == name),
    };
    let programs = Programs::prepare(&arguments.given)?;
    let mut size = if arguments.quick { Size::quick() } else { Size::full() };
    size.files = arguments.files.unwrap_or(size.files);
    size.passes = arguments.passes;
    size.hostile = Duration::try_from_secs_f64(arguments.hostile * 60.0).context("--hostile")?;
    let start = Instant::now();
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (name, scenario) in SCENARIOS.iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name} (after {} s)", start.elapsed().as_secs());
        match scenario(&programs, size) {
            Ok(measured) => rows.extend(measured),
            Err(error) => failed.push(format!("{name}: {error:#}")),
        }
    }
    let mut out = String::new();
    if !rows.is_empty() {
        out.push_str(&table::goals(&rows));
    }
    out.push_str(&growth::all(&programs, size, wanted, &mut failed));
    eprintln!("done after {} s", start.elapsed().as_secs());
    print!("{out}");
    if let Some(path) = &arguments.output {
        std::fs::write(path, out).with_context(|| path.display().to_string())?;
    }
    if !failed.is_empty() {
        bail!("not measured: {}", failed.join("; "));
    }
    Ok(())
}

#[tokio::main]
async fn double(options: &Options) -> Result<()> {
    let started = Double::start(options).await;
    let double = started.with_context(|| format!("port {}", options.port))?;
    writeln!(std::io::stdout(), "{} objects={}", double.url(), double.objects())?;
    let (rates, mut received) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if let Ok(rate) = line.trim().parse::<f64>() {
                let _ = rates.blocking_send(rate);
            }
        }
    });
    while let Some(rate) = received.recv().await {
        double.set_events_per_second(rate);
    }
    double.stop().await;
    Ok(())
}
