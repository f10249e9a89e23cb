//! The memory contract: what the program may take, at rest and at its peaks, in states that are known to the object.
//! The limits stand in `docs/memory.md`, which this reads, so that what is promised is what is held.

mod load;
mod table;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use load::Case;
use table::Table;

/// A limit is so many times what was measured,
const MARGIN: f64 = 1.15;
/// and at least so many MB more: how much of the program's own file is in memory differs that much from run to run.
const ROOM: f64 = 5.0;

/// What is measured.
#[derive(Args)]
pub struct Options {
    /// The program
    #[arg(long, value_name = "PATH")]
    kstatd: PathBuf,
    /// The sizes that take long, too
    #[arg(long)]
    all: bool,
    /// Only cases whose name has this in it
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Write what was measured, and limits of it, to the table
    #[arg(long)]
    renew: bool,
    /// The table
    #[arg(long, value_name = "FILE", default_value = "docs/memory.md")]
    table: PathBuf,
}

/// Everything that is measured, and whether each change has to pass it.
const CASES: [(Case, bool); 8] = [
    (Case::Rest, true),
    (Case::Series(3_000), true),
    (Case::Series(100_000), true),
    (Case::Series(1_000_000), false),
    (Case::Senders(10_000), true),
    (Case::Pods(1_000), true),
    (Case::Pods(10_000), true),
    (Case::Pods(50_000), false),
];

/// Measures and compares; whether all is within the limits.
pub fn run(options: &Options) -> Result<bool> {
    let place = || options.table.display().to_string();
    let text = std::fs::read_to_string(&options.table).with_context(place)?;
    let mut table = Table::parse(&text)?;
    let mut is_well = true;
    for (case, is_gate) in CASES {
        let name = case.name();
        if !(is_gate || options.all) || !name.contains(&options.only) {
            continue;
        }
        for (moment, bytes) in case.measure(&options.kstatd)? {
            let measured = bytes / 1e6;
            if options.renew {
                let limit = (measured * MARGIN).max(measured + ROOM);
                table.set(&name, moment, measured, limit, is_gate);
                println!("      {name}, {moment}: {measured:.1} MB");
                continue;
            }
            let limit = table.limit(&name, moment).with_context(place)?;
            let is_within = measured <= limit;
            let word = if is_within { "ok   " } else { "ABOVE" };
            println!("{word} {name}, {moment}: {measured:.1} MB of {limit:.1} MB");
            is_well &= is_within;
        }
    }
    if options.renew {
        std::fs::write(&options.table, table.text()).with_context(place)?;
    }
    Ok(is_well)
}
