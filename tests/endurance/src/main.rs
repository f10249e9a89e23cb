//! What the finished program does under load for long:
//!
//! ```text
//! cargo run --release --package kstatd-endurance -- soak --kstatd PATH [--for 1h]
//! ```
//!
//! puts it between an API server that is started anew all the while, senders of lines, scrapers and changing files, and
//! says at the end whether anything grew, anything is missing, and where every line went.

mod cluster;
mod figures;
mod soak;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "The finished program under load for long")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything at once for an hour, and a ledger of it
    Soak(soak::Options),
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
    let Command::Soak(options) = Arguments::parse().command;
    let is_well = soak::run(&options)?;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
