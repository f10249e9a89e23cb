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
    const NEGATIONS: bool = false;

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
    const NEGATIONS: bool = RunKube::NEGATIONS;

    fn flags() -> Vec<Flag<KubeArgs>> {
        RunKube::flags()
    }

    fn is_hidden(name: &str) -> bool {
        ![
            "auth-filter",
            "config",
            "custom-resource-state-config",
            "custom-resource-state-config-file",
            "custom-resource-state-only",
            "namespaces",
            "pod",
            "pod-namespace",
            "resources",
        ]
        .contains(&name)
    }
}

/// The Kubernetes flags that affect rendering.
#[derive(Clone, Default)]
pub struct RenderKube;

impl FlagSelection for RenderKube {
    type Args = KubeArgs;
    const HEADING: &'static str = "Filters (as kube-state-metrics)";
    const NEGATIONS: bool = false;

    fn flags() -> Vec<Flag<KubeArgs>> {
        let filters = [
            "config",
            "resources",
            "namespaces",
            "namespaces-denylist",
            "metric-allowlist",
            "metric-denylist",
            "metric-opt-in-list",
            "metric-labels-allowlist",
            "metric-annotations-allowlist",
            "metric-labels-normalise",
            "custom-resource-state-config",
            "custom-resource-state-config-file",
            "custom-resource-state-only",
            "compat.duplicate-series",
        ];
        select(kube_flags::FLAGS, |name| filters.contains(&name))
    }
}

/// The StatsD flags of `run`: all except web addresses and the log, which are shared.
#[derive(Clone, Default)]
pub struct RunStatsd;

impl FlagSelection for RunStatsd {
    type Args = StatsdArgs;
    const HEADING: &'static str = "StatsD (as statsd_exporter)";
    const NEGATIONS: bool = true;

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
    const NEGATIONS: bool = true;

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
