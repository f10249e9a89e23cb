//! The flags of the originals that each command of kstatd takes.

use super::clap_table::FlagSelection;
use super::flag::Flag;
use super::kube_args::SHARED_LIMITS;
use super::kube_flags::{self, KubeArgs};
use super::statsd_flags::{self, StatsdArgs};

/// The Kubernetes flags of `run`: all except addresses and the log, which are shared.
#[derive(Clone, Default)]
pub struct RunKube;

impl FlagSelection for RunKube {
    type Args = KubeArgs;
    const HEADING: &'static str = "Kubernetes (as kube-state-metrics)";

    fn flags() -> Vec<Flag<KubeArgs>> {
        let shared = ["host", "port", "telemetry-host", "telemetry-port", "help"];
        let shared = |name: &str| shared.contains(&name) || SHARED_LIMITS.contains(&name);
        select(kube_flags::FLAGS, |name| !shared(name))
    }
}

/// The Kubernetes flags of `rbac`: it accepts those of `run`, and its help lists those that affect the roles.
#[derive(Clone, Default)]
pub struct RbacKube;

impl FlagSelection for RbacKube {
    type Args = KubeArgs;
    const HEADING: &'static str = RunKube::HEADING;

    fn flags() -> Vec<Flag<KubeArgs>> {
        RunKube::flags()
    }

    fn is_hidden(name: &str) -> bool {
        let shown = ["auth-filter", "config", "namespaces", "pod", "pod-namespace", "resources"];
        !shown.contains(&name) && !name.starts_with("custom-resource-state-")
    }
}

/// The Kubernetes flags that affect rendering.
#[derive(Clone, Default)]
pub struct RenderKube;

impl FlagSelection for RenderKube {
    type Args = KubeArgs;
    const HEADING: &'static str = "Filters (as kube-state-metrics)";

    fn flags() -> Vec<Flag<KubeArgs>> {
        select(kube_flags::FLAGS, |name| {
            let prefixes = ["custom-resource-state-", "metric-", "namespaces"];
            prefixes.iter().any(|prefix| name.starts_with(prefix))
                || ["compat.duplicate-series", "config", "resources"].contains(&name)
        })
    }
}

/// The StatsD flags of `run`: all except web addresses and the log, which are shared.
#[derive(Clone, Default)]
pub struct RunStatsd;

impl FlagSelection for RunStatsd {
    type Args = StatsdArgs;
    const HEADING: &'static str = "StatsD (as statsd_exporter)";

    fn flags() -> Vec<Flag<StatsdArgs>> {
        select(statsd_flags::FLAGS, |name| {
            let prefixes = ["statsd.", "debug.", "limit.", "openmetrics."];
            prefixes.iter().any(|prefix| name.starts_with(prefix))
                || ["web.config.file", "web.enable-lifecycle"].contains(&name)
        })
    }
}

/// The StatsD flags that affect parsing.
#[derive(Clone, Default)]
pub struct RenderStatsd;

impl FlagSelection for RenderStatsd {
    type Args = StatsdArgs;
    const HEADING: &'static str = "Parsing (as statsd_exporter)";

    fn flags() -> Vec<Flag<StatsdArgs>> {
        select(statsd_flags::FLAGS, |name| {
            name.starts_with("statsd.parse-")
                || ["statsd.mapping-config", "statsd.sets"].contains(&name)
        })
    }
}

fn select<A>(flags: &[Flag<A>], keep: impl Fn(&str) -> bool) -> Vec<Flag<A>> {
    flags.iter().filter(|flag| keep(flag.name)).map(Flag::copy).collect()
}
