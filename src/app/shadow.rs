//! The `kstatd shadow` command.

use super::access::{access, run_command};
use super::output::{Outcome, print_error, written};
use crate::cli::shadow::{ShadowArgs, ShadowOutput};
use crate::kube::ClientOptions;
use crate::status::words::printable;
use crate::telemetry::user_agent;
use crate::tools::CommandError;
use crate::tools::diff::Rules;
use crate::tools::shadow::{self, CommandLine, Original, Target};

/// The maximum number of example series per difference.
const EXAMPLES: usize = 5;

/// Own metrics of statsd_exporter that depend on the way by which lines arrive, which is the relay for
/// the original, and on the lines before.
const TRANSPORT: &str = "^statsd_exporter_(metrics_total|(udp|tcp|unixgram|relay)_.*)$";

/// Compares a process with kstatd under the same flags and prints the report.
///
/// # Errors
/// Returns an error if the comparison is impossible.
pub(crate) fn main(args: ShadowArgs) -> Result<Outcome, CommandError> {
    let output = if args.json { ShadowOutput::Json } else { args.output };
    // A page that is read from the log of a Job must not be mixed with anything else.
    let say = |text: &str| {
        if output == ShadowOutput::Text {
            text.split('\n').for_each(|line| print_error(&printable(line)));
        }
    };
    let (total, every) = (args.total, args.every);
    let report = run_command(async {
        let (line, target, rules) = resolve(args)?;
        shadow::run(&line, target, rules, total, every, say).await
    })?;
    let text = match output {
        ShadowOutput::Text => report.text(),
        ShadowOutput::Json => report.json(),
        ShadowOutput::Html => report.html(),
    };
    written(&text)?;
    Ok(match report.is_equal() {
        Some(true) => Outcome::Clean,
        Some(false) => Outcome::Findings,
        None => Outcome::Failed,
    })
}

/// Returns the command line of the original, its address, and the rules of the comparison.
fn resolve(args: ShadowArgs) -> Result<(CommandLine, Target, Rules), CommandError> {
    let mut line = CommandLine::parse(&args.command_line)?;
    let mut kubeconfig = args.kubeconfig.clone();
    if kubeconfig.is_none()
        && !line.has_api_server()
        && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none()
        && let Some(list) = std::env::var_os("KUBECONFIG")
    {
        // The candidate's flag is that of kube-state-metrics, which takes one file.
        let mut files = std::env::split_paths(&list).filter(|path| path.exists());
        kubeconfig = files.next();
        if files.next().is_some() {
            return Err(
                "KUBECONFIG names several files; name the one to use with --kubeconfig".into()
            );
        }
    }
    if let Some(path) = &kubeconfig {
        line.set_kubeconfig(path.to_string_lossy().into_owned());
    }
    let mut api_server = ClientOptions { user_agent: user_agent(), ..ClientOptions::default() };
    if let Original::KubeStateMetrics(flags) = &line.original {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        api_server.kubeconfig = given(&flags.kubeconfig).map(Into::into);
        api_server.apiserver = given(&flags.apiserver);
    } else {
        api_server.kubeconfig = args.kubeconfig;
        api_server.environment = true;
    }
    let increases = matches!(line.original, Original::StatsdExporter(_));
    let mut ignore = args.ignore;
    if increases {
        let transport = regex::Regex::new(TRANSPORT).map_err(|error| error.to_string())?;
        ignore.push(transport);
    }
    let telemetry = args.original_telemetry.as_deref();
    let target = Target::new(&args.original, telemetry, &access(args.access)?, &api_server, &line)?;
    let rules = Rules {
        open_metrics: false,
        timeout: args.timeout,
        ignore,
        // The lines before the start of kstatd are unknown to it.
        increases,
        examples: EXAMPLES,
    };
    Ok((line, target, rules))
}
