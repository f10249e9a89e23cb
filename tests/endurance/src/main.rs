//! Long-running tests of the shipped program:
//!
//! ```text
//! cargo run --release --package kstatd-endurance -- soak --kstatd PATH [--for 1h]
//! cargo run --release --package kstatd-endurance -- memory --kstatd PATH [--all] [--renew]
//! cargo run --release --package kstatd-endurance -- requests --kstatd PATH
//! ```
//!
//! `soak` runs it with an API server that restarts, senders of lines, scrapers and edited files, and finally checks that
//! nothing has grown, nothing is missing and every line is accounted for. `memory` compares its memory with the limits in
//! `docs/memory.md`. `requests` measures the CPU time of requests.

#![forbid(unsafe_code)]

mod cluster;
mod figures;
mod memory;
mod requests;
mod soak;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "The finished program under load for long, and its memory")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything at once for an hour, and account for all lines
    Soak(soak::Options),
    /// Compare memory in the steady state and at its peaks with the table of limits
    Memory(memory::Options),
    /// Compare the cost of each kind of request with that of a plain scrape
    Requests(requests::Options),
}

/// Parses `90`, `90s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration> {
    let (digits, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let unit = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => bail!("{text:?} is no time such as 90s, 5m or 1h"),
    };
    Ok(Duration::try_from_secs_f64(digits.parse::<f64>()? * unit)?)
}

fn main() -> Result<ExitCode> {
    let passed = match Arguments::parse().command {
        Command::Soak(options) => soak::run(&options)?,
        Command::Memory(options) => memory::run(&options)?,
        Command::Requests(options) => requests::run(&options)?,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
