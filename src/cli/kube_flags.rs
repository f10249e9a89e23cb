//! The flags of the Kubernetes side, with the names, defaults and value syntax of kube-state-metrics.

use super::flag::{Flag, Takes};
use super::klog;
pub use super::kube_args::KubeArgs;
use crate::go::strconv;
use crate::resources::select::selection::{AllowLists, comma_list};

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    comma_list(text).map(str::to_owned)
}

fn allow_lists(text: &str) -> Result<AllowLists, String> {
    AllowLists::parse_flag(text).map_err(|error| error.to_string())
}

type Set = fn(&mut KubeArgs, &str) -> Result<(), String>;

const fn switch(name: &'static str, help: &'static str, set: Set) -> Flag<KubeArgs> {
    Flag { name, short: None, takes: Takes::Nothing, default: "", help, set }
}

const fn value(
    name: &'static str,
    kind: &'static str,
    default: &'static str,
    help: &'static str,
    set: Set,
) -> Flag<KubeArgs> {
    Flag { name, short: None, takes: Takes::Value(kind), default, help, set }
}

/// A flag whose setter cannot fail.
macro_rules! keep {
    ($args:ident, $text:ident, $statement:expr) => {
        |$args, $text| {
            $statement;
            Ok(())
        }
    };
}

/// Every flag of kube-state-metrics except the logging ones, which are in [`klog::FLAGS`].
pub const FLAGS: &[Flag<KubeArgs>] = &[
    value(
        "apiserver",
        "string",
        "",
        "URL of the API server; overrides the server of the kubeconfig.",
        keep!(args, text, args.apiserver = text.to_owned()),
    ),
    value(
        "kubeconfig",
        "string",
        "",
        "Path of a kubeconfig file. Without it and without --apiserver the service account of the pod is used.",
        keep!(args, text, args.kubeconfig = text.to_owned()),
    ),
    switch(
        "auth-filter",
        "Let the API server authenticate and authorise requests for metrics and profiles.",
        |args, text| strconv::parse_bool(text).map(|on| args.auth_filter = on),
    ),
    switch(
        "auto-gomemlimit",
        "Accepted for compatibility: there is no Go runtime whose memory would need a limit.",
        |args, text| strconv::parse_bool(text).map(|on| args.auto_gomemlimit = on),
    ),
    value(
        "auto-gomemlimit-ratio",
        "float",
        "0.9",
        "Accepted for compatibility, see --auto-gomemlimit.",
        |args, text| strconv::parse_float(text).map(|ratio| args.auto_gomemlimit_ratio = ratio),
    ),
    value(
        "config",
        "string",
        "",
        "Path of the options file (YAML). What it sets overrides the flags; it is watched for changes.",
        keep!(args, text, args.config = text.to_owned()),
    ),
    switch(
        "continue-without-config",
        "Keep running when the options file is missing or broken, and apply it when it appears.",
        |args, text| strconv::parse_bool(text).map(|on| args.continue_without_config = on),
    ),
    value(
        "custom-resource-state-config",
        "string",
        "",
        "Configuration of custom resource metrics as YAML text. Takes precedence over the file.",
        keep!(args, text, args.custom_resource_config = text.to_owned()),
    ),
    value(
        "custom-resource-state-config-file",
        "string",
        "",
        "Path of the configuration of custom resource metrics (YAML); it is watched for changes.",
        keep!(args, text, args.custom_resource_config_file = text.to_owned()),
    ),
    switch(
        "continue-without-custom-resource-state-config-file",
        "Keep running when the file of the previous flag is missing, and apply it when it appears.",
        |args, text| {
            strconv::parse_bool(text).map(|on| args.continue_without_custom_resource_config = on)
        },
    ),
    switch(
        "custom-resource-state-only",
        "Serve custom resource metrics alone; --resources is ignored.",
        |args, text| strconv::parse_bool(text).map(|on| args.custom_resources_only = on),
    ),
    switch(
        "enable-gzip-encoding",
        "Compress /metrics for clients that accept gzip.",
        |args, text| strconv::parse_bool(text).map(|on| args.enable_gzip_encoding = on),
    ),
    Flag {
        name: "help",
        short: Some('h'),
        takes: Takes::Nothing,
        default: "",
        help: "Show this text.",
        set: |args, text| strconv::parse_bool(text).map(|on| args.help = on),
    },
    value(
        "host",
        "string",
        "::",
        "Address to serve metrics on; \"::\" is every address of both families.",
        keep!(args, text, args.host = text.to_owned()),
    ),
    value("port", "int", "8080", "Port to serve metrics on.", |args, text| {
        strconv::parse_int(text, 64).map(|port| args.port = port)
    }),
    value(
        "telemetry-host",
        "string",
        "::",
        "Address to serve the metrics of this process on.",
        keep!(args, text, args.telemetry_host = text.to_owned()),
    ),
    value(
        "telemetry-port",
        "int",
        "8081",
        "Port to serve the metrics of this process on.",
        |args, text| strconv::parse_int(text, 64).map(|port| args.telemetry_port = port),
    ),
    value(
        "metric-allowlist",
        "string",
        "",
        "Comma-separated patterns (ECMAScript regular expressions, unanchored) of the families to serve. Excludes --metric-denylist.",
        keep!(args, text, args.metric_allowlist.extend(words(text))),
    ),
    value(
        "metric-denylist",
        "string",
        "",
        "Comma-separated patterns (ECMAScript regular expressions, unanchored) of the families to leave out. Excludes --metric-allowlist.",
        keep!(args, text, args.metric_denylist.extend(words(text))),
    ),
    value(
        "metric-opt-in-list",
        "string",
        "",
        "Comma-separated patterns of the families to serve in addition although they are off by default.",
        keep!(args, text, args.metric_opt_in_list.extend(words(text))),
    ),
    value(
        "metric-labels-allowlist",
        "string",
        "",
        "Object labels to serve, as resource=[key,key],resource=[key]. A key may contain one *, which stands for any text; [*] selects all labels; the resource * stands for all resources.",
        |args, text| allow_lists(text).map(|lists| args.labels_allowlist = lists),
    ),
    value(
        "metric-annotations-allowlist",
        "string",
        "",
        "Object annotations to serve, in the form of --metric-labels-allowlist.",
        |args, text| allow_lists(text).map(|lists| args.annotations_allowlist = lists),
    ),
    value(
        "namespaces",
        "string",
        "",
        "Comma-separated namespaces to watch; all when empty.",
        keep!(args, text, args.namespaces.extend(words(text))),
    ),
    value(
        "namespaces-denylist",
        "string",
        "",
        "Comma-separated namespaces whose objects are left out.",
        keep!(args, text, args.namespaces_denylist.extend(words(text))),
    ),
    value(
        "node",
        "string",
        "",
        "Watch only pods of this node, for one instance on each node; meant with --resources=pods.",
        keep!(args, text, args.node = text.to_owned()),
    ),
    switch(
        "track-unscheduled-pods",
        "Watch only pods without a node; --node has no effect then.",
        |args, text| strconv::parse_bool(text).map(|on| args.track_unscheduled_pods = on),
    ),
    value(
        "object-limit",
        "int",
        "",
        "Most objects to list of each resource; 0 is no limit.",
        |args, text| strconv::parse_int(text, 64).map(|limit| args.object_limit = limit),
    ),
    value(
        "pod",
        "string",
        "",
        "Name of the own pod. With --pod-namespace it finds the shard through the StatefulSet and overrides --shard.",
        keep!(args, text, args.pod = text.to_owned()),
    ),
    value(
        "pod-namespace",
        "string",
        "",
        "Namespace of the own pod, see --pod.",
        keep!(args, text, args.pod_namespace = text.to_owned()),
    ),
    value(
        "resources",
        "string",
        "",
        "Comma-separated resources to watch, by their plural names. Without it every resource that kube-state-metrics watches by default.",
        keep!(args, text, args.resources.extend(words(text))),
    ),
    value(
        "server-read-timeout",
        "duration",
        "1m0s",
        "Longest time for reading a request.",
        |args, text| strconv::parse_duration(text).map(|nanos| args.server_read_timeout = nanos),
    ),
    value(
        "server-write-timeout",
        "duration",
        "1m0s",
        "Longest time for writing an answer; keep it above the scrape timeout of the clients.",
        |args, text| strconv::parse_duration(text).map(|nanos| args.server_write_timeout = nanos),
    ),
    value(
        "server-idle-timeout",
        "duration",
        "5m0s",
        "Longest time to wait for the next request of a connection.",
        |args, text| strconv::parse_duration(text).map(|nanos| args.server_idle_timeout = nanos),
    ),
    value(
        "server-read-header-timeout",
        "duration",
        "5s",
        "Longest time for reading the head of a request.",
        |args, text| {
            strconv::parse_duration(text).map(|nanos| args.server_read_header_timeout = nanos)
        },
    ),
    value(
        "shard",
        "int32",
        "0",
        "Zero-based number of the shard that this instance keeps.",
        |args, text| strconv::parse_int(text, 32).map(|shard| args.shard = shard as i32),
    ),
    value("total-shards", "int", "1", "Shards in all; 1 is no sharding.", |args, text| {
        strconv::parse_int(text, 64).map(|total| args.total_shards = total)
    }),
    value(
        "tls-config",
        "string",
        "",
        "Path of the web configuration file (TLS, basic authentication) of both ports.",
        keep!(args, text, args.tls_config = text.to_owned()),
    ),
    switch(
        "use-apiserver-cache",
        "List from the API server's cache (resourceVersion=0) instead of a quorum read.",
        |args, text| strconv::parse_bool(text).map(|on| args.use_apiserver_cache = on),
    ),
    value(
        "staleness-limit",
        "duration",
        "10m0s",
        "How long to show objects that the API server refuses to list any more (401, 403, 404); 0 is for ever, as in kube-state-metrics.",
        |args, text| strconv::parse_duration(text).map(|nanos| args.staleness_limit = nanos),
    ),
    switch(
        "compat.duplicate-series",
        "Print a series as often as its object gives rise to it, as kube-state-metrics does; otherwise only the first is kept.",
        |args, text| strconv::parse_bool(text).map(|on| args.duplicate_series = on),
    ),
];

/// Every flag of the personality kube-state-metrics.
pub fn all() -> Vec<Flag<KubeArgs>> {
    FLAGS.iter().chain(klog::FLAGS).map(Flag::copy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flag::find;

    #[test]
    fn comma_lists() {
        let path =
            format!("{}/tests/conformance/ksm/comma_list_flags.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("conformance data");
        let data: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let strings = |value: &serde_json::Value| -> Vec<String> {
            value
                .as_array()
                .expect("list")
                .iter()
                .map(|v| v.as_str().expect("text").to_owned())
                .collect()
        };
        let cases = data["cases"].as_array().expect("cases");
        assert_eq!(cases.len(), 14);
        for case in cases {
            let mut args = KubeArgs::default();
            for value in strings(&case["values"]) {
                for name in ["resources", "metric-allowlist", "namespaces"] {
                    let flag = find(FLAGS, name).expect("flag");
                    (flag.set)(&mut args, &value).expect("any text");
                }
            }
            let resources: Vec<String> = args.resources.into_iter().collect();
            let metrics: Vec<String> = args.metric_allowlist.into_iter().collect();
            assert_eq!(resources, strings(&case["as_resources"]), "{case}");
            assert_eq!(metrics.join(","), case["as_metrics"].as_str().expect("text"), "{case}");
            assert_eq!(args.namespaces, strings(&case["as_namespaces"]), "{case}");
        }
    }

    #[test]
    fn defaults_in_the_help_are_the_defaults() {
        let plain = KubeArgs::default();
        for flag in FLAGS.iter().filter(|flag| !flag.default.is_empty()) {
            let mut args = KubeArgs::default();
            (flag.set)(&mut args, flag.default).expect("valid default");
            assert_eq!(format!("{args:?}"), format!("{plain:?}"), "--{}", flag.name);
        }
    }
}
