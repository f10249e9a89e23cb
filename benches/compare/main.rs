//! Load programs for measuring the exporter.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kstatd::tools::double::{Double, Options};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    /// Serve a synthetic cluster; prints its URL, ends when standard input does.
    Double {
        /// Pods of the cluster.
        #[arg(long, default_value_t = 1_000)]
        pods: u32,
        /// Changes per second; a number on standard input changes it.
        #[arg(long, default_value_t = 0.0)]
        churn: f64,
        /// Port on 127.0.0.1.
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Program::Double { pods, churn, port } = Arguments::parse().program;
    let options = Options { pods, events_per_second: churn, port, ..Options::default() };
    let double = match Double::start(&options).await {
        Ok(double) => double,
        Err(error) => {
            eprintln!("port {port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let _ = writeln!(std::io::stdout(), "{} objects={}", double.url(), double.objects());
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
    ExitCode::SUCCESS
}
