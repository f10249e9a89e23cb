//! The options file of kube-state-metrics (`--config`): YAML whose keys override flags.

mod values;

use std::collections::BTreeMap;

use serde::Deserialize;

use self::values::{Duration, Flag, Float, Given, Int, Keys, Marker};
use super::kube_flags::KubeArgs;

/// The file as it is written. Keys that are absent stay `None`; unknown keys are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OptionsFile {
    annotations_allow_list: Given<BTreeMap<String, Keys>>,
    labels_allow_list: Given<BTreeMap<String, Keys>>,
    metric_allowlist: Given<Set>,
    metric_denylist: Given<Set>,
    metric_opt_in_list: Given<Set>,
    resources: Given<Set>,
    apiserver: Option<String>,
    kubeconfig: Option<String>,
    custom_resource_config: Option<String>,
    custom_resource_state_config_file: Option<String>,
    custom_resource_config_file: Option<String>,
    continue_without_custom_resource_state_config_file: Option<Flag>,
    custom_resources_only: Option<Flag>,
    continue_without_config: Option<Flag>,
    host: Option<String>,
    port: Option<Int<i64>>,
    telemetry_host: Option<String>,
    telemetry_port: Option<Int<i64>>,
    namespace: Option<String>,
    pod: Option<String>,
    node: Option<String>,
    tls_config: Option<String>,
    namespaces: Given<Keys>,
    namespaces_denylist: Given<Keys>,
    shard: Option<Int<i32>>,
    total_shards: Option<Int<i64>>,
    track_unscheduled_pods: Option<Flag>,
    server_read_timeout: Option<Duration>,
    server_write_timeout: Option<Duration>,
    server_idle_timeout: Option<Duration>,
    server_read_header_timeout: Option<Duration>,
    enable_gzip_encoding: Option<Flag>,
    use_api_server_cache: Option<Flag>,
    object_limit: Option<Int<i64>>,
    auth_filter: Option<Flag>,
    #[serde(rename = "auto-gomemlimit")]
    auto_gomemlimit: Option<Flag>,
    #[serde(rename = "auto-gomemlimit-ratio")]
    auto_gomemlimit_ratio: Option<Float>,
    help: Option<Flag>,
}

/// A set is written as a mapping with empty values: `{pods: {}, nodes: {}}`.
type Set = BTreeMap<String, Marker>;

/// Overrides `args` by what the text of an options file sets. Label keys that select nothing because they
/// have more than one `*` are returned, in words.
///
/// # Errors
///
/// When the text is not YAML or a key has the wrong type; the place is named as far as the YAML reader
/// knows it.
pub fn apply(text: &str, args: &mut KubeArgs) -> Result<Vec<String>, String> {
    refuse_leading_tab(text)?;
    let mut bytes = text.as_bytes();
    let first: Option<Result<Option<OptionsFile>, _>> =
        serde_saphyr::read_with_options(&mut bytes, yaml()).next();
    let file = first.transpose().map_err(|error| error.without_snippet().render())?;
    let Some(file) = file.flatten() else {
        return Ok(Vec::new());
    };
    let mut wildcards = Vec::new();
    let lists = [
        ("labels_allow_list", &file.labels_allow_list),
        ("annotations_allow_list", &file.annotations_allow_list),
    ];
    for (key, list) in lists {
        for (resource, labels) in list.value().into_iter().flatten() {
            let several = labels.0.iter().filter(|label| label.matches('*').count() > 1);
            wildcards.extend(several.map(|label| {
                format!(
                    "{key}: {resource}: {label:?}: invalid format, only one wildcard per label \
                     allowed"
                )
            }));
        }
    }
    file.apply(args);
    Ok(wildcards)
}

/// As the original reads YAML: 010 is 8.
fn yaml() -> serde_saphyr::Options {
    let mut options = serde_saphyr::Options::default();
    options.legacy_octal_numbers = true;
    options
}

/// Indentation is of blanks; the YAML reader sees to it from the first key on.
fn refuse_leading_tab(text: &str) -> Result<(), String> {
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start();
        if line.split_at(line.len() - content.len()).0.contains('\t') {
            return Err(format!("line {}: a tab before the first key, use blanks", index + 1));
        }
        if !content.is_empty() && !content.starts_with('#') {
            break;
        }
    }
    Ok(())
}

fn put<T>(target: &mut T, value: Option<impl Into<T>>) {
    if let Some(value) = value {
        *target = value.into();
    }
}

impl OptionsFile {
    fn apply(self, args: &mut KubeArgs) {
        if self.custom_resource_config_file.is_some() {
            tracing::warn!(
                "custom_resource_config_file is deprecated, use custom_resource_state_config_file"
            );
        }
        let sets = [
            (&mut args.metric_allowlist, self.metric_allowlist),
            (&mut args.metric_denylist, self.metric_denylist),
            (&mut args.metric_opt_in_list, self.metric_opt_in_list),
            (&mut args.resources, self.resources),
        ];
        for (target, set) in sets {
            match set {
                Given::Absent => {}
                Given::Null => target.clear(),
                Given::Value(set) if set.is_empty() => {}
                Given::Value(set) => *target = set.into_keys().collect(),
            }
        }
        let maps = [
            (&mut args.labels_allowlist, self.labels_allow_list),
            (&mut args.annotations_allowlist, self.annotations_allow_list),
        ];
        for (target, map) in maps {
            // Unlike an empty set, an empty map takes the flag's place.
            if let Some(map) = map.or_empty() {
                *target = map.into_iter().map(|(resource, keys)| (resource, keys.0)).collect();
            }
        }
        let lists = [
            (&mut args.namespaces, self.namespaces),
            (&mut args.namespaces_denylist, self.namespaces_denylist),
        ];
        for (target, list) in lists {
            put(target, list.or_empty());
        }
        let file = self.custom_resource_state_config_file.filter(|path| !path.is_empty());
        put(&mut args.custom_resource_config_file, file.or(self.custom_resource_config_file));
        put(&mut args.server_read_timeout, self.server_read_timeout);
        put(&mut args.server_write_timeout, self.server_write_timeout);
        put(&mut args.server_idle_timeout, self.server_idle_timeout);
        put(&mut args.server_read_header_timeout, self.server_read_header_timeout);
        put(&mut args.apiserver, self.apiserver);
        put(&mut args.kubeconfig, self.kubeconfig);
        put(&mut args.custom_resource_config, self.custom_resource_config);
        put(
            &mut args.continue_without_custom_resource_config,
            self.continue_without_custom_resource_state_config_file,
        );
        put(&mut args.custom_resources_only, self.custom_resources_only);
        put(&mut args.continue_without_config, self.continue_without_config);
        put(&mut args.host, self.host);
        put(&mut args.port, self.port);
        put(&mut args.telemetry_host, self.telemetry_host);
        put(&mut args.telemetry_port, self.telemetry_port);
        put(&mut args.pod_namespace, self.namespace);
        put(&mut args.pod, self.pod);
        put(&mut args.node, self.node);
        put(&mut args.tls_config, self.tls_config);
        put(&mut args.shard, self.shard);
        put(&mut args.total_shards, self.total_shards);
        put(&mut args.track_unscheduled_pods, self.track_unscheduled_pods);
        put(&mut args.enable_gzip_encoding, self.enable_gzip_encoding);
        put(&mut args.use_apiserver_cache, self.use_api_server_cache);
        put(&mut args.object_limit, self.object_limit);
        put(&mut args.auth_filter, self.auth_filter);
        put(&mut args.auto_gomemlimit, self.auto_gomemlimit);
        put(&mut args.auto_gomemlimit_ratio, self.auto_gomemlimit_ratio);
        put(&mut args.help, self.help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str) -> Result<KubeArgs, String> {
        let mut args = KubeArgs::default();
        args.resources.insert("jobs".into());
        args.node = "n".into();
        apply(text, &mut args).map(|_| args)
    }

    #[test]
    fn present_keys_override_and_absent_ones_do_not() {
        let args = applied(
            "resources: {pods: {}, nodes: }\nlabels_allow_list: {pods: [\"a/b\", \"x]y\"]}\n\
             server_idle_timeout: 1m30s\nserver_read_timeout: \"5s\"\nnamespaces: [b, a]\nport: 9\n\
             auto-gomemlimit: true\nuse_api_server_cache: true\nnamespace: ns\nunknown: {a: 1}\n",
        )
        .expect("valid");
        assert_eq!(Vec::from_iter(args.resources), ["nodes", "pods"]);
        let keys = args.labels_allowlist.keys("pods").expect("list");
        assert_eq!(keys, ["a/b", "x]y"]);
        assert_eq!(
            (args.server_idle_timeout, args.server_read_timeout),
            (90_000_000_000, 5_000_000_000)
        );
        assert_eq!((args.namespaces, args.port), (vec!["b".to_owned(), "a".to_owned()], 9));
        assert!(args.auto_gomemlimit && args.use_apiserver_cache);
        assert_eq!((args.pod_namespace.as_str(), args.node.as_str()), ("ns", "n"));
    }

    #[test]
    fn empty_files_and_empty_sets_change_nothing() {
        for text in ["", "# nothing\n", "{}", "resources: {}\n", "---\n", "node: ~\n"] {
            let args = applied(text).expect("valid");
            assert_eq!(Vec::from_iter(args.resources), ["jobs"], "{text:?}");
            assert_eq!(args.node, "n", "{text:?}");
        }
    }

    #[test]
    fn null_clears_sets_lists_and_maps_and_an_empty_map_clears_too() {
        let args = |text: &str| {
            let mut args = KubeArgs { namespaces: vec!["a".into()], ..KubeArgs::default() };
            args.metric_allowlist.insert("x".into());
            args.labels_allowlist =
                [("nodes".to_owned(), vec!["*".to_owned()])].into_iter().collect();
            apply(text, &mut args).expect(text);
            (
                args.metric_allowlist.is_empty(),
                args.namespaces.is_empty(),
                args.labels_allowlist.keys("nodes").is_none_or(<[String]>::is_empty),
            )
        };
        assert_eq!(args("port: 1\n"), (false, false, false));
        assert_eq!(args("metric_allowlist:\nnamespaces: ~\n"), (true, true, false));
        assert_eq!(args("metric_allowlist: {}\nnamespaces: []\n"), (false, true, false));
        assert_eq!(args("labels_allow_list:\n"), (false, false, true));
        assert_eq!(args("labels_allow_list: {}\n"), (false, false, true));
        assert_eq!(args("labels_allow_list: {pods: }\n"), (false, false, true));
    }

    #[test]
    fn scalars_are_read_as_go_reads_them() {
        for text in [
            "port: 26910.7\n",
            "port: 2.691e4\n",
            "port: 0x691e\n",
            "port: 064436\n",
            "port: 26910\n---\nport: x\n",
        ] {
            assert_eq!(applied(text).expect(text).port, 26910, "{text:?}");
        }
        for (text, on) in [("yes", true), ("\"On\"", true), ("True", true), ("n", false)] {
            let text = format!("use_api_server_cache: {text}\n");
            assert_eq!(applied(&text).expect(&text).use_apiserver_cache, on, "{text:?}");
        }
        assert_eq!(applied("shard: -0.5\n").expect("valid").shard, 0);
        assert_eq!(applied("node: 1.50\n").expect("valid").node, "1.50");
        assert_eq!(applied("server_read_timeout: 0s\n").expect("valid").server_read_timeout, 0);
        let args = applied("labels_allow_list: {pods: [1, true, ~]}\n").expect("valid");
        assert_eq!(args.labels_allowlist.keys("pods").expect("list"), ["1", "true"]);
        let args = applied("auto-gomemlimit-ratio: 1\n").expect("valid");
        assert!((args.auto_gomemlimit_ratio - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn keys_with_several_wildcards_are_named() {
        let mut args = KubeArgs::default();
        let text = "labels_allow_list: {pods: [a*, \"a*b*\"]}\n";
        let named = apply(text, &mut args).expect("valid");
        assert_eq!(named.len(), 1);
        assert!(named[0].contains("labels_allow_list: pods: \"a*b*\""), "{named:?}");
    }

    #[test]
    fn broken_files_are_errors() {
        for text in [
            "resources: [pods]\n",
            "resources: {pods: \"\"}\n",
            "resources: {pods: true}\n",
            "resources: {pods: []}\n",
            "resources: {pods: x}\n",
            "resources: \"\"\n",
            "labels_allow_list: []\n",
            "labels_allow_list: {pods: a}\n",
            "namespaces: a\n",
            "port: x\n",
            "port: \"26910\"\n",
            "total_shards: \"2\"\n",
            "shard: 4294967296\n",
            "object_limit: 1e30\n",
            "object_limit: .inf\n",
            "object_limit: .nan\n",
            "enable_gzip_encoding: \"true\"\n",
            "enable_gzip_encoding: 1\n",
            "auto-gomemlimit-ratio: \"1\"\n",
            "server_read_timeout: 5\n",
            "server_read_timeout: 5q\n",
            "server_read_timeout: \"\"\n",
            "node: [a]\n",
            "node: a\nnode: a\n",
            "\tport: 1\n",
            "# x\n \t# y\nport: 1\n",
            "- a\n",
            "hello\n",
            "{{",
        ] {
            assert!(applied(text).is_err(), "{text:?}");
        }
        let error = applied("port: 1\nshard: x\n").expect_err("invalid");
        assert!(error.contains("line 2"), "{error}");
    }
}
