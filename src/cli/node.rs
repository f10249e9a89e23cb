//! Flags of `kstatd node`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::shared::{AccessArgs, LogArgs, Profiles, duration};

/// Flags of `kstatd node`.
#[derive(Clone, Debug, Args)]
#[command(
    long_about = "Serve what the pods of this node hold on its disks: writable layers, logs, volumes.\n\n\
        The kubelet is asked for its own summary first. What it does not know is asked of project quotas with --quotas, \
        and walked with --walk, slowly. See docs/node.md."
)]
pub struct NodeArgs {
    /// Address for /metrics and the health paths; an empty or unspecified host is every address
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8080")]
    pub listen: String,
    /// Address for the metrics of this process and its profiles
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8081")]
    pub telemetry_listen: String,
    /// Who gets profiles of this process, besides those whom users of a web configuration let in
    #[arg(long, value_enum, default_value_t, value_name = "WHO")]
    pub profiles: Profiles,
    /// The file that says how listeners speak TLS and whom they answer
    #[arg(long = "web.config.file", value_name = "FILE")]
    pub web_config_file: Option<PathBuf>,
    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
    /// Name of this node [default: what the kubelet calls it]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, value_parser = name)]
    pub node: String,
    /// The kubelet's authenticated port; empty asks none
    #[arg(long, value_name = "URL", default_value = "https://127.0.0.1:10250")]
    pub kubelet: String,
    /// Time between two questions to the kubelet, give or take a tenth
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub interval: Duration,
    /// How long an answer may take
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub timeout: Duration,
    /// Who is asked for limits, requests and owners of the pods
    #[arg(long, value_enum, default_value_t)]
    pub pods: PodSource,
    /// A kubeconfig that says where the API server is [default: KUBECONFIG, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server
    #[arg(long, value_name = "URL")]
    pub apiserver: Option<String>,
    /// Ask project quotas for what the kubelet does not know; needs CAP_SYS_ADMIN
    #[arg(long)]
    pub quotas: bool,
    /// Walk through what nobody else knows
    #[arg(long)]
    pub walk: bool,
    /// Walk through this directory besides; repeatable
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    pub walk_path: Vec<(String, PathBuf)>,
    /// Most calls for entries of directories that the walk makes a second
    #[arg(long, value_name = "N", value_parser = above_zero, default_value = "1000")]
    pub walk_entries_per_second: f64,
    /// Most bytes of directories that the walk reads a second
    #[arg(long, value_name = "BYTES", value_parser = above_zero, default_value = "1000000")]
    pub walk_bytes_per_second: f64,
    /// Time from one pass of the walk to the next, if it is not longer
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m")]
    pub walk_interval: Duration,
    /// Passes after which a directory is read again though its times are the same
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=128), default_value = "16")]
    pub walk_reread_passes: u8,
    /// The walk rests while something waits for IO for more than this share of the time, in percent over 10 s
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "10")]
    pub walk_io_pressure: f64,
    /// Where the host tells that
    #[arg(long, value_name = "FILE", default_value = "/proc/pressure/io")]
    pub walk_pressure_file: PathBuf,
    /// Where the root of the host is mounted
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub host_root: PathBuf,
    /// The mount table of the host, in which writable layers are found
    #[arg(long, value_name = "FILE", default_value = "/proc/1/mountinfo")]
    pub host_mounts: PathBuf,
    /// Serve the names of k8s-ephemeral-storage-metrics too
    #[arg(long = "compat.ephemeral-storage-names")]
    pub compat_ephemeral_storage_names: bool,
    /// How the kubelet is reached.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Who is asked for the pods of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PodSource {
    /// The API server, for the pods of this node
    #[default]
    ApiServer,
    /// The kubelet, for which its right nodes/pods or nodes/proxy is needed
    Kubelet,
    /// Nobody: there are neither limits nor owners
    Nobody,
}

/// The name of a node, which becomes part of a request.
fn name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    match text.bytes().all(fits) {
        true => Ok(text.to_owned()),
        false => Err("must consist of letters, digits, dots and dashes".to_owned()),
    }
}

fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && path.starts_with('/') => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err("must be NAME=PATH, with the whole path".to_owned()),
    }
}

fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (1.0..=1e9).contains(number));
    number.ok_or_else(|| "must be a number from 1 to 1000000000".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 100".to_owned())
}
