//! The command line: argv in, an exit code out.
//!
//! Three grammars (kstatd's own by clap, kube-state-metrics' by [`pflag`], statsd_exporter's by
//! [`kingpin`]) read the same two tables of flags ([`kube_flags`], [`statsd_flags`]). Parsing only checks
//! and stores; [`config`] turns what was stored, and the options file, into one [`config::Config`];
//! [`run`] starts what the configuration says. Nothing else in the crate knows this module.

mod at_once;

pub mod clap_table;
pub mod completion;
pub mod config;
pub mod demo;
pub mod file_watch;
pub mod flag;
pub mod go;
pub mod kingpin;
pub mod klog;
pub mod kstatd;
pub mod kube_flags;
pub mod kube_side;
pub mod kube_state_metrics;
pub mod listeners;
pub mod native;
pub mod options_file;
pub mod pflag;
pub mod process;
pub mod run;
pub mod services;
pub mod startup_code;
pub mod statsd_exporter;
pub mod statsd_flags;
pub mod statsd_side;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use config::Personality;

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

/// Writes to standard output. A reader that went away early (`| head`) is no failure.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            complain(&format!("cannot write to standard output: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes a line to standard error. When that fails there is nobody left to tell.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
