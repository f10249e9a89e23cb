//! Flags and configuration files of an exporter, judged by the parsers that kstatd starts with.

use clap::Parser;
use serde_json::Value;

use super::compatibility::{KUBE_FLAGS, OPTIONS_KEYS, Row, Rows, STATSD_FLAGS, Table};
use super::inventory::Inventory;
use super::report::{Outcome, Section};
use super::workload::{FileError, Workload};
use crate::cli::config::{self, Config, FilesInUse, Load, Name};
use crate::cli::flag::{Flag, find};
use crate::cli::kube_flags::{self, KubeArgs};
use crate::cli::native::{Cli, CliCommand};
use crate::cli::statsd_flags::{self, StatsdArgs};
use crate::cli::{kingpin, options_file, pflag};
use crate::config_file::{Problem, Severity};
use crate::resources::{self, custom};
use crate::tools::Result;
use crate::tools::check_config;

/// The configuration that results from flags and files.
pub(crate) struct Settings {
    /// Listeners and sides.
    pub(crate) config: Config,
    /// The flags of the Kubernetes side, after the options file.
    pub(crate) kube: Option<KubeArgs>,
    /// The flags of the StatsD side.
    pub(crate) statsd: Option<StatsdArgs>,
    /// The custom resource configuration.
    pub(crate) custom: Option<custom::Config>,
}

/// Checks flags and files. Returns `None` if kstatd would not start with them.
pub(crate) fn check(
    workload: &Workload<'_>,
    inventory: &Inventory,
    section: &mut Section,
) -> Option<Settings> {
    for doubt in &workload.doubts {
        let outcome =
            if doubt.starts_with("the command") { Outcome::Failed } else { Outcome::Warning };
        section.add(outcome, doubt.as_str(), "", "docs/migration.md#swap");
    }
    match workload.program {
        Name::KubeStateMetrics => {
            let mut args = KubeArgs::default();
            let flags = kube_flags::all();
            judge(&workload.argv, &flags, KUBE_FLAGS, section, |words| {
                match pflag::parse(&flags, &mut args, words)?.first() {
                    None => Ok(()),
                    Some(word) => Err(format!("unknown command {word:?}").into()),
                }
            });
            let (kube, custom) = kube_files(args, workload, inventory, section);
            let mut kube = without_files(&kube);
            let config = config::kube_state_metrics(&kube, Load::First);
            let config = config.or_else(|errors| {
                for error in errors.0 {
                    rejected(&error, &KUBE_FLAGS.rows().page, section);
                }
                // The rest is checked with what is valid.
                kube = only_valid(&kube);
                config::kube_state_metrics(&kube, Load::First)
            });
            Some(Settings { config: config.ok()?, kube: Some(kube), statsd: None, custom })
        }
        Name::StatsdExporter => {
            let (flags, page) = (statsd_flags::FLAGS, &STATSD_FLAGS.rows().page);
            let mut words = Vec::new();
            judge(&workload.argv, flags, STATSD_FLAGS, section, |flag| {
                kingpin::parse(flags, &mut StatsdArgs::default(), flag)?;
                words.extend_from_slice(flag);
                Ok(())
            });
            let mut args = StatsdArgs::default();
            // Repeated flags are rejected only together.
            let all = kingpin::parse(flags, &mut args, &words);
            if let Err(error) = all.and_then(|_| statsd_flags::check(&args)) {
                rejected(&error, page, section);
            }
            mapping(&args, workload, inventory, section);
            let config = config::statsd_exporter(&args);
            let config = config.or_else(|error| {
                rejected(&error, page, section);
                config::statsd_exporter(&StatsdArgs::default())
            });
            Some(Settings { config: config.ok()?, kube: None, statsd: Some(args), custom: None })
        }
        Name::Kstatd | Name::Node => kstatd(workload, inventory, section),
    }
}

/// Checks the flags of `kstatd run` or `kstatd node`.
fn kstatd(
    workload: &Workload<'_>,
    inventory: &Inventory,
    section: &mut Section,
) -> Option<Settings> {
    let page = "docs/flags.md";
    let cli = Cli::try_parse_from([&["kstatd".to_owned()], workload.argv.as_slice()].concat());
    let cli = cli.map_err(|error| {
        let text = error.to_string();
        rejected(&text.lines().next().unwrap_or_default(), page, section);
    });
    let cli = cli.ok()?;
    let mut run = match cli.command {
        None => cli.run,
        Some(CliCommand::Run(run)) => *run,
        Some(CliCommand::Node(mut node)) => {
            // Its files are not on this host.
            (node.config, node.web_config_file) = (None, None);
            let config = config::node(&node, Load::First);
            let config = config.map_err(|errors| rejected(&errors, page, section)).ok()?;
            section.ok(format!("{} arguments of kstatd node are valid", workload.argv.len()));
            return Some(Settings { config, kube: None, statsd: None, custom: None });
        }
        Some(_) => {
            section.add(Outcome::Warning, "its command is not checked", "", "docs/commands.md");
            return None;
        }
    };
    section.ok(format!("{} arguments of kstatd are valid", workload.argv.len()));
    let (kube, custom) = kube_files(run.kube.0.clone(), workload, inventory, section);
    mapping(&run.statsd.0, workload, inventory, section);
    run.kube.0 = without_files(&kube);
    run.statsd.0.web_config_file = String::new();
    let config = config::kstatd(&run, Load::First, |_| true);
    let config = config.map_err(|errors| rejected(&errors, page, section)).ok()?;
    Some(Settings { config, kube: Some(kube), statsd: Some(run.statsd.0), custom })
}

/// Removes the names of files, which are checked separately: they are not on this host.
fn without_files(args: &KubeArgs) -> KubeArgs {
    KubeArgs {
        config: String::new(),
        custom_resource_config: String::new(),
        custom_resource_config_file: String::new(),
        tls_config: String::new(),
        ..args.clone()
    }
}

/// Returns flags with the values that kstatd accepts.
fn only_valid(args: &KubeArgs) -> KubeArgs {
    let known = |name: &&String| resources::find(name).is_some();
    let (default, valid) = (KubeArgs::default(), args.clone());
    let port = |port: i64, default| if u16::try_from(port).is_ok() { port } else { default };
    KubeArgs {
        resources: valid.resources.iter().filter(known).cloned().collect(),
        metric_allowlist: default.metric_allowlist,
        metric_denylist: default.metric_denylist,
        metric_opt_in_list: default.metric_opt_in_list,
        labels_allowlist: default.labels_allowlist,
        annotations_allowlist: default.annotations_allowlist,
        port: port(valid.port, default.port),
        telemetry_port: port(valid.telemetry_port, default.telemetry_port),
        ..valid
    }
}

fn rejected(error: &dyn std::fmt::Display, page: &str, section: &mut Section) {
    let hint = "kstatd does not start with it; correct it";
    section.add(Outcome::Failed, format!("rejected: {error}"), hint, page);
}

/// Judges each flag of a command line.
fn judge<A>(
    argv: &[String],
    flags: &[Flag<A>],
    table: Table,
    section: &mut Section,
    mut parse: impl FnMut(&[String]) -> Result<()>,
) {
    let (mut rest, table) = (argv, table.rows());
    while let [word, more @ ..] = rest {
        if word == "--" && more.is_empty() {
            break;
        }
        if word.starts_with('@') {
            let text = format!("{word}: a file with arguments, which is not read");
            section.add(Outcome::Warning, text, "write them into the manifest", &table.page);
            rest = more;
            continue;
        }
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let known = find(flags, name.trim_start_matches('-'));
        let is_flag = word == "-v" || word.starts_with("--") && !word.starts_with("---");
        let has_value = known.is_some_and(|flag| !flag.is_switch());
        let wants_value = is_flag && has_value && !word.contains('=');
        let (flag, after) = rest.split_at(1 + usize::from(wants_value && !more.is_empty()));
        rest = after;
        let text = flag.join(" ");
        if let Err(error) = parse(flag) {
            if text.contains("$(") {
                // The variable is a doubt of the workload. The flag is left out of what follows.
                continue;
            }
            let hint = "kstatd does not start with it; remove or correct it";
            section.add(Outcome::Failed, format!("{text}: rejected: {error}"), hint, &table.page);
            continue;
        }
        let value = flag.get(1).map_or(value, String::as_str);
        let is_default =
            known.is_some_and(|flag| !value.is_empty() && flag.default.trim_matches('"') == value);
        // `-v5` and grouped letters have no row of their own.
        let short: String = word.chars().take(2).collect();
        let name = if word.starts_with("--") { name } else { &short };
        difference(section, &table, &text, name, is_default);
    }
}

/// Adds the row of a flag or key.
fn difference(section: &mut Section, table: &Rows, text: &str, name: &str, is_default: bool) {
    let Some(Row { verdict, why, .. }) = table.of(name) else {
        let text = format!("{text}: only kstatd has it");
        let hint = "the original does not start with it; remove it before a rollback";
        return section.add(Outcome::Warning, text, hint, "docs/migration.md#roll-back");
    };
    let (outcome, text, hint) = match verdict {
        "absent" | "differs" if !is_default => {
            (Outcome::Warning, format!("{text}: differs: {why}"), "see whether you rely on it")
        }
        "better" => (Outcome::Ok, format!("{text}: better: {why}"), ""),
        _ => return section.ok(format!("{text}: same")),
    };
    section.add(outcome, text, hint, &table.page);
}

/// Returns the text of a file of the container, and reports why it is not known.
fn read(
    flag: &str,
    path: &str,
    may_be_missing: bool,
    workload: &Workload<'_>,
    inventory: &Inventory,
    section: &mut Section,
) -> Option<String> {
    let (outcome, reason, hint) = match workload.file(inventory, path) {
        Ok(text) => return Some(text),
        Err(FileError::Missing(_)) if may_be_missing => {
            section.ok(format!("{path} ({flag}): missing, which the flags allow"));
            return None;
        }
        Err(FileError::Missing(reason)) => {
            (Outcome::Failed, reason, "correct the volume or the flag")
        }
        Err(FileError::Unknown(reason)) => {
            let reason = format!("not checked: {reason}");
            (Outcome::Warning, reason, "check the file with `kstatd check-config`")
        }
    };
    section.add(outcome, format!("{path} ({flag}): {reason}"), hint, "docs/migration.md#before");
    None
}

/// Adds the problems of a file, or a summary of its content.
fn problems(section: &mut Section, file: &str, mut problems: Vec<Problem>, contents: &str) {
    problems.sort_by_key(|problem| (problem.line, problem.column));
    for problem in &problems {
        let outcome = match problem.severity {
            Severity::Error => Outcome::Failed,
            Severity::Warning => Outcome::Warning,
        };
        let Problem { line, column, message, hint, .. } = problem;
        let text = format!("{file}: line {line}, column {column}: {message}");
        section.add(outcome, text, hint.as_str(), "docs/migration.md#before");
    }
    if problems.is_empty() {
        section.ok(format!("{file}: valid, {contents}"));
    }
}

/// Checks the options file and the custom resource configuration. Returns the flags with the options that
/// can be used.
fn kube_files(
    args: KubeArgs,
    workload: &Workload<'_>,
    inventory: &Inventory,
    section: &mut Section,
) -> (KubeArgs, Option<custom::Config>) {
    let mut merged = args.clone();
    if !args.config.is_empty() {
        let optional = args.continue_without_config;
        let text = read("--config", &args.config, optional, workload, inventory, section);
        if let Some(text) = text {
            // Files that it names are checked below.
            let options = options_file::merge(&text, &args, Load::Again(&FilesInUse::default()));
            let keys = serde_saphyr::from_str::<Value>(&text).unwrap_or_default();
            let keys: Vec<&String> =
                keys.as_object().into_iter().flat_map(|map| map.keys()).collect();
            let (failed, file) = (options.error().is_some(), &args.config);
            problems(section, file, options.problems, &format!("keys: {}", keys.len()));
            let rows = OPTIONS_KEYS.rows();
            for key in keys {
                if rows.of(key).is_some_and(|row| row.verdict != "same") {
                    difference(section, &rows, &format!("{file}: {key}"), key, false);
                }
            }
            if !failed {
                merged = options.args;
            }
        }
    }
    if !merged.tls_config.is_empty() {
        let path = &merged.tls_config;
        if read("--tls-config", path, false, workload, inventory, section).is_some() {
            section.ok(format!("{path} (--tls-config): its format is the same"));
        }
    }
    let KubeArgs { custom_resource_config: inline, custom_resource_config_file: path, .. } =
        &merged;
    let (name, text) = match (inline.as_str(), path.as_str()) {
        ("", "") => return (merged, None),
        ("", path) => {
            let flag = "--custom-resource-state-config-file";
            let optional = merged.continue_without_custom_resource_config;
            (path, read(flag, path, optional, workload, inventory, section))
        }
        (inline, _) => ("--custom-resource-state-config", Some(inline.to_owned())),
    };
    let Some(text) = text else { return (merged, None) };
    match check_config::custom_problems(&text, &inventory.definitions()) {
        Ok((config, found, contents)) => {
            problems(section, name, found, &contents);
            (merged, Some(config))
        }
        Err(error) => {
            section.add(Outcome::Failed, error.to_string(), "", "docs/custom-resources.md");
            (merged, None)
        }
    }
}

/// Checks the mapping file.
fn mapping(
    args: &StatsdArgs,
    workload: &Workload<'_>,
    inventory: &Inventory,
    section: &mut Section,
) {
    let path = &args.mapping_config;
    if path.is_empty() {
        return;
    }
    let text = read("--statsd.mapping-config", path, false, workload, inventory, section);
    if let Some((found, contents)) = text.as_deref().map(check_config::mapping_problems) {
        problems(section, path, found, &contents);
    }
}
