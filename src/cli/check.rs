//! Flags of `kstatd check`.

use std::path::PathBuf;

use clap::Args;

use super::process::ClusterArgs;
use super::shared::{AccessArgs, OutputArgs, is_name};
use super::usage_error::UsageError;

/// Flags of `kstatd check`.
#[derive(Clone, Args)]
#[command(
    long_about = "Check an installation; changes nothing.\n\n\
        With --pre, it finds the running kube-state-metrics and statsd_exporter, by image and labels or by name, and \
        reports flag by flag what stays the same with kstatd's image, what differs and what is rejected. It validates \
        their configuration files, and checks the rights of their service account, their ports and probes, and \
        whether Prometheus, alerts and dashboards keep working. With -f it does the same on manifests, offline. \
        Without --pre it finds the running kstatd and reports its health.",
    after_help = "Exit codes: 0 if no check failed (warnings included), 1 if one failed, 2 if the checks could not run."
)]
pub struct ClusterCheckArgs {
    /// Name of the workload, as NAME or KIND/NAME (deployment, statefulset, daemonset) [default: each one found]
    #[arg(value_name = "WORKLOAD", value_parser = WorkloadName::parse)]
    pub workload: Option<WorkloadName>,
    /// Check what runs now, before kstatd replaces it
    #[arg(long, conflicts_with = "addr")]
    pub pre: bool,
    /// Check manifests instead of a cluster: a file, YAML or JSON, with any number of documents and List kinds; - for
    /// standard input; repeatable; implies --pre
    #[arg(short = 'f', long = "filename", value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "addr"])]
    pub files: Vec<PathBuf>,
    /// Namespace of the workload [default: all]
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Flags that select the API server.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Report the health of the process at this address instead; prefix with https:// for TLS
    #[arg(long, value_name = "HOST:PORT|URL", conflicts_with_all = ["kubeconfig", "context", "namespace", "workload"])]
    pub addr: Option<String>,
    /// The output format.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Access flags, for --addr.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// The name of a workload, with its kind if given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadName {
    /// `Deployment`, `StatefulSet` or `DaemonSet`; any if absent.
    pub kind: Option<&'static str>,
    /// Its name.
    pub name: String,
}

impl WorkloadName {
    /// Parses NAME or KIND/NAME, with kubectl's names of the kinds.
    ///
    /// # Errors
    /// The kind is not that of a workload, or the name is not one of Kubernetes.
    pub(crate) fn parse(text: &str) -> Result<Self, UsageError> {
        let (kind, name) = match text.split_once('/') {
            None => (None, text),
            Some((kind, name)) => (Some(kind), name),
        };
        let kind = match kind.map(|kind| kind.trim_end_matches(".apps")) {
            None => None,
            Some("deploy" | "deployment" | "deployments") => Some("Deployment"),
            Some("sts" | "statefulset" | "statefulsets") => Some("StatefulSet"),
            Some("ds" | "daemonset" | "daemonsets") => Some("DaemonSet"),
            _ => return Err("the kind must be deployment, statefulset or daemonset".into()),
        };
        if !is_name(name) {
            return Err(format!("{name:?} is not a name of a Kubernetes object").into());
        }
        Ok(Self { kind, name: name.to_owned() })
    }
}
