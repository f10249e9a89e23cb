//! Random input for kstatd and for the originals, whose answers must be equal:
//!
//! ```text
//! cargo run --package kstatd-differential -- [--seed N] [--minutes N] [--side statsd|kube|both]
//! ```
//!
//! A case is derived from a seed. If the answers differ, the case is made smaller while they still do, and printed with
//! the seed and both answers; the exit code is 1. Deliberate differences are modelled in [`statsd::deviations`] and
//! [`kube::deviations`], whose rows name those of `docs/compatibility.md`.

#![forbid(unsafe_code)]

mod kube;
mod program;
mod shrink;
mod statsd;

use std::fmt::{self, Display};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use rand::SeedableRng;
use rand::rngs::StdRng;

use program::Binaries;
use shrink::Shrink;

/// Longest search for a smaller case.
const SHRINKING: Duration = Duration::from_secs(180);

#[derive(Parser)]
#[command(about = "Random input for kstatd and for the originals, whose answers are compared")]
struct Arguments {
    /// The seed of the first case; each further case has the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Begin no case after this time
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Run at most this many cases
    #[arg(long)]
    cases: Option<u64>,
    /// Print the deliberate differences that random input meets, and end
    #[arg(long)]
    deviations: bool,
    /// The compared side
    #[arg(long, value_enum, default_value_t = Sides::Both)]
    side: Sides,
    /// Continue after a difference; the exit code is 1 nevertheless
    #[arg(long)]
    all: bool,
    /// The program under test
    #[arg(long, default_value = "target/debug/kstatd")]
    kstatd: PathBuf,
    /// Directory with the originals, filled by tests/build-peers.sh
    #[arg(long, default_value = "tests/.bin")]
    originals: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sides {
    Statsd,
    Kube,
    Both,
}

/// A random input, which can be given to both programs.
trait Case: Shrink + Display {
    /// Derives the case of a seed.
    fn random(rng: &mut StdRng) -> Self;

    /// Gives the input to both programs. Returns the difference of their answers and the number of compared lines.
    ///
    /// # Errors
    ///
    /// A program does not start, or ends.
    fn run(&self, binaries: &Binaries) -> Result<Comparison>;
}

/// The result of a case.
struct Comparison {
    difference: Option<String>,
    lines: usize,
}

/// The number of cases and of compared lines of an answer.
#[derive(Default)]
struct Totals {
    cases: u64,
    lines: usize,
    differences: u64,
    not_repeated: u64,
}

impl Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases, {} compared lines, {} differences, {} that did not repeat",
            self.cases, self.lines, self.differences, self.not_repeated
        )
    }
}

/// Runs the case of a seed.
fn try_seed<C: Case>(
    name: &str,
    seed: u64,
    binaries: &Binaries,
    totals: &mut Totals,
) -> Result<()> {
    let case = C::random(&mut StdRng::seed_from_u64(seed));
    let run = |case: &C| {
        case.run(binaries).with_context(|| format!("--side {name} --seed {seed}\n{case}"))
    };
    let first = run(&case)?;
    totals.cases += 1;
    totals.lines += first.lines;
    let Some(difference) = first.difference else { return Ok(()) };
    // A series that expires at the wrong moment because the machine is busy differs once.
    let Some(again) = run(&case)?.difference else {
        totals.not_repeated += 1;
        println!("seed {seed} ({name}) differed once and not again:\n{difference}");
        return Ok(());
    };
    totals.differences += 1;
    println!("seed {seed} ({name}) differs, searching for a smaller case:\n{again}");
    let deadline = Instant::now() + SHRINKING;
    let differs = |case: &C| run(case).ok().and_then(|comparison| comparison.difference);
    let (case, difference) = shrink::shrink(case, again, deadline, differs);
    println!(
        "\nDIFFERENCE: --side {name} --seed {seed} --cases 1\n{case}\nthe answers differ in\n{difference}\n"
    );
    Ok(())
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::from(2)
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.deviations {
        for (row, treatment) in statsd::deviations::ROWS.iter().chain(kube::deviations::ROWS) {
            println!("{treatment:?}: {row}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let binaries = Binaries {
        kstatd: arguments.kstatd.clone(),
        statsd_exporter: arguments.originals.join("statsd_exporter"),
        kube_state_metrics: arguments.originals.join("kube-state-metrics"),
    };
    let end = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    let (mut statsd, mut kube) = (Totals::default(), Totals::default());
    let last = arguments.cases.map(|count| arguments.seed.saturating_add(count));
    let mut seed = arguments.seed;
    while Instant::now() < end && last.is_none_or(|last| seed < last) {
        if arguments.side != Sides::Kube {
            try_seed::<statsd::Scenario>("statsd", seed, &binaries, &mut statsd)?;
        }
        if arguments.side != Sides::Statsd {
            try_seed::<kube::Scenario>("kube", seed, &binaries, &mut kube)?;
        }
        if statsd.differences + kube.differences > 0 && !arguments.all {
            break;
        }
        seed += 1;
    }
    println!("statsd: {statsd}\nkube: {kube}");
    let failed = statsd.differences + kube.differences > 0;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
