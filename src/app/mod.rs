//! The application: what runs when the command line has been read. The one room that knows all others.
//!
//! [`main`] chooses the personality. [`run`] has the loop of each, which starts the sides ([`kube_side`],
//! [`statsd_side`]), serves what they have on [`listeners`] and keeps to flags and files while it runs; [`process`] is
//! what surrounds it: runtime, signals, watched files.

#[cfg(feature = "demo")]
pub(crate) mod demo;
pub(crate) mod kstatd;
pub(crate) mod kube_side;
pub(crate) mod kube_state_metrics;
pub(crate) mod listeners;
mod output;
pub(crate) mod process;
pub(crate) mod run;
pub(crate) mod statsd_exporter;
pub(crate) mod statsd_side;
mod telemetry;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::config::Personality;

/// Runs the program. The name it was started under, or its first word, chooses the personality.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    let program = argv.first().map(Path::new).and_then(Path::file_name);
    let by_name = program.and_then(|name| personality(&name.to_string_lossy()));
    if let Some(personality) = by_name {
        return original(personality, &argv, 1);
    }
    let word = |index: usize| argv.get(index).map(|word| word.to_string_lossy());
    let named = |index| word(index).and_then(|word| personality(&word));
    match (named(1), word(1).as_deref(), named(2)) {
        (Some(personality), ..) => original(personality, &argv, 2),
        // `kstatd help statsd_exporter`: its own help, which knows its flags.
        (None, Some("help"), Some(personality)) => original_help(personality),
        _ => kstatd::main(argv),
    }
}

fn original_help(personality: Personality) -> ExitCode {
    original(personality, &["--help".into()], 0)
}

fn personality(name: &str) -> Option<Personality> {
    match name {
        "kube-state-metrics" => Some(Personality::KubeStateMetrics),
        "statsd_exporter" => Some(Personality::StatsdExporter),
        _ => None,
    }
}

fn original(personality: Personality, argv: &[OsString], skip: usize) -> ExitCode {
    // Go programs take any bytes; nothing that their flags mean is outside UTF-8.
    let args: Vec<String> =
        argv.iter().skip(skip).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match personality {
        Personality::StatsdExporter => statsd_exporter::main(&args),
        _ => kube_state_metrics::main(&args),
    }
}
