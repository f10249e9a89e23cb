//! The application: what runs when the command line has been read. The one room that knows all others.
//!
//! [`main`] chooses the [`personality`]: what the program is under one name, as one value. [`run`] is the loop for all of
//! them: it starts the [`sides`] that the personality has, serves what they have on [`listeners`], lets [`upkeep`] keep to
//! flags and files, and ends them. [`process`] is what surrounds it: runtime, signals, watched files.

mod access;
mod cardinality;
mod compare;
#[cfg(feature = "demo")]
mod demo;
mod kstatd;
mod kube_state_metrics;
mod listeners;
mod output;
mod overhead;
mod personality;
mod process;
mod run;
mod sides;
mod statsd_exporter;
mod telemetry;
mod top;
mod upkeep;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::config::Name;

/// Runs the program. The name it was started under, or its first word, chooses the personality.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    let program = argv.first().map(Path::new).and_then(Path::file_name);
    let by_name = program.and_then(|name| name_of(&name.to_string_lossy()));
    if let Some(name) = by_name {
        return original(name, &argv, 1);
    }
    let word = |index: usize| argv.get(index).map(|word| word.to_string_lossy());
    let named = |index| word(index).and_then(|word| name_of(&word));
    match (named(1), word(1).as_deref(), named(2)) {
        (Some(name), ..) => original(name, &argv, 2),
        // `kstatd help statsd_exporter`: its own help, which knows its flags.
        (None, Some("help"), Some(name)) => original_help(name),
        _ => kstatd::main(argv),
    }
}

fn original_help(name: Name) -> ExitCode {
    original(name, &["--help".into()], 0)
}

fn name_of(word: &str) -> Option<Name> {
    match word {
        "kube-state-metrics" => Some(Name::KubeStateMetrics),
        "statsd_exporter" => Some(Name::StatsdExporter),
        _ => None,
    }
}

fn original(name: Name, argv: &[OsString], skip: usize) -> ExitCode {
    // Go programs take any bytes; nothing that their flags mean is outside UTF-8.
    let args: Vec<String> =
        argv.iter().skip(skip).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match name {
        Name::StatsdExporter => statsd_exporter::main(&args),
        _ => kube_state_metrics::main(&args),
    }
}
