//! What the finished program does under load for long:
//!
//! ```text
//! cargo run --release --package kstatd-endurance -- soak --kstatd PATH [--for 1h]
//! cargo run --release --package kstatd-endurance -- memory --kstatd PATH [--all] [--renew]
//! cargo run --release --package kstatd-endurance -- requests --kstatd PATH
//! ```
//!
//! The first puts it between an API server that is started anew all the while, senders of lines, scrapers and changing files, and
//! says at the end whether anything grew, anything is missing, and where every line went. The second holds its memory
//! against the limits in `docs/memory.md`; the third says what requests cost.

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
    /// Everything at once for an hour, and a ledger of it
    Soak(soak::Options),
    /// Memory at rest and at its peaks, held against the table of limits
    Memory(memory::Options),
    /// What each kind of request costs beside a plain scrape
    Requests(requests::Options),
}

/// `90`, `90s`, `5m`, `1h`.
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
    let is_well = match Arguments::parse().command {
        Command::Soak(options) => soak::run(&options)?,
        Command::Memory(options) => memory::run(&options)?,
        Command::Requests(options) => requests::run(&options)?,
    };
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
