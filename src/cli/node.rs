//! Flags of `kstatd node`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::limits::bytes;
use super::shared::{AccessArgs, LogArgs, Profiles, duration};
use super::usage_error::UsageError;
use crate::node::host::DEFAULT_PROCESSES;

/// Flags of `kstatd node`.
#[derive(Clone, Args)]
#[command(
    long_about = "Serve the disk usage of this node's pods (writable layers, logs, volumes), and the CPU, IO, context \
        switches and memory of its system processes.\n\n\
        The kubelet's summary API is the primary source. With --quotas, missing figures are read from project quotas; \
        with --walk, a throttled directory walk measures the rest. See docs/node.md."
)]
pub struct NodeArgs {
    /// Address for /metrics and the health endpoints; an empty host means all addresses
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8080")]
    pub listen: String,
    /// Address for the metrics and profiles of this process
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8081")]
    pub telemetry_listen: String,
    /// Clients that may fetch profiles, in addition to clients authorised by the web configuration
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub profiles: Profiles,
    /// Web configuration file, with TLS and authentication settings of all listeners
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,
    /// Log flags.
    #[command(flatten)]
    pub log: LogArgs,
    /// Node name [default: the name reported by the kubelet]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, value_parser = name)]
    pub node: String,
    /// Authenticated port of the kubelet; empty disables polling
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:10250")]
    pub kubelet: String,
    /// Time between polls of the kubelet, with 10% jitter
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub interval: Duration,
    /// Timeout of a request
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub timeout: Duration,
    /// Source of the pods' limits, requests and owners
    #[arg(long, value_enum, default_value_t)]
    pub pods: PodSource,
    /// Kubeconfig of the API server [default: KUBECONFIG, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server
    #[arg(long, value_name = "URL")]
    pub apiserver: Option<String>,
    /// Read project quotas for usage that the kubelet does not report; needs CAP_SYS_ADMIN
    #[arg(long)]
    pub quotas: bool,
    /// Walk directories for usage that no other source reports
    #[arg(long)]
    pub walk: bool,
    /// Walk this directory too; repeatable, each with its own name
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    pub walk_path: Vec<(String, PathBuf)>,
    /// Maximum directory entry calls of the walk per second
    #[arg(long, value_name = "N", value_parser = above_zero, default_value = "1000")]
    pub walk_entries_per_second: f64,
    /// Minimum time between passes of the walk
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub walk_interval: Duration,
    /// Memory limit of the walk's cache (bytes, or with suffix Ki, Mi or Gi); entries beyond it are
    /// skipped
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "128Mi")]
    pub walk_memory: u64,
    /// Report these processes: names as in /proc/PID/comm, separated by commas; empty for none
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = DEFAULT_PROCESSES)]
    pub processes: Vec<String>,
    /// Options file, whose key processes overrides --processes
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Mount point of the host's /proc
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub host_proc: PathBuf,
    /// Mount point of the host's root file system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,
    /// Mount table of the host, used to find writable layers
    #[arg(long, value_name = "FILE", default_value = "/proc/1/mountinfo")]
    pub host_mounts: PathBuf,
    /// Also serve the metrics of k8s-ephemeral-storage-metrics
    #[arg(long = "compat.ephemeral-storage-names")]
    pub compat_ephemeral_storage_names: bool,
    /// Access flags for the kubelet.
    #[command(flatten)]
    pub access: AccessArgs,
}

impl NodeArgs {
    /// Returns the error of two walked paths with the same name, whose figures would be mixed up.
    pub(super) fn duplicate_path(&self) -> Option<String> {
        let mut names = BTreeSet::new();
        let (name, path) = self.walk_path.iter().find(|(name, _)| !names.insert(name))?;
        let path = path.display();
        Some(format!("--walk-path={name}={path}: another --walk-path has the name {name}"))
    }
}

/// The source of the pods of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PodSource {
    /// The API server, with a field selector for this node
    #[default]
    ApiServer,
    /// The kubelet; needs permission for nodes/pods or nodes/proxy
    Kubelet,
    /// None: without limits and owners
    Nobody,
}

/// Parses a node name, which becomes part of a request path.
fn name(text: &str) -> Result<String, UsageError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    match text.bytes().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("must consist of letters, digits, dots and dashes".into()),
    }
}

fn named_path(text: &str) -> Result<(String, PathBuf), UsageError> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && path.starts_with('/') => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err("must be NAME=PATH, with the whole path".into()),
    }
}

fn above_zero(text: &str) -> Result<f64, UsageError> {
    let number = text.parse::<f64>().ok().filter(|number| (1.0..=1e9).contains(number));
    number.ok_or_else(|| "must be a number from 1 to 1000000000".into())
}
