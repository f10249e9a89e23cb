//! Flags that select the running process for a command to ask.

use std::path::PathBuf;

use clap::Args;

use super::shared::AccessArgs;

/// The default address of a process.
pub const DEFAULT_ADDRESS: &str = "localhost:8080";

/// The flags that select a pod of a cluster.
const CLUSTER: [&str; 4] = ["target", "namespace", "kubeconfig", "context"];

/// The process to ask: one at an address, or a pod that the proxy of the API server reaches.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Process")]
pub struct ProcessArgs {
    /// Address of the process's main listener; prefix with https:// for TLS [default: localhost:8080]
    #[arg(long, value_name = "HOST:PORT|URL", conflicts_with_all = CLUSTER)]
    pub addr: Option<String>,
    /// Ask a pod through the proxy of the API server: a pod with -n, or a workload [default: the only kstatd found]
    #[arg(long, value_name = "POD|[KIND/]NAME")]
    pub target: Option<String>,
    /// Namespace of the pod [default: all]
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Flags that select the API server.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Access flags, for --addr.
    #[command(flatten)]
    pub access: AccessArgs,
    /// True under the name kubectl-kstatd.
    #[arg(skip)]
    pub is_kubectl: bool,
}

impl ProcessArgs {
    /// Returns whether to ask a pod through the API server.
    pub fn is_pod(&self) -> bool {
        let Self { addr, target, namespace, cluster, is_kubectl, .. } = self;
        let ClusterArgs { kubeconfig, context } = cluster;
        let is_selected = target.is_some() || namespace.is_some();
        addr.is_none() && (*is_kubectl || is_selected || kubeconfig.is_some() || context.is_some())
    }
}

/// The API server to ask.
#[derive(Clone, Default, Args)]
pub struct ClusterArgs {
    /// Path of a kubeconfig file [default: KUBECONFIG, ~/.kube/config, then the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}
