//! What the flags of the Kubernetes side say, unresolved.

use std::collections::BTreeSet;

use crate::resources::select::selection::AllowLists;

/// What the logging flags say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KlogArgs {
    /// `-v`: 0–3 info, 4–5 debug, from 6 on trace.
    pub verbosity: i64,
    /// `--skip_headers`
    pub skip_headers: bool,
    /// Names of flags that were given and have no effect here.
    pub without_effect: Vec<&'static str>,
}

/// What the flags say, unresolved. The options file overrides it before anything is done with it.
#[derive(Clone, Debug)]
pub struct KubeArgs {
    /// `--apiserver`
    pub apiserver: String,
    /// `--kubeconfig`
    pub kubeconfig: String,
    /// `--auth-filter`
    pub auth_filter: bool,
    /// `--auto-gomemlimit`
    pub auto_gomemlimit: bool,
    /// `--auto-gomemlimit-ratio`
    pub auto_gomemlimit_ratio: f64,
    /// `--config`
    pub config: String,
    /// `--continue-without-config`
    pub continue_without_config: bool,
    /// `--custom-resource-state-config`
    pub custom_resource_config: String,
    /// `--custom-resource-state-config-file`
    pub custom_resource_config_file: String,
    /// `--continue-without-custom-resource-state-config-file`
    pub continue_without_custom_resource_config: bool,
    /// `--custom-resource-state-only`
    pub custom_resources_only: bool,
    /// `--enable-gzip-encoding`
    pub enable_gzip_encoding: bool,
    /// `--help`
    pub help: bool,
    /// `--host`
    pub host: String,
    /// `--port`
    pub port: i64,
    /// `--telemetry-host`
    pub telemetry_host: String,
    /// `--telemetry-port`
    pub telemetry_port: i64,
    /// `--metric-allowlist`
    pub metric_allowlist: BTreeSet<String>,
    /// `--metric-denylist`
    pub metric_denylist: BTreeSet<String>,
    /// `--metric-opt-in-list`
    pub metric_opt_in_list: BTreeSet<String>,
    /// `--metric-labels-allowlist`
    pub labels_allowlist: AllowLists,
    /// `--metric-annotations-allowlist`
    pub annotations_allowlist: AllowLists,
    /// `--namespaces`
    pub namespaces: Vec<String>,
    /// `--namespaces-denylist`
    pub namespaces_denylist: Vec<String>,
    /// `--node`
    pub node: String,
    /// `--track-unscheduled-pods`
    pub track_unscheduled_pods: bool,
    /// `--object-limit`
    pub object_limit: i64,
    /// `--pod`
    pub pod: String,
    /// `--pod-namespace`
    pub pod_namespace: String,
    /// `--resources`
    pub resources: BTreeSet<String>,
    /// `--server-read-timeout` in nanoseconds
    pub server_read_timeout: i64,
    /// `--server-write-timeout` in nanoseconds
    pub server_write_timeout: i64,
    /// `--server-idle-timeout` in nanoseconds
    pub server_idle_timeout: i64,
    /// `--server-read-header-timeout` in nanoseconds
    pub server_read_header_timeout: i64,
    /// `--shard`
    pub shard: i32,
    /// `--total-shards`
    pub total_shards: i64,
    /// `--tls-config`
    pub tls_config: String,
    /// `--use-apiserver-cache`
    pub use_apiserver_cache: bool,
    /// `--staleness-limit` in nanoseconds
    pub staleness_limit: i64,
    /// `--compat.duplicate-series`
    pub duplicate_series: bool,
    /// The logging flags.
    pub klog: KlogArgs,
}

const SECOND: i64 = 1_000_000_000;

impl Default for KubeArgs {
    fn default() -> Self {
        Self {
            apiserver: String::new(),
            kubeconfig: String::new(),
            auth_filter: false,
            auto_gomemlimit: false,
            auto_gomemlimit_ratio: 0.9,
            config: String::new(),
            continue_without_config: false,
            custom_resource_config: String::new(),
            custom_resource_config_file: String::new(),
            continue_without_custom_resource_config: false,
            custom_resources_only: false,
            enable_gzip_encoding: false,
            help: false,
            host: "::".to_owned(),
            port: 8080,
            telemetry_host: "::".to_owned(),
            telemetry_port: 8081,
            metric_allowlist: BTreeSet::new(),
            metric_denylist: BTreeSet::new(),
            metric_opt_in_list: BTreeSet::new(),
            labels_allowlist: AllowLists::default(),
            annotations_allowlist: AllowLists::default(),
            namespaces: Vec::new(),
            namespaces_denylist: Vec::new(),
            node: String::new(),
            track_unscheduled_pods: false,
            object_limit: 0,
            pod: String::new(),
            pod_namespace: String::new(),
            resources: BTreeSet::new(),
            server_read_timeout: 60 * SECOND,
            server_write_timeout: 60 * SECOND,
            server_idle_timeout: 300 * SECOND,
            server_read_header_timeout: 5 * SECOND,
            shard: 0,
            total_shards: 1,
            tls_config: String::new(),
            use_apiserver_cache: false,
            staleness_limit: 600 * SECOND,
            duplicate_series: false,
            klog: KlogArgs::default(),
        }
    }
}
