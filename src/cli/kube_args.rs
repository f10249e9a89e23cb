//! The flags of the Kubernetes side with their fields, defaults and keys of the options file,
//! compatible with kube-state-metrics.

use std::collections::BTreeSet;

use super::flag::{Text, Url, ValueType, flags, kinds, store};
use super::limits::{self, FoldValue, LimitMode};
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::normalise::Normaliser;
use crate::go::strconv;
use crate::kube::selector::{self, KindSelectors};
use crate::kube::workloads::PodLabels;
use crate::resources::select::selection::{AllowLists, comma_list};

/// The values of the logging flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KlogArgs {
    /// `-v`: 0–3 info, 4–5 debug, 6 and above trace.
    pub verbosity: i64,
    /// `--skip_headers`
    pub skip_headers: bool,
    /// The names of given flags that have no effect.
    pub ignored_flags: Vec<&'static str>,
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    comma_list(text).map(str::to_owned)
}

kinds! {
    /// A boolean.
    Switch: bool = false, ValueType::Boolean, |text, into| store(into, strconv::parse_bool(text));
    /// A boolean whose default depends on the name of the program.
    OptionalSwitch: Option<bool> = None, ValueType::Boolean, |text, into| store(into, strconv::parse_bool(text).map(Some));
    /// A non-negative integer.
    Unsigned: u64 = 0, ValueType::Text("uint"), |text, into| store(into, strconv::parse_uint(text));
    /// An integer.
    Int,
    /// A TCP port.
    Port: i64 = 0, ValueType::Text("int"), |text, into| store(into, strconv::parse_int(text, 64));
    /// A 32-bit integer.
    ShortInt: i32 = 0, ValueType::Text("int32"),
        |text, into| store(into, strconv::parse_int(text, 32).map(|number| number as i32));
    /// A number.
    Float: f64 = 0.0, ValueType::Text("float"), |text, into| store(into, strconv::parse_float(text));
    /// A duration, in nanoseconds.
    Nanos: i64 = 0, ValueType::Text("duration"), |text, into| store(into, strconv::parse_duration(text));
    /// A list of names, to which each occurrence of the flag adds.
    Names: Vec<String> = Vec::new(), ValueType::Text("string"), |text, into| {
        into.extend(words(text));
        Ok(())
    };
    /// A set of resources, to which each occurrence of the flag adds.
    Resources,
    /// A set of patterns of families to serve or to omit, to which each occurrence adds.
    Patterns,
    /// A set of patterns of families that are off by default, to which each occurrence adds.
    OptInPatterns: BTreeSet<String> = BTreeSet::new(), ValueType::Text("string"), |text, into| {
        into.extend(words(text));
        Ok(())
    };
    /// Normalisation steps of label values, by key.
    NormaliserSteps: Normaliser = Normaliser::default(), ValueType::Text("string"),
        |text, into| store(into, Normaliser::parse_flag(text));
    /// The label selectors of resources, to which each occurrence adds.
    LabelSelectors: KindSelectors = KindSelectors::new(), ValueType::Text("string"),
        |text, into| Ok(selector::add(text, selector::check_labels, into)?);
    /// The field selectors of resources, to which each occurrence adds.
    FieldSelectors: KindSelectors = KindSelectors::new(), ValueType::Text("string"),
        |text, into| Ok(selector::add(text, selector::check_fields, into)?);
    /// The labels of workloads on the series of pods.
    WorkloadLabels: PodLabels = PodLabels::default(), ValueType::Text("string"),
        |text, into| store(into, PodLabels::parse(text));
    /// Label keys per resource.
    Labels: AllowLists = AllowLists::default(), ValueType::Text("string"),
        |text, into| store(into, AllowLists::parse_flag(text).map_err(|error| error.to_string()));
}

flags! {
    /// The flag values before resolution. The options file overrides them first.
    #[derive(Clone, Debug)]
    pub struct KubeArgs {
        /// The logging flags.
        pub klog: KlogArgs,
    }

    /// All flags of kube-state-metrics except the logging ones.
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
        custom_resource_config_file: Text, "custom-resource-state-config-file", ["custom_resource_state_config_file", "custom_resource_config_file"], "",
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
        metric_allowlist: Patterns, "metric-allowlist", ["metric_allowlist"], "",
            "Comma-separated patterns (ECMAScript regular expressions, unanchored) of the families to serve. Excludes --metric-denylist.";
        metric_denylist: Patterns, "metric-denylist", ["metric_denylist"], "",
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
            "Comma-separated namespaces to exclude.";
        node: Text, "node", ["node"], "",
            "Watch only pods of this node, for one instance per node; use with --resources=pods.";
        track_unscheduled_pods: Switch, "track-unscheduled-pods", ["track_unscheduled_pods"], "",
            "Watch only unscheduled pods; --node is then ignored.";
        object_limit: Int, "object-limit", ["object_limit"], "",
            "Maximum number of objects to list per resource; 0 means no limit.";
        pod: Text, "pod", ["pod"], "",
            "Name of this pod. Together with --pod-namespace, the shard is derived from the StatefulSet and overrides --shard.";
        pod_namespace: Text, "pod-namespace", ["namespace"], "",
            "Namespace of this pod, see --pod.";
        resources: Resources, "resources", ["resources"], "",
            "Comma-separated resources to watch, by their plural names. Defaults to those that kube-state-metrics watches by default.";
        server_read_timeout: Nanos, "server-read-timeout", ["server_read_timeout"], "1m0s",
            "Maximum time to read a request.";
        server_write_timeout: Nanos, "server-write-timeout", ["server_write_timeout"], "1m0s",
            "Maximum time to write a response; keep it above the scrape timeout of the clients.";
        server_idle_timeout: Nanos, "server-idle-timeout", ["server_idle_timeout"], "5m0s",
            "Maximum time to wait for the next request on a connection.";
        server_read_header_timeout: Nanos, "server-read-header-timeout", ["server_read_header_timeout"], "5s",
            "Maximum time to read a request header.";
        shard: ShortInt, "shard", ["shard"], "0",
            "Zero-based shard of this instance.";
        total_shards: Int, "total-shards", ["total_shards"], "1",
            "Total number of shards; 1 disables sharding.";
        standby: Switch, "standby", "",
            "Expose metrics only while no other replica of --standby-peers does, and answer scrapes with an empty body otherwise.";
        standby_peers: Names, "standby-peers", "",
            "Comma-separated telemetry addresses (host:port) of all replicas for --standby; a host name stands for all its addresses. The own address is recognised.";
        tls_config: Text, "tls-config", ["tls_config"], "",
            "Path of the web configuration file (TLS, basic authentication) for both ports.";
        use_apiserver_cache: Switch, "use-apiserver-cache", ["use_api_server_cache"], "",
            "List from the API server's cache (resourceVersion=0) instead of a quorum read.";
        staleness_limit: Nanos, "staleness-limit", "10m0s",
            "How long to keep serving objects after the API server denies listing them (401, 403, 404); 0 means forever, as in kube-state-metrics.";
        kubernetes_events: Switch, "kubernetes-events", "",
            "Watch Kubernetes Events and count their occurrences (kstatd_kube_events_total).";
        workload_counter_retention: Nanos, "workload-counter-retention", "1h0m0s",
            "How long to keep the event counters of a workload that is gone.";
        gate: OptionalSwitch, "gate-metrics-until-synced", "",
            "Answer 503 and list the missing kinds until every kind has been listed once. On in kstatd run, off under the name kube-state-metrics.";
        pod_workload_labels: WorkloadLabels, "pod-workload-labels", "",
            "Labels of a pod and of its workload to add to every series of the pod, for queries without joins: workload, workload_type, labels=[KEY,KEY] (of the workload's object; a key may contain one *), pod_labels=[KEY,KEY] (of the pod itself), separated by commas.";
        selector: LabelSelectors, "selector", "",
            "Watch only the objects of a resource with these labels, as RESOURCE=SELECTOR such as pods=app!=batch; the API server selects. Repeatable: all selectors of a resource apply.";
        field_selector: FieldSelectors, "field-selector", "",
            "Watch only the objects of a resource with these fields, as RESOURCE=SELECTOR such as pods=status.phase!=Succeeded. Repeatable, like --selector.";
        drop_completed_pods_after: Nanos, "drop-completed-pods-after", "0s",
            "Drop the series of pods that have succeeded or failed longer ago; totals and event counters keep counting them. 0 means never.";
        skip_zero_states: Switch, "skip-zero-states", "",
            "Omit the samples that are 0 of families with one sample per state, such as kube_pod_status_phase. Queries must not rely on them.";
        duplicate_series: Switch, "compat.duplicate-series", "",
            "Expose duplicate series of an object, as kube-state-metrics does; otherwise only the first is kept.";
        labels_normalise: NormaliserSteps, "metric-labels-normalise", "",
            "Normalisation steps for values of allow-listed labels and annotations, as key=step+step,key=step: uuid, hex, number, ip, email, timestamp, base64, url, truncate:BYTES.";
        limit_series_per_kind: Unsigned, "limit.series-per-kind", "10000000",
            "Maximum number of series per kind; further objects get none. 0 means no limit.";
        limit_mode: LimitMode, "limit.mode", "",
            "Action when a budget is exceeded: enforce (fold label values, omit objects and series), track (only count) or off. Defaults to enforce in kstatd run, off under the originals' names.";
        limit_series_per_metric: Unsigned, "limit.series-per-metric", "100000",
            "Maximum number of series per custom resource metric; those of further objects are omitted. 0 means no limit.";
        limit_values_per_label: Unsigned, "limit.values-per-label", "10000",
            "Maximum number of distinct values of an allow-listed label or annotation per kind, or of a label of a custom resource metric; further ones become --limit.fold-value. 0 means no limit.";
        limit_fold_value: FoldValue, "limit.fold-value", "other",
            "Label value that replaces values over budget.";
    }
}

/// The budget flags shared with the StatsD side: `kstatd run` has them once.
pub(super) const SHARED_LIMITS: [&str; 4] =
    ["limit.mode", "limit.series-per-metric", "limit.values-per-label", "limit.fold-value"];

impl KubeArgs {
    /// Returns the budgets. `mode` is the default action under the current name of the program.
    pub fn budget(&self, mode: BudgetMode) -> Budget {
        Budget {
            mode: self.limit_mode.unwrap_or(mode),
            series_per_metric: self.limit_series_per_metric,
            series_per_kind: self.limit_series_per_kind,
            values_per_label: self.limit_values_per_label,
            value_bytes: limits::TEXT_BYTES,
            fold_value: self.limit_fold_value.clone(),
            ..Budget::default()
        }
    }
}
