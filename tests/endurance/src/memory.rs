//! The memory limits of the program, in the steady state and at its peaks, under reproducible loads. The limits are
//! read from `tests/bounds.csv`; a test compares the table in `docs/memory.md` with it.

#[path = "../../support/bounds.rs"]
mod bounds;
mod load;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Error, Result};
use clap::Args;

use bounds::Bounds;
use load::Case;
use table::Table;

/// A limit is the larger of this multiple of the measured value,
const MARGIN: f64 = 1.15;
/// and of the measured value plus this many MB: the resident part of the program file varies that much between runs.
const MARGIN_MB: f64 = 5.0;

/// Options of the memory test.
#[derive(Args)]
pub struct Options {
    /// The program
    #[arg(long, value_name = "PATH")]
    kstatd: PathBuf,
    /// Also measure the large sizes
    #[arg(long)]
    all: bool,
    /// Only run cases whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Write the measured values and new limits to the table
    #[arg(long)]
    renew: bool,
    /// The table
    #[arg(long, value_name = "FILE", default_value = "docs/memory.md")]
    table: PathBuf,
    /// The limits
    #[arg(long, value_name = "FILE", default_value = "tests/bounds.csv")]
    bounds: PathBuf,
}

/// All cases, and whether CI runs them.
const CASES: [(Case, bool); 9] = [
    (Case::Rest, true),
    (Case::Series(3_000), true),
    (Case::Series(100_000), true),
    (Case::Series(1_000_000), false),
    (Case::Senders(10_000), true),
    (Case::Pods(1_000), true),
    (Case::Pods(10_000), true),
    (Case::Pods(50_000), false),
    (Case::VirtualShards(10_000), false),
];

/// Measures and compares; true if all values are within their limits.
pub fn run(options: &Options) -> Result<bool> {
    let place = || options.table.display().to_string();
    let text = std::fs::read_to_string(&options.table).with_context(place)?;
    let mut table = Table::parse(&text)?;
    let bounds = std::fs::read_to_string(&options.bounds)
        .with_context(|| options.bounds.display().to_string())?;
    let mut bounds = Bounds::parse(&bounds).map_err(Error::msg)?;
    let mut passed = true;
    for (case, is_gate) in CASES {
        let name = case.name();
        if !(is_gate || options.all) || !name.contains(&options.only) {
            continue;
        }
        for (moment, bytes) in case.measure(&options.kstatd)? {
            let measured = bytes / 1e6;
            if options.renew {
                let limit = (measured * MARGIN).max(measured + MARGIN_MB);
                // As printed in the table.
                let limit = (limit * 10.0).round() / 10.0;
                table.set(&name, moment, measured, limit, is_gate);
                bounds.set("memory", &format!("{name}: {moment}"), "MB", limit);
                println!("      {name}, {moment}: {measured:.1} MB");
                continue;
            }
            let bound = bounds.current("memory", &format!("{name}: {moment}"));
            let limit = bound.map_err(Error::msg)?;
            let is_within = measured <= limit;
            let word = if is_within { "ok   " } else { "ABOVE" };
            println!("{word} {name}, {moment}: {measured:.1} MB of {limit:.1} MB");
            passed &= is_within;
        }
    }
    if options.renew {
        std::fs::write(&options.table, table.text()).with_context(place)?;
        std::fs::write(&options.bounds, bounds.text())?;
    }
    Ok(passed)
}
