//! The `kube-state-metrics` command line: its commands and error messages.

use std::process::ExitCode;

use super::output::{print, print_error};
use super::{personality, run};
use crate::cli::flag::Flag;
use crate::cli::kube_flags::{self, KubeArgs};
use crate::cli::{completion, config, pflag};
use crate::telemetry::{REVISION, VERSION};

const ABOUT: &str =
    "Metrics for the state of Kubernetes objects, as kube-state-metrics serves them.";

const PROGRAM: &str = "kube-state-metrics";

const COMPLETION_HELP: &str = "Generate the completion script for a shell.\n\n\
    In this session of bash:\n\n    source <(kube-state-metrics completion bash)\n\n\
    In every new one:\n\n    \
    kube-state-metrics completion bash > /etc/bash_completion.d/kube-state-metrics\n\n\
    Usage:\n  kube-state-metrics completion [bash|zsh|fish]\n";

/// Runs the program with the arguments after its name.
pub fn main(argv: &[String]) -> ExitCode {
    let flags = kube_flags::all();
    if let Some(at) = pflag::first_word(&flags, argv) {
        let mut rest = argv.to_vec();
        match rest.remove(at).as_str() {
            "version" => return version(&rest),
            "completion" | "comp" | "c" => return completions(&rest),
            "help" => return help(&flags, &rest),
            // Flags are validated before unknown commands.
            _ => {}
        }
    }
    let mut args = KubeArgs::default();
    let words = match pflag::parse(&flags, &mut args, argv) {
        Ok(words) => words,
        Err(error) => return usage_error(&error.to_string(), &usage(&flags)),
    };
    if args.help {
        return print(&format!("{ABOUT}\n\n{}", usage(&flags)));
    }
    if let Some(word) = words.first() {
        return unknown_command(&flags, word);
    }
    crate::telemetry::log::init(config::klog(&args));
    run(&args)
}

/// Runs until a signal ends it.
fn run(args: &KubeArgs) -> ExitCode {
    if !args.klog.ignored_flags.is_empty() {
        let flags = args.klog.ignored_flags.join(", ");
        tracing::warn!(flags, "Logging flags without effect: the log goes to stderr");
    }
    tracing::info!(version = VERSION, revision = REVISION, "Starting kube-state-metrics");
    match run::main(personality::kube_state_metrics(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(err = %error, "Failed to run kube-state-metrics");
            ExitCode::FAILURE
        }
    }
}

fn usage(flags: &[Flag<KubeArgs>]) -> String {
    format!(
        "Usage:\n  {PROGRAM} [flags]\n  {PROGRAM} [command]\n\nAvailable Commands:\n  \
         completion  Generate completion script for {PROGRAM}.\n  \
         help        Help about any command\n  version     Print version information.\n\n\
         Flags:\n{}\nUse \"{PROGRAM} [command] --help\" for more information about a command.\n",
        pflag::usages(flags)
    )
}

fn usage_error(error: &str, usage: &str) -> ExitCode {
    print_error(&format!("Error: {error}\n{}", usage.trim_end_matches('\n')));
    ExitCode::FAILURE
}

fn unknown_command(flags: &[Flag<KubeArgs>], word: &str) -> ExitCode {
    let word = crate::go::strconv::quote(word);
    usage_error(&format!("unknown command {word} for \"{PROGRAM}\""), &usage(flags))
}

/// The flags of commands that only have `--help`.
#[derive(Default)]
struct HelpOnly {
    help: bool,
}

fn help_flag(help: &'static str) -> [Flag<HelpOnly>; 1] {
    [Flag {
        name: "help",
        short: Some('h'),
        value_type: crate::cli::flag::ValueType::Boolean,
        default: "",
        help,
        set: |args, text| {
            crate::go::strconv::parse_bool(text).map(|on| args.help = on).map_err(Into::into)
        },
        keys: None,
    }]
}

fn version(argv: &[String]) -> ExitCode {
    let flags = help_flag("help for version");
    let usage = format!("Usage:\n  {PROGRAM} version [flags]\n\nFlags:\n{}", pflag::usages(&flags));
    let mut args = HelpOnly::default();
    match pflag::parse(&flags, &mut args, argv) {
        Err(error) => usage_error(&error.to_string(), &format!("{usage}\n")),
        Ok(_) if args.help => print(&format!("Print version information.\n\n{usage}")),
        Ok(_) => print(&completion::version(PROGRAM)),
    }
}

fn completions(argv: &[String]) -> ExitCode {
    let flags = help_flag("help for completion");
    let usage = format!(
        "Usage:\n  {PROGRAM} completion [bash|zsh|fish]\n\nAliases:\n  completion, comp, c\n\n\
         Flags:\n{}",
        pflag::usages(&flags)
    );
    let mut args = HelpOnly::default();
    let words = match pflag::parse(&flags, &mut args, argv) {
        Err(error) => return usage_error(&error.to_string(), &format!("{usage}\n")),
        Ok(_) if args.help => return print(COMPLETION_HELP),
        Ok(words) => words,
    };
    let [shell] = words.as_slice() else {
        let error = format!("accepts 1 arg(s), received {}", words.len());
        return usage_error(&error.to_string(), &format!("{usage}\n"));
    };
    match shell.parse() {
        Ok(shell) => print(&completion::kube_state_metrics(shell)),
        // The original prints nothing and succeeds.
        Err(_) => ExitCode::SUCCESS,
    }
}

fn help(flags: &[Flag<KubeArgs>], argv: &[String]) -> ExitCode {
    match argv.first().map(String::as_str) {
        Some("version") => version(&["--help".to_owned()]),
        Some("completion" | "comp" | "c") => completions(&["--help".to_owned()]),
        _ => print(&format!("{ABOUT}\n\n{}", usage(flags))),
    }
}
