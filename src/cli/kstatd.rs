//! The program under its own name.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use super::native::{
    CheckArgs, Cli, CliCommand, DocsCommand, RenderCommand, RenderKubeArgs, RenderStatsdArgs,
};
use super::{complain, completion, config, demo, print, run, statsd_side};
use crate::exposition::Format;
use crate::telemetry::VERSION;
use crate::tools::{check_config, manifests, render_kube, render_statsd};

/// Runs it.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(argv) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and succeed, all else is an error.
            let failed = error.use_stderr();
            let _ = error.print();
            return if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match cli.command {
        None => run::kstatd(&cli.run),
        Some(CliCommand::Run(args)) => run::kstatd(&args),
        Some(CliCommand::Demo(args)) => demo::main(&args),
        Some(CliCommand::Render { what: RenderCommand::Kube(args) }) => render(&args),
        Some(CliCommand::Render { what: RenderCommand::Statsd(args) }) => render_statsd(&args),
        Some(CliCommand::CheckConfig(args)) => check(&args),
        Some(CliCommand::Docs { what: DocsCommand::Metrics { out } }) => write_metrics_docs(&out),
        Some(CliCommand::Version) => return print(&format!("kstatd {VERSION}\n")),
        Some(CliCommand::Completion { shell }) => return print(&completion::kstatd(shell)),
        // These names are taken before this parser runs.
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
            complain(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes the reference of the Kubernetes metrics into the folder `out`.
fn write_metrics_docs(out: &Path) -> Result<(), String> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(out)
        .map_err(|error| format!("cannot make {}: {error}", out.display()))?;
    for (name, text) in crate::tools::docs::metrics_docs() {
        write(&out.join(name), &text)?;
    }
    Ok(())
}

fn format(openmetrics: bool) -> Format {
    if openmetrics { Format::OpenMetrics } else { Format::Text }
}

fn render(args: &RenderKubeArgs) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut kube = args.kube.0.clone();
    let file = config::read_options_file(&mut kube).map_err(|error| text(&error))?;
    for key in file.iter().flat_map(|file| &file.wildcards) {
        complain(&format!("warning: {key}; it selects nothing here, the exporter refuses it"));
    }
    let manifests = manifests::load(&args.files).map_err(|error| text(&error))?;
    if manifests.is_empty() {
        complain("warning: there is no object in the input");
    }
    // Without --resources every kind of the input counts, so each must be known.
    let kinds = if kube.resources.is_empty() {
        render_kube::resources_of(&manifests).map_err(|error| text(&error))?
    } else {
        Vec::new()
    };
    let selection = render_kube::Selection {
        resources: config::rendering(&kube, || kinds.clone()).map_err(|error| text(&error))?,
        namespaces: config::namespaces(&kube),
        namespaces_denylist: kube.namespaces_denylist,
    };
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

fn render_statsd(args: &RenderStatsdArgs) -> Result<(), String> {
    let statsd = &args.statsd.0;
    let mapper = match statsd.mapping_config.as_str() {
        "" => crate::statsd::mapper::Mapper::default(),
        path => statsd_side::load_mapping(std::path::Path::new(path))?,
    };
    let flags = statsd_side::parser_flags(statsd);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let input = std::io::stdin().lock();
    match render_statsd::render(mapper, flags, input, format(args.openmetrics), &mut out) {
        Err(render_statsd::RenderError::Io(error))
            if error.kind() == std::io::ErrorKind::BrokenPipe =>
        {
            Ok(())
        }
        result => result.map_err(|error| error.to_string()),
    }
}

/// Prints every problem of the named files; the outcome says whether there was an error.
fn check(args: &CheckArgs) -> Result<(), String> {
    if args.mapping.is_none() && args.options.is_none() {
        return Err("name a file with --statsd.mapping-config or --config".to_owned());
    }
    let mut broken = Vec::new();
    if let Some(path) = &args.mapping {
        let report = check_config::mapping(path);
        print(&report.text);
        broken.extend(report.failed.then(|| path.display().to_string()));
    }
    if let Some(path) = &args.options {
        match config::check(&path.to_string_lossy()) {
            Ok(count) => {
                print(&format!("{}: valid, {count} resources\n", path.display()));
            }
            Err(errors) => {
                let lines: Vec<String> =
                    errors.0.iter().map(|error| format!("{error}\n")).collect();
                print(&lines.concat());
                broken.push(path.display().to_string());
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("{} cannot be used", broken.join(", "))) }
}
