//! The `kstatd` command line: dispatches to the commands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;

use super::access::{self, command_runtime, user_agent};
use super::output::{print, print_error};
use super::{diff, personality, run};
use crate::cli::kube_args::KubeArgs;
use crate::cli::native::{
    CardinalityCommand, CheckArgs, Cli, CliCommand, CustomCommand, DraftArgs, ExplainArgs,
    ExplainCommand, ObjectArgs, RbacArgs, RenderCommand, RenderKubeArgs, RenderStatsdArgs, RunArgs,
    StatusArgs,
};
use crate::cli::profile::{ProfileCommand, ProfileDiffArgs};
use crate::cli::statsd_flags::StatsdArgs;
use crate::cli::{completion, config, manual, options_file, removed};
use crate::config_file;
use crate::exposition::Format;
use crate::mapper::{Mapper, ProblemClass, Severity};
use crate::resources::custom;
use crate::statsd::explain as statsd_explain;
use crate::statsd::mapping;
use crate::status::words::json_line;
use crate::telemetry::VERSION;
use crate::tools::process_client::ProcessClient;
use crate::tools::{
    check_config, custom_draft, explain, manifests, profile, rbac, render_kube, render_statsd,
    status,
};

/// Parses the command line and runs the command.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    // 1 is a result of these commands.
    let is_comparison =
        argv.get(1).is_some_and(|word| word == "diff" || word == "check" || word == "shadow");
    let cli = match Cli::try_parse_from(argv) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and exit with 0; everything else is an error.
            let failed = error.use_stderr();
            match removed::error_of_clap(&error) {
                Some(error) => print_error(&format!("error: {error}")),
                None => drop(error.print()),
            }
            return match failed {
                true if is_comparison => diff::Outcome::Failed.into(),
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            };
        }
    };
    let outcome = match cli.command {
        None => run(&cli.run),
        Some(CliCommand::Run(args)) => run(&args),
        #[cfg(feature = "demo")]
        Some(CliCommand::Demo(args)) => super::demo::main(&args),
        #[cfg(not(feature = "demo"))]
        Some(CliCommand::Demo(_)) => {
            Err("this build does not include `demo`; build the image target `demo`, or run `cargo run --release -- demo` in the source tree"
                .to_owned())
        }
        Some(CliCommand::Render { what: RenderCommand::Kube(args) }) => render(&args),
        Some(CliCommand::Render { what: RenderCommand::Statsd(args) }) => render_statsd(&args),
        Some(CliCommand::Status(args)) => return status(args),
        Some(CliCommand::Top(args)) => return super::top::main(*args),
        Some(CliCommand::Explain(args)) => match args.what {
            Some(ExplainCommand::Object(args)) => explain_object(args),
            None => explain(*args),
        },
        Some(CliCommand::Cardinality { what: CardinalityCommand::Suggest(args) }) => {
            super::cardinality::suggest(*args)
        }
        Some(CliCommand::Check(args)) => return super::check::main(*args),
        Some(CliCommand::CheckConfig(args)) => check(&args),
        Some(CliCommand::Custom { what: CustomCommand::Draft(args) }) => draft(&args),
        Some(CliCommand::Node(args)) => {
            crate::telemetry::log::init(config::own_log(&args.log));
            run::main(personality::node(&args))
        }
        Some(CliCommand::Overhead(args)) => super::overhead::main(args),
        Some(CliCommand::Profile { what: ProfileCommand::Diff(args) }) => profile_diff(&args),
        Some(CliCommand::Rbac(args)) => rbac(&args),
        Some(CliCommand::Diff(args)) => return diff::main(*args).into(),
        Some(CliCommand::Shadow(args)) => return super::shadow::main(*args).into(),
        Some(CliCommand::Version) => return print(&format!("kstatd {VERSION}\n")),
        Some(CliCommand::Completion { shell }) => return print(&completion::kstatd(shell)),
        Some(CliCommand::Man { command, out: None }) => match manual::page(&command) {
            Ok(page) => return print(&page),
            Err(error) => Err(error),
        },
        Some(CliCommand::Man { out: Some(folder), .. }) => manual::write(&folder),
        // Handled before this parser runs, unless options precede the name.
        Some(CliCommand::KubeStateMetrics(foreign)) => {
            return super::kube_state_metrics::main(&foreign.args);
        }
        Some(CliCommand::StatsdExporter(foreign)) => {
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

/// Runs `kstatd run`.
fn run(args: &RunArgs) -> Result<(), String> {
    crate::telemetry::log::init(config::own_log(&args.log));
    run::main(personality::kstatd(args))
}

fn format(openmetrics: bool) -> Format {
    if openmetrics { Format::OpenMetrics } else { Format::Text }
}

fn render(args: &RenderKubeArgs) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut kube = args.kube.0.clone();
    let file =
        config::read_options_file(&mut kube, config::Load::First).map_err(|error| text(&error))?;
    for problem in file.iter().flat_map(|file| &file.problems) {
        // Skip problems that only matter for a running process.
        match problem.class {
            ProblemClass::SeveralWildcards => print_error(&format!(
                "warning: {problem}; ignored here, but a running exporter rejects it"
            )),
            _ if problem.severity == Severity::Warning => {
                print_error(&format!("warning: {problem}"))
            }
            _ => {}
        }
    }
    let manifests = manifests::load(&args.files).map_err(|error| text(&error))?;
    if manifests.is_empty() {
        print_error("warning: no objects in the input");
    }
    let custom = custom_resources(&kube, &manifests)?;
    let resources = if kube.custom_resources_only {
        Vec::new()
    } else {
        config::rendering(&kube, config::default_resources).map_err(|error| text(&error))?
    };
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
    match render_kube::render(&manifests, &selection, format(args.openmetrics), &mut out) {
        Err(render_kube::RenderError::Output(error))
            if error.kind() == std::io::ErrorKind::BrokenPipe =>
        {
            Ok(())
        }
        result => result.map_err(|error| text(&error)),
    }
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
) -> Result<Vec<custom::Resolved>, String> {
    let configured = config::custom_resources(kube, config::Load::First);
    let Some(configured) = configured.map_err(|error| error.to_string())? else {
        return Ok(Vec::new());
    };
    let Some(entries) = &configured.config else { return Ok(Vec::new()) };
    let defined = render_kube::definitions(manifests).map_err(|error| error.to_string())?;
    let served = configured.served(defined);
    let options = configured.resolve_options(Arc::new(StderrValueErrors));
    let resolution =
        custom::resolve(entries, &served, &options).map_err(|error| error.to_string())?;
    for entry in &resolution.groupless {
        print_error(&format!("warning: ignoring an entry without a group: {entry}"));
    }
    for name in &resolution.replaced {
        print_error(&format!("warning: a later entry replaces an earlier one of {name}"));
    }
    Ok(resolution.resources)
}

/// Loads the mapping file given by the flags.
fn mapper(statsd: &StatsdArgs) -> Result<Mapper, String> {
    match statsd.mapping_config.as_str() {
        "" => Ok(Mapper::default()),
        path => mapping::load(Path::new(path)).map_err(|error| error.to_string()),
    }
}

/// Prints the explanation of each line. Fails if any line is rejected.
fn explain(args: ExplainArgs) -> Result<(), String> {
    let ExplainArgs { what: _, lines, all, addr, output, access, statsd } = args;
    let (statsd, mut refused, mut answers) = (&statsd.0, 0, Vec::new());
    if let Some(addr) = addr {
        let access = access::access(access)?;
        let runtime = command_runtime()?;
        let process = ProcessClient::new(&addr, access, &user_agent())?;
        for line in &lines {
            let explained = runtime.block_on(explain::ask(&process, line.as_bytes(), all))?;
            refused += usize::from(!explained.accepted);
            match output.is_json() {
                true => answers.push(explained.json()),
                false => drop(print(&explained.text)),
            }
        }
    } else {
        let (mapper, flags) = (Arc::new(mapper(statsd)?), statsd.parser_flags());
        for line in &lines {
            let explanation = statsd_explain::explain_offline(&mapper, flags, line.as_bytes(), all);
            refused += usize::from(!explanation.accepted);
            match output.is_json() {
                true => answers.push(serde_json::to_value(&explanation).unwrap_or_default()),
                false => drop(print(&explanation.text())),
            }
        }
    }
    if output.is_json() {
        print(&json_line(&answers));
    }
    match (refused, lines.len()) {
        (0, _) => Ok(()),
        (refused, lines) => Err(format!("{refused} of {lines} lines were rejected")),
    }
}

/// Prints why an object has its series, or none. Fails if it has none.
fn explain_object(args: ObjectArgs) -> Result<(), String> {
    let ObjectArgs { resource, object, addr, output, access } = args;
    let process = ProcessClient::new(&addr, access::access(access)?, &user_agent())?;
    let asked = explain::ask_about_object(&process, &resource, &object);
    let explained = command_runtime()?.block_on(asked)?;
    let series = explained.series;
    match output.is_json() {
        true => print(&json_line(&explained.json())),
        false => print(&explained.text),
    };
    if series > 0 { Ok(()) } else { Err(format!("{resource} {object} has no series")) }
}

fn render_statsd(args: &RenderStatsdArgs) -> Result<(), String> {
    let statsd = &args.statsd.0;
    let mapper = mapper(statsd)?;
    let flags = statsd.parser_flags();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let input = std::io::stdin().lock();
    let format = format(args.openmetrics);
    match render_statsd::render(mapper, flags, input, format, &mut out, print_error) {
        Ok(render_statsd::Summary { refused: 0, .. }) => Ok(()),
        Ok(render_statsd::Summary { refused, lines }) => {
            Err(format!("{refused} of {lines} lines were rejected"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes the differential flame graph of two profiles to a file or to standard output.
fn profile_diff(args: &ProfileDiffArgs) -> Result<(), String> {
    let svg = profile::diff(&args.base, &args.profile, args.normalize);
    let svg = svg.map_err(|error| error.to_string())?;
    match &args.output {
        Some(path) => {
            std::fs::write(path, svg).map_err(|error| format!("{}: {error}", path.display()))
        }
        None => {
            print(&String::from_utf8_lossy(&svg));
            Ok(())
        }
    }
}

/// Prints a configuration for the given definitions.
fn draft(args: &DraftArgs) -> Result<(), String> {
    let manifests = manifests::load_at_most(&args.files, custom_draft::MAX_FILE)
        .map_err(|error| error.to_string())?;
    let text = custom_draft::draft(&manifests).map_err(|error| error.to_string())?;
    print(&text);
    Ok(())
}

/// Prints the RBAC manifests for the flags.
fn rbac(args: &RbacArgs) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut kube = args.kube.0.clone();
    config::read_options_file(&mut kube, config::Load::First).map_err(|error| text(&error))?;
    let custom = config::custom_resources(&kube, config::Load::First);
    let custom = custom.map_err(|error| text(&error))?;
    let definitions = manifests::load(&args.files).map_err(|error| text(&error))?;
    let mut definitions = render_kube::definitions(&definitions).map_err(|error| text(&error))?;
    if let Some(custom) = &custom {
        definitions = custom.served(definitions);
    }
    let custom = custom.and_then(|custom| custom.config);
    let resources = if kube.custom_resources_only {
        Vec::new()
    } else {
        config::rendering(&kube, config::default_resources).map_err(|error| text(&error))?
    };
    let namespaces = config::namespaces(&kube);
    let sharded = !kube.pod.is_empty() && !kube.pod_namespace.is_empty();
    print(&rbac::manifests(&rbac::Needs {
        resources: resources.iter().map(|(resource, _)| *resource).collect(),
        kube_events: config::counts_kube_events(&kube),
        custom: custom.as_deref(),
        definitions: &definitions,
        namespaces: &namespaces,
        auth_filter: kube.auth_filter,
        sharded_in: sharded.then_some(kube.pod_namespace.as_str()),
        account: Some(rbac::ServiceAccount {
            namespace: &args.service_account.namespace,
            name: &args.service_account.name,
        }),
        name: Some(&args.name),
    }));
    Ok(())
}

/// Prints the status of a running process and returns it as the exit code.
fn status(args: StatusArgs) -> ExitCode {
    let StatusArgs { addr, output, access } = args;
    let process =
        access::access(access).and_then(|access| ProcessClient::new(&addr, access, &user_agent()));
    let (state, text) = match (process, command_runtime()) {
        (Ok(process), Ok(runtime)) => runtime.block_on(status::fetch(&process, output.is_json())),
        (Err(error), _) | (_, Err(error)) => (status::ProcessState::Down, error),
    };
    match state {
        status::ProcessState::Down => print_error(text.trim_end()),
        _ => drop(print(&text)),
    }
    ExitCode::from(state.exit_code())
}

/// Prints every problem of the given files. Fails if any file has an error.
fn check(args: &CheckArgs) -> Result<(), String> {
    if args.mapping.is_none() && args.options.is_none() && args.custom.is_none() {
        return Err("no file given: use --statsd.mapping-config, --config or --custom-resource-state-config-file"
            .to_owned());
    }
    let mut broken = Vec::new();
    if let Some(path) = &args.mapping {
        let report = check_config::mapping(path);
        print(&report.text);
        broken.extend(report.failed.then(|| path.display().to_string()));
    }
    if let Some(path) = &args.options {
        let report = options(path);
        print(&report.text);
        broken.extend(report.failed.then(|| path.display().to_string()));
    }
    if let Some(path) = &args.custom {
        let definitions = manifests::load(&args.files).map_err(|error| error.to_string())?;
        let report = check_config::custom_resources(path, &definitions)
            .map_err(|error| error.to_string())?;
        print(&report.text);
        broken.extend(report.failed.then(|| path.display().to_string()));
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("{} cannot be used", broken.join(", "))) }
}

/// Checks an options file as if it were the only configuration of kube-state-metrics.
fn options(path: &Path) -> check_config::Report {
    let text = match config_file::read(path) {
        Ok(text) => text,
        Err(reason) => return check_config::Report::unreadable(path, &reason),
    };
    let mut merged = options_file::merge(&text, &KubeArgs::default(), config::Load::First);
    let mut contents = String::new();
    if merged.error().is_none() {
        match config::kube_state_metrics(&merged.args, config::Load::First) {
            Ok(config) => {
                let resources = config.kube.map_or(0, |kube| kube.pipeline.resources.len());
                contents = format!("resources: {resources}");
            }
            Err(errors) => {
                let problems = errors.0.iter().map(|error| merged.startup_problem(error));
                let problems: Vec<_> = problems.collect();
                merged.problems.extend(problems);
            }
        }
    }
    check_config::Report::new(path, merged.problems, &contents)
}
