//! The flags of the Kubernetes side with their fields, defaults and keys of the options file: the names, defaults and
//! value syntax of kube-state-metrics.

use std::collections::BTreeSet;

use super::flag::{Takes, flags, kinds};
use super::limits;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::normalise::Normaliser;
use crate::go::strconv;
use crate::resources::select::selection::{AllowLists, comma_list};

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

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    comma_list(text).map(str::to_owned)
}

fn allow_lists(text: &str) -> Result<AllowLists, String> {
    AllowLists::parse_flag(text).map_err(|error| error.to_string())
}

/// Puts what was read into the field.
fn put<T>(into: &mut T, read: Result<T, String>) -> Result<(), String> {
    read.map(|value| *into = value)
}

kinds! {
    /// Any text.
    Text: String = String::new(), Takes::Value("string"), |text, into| put(into, Ok(text.to_owned()));
    /// The URL of an API server.
    Url: String = String::new(), Takes::Value("string"), |text, into| put(into, Ok(text.to_owned()));
    /// A boolean.
    Switch: bool = false, Takes::Nothing, |text, into| put(into, strconv::parse_bool(text));
    /// A boolean that each name of the program has another default for.
    Wish: Option<bool> = None, Takes::Nothing, |text, into| put(into, strconv::parse_bool(text).map(Some));
    /// An integer that is not negative.
    Unsigned: u64 = 0, Takes::Value("uint"), |text, into| put(into, strconv::parse_uint(text));
    /// A number of bytes.
    Bytes: u64 = 0, Takes::Value("bytes"), |text, into| put(into, limits::bytes(text));
    /// What happens beyond a budget; without it the name of the program decides.
    LimitMode: Option<BudgetMode> = None, Takes::Value("string"), |text, into| put(into, limits::mode(text));
    /// An integer.
    Int: i64 = 0, Takes::Value("int"), |text, into| put(into, strconv::parse_int(text, 64));
    /// An integer of 32 bits.
    ShortInt: i32 = 0, Takes::Value("int32"),
        |text, into| put(into, strconv::parse_int(text, 32).map(|number| number as i32));
    /// A number of a TCP port.
    Port: i64 = 0, Takes::Value("int"), |text, into| put(into, strconv::parse_int(text, 64));
    /// A number.
    Float: f64 = 0.0, Takes::Value("float"), |text, into| put(into, strconv::parse_float(text));
    /// A duration, in nanoseconds.
    Nanos: i64 = 0, Takes::Value("duration"), |text, into| put(into, strconv::parse_duration(text));
    /// A list of names, which grows with each mention of the flag.
    Names: Vec<String> = Vec::new(), Takes::Value("string"), |text, into| {
        into.extend(words(text));
        Ok(())
    };
    /// A set of resources, likewise.
    Resources: BTreeSet<String> = BTreeSet::new(), Takes::Value("string"), |text, into| {
        into.extend(words(text));
        Ok(())
    };
    /// A set of patterns for families to serve, likewise.
    AllowPatterns: BTreeSet<String> = BTreeSet::new(), Takes::Value("string"), |text, into| {
        into.extend(words(text));
        Ok(())
    };
    /// A set of patterns for families to leave out, likewise.
    DenyPatterns: BTreeSet<String> = BTreeSet::new(), Takes::Value("string"), |text, into| {
        into.extend(words(text));
        Ok(())
    };
    /// A set of patterns for families that are off by default, likewise.
    OptInPatterns: BTreeSet<String> = BTreeSet::new(), Takes::Value("string"), |text, into| {
        into.extend(words(text));
        Ok(())
    };
    /// What becomes of label values, by their keys.
    Steps: Normaliser = Normaliser::default(), Takes::Value("string"),
        |text, into| put(into, Normaliser::parse_flag(text));
    /// Label keys for each resource.
    Labels: AllowLists = AllowLists::default(), Takes::Value("string"),
        |text, into| put(into, allow_lists(text));
}

flags! {
    /// What the flags say, unresolved. The options file overrides it before anything is done with it.
    #[derive(Clone, Debug)]
    pub struct KubeArgs {
        /// The logging flags.
        pub klog: KlogArgs,
    }

    /// Every flag of kube-state-metrics except the logging ones.
    FLAGS {
        apiserver: Url, "apiserver", ["apiserver"], "",
            "URL of the API server; overrides the server of the kubeconfig.";
        kubeconfig: Text, "kubeconfig", ["kubeconfig"], "",
            "Path of a kubeconfig file. Without it and without --apiserver the service account of the pod is used.";
        auth_filter: Switch, "auth-filter", ["auth_filter"], "",
            "Let the API server authenticate and authorise requests for metrics and profiles.";
        auto_gomemlimit: Switch, "auto-gomemlimit", ["auto-gomemlimit"], "",
            "Accepted for compatibility: there is no Go runtime whose memory would need a limit.";
        auto_gomemlimit_ratio: Float, "auto-gomemlimit-ratio", ["auto-gomemlimit-ratio"], "0.9",
            "Accepted for compatibility, see --auto-gomemlimit.";
        config: Text, "config", "",
            "Path of the options file (YAML). What it sets overrides the flags; it is watched for changes.";
        continue_without_config: Switch, "continue-without-config", ["continue_without_config"], "",
            "Keep running when the options file is missing or broken, and apply it when it appears.";
        custom_resource_config: Text, "custom-resource-state-config", ["custom_resource_config"], "",
            "Configuration of custom resource metrics as YAML text. Takes precedence over the file.";
        custom_resource_config_file: Text, "custom-resource-state-config-file", ["custom_resource_config_file", "custom_resource_state_config_file"], "",
            "Path of the configuration of custom resource metrics (YAML); it is watched for changes.";
        continue_without_custom_resource_config: Switch, "continue-without-custom-resource-state-config-file", ["continue_without_custom_resource_state_config_file"], "",
            "Keep running when the file of the previous flag is missing, and apply it when it appears.";
        custom_resources_only: Switch, "custom-resource-state-only", ["custom_resources_only"], "",
            "Serve custom resource metrics alone; --resources is ignored.";
        enable_gzip_encoding: Switch, "enable-gzip-encoding", ["enable_gzip_encoding"], "",
            "Compress /metrics for clients that accept gzip.";
        help: Switch short 'h', "help", ["help"], "",
            "Show this text.";
        host: Text, "host", ["host"], "::",
            "Address to serve metrics on; \"::\" is every address of both families.";
        port: Port, "port", ["port"], "8080",
            "Port to serve metrics on.";
        telemetry_host: Text, "telemetry-host", ["telemetry_host"], "::",
            "Address to serve the metrics of this process on.";
        telemetry_port: Port, "telemetry-port", ["telemetry_port"], "8081",
            "Port to serve the metrics of this process on.";
        metric_allowlist: AllowPatterns, "metric-allowlist", ["metric_allowlist"], "",
            "Comma-separated patterns (ECMAScript regular expressions, unanchored) of the families to serve. Excludes --metric-denylist.";
        metric_denylist: DenyPatterns, "metric-denylist", ["metric_denylist"], "",
            "Comma-separated patterns (ECMAScript regular expressions, unanchored) of the families to leave out. Excludes --metric-allowlist.";
        metric_opt_in_list: OptInPatterns, "metric-opt-in-list", ["metric_opt_in_list"], "",
            "Comma-separated patterns of the families to serve in addition although they are off by default.";
        labels_allowlist: Labels, "metric-labels-allowlist", ["labels_allow_list"], "",
            "Object labels to serve, as resource=[key,key],resource=[key]. A key may contain one *, which stands for any text; [*] selects all labels; the resource * stands for all resources.";
        annotations_allowlist: Labels, "metric-annotations-allowlist", ["annotations_allow_list"], "",
            "Object annotations to serve, in the form of --metric-labels-allowlist.";
        namespaces: Names, "namespaces", ["namespaces"], "",
            "Comma-separated namespaces to watch; all when empty.";
        namespaces_denylist: Names, "namespaces-denylist", ["namespaces_denylist"], "",
            "Comma-separated namespaces whose objects are left out.";
        node: Text, "node", ["node"], "",
            "Watch only pods of this node, for one instance on each node; meant with --resources=pods.";
        track_unscheduled_pods: Switch, "track-unscheduled-pods", ["track_unscheduled_pods"], "",
            "Watch only pods without a node; --node has no effect then.";
        object_limit: Int, "object-limit", ["object_limit"], "",
            "Most objects to list of each resource; 0 is no limit.";
        pod: Text, "pod", ["pod"], "",
            "Name of the own pod. With --pod-namespace it finds the shard through the StatefulSet and overrides --shard.";
        pod_namespace: Text, "pod-namespace", ["namespace"], "",
            "Namespace of the own pod, see --pod.";
        resources: Resources, "resources", ["resources"], "",
            "Comma-separated resources to watch, by their plural names. Without it every resource that kube-state-metrics watches by default.";
        server_read_timeout: Nanos, "server-read-timeout", ["server_read_timeout"], "1m0s",
            "Longest time for reading a request.";
        server_write_timeout: Nanos, "server-write-timeout", ["server_write_timeout"], "1m0s",
            "Longest time for writing an answer; keep it above the scrape timeout of the clients.";
        server_idle_timeout: Nanos, "server-idle-timeout", ["server_idle_timeout"], "5m0s",
            "Longest time to wait for the next request of a connection.";
        server_read_header_timeout: Nanos, "server-read-header-timeout", ["server_read_header_timeout"], "5s",
            "Longest time for reading the head of a request.";
        shard: ShortInt, "shard", ["shard"], "0",
            "Zero-based number of the shard that this instance keeps.";
        total_shards: Int, "total-shards", ["total_shards"], "1",
            "Shards in all; 1 is no sharding.";
        tls_config: Text, "tls-config", ["tls_config"], "",
            "Path of the web configuration file (TLS, basic authentication) of both ports.";
        use_apiserver_cache: Switch, "use-apiserver-cache", ["use_api_server_cache"], "",
            "List from the API server's cache (resourceVersion=0) instead of a quorum read.";
        staleness_limit: Nanos, "staleness-limit", "10m0s",
            "How long to show objects that the API server refuses to list any more (401, 403, 404); 0 is for ever, as in kube-state-metrics.";
        gate: Wish, "gate-metrics-until-synced", "",
            "Answer 503 with a list of what is missing until every kind has been listed once. On in kstatd run, off under the name kube-state-metrics.";
        gate_timeout: Nanos, "gate-metrics-timeout", "30s",
            "After how long a kind that cannot be listed (forbidden, or no answer) does not hold --gate-metrics-until-synced back any more; 0 is never.";
        duplicate_series: Switch, "compat.duplicate-series", "",
            "Print a series as often as its object gives rise to it, as kube-state-metrics does; otherwise only the first is kept.";
        labels_normalise: Steps, "metric-labels-normalise", "",
            "What makes values of allow-listed labels and annotations fewer, as key=step+step,key=step: uuid, hex, number, ip, email, timestamp, base64, url, truncate:BYTES.";
        limit_series_per_kind: Unsigned, "limit.series-per-kind", "10000000",
            "Most series of all objects of one kind; objects beyond have none. 0 is no limit.";
        limit_mode: LimitMode, "limit.mode", "",
            "What happens beyond a budget: enforce (label values fold, objects and series are left out), track (it is counted only) or off. enforce in kstatd run, off under the originals' names.";
        limit_series_per_metric: Unsigned, "limit.series-per-metric", "100000",
            "Most series of one metric of custom resources; those of further objects are left out. 0 is no limit.";
        limit_values_per_label: Unsigned, "limit.values-per-label", "10000",
            "Most different values of one allow-listed label or annotation of a kind, or of one label of a metric of custom resources; further ones become --limit.fold-value. 0 is no limit.";
        limit_value_bytes: Bytes, "limit.value-bytes", "1Ki",
            "Longest value of such a label; longer ones become --limit.fold-value. 0 is no limit.";
        limit_fold_value: Text, "limit.fold-value", "other",
            "The label value that stands for those beyond a budget.";
    }
}

/// The flags for budgets that the StatsD side has too: in `kstatd run` they are one.
pub(super) const SHARED_LIMITS: [&str; 5] = [
    "limit.mode",
    "limit.series-per-metric",
    "limit.values-per-label",
    "limit.value-bytes",
    "limit.fold-value",
];

impl KubeArgs {
    /// The budgets. `mode` is what the name of the program has unless a flag says otherwise.
    pub fn budget(&self, mode: BudgetMode) -> Budget {
        Budget {
            mode: self.limit_mode.unwrap_or(mode),
            series_per_metric: self.limit_series_per_metric,
            series_per_kind: self.limit_series_per_kind,
            values_per_label: self.limit_values_per_label,
            value_bytes: self.limit_value_bytes,
            fold_value: self.limit_fold_value.clone(),
            ..Budget::default()
        }
    }
}
