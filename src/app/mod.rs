//! The application: everything after the command line has been parsed. The only room that may import all others.
//!
//! [`main`] selects a [`personality`], the behaviour of the program under one name. [`run`] is the run loop of all
//! personalities: it starts their [`sides`], serves them on the [`listeners`], lets [`config_reloader`] apply changes of flags
//! and files, and shuts them down. [`process`] contains the runtime, signals and file watches.

mod access;
mod bundle;
mod cardinality;
mod check;
mod config_reloader;
#[cfg(feature = "demo")]
mod demo;
mod diff;
mod kstatd;
mod kube_state_metrics;
mod listeners;
mod output;
mod overhead;
mod personality;
mod process;
mod run;
mod shadow;
mod sides;
mod standby;
mod statsd_exporter;
mod telemetry;
#[cfg(test)]
mod tests;
mod top;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::config::Name;
#[cfg(fuzzing)]
pub(crate) use standby::tests::peer_answers;

/// Runs the program. Its name or first argument selects the personality.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    let program = argv.first().map(Path::new).and_then(Path::file_name);
    let by_name = program.and_then(|name| name_of(&name.to_string_lossy()));
    if let Some(name) = by_name {
        return original(name, &argv, 1);
    }
    // The plugin of kubectl.
    if program.is_some_and(|name| name == "kubectl-kstatd" || name == "kubectl_kstatd") {
        return kstatd::main(argv, true);
    }
    let word = |index: usize| argv.get(index).map(|word| word.to_string_lossy());
    let named = |index| word(index).and_then(|word| name_of(&word));
    match (named(1), word(1).as_deref(), named(2)) {
        (Some(name), ..) => original(name, &argv, 2),
        // `kstatd help statsd_exporter` prints the help of that program.
        (None, Some("help"), Some(name)) => original(name, &["--help".into()], 0),
        _ => kstatd::main(argv, false),
    }
}

/// Returns the original with this name.
fn name_of(word: &str) -> Option<Name> {
    Name::parse(word).filter(|name| matches!(name, Name::KubeStateMetrics | Name::StatsdExporter))
}

fn original(name: Name, argv: &[OsString], skip: usize) -> ExitCode {
    // Go accepts any bytes, but no flag has a meaning outside UTF-8.
    let args: Vec<String> =
        argv.iter().skip(skip).map(|arg| arg.to_string_lossy().into_owned()).collect();
    match name {
        Name::StatsdExporter => statsd_exporter::main(&args),
        _ => kube_state_metrics::main(&args),
    }
}
