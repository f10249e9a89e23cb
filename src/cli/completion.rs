//! Completion scripts and the version output.

use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_complete::Shell;

use super::flag::Flag;
use super::native::Cli;
use super::{clap_table, kube_flags, statsd_flags};
use crate::telemetry::{REVISION, TOOLCHAIN, VERSION};

/// Returns the clap command of kstatd with all subcommands, including the personalities' flags.
pub(crate) fn command() -> Command {
    Cli::command()
        .mut_subcommand("kube-state-metrics", |command| with_flags(command, &kube_flags::all()))
        .mut_subcommand("statsd_exporter", |command| {
            with_flags(command, statsd_flags::FLAGS).args(kingpin_builtin_flags())
        })
}

/// Returns the flags that kingpin handles itself.
fn kingpin_builtin_flags() -> [Arg; 4] {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help_heading("Flags").help(help)
    };
    [
        flag("help", "Show the flags").short('h'),
        flag("help-long", "The same"),
        flag("help-man", "Print them as a manual page"),
        flag("version", "Show the version"),
    ]
}

/// Returns the completion script for kstatd.
pub fn kstatd(shell: Shell) -> String {
    generate(command(), "kstatd", shell)
}

/// Returns the completion script for the name kube-state-metrics.
pub fn kube_state_metrics(shell: Shell) -> String {
    let command = Command::new("kube-state-metrics").disable_help_flag(true);
    let command = with_flags(command, &kube_flags::all())
        .subcommand(Command::new("version").about("Print version information."))
        .subcommand(
            Command::new("completion")
                .about("Generate a completion script.")
                .arg(clap::Arg::new("shell").value_parser(["bash", "zsh", "fish"])),
        );
    generate(command, "kube-state-metrics", shell)
}

fn with_flags<A: Default + 'static>(command: Command, flags: &[Flag<A>]) -> Command {
    // The catch-all argument would hide the flags.
    let command = command.mut_args(|arg| if arg.get_id() == "args" { arg.hide(true) } else { arg });
    flags.iter().fold(command, |command, flag| command.args(clap_table::arguments(flag, "Flags")))
}

fn generate(mut command: Command, name: &str, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Returns version information in the format of Prometheus programs: a first line and indented
/// details.
pub fn version(program: &str) -> String {
    format!(
        "{program}, version {VERSION} (branch: , revision: {REVISION})\n  build user:       \n  \
         build date:       \n  go version:       none, built with {TOOLCHAIN}\n  \
         platform:         {}/{}\n  tags:             kstatd\n",
        std::env::consts::OS,
        crate::telemetry::go_arch(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_scripts_contain_all_flags() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let own = kstatd(shell);
            for word in
                ["check-config", "metric-labels-allowlist", "statsd.mapping-config", "vmodule"]
            {
                assert!(own.contains(word), "{word} in {shell:?}");
            }
            assert!(kube_state_metrics(shell).contains("custom-resource-state-only"), "{shell:?}");
        }
    }

    #[test]
    fn the_version_line_names_program_version_branch_and_revision() {
        let block = version("statsd_exporter");
        let first = block.lines().next().expect("line");
        assert!(first.starts_with("statsd_exporter, version "), "{first}");
        assert!(first.contains(" (branch: , revision: "), "{first}");
        assert_eq!(block.lines().count(), 6);
    }
}
