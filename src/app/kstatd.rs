//! The `kstatd` command line: dispatches to the commands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use serde_json::json;

use super::access::{self, run_command};
use super::output::{Outcome, exit_code, print, print_error, written};
use super::personality::{self, Personality};
use super::run;
use crate::cli::asking::{ExplainArgs, ExplainCommand, ObjectArgs, StatusArgs};
use crate::cli::kube_args::KubeArgs;
use crate::cli::kubectl::KubectlCli;
use crate::cli::native::{
    CardinalityCommand, CheckArgs, Cli, CliCommand, CustomCommand, DraftArgs, LogArgs,
    ProfileCommand, ProfileDiffArgs, RbacArgs, RenderCommand, RenderKubeArgs, RenderStatsdArgs,
};
use crate::cli::statsd_flags::StatsdArgs;
use crate::cli::{completion, config, manual};
use crate::exposition::Format;
use crate::mapper::Mapper;
use crate::resources::custom;
use crate::statsd::explain as statsd_explain;
use crate::statsd::mapping;
use crate::status::words::json_line;
use crate::telemetry::{REVISION, TOOLCHAIN, VERSION};
use crate::tools::CommandError;
use crate::tools::check_config::FileKind;
use crate::tools::{
    check_config, custom_draft, explain, manifests, profile, rbac, render_kube, render_statsd,
    status,
};

/// Parses the command line of kstatd, or of kubectl-kstatd, and runs the command.
pub fn main(argv: Vec<OsString>, is_kubectl: bool) -> ExitCode {
    // 1 is a result of these commands.
    let results = ["bundle", "check", "diff", "shadow", "status", "top"];
    let has_results = argv.get(1).is_some_and(|word| results.iter().any(|name| word == name));
    let command = match is_kubectl {
        true => KubectlCli::try_parse_from(argv).map(|cli| cli.command.into()),
        false => Cli::try_parse_from(argv)
            .map(|cli| cli.command.unwrap_or_else(|| CliCommand::Run(Box::new(cli.run)))),
    };
    let command = match command {
        Ok(command) => command,
        Err(error) => {
            // Help and version go to standard output and exit with 0; everything else is an error.
            let failed = error.use_stderr();
            drop(error.print());
            return match failed {
                true if has_results => exit_code(Ok(Outcome::Failed)),
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            };
        }
    };
    let outcome = match command {
        CliCommand::Run(args) => serve(personality::kstatd(&args), &args.log),
        #[cfg(feature = "demo")]
        CliCommand::Demo(args) => super::demo::main(&args),
        #[cfg(not(feature = "demo"))]
        CliCommand::Demo(_) => {
            Err("this build does not include `demo`; build the image target `demo`, or run `cargo run --release -- demo` in the source tree"
                .into())
        }
        CliCommand::Render { what: RenderCommand::Kube(args) } => render(&args),
        CliCommand::Render { what: RenderCommand::Statsd(args) } => render_statsd(&args),
        CliCommand::Status(args) => return status(args),
        CliCommand::Top(args) => return super::top::main(*args),
        CliCommand::Bundle(args) => return exit_code(super::bundle::main(*args)),
        CliCommand::Explain(args) => match args.what {
            Some(ExplainCommand::Object(args)) => explain_object(args),
            None => explain(*args),
        },
        CliCommand::Cardinality { what: CardinalityCommand::Suggest(args) } => {
            super::cardinality::suggest(*args)
        }
        CliCommand::Check(args) => return exit_code(super::check::main(*args)),
        CliCommand::CheckConfig(args) => check(args),
        CliCommand::Custom { what: CustomCommand::Draft(args) } => draft(&args),
        CliCommand::Node(args) => serve(personality::node(&args), &args.log),
        CliCommand::Overhead(args) => super::overhead::main(args),
        CliCommand::Profile { what: ProfileCommand::Diff(args) } => profile_diff(&args),
        CliCommand::Rbac(args) => rbac(&args),
        CliCommand::Diff(args) => return exit_code(super::diff::main(*args)),
        CliCommand::Shadow(args) => return exit_code(super::shadow::main(*args)),
        CliCommand::Version(output) => {
            let version = json!({"version": VERSION, "revision": REVISION, "toolchain": TOOLCHAIN});
            let text = || format!("kstatd {VERSION}\n");
            return print(&if output.is_json() { json_line(&version) } else { text() });
        }
        CliCommand::Completion { shell } => return print(&completion::kstatd(shell)),
        CliCommand::Man { command, out: None } => match manual::page(&command) {
            Ok(page) => return print(&page),
            Err(error) => Err(error.into()),
        },
        CliCommand::Man { out: Some(folder), .. } => manual::write(&folder).map_err(Into::into),
        // Handled before this parser runs, unless options precede the name.
        CliCommand::KubeStateMetrics(foreign) => {
            return super::kube_state_metrics::main(&foreign.args);
        }
        CliCommand::StatsdExporter(foreign) => {
            return super::statsd_exporter::main(&foreign.args);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs `kstatd run` or `kstatd node`.
fn serve(personality: Personality, log: &LogArgs) -> Result<(), CommandError> {
    crate::telemetry::log::init(config::own_log(log));
    let name = personality.name.as_str();
    tracing::info!(version = VERSION, revision = REVISION, "Starting {name}");
    run::main(personality)
}

fn format(openmetrics: bool) -> Format {
    if openmetrics { Format::OpenMetrics } else { Format::Text }
}

fn render(args: &RenderKubeArgs) -> Result<(), CommandError> {
    let mut kube = args.kube.0.clone();
    let file = config::read_options_file(&mut kube, config::Load::First)?;
    for problem in file.iter().flat_map(|file| &file.problems) {
        print_error(&format!("warning: {problem}"));
    }
    let manifests = manifests::load(&args.files)?;
    if manifests.is_empty() {
        print_error("warning: no objects in the input");
    }
    let custom = custom_resources(&kube, &manifests)?;
    let resources = config::rendering(&kube)?;
    let selection = render_kube::Selection {
        resources,
        custom,
        namespaces: config::namespaces(&kube),
        namespaces_denylist: kube.namespaces_denylist.clone(),
    };
    let named = !kube.resources.is_empty() || kube.custom_resources_only;
    if let Some(line) = render_kube::skipped(&manifests, &selection, named) {
        print_error(&line);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    render_kube::render(&manifests, &selection, format(args.openmetrics), &mut out)
}

/// Prints value errors to standard error without deduplication.
struct StderrValueErrors;

impl custom::ValueErrors for StderrValueErrors {
    fn value_error(&self, error: &custom::ValueError<'_>) {
        let custom::ValueError { family, path, namespace, name, value, count, .. } = error;
        let reason = error.reason.as_str();
        print_error(&format!(
            "warning: {family}: {namespace}/{name}: {path}: {reason} ({value}), values: {count}"
        ));
    }
}

/// Resolves the configured custom resources against the definitions in the manifests.
fn custom_resources(
    kube: &KubeArgs,
    manifests: &[manifests::Manifest],
) -> Result<Vec<custom::Resolved>, CommandError> {
    let configured = config::custom_resources(kube, config::Load::First)?;
    let Some(configured) = configured else { return Ok(Vec::new()) };
    let Some(entries) = &configured.config else { return Ok(Vec::new()) };
    let served = configured.served(render_kube::definitions(manifests)?);
    let options = configured.resolve_options(Arc::new(StderrValueErrors));
    let resolution = custom::resolve(entries, &served, &options)?;
    for entry in &resolution.groupless {
        print_error(&format!("warning: ignoring an entry without a group: {entry}"));
    }
    for name in &resolution.replaced {
        print_error(&format!("warning: a later entry replaces an earlier one of {name}"));
    }
    Ok(resolution.resources)
}

/// Loads the mapping file given by the flags.
fn mapper(statsd: &StatsdArgs) -> Result<Mapper, CommandError> {
    match statsd.mapping_config.as_str() {
        "" => Ok(Mapper::default()),
        path => mapping::load(Path::new(path)).map_err(|error| error.to_string().into()),
    }
}

/// Prints the explanation of each line. Fails if any line is rejected.
fn explain(args: ExplainArgs) -> Result<(), CommandError> {
    let ExplainArgs { what: _, lines, all, sender, output, process, statsd } = args;
    let (statsd, mut refused, mut answers) = (&statsd.0, 0, Vec::new());
    if process.addr.is_some() || process.is_pod() {
        run_command(async {
            let process = access::process(process).await?;
            for line in &lines {
                let explained = explain::ask(&process, line.as_bytes(), all, sender).await?;
                refused += usize::from(!explained.is_accepted());
                match output.is_json() {
                    true => answers.push(explained.fields.into()),
                    false => written(&explained.text)?,
                }
            }
            Ok(())
        })?;
    } else if sender.is_some() {
        return Err("--sender needs a process to ask: set --addr".into());
    } else {
        let (mapper, flags) = (Arc::new(mapper(statsd)?), statsd.parser_flags());
        for line in &lines {
            let explanation = statsd_explain::explain_offline(&mapper, flags, line.as_bytes(), all);
            refused += usize::from(!explanation.accepted);
            match output.is_json() {
                true => answers.push(serde_json::to_value(&explanation).unwrap_or_default()),
                false => written(&explanation.text())?,
            }
        }
    }
    if output.is_json() {
        written(&json_line(&answers))?;
    }
    match (refused, lines.len()) {
        (0, _) => Ok(()),
        (refused, lines) => Err(format!("{refused} of {lines} lines were rejected").into()),
    }
}

/// Prints why an object has its series, or none. Fails if it has none.
fn explain_object(args: ObjectArgs) -> Result<(), CommandError> {
    let ObjectArgs { resource, object, output, process } = args;
    let explained = run_command(async {
        let process = access::process(process).await?;
        explain::ask_about_object(&process, &resource, &object).await
    })?;
    let has_series = explained.has_series();
    written(&if output.is_json() { json_line(&explained.fields) } else { explained.text })?;
    if has_series { Ok(()) } else { Err(format!("{resource} {object} has no series").into()) }
}

fn render_statsd(args: &RenderStatsdArgs) -> Result<(), CommandError> {
    let statsd = &args.statsd.0;
    let mapper = mapper(statsd)?;
    let flags = statsd.parser_flags();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let input = std::io::stdin().lock();
    let format = format(args.openmetrics);
    match render_statsd::render(mapper, flags, input, format, &mut out, print_error) {
        Ok(render_statsd::Summary { refused: 0, .. }) => Ok(()),
        Ok(render_statsd::Summary { refused, lines }) => {
            Err(format!("{refused} of {lines} lines were rejected").into())
        }
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error.to_string().into()),
    }
}

/// Writes the differential flame graph of two profiles to a file or to standard output.
fn profile_diff(args: &ProfileDiffArgs) -> Result<(), CommandError> {
    let svg = profile::diff(&args.base, &args.profile, args.normalize)?;
    match &args.file {
        Some(path) => {
            std::fs::write(path, svg).map_err(|error| format!("{}: {error}", path.display()).into())
        }
        None => written(&String::from_utf8_lossy(&svg)),
    }
}

/// Prints a configuration for the given definitions.
fn draft(args: &DraftArgs) -> Result<(), CommandError> {
    let manifests = manifests::load_at_most(&args.files, custom_draft::MAX_FILE)?;
    written(&custom_draft::draft(&manifests)?)
}

/// Prints the RBAC manifests for the flags.
fn rbac(args: &RbacArgs) -> Result<(), CommandError> {
    let mut kube = args.kube.0.clone();
    config::read_options_file(&mut kube, config::Load::First)?;
    let custom = config::custom_resources(&kube, config::Load::First)?;
    let mut definitions = render_kube::definitions(&manifests::load(&args.files)?)?;
    if let Some(custom) = &custom {
        definitions = custom.served(definitions);
    }
    let custom = custom.and_then(|custom| custom.config);
    let resources = config::watched(&kube, config::Name::Kstatd, args.enrich.is_some())?;
    written(&rbac::manifests(&rbac::Needs {
        account: Some(&args.service_account),
        name: Some(&args.name),
        ..rbac::Needs::of(&kube, resources, custom.as_deref(), &definitions)
    }))
}

/// Prints the status of a running process and returns it as the exit code.
fn status(args: StatusArgs) -> ExitCode {
    let StatusArgs { output, process } = args;
    let fetched = run_command(async {
        Ok(status::fetch(&access::process(process).await?, output.is_json()).await)
    });
    let (state, text) =
        fetched.unwrap_or_else(|error| (status::ProcessState::Down, error.to_string()));
    match state {
        status::ProcessState::Down => print_error(text.trim_end()),
        _ => drop(print(&text)),
    }
    ExitCode::from(state.exit_code())
}

/// Prints every problem of the given files. Fails if any file has an error.
fn check(args: CheckArgs) -> Result<(), CommandError> {
    let CheckArgs { any, mapping, options, custom, web, files, output } = args;
    let named = [
        (FileKind::Mapping, mapping),
        (FileKind::Options, options),
        (FileKind::CustomResources, custom),
        (FileKind::Web, web),
    ];
    let mut all: Vec<_> =
        named.into_iter().filter_map(|(kind, path)| Some((kind, path?))).collect();
    for path in any {
        all.push((FileKind::of(&path)?, path));
    }
    if all.is_empty() {
        return Err("no file given: name files, with --statsd.mapping-config, --config, --custom-resource-state-config-file or \
                    --web.config.file if their keys do not tell their kind"
            .into());
    }
    let definitions = match all.iter().any(|(kind, _)| *kind == FileKind::CustomResources) {
        true => manifests::load(&files)?,
        false => Vec::new(),
    };
    let reports = all.iter().map(|(kind, path)| check_config::check(*kind, path, &definitions));
    let reports = reports.collect::<Result<Vec<check_config::Report>, _>>()?;
    let json = || reports.iter().map(check_config::Report::json).collect::<Vec<_>>();
    let text = || reports.iter().map(check_config::Report::text).collect();
    written(&if output.is_json() { json_line(&json()) } else { text() })?;
    let broken: Vec<&str> =
        reports.iter().filter(|report| report.failed()).map(check_config::Report::file).collect();
    match broken.as_slice() {
        [] => Ok(()),
        _ => Err(format!("{} cannot be used", broken.join(", ")).into()),
    }
}
