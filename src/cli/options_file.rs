//! The options file of kube-state-metrics (`--config`): YAML whose keys override flags.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::go;
use super::kube_flags::KubeArgs;

/// The file as it is written. Keys that are absent stay `None`; unknown keys are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OptionsFile {
    annotations_allow_list: Option<BTreeMap<String, Vec<String>>>,
    labels_allow_list: Option<BTreeMap<String, Vec<String>>>,
    metric_allowlist: Option<Set>,
    metric_denylist: Option<Set>,
    metric_opt_in_list: Option<Set>,
    resources: Option<Set>,
    apiserver: Option<String>,
    kubeconfig: Option<String>,
    custom_resource_config: Option<String>,
    custom_resource_state_config_file: Option<String>,
    custom_resource_config_file: Option<String>,
    continue_without_custom_resource_state_config_file: Option<bool>,
    custom_resources_only: Option<bool>,
    continue_without_config: Option<bool>,
    host: Option<String>,
    port: Option<i64>,
    telemetry_host: Option<String>,
    telemetry_port: Option<i64>,
    namespace: Option<String>,
    pod: Option<String>,
    node: Option<String>,
    tls_config: Option<String>,
    namespaces: Option<Vec<String>>,
    namespaces_denylist: Option<Vec<String>>,
    shard: Option<i32>,
    total_shards: Option<i64>,
    track_unscheduled_pods: Option<bool>,
    server_read_timeout: Option<DurationText>,
    server_write_timeout: Option<DurationText>,
    server_idle_timeout: Option<DurationText>,
    server_read_header_timeout: Option<DurationText>,
    enable_gzip_encoding: Option<bool>,
    use_api_server_cache: Option<bool>,
    object_limit: Option<i64>,
    auth_filter: Option<bool>,
    #[serde(rename = "auto-gomemlimit")]
    auto_gomemlimit: Option<bool>,
    #[serde(rename = "auto-gomemlimit-ratio")]
    auto_gomemlimit_ratio: Option<f64>,
    help: Option<bool>,
}

/// A set is written as a mapping with empty values: `{pods: {}, nodes: {}}`.
type Set = BTreeMap<String, IgnoredAny>;

/// `60s`, or nanoseconds as a number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "DurationForm")]
struct DurationText(i64);

#[derive(Deserialize)]
#[serde(untagged)]
enum DurationForm {
    Nanoseconds(i64),
    Text(String),
}

impl TryFrom<DurationForm> for DurationText {
    type Error = String;

    fn try_from(form: DurationForm) -> Result<Self, String> {
        match form {
            DurationForm::Nanoseconds(nanos) => Ok(Self(nanos)),
            DurationForm::Text(text) => go::parse_duration(&text).map(Self),
        }
    }
}

/// Overrides `args` by what the text of an options file sets. Label keys that select nothing because they
/// have more than one `*` are returned, in words.
///
/// # Errors
///
/// When the text is not YAML or a key has the wrong type; the place is named as far as the YAML reader
/// knows it.
pub fn apply(text: &str, args: &mut KubeArgs) -> Result<Vec<String>, String> {
    let file: Option<OptionsFile> =
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().render())?;
    let Some(file) = file else {
        return Ok(Vec::new());
    };
    let mut wildcards = Vec::new();
    let lists = [
        ("labels_allow_list", &file.labels_allow_list),
        ("annotations_allow_list", &file.annotations_allow_list),
    ];
    for (key, list) in lists {
        for (resource, labels) in list.iter().flatten() {
            let several = labels.iter().filter(|label| label.matches('*').count() > 1);
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

fn put<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
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
            if let Some(set) = set.filter(|set| !set.is_empty()) {
                *target = set.into_keys().collect();
            }
        }
        let maps = [
            (&mut args.labels_allowlist, self.labels_allow_list),
            (&mut args.annotations_allowlist, self.annotations_allow_list),
        ];
        for (target, map) in maps {
            if let Some(map) = map.filter(|map| !map.is_empty()) {
                *target = map.into_iter().collect();
            }
        }
        let file = self.custom_resource_state_config_file.filter(|path| !path.is_empty());
        put(&mut args.custom_resource_config_file, file.or(self.custom_resource_config_file));
        let nanos = |duration: Option<DurationText>| duration.map(|duration| duration.0);
        put(&mut args.server_read_timeout, nanos(self.server_read_timeout));
        put(&mut args.server_write_timeout, nanos(self.server_write_timeout));
        put(&mut args.server_idle_timeout, nanos(self.server_idle_timeout));
        put(&mut args.server_read_header_timeout, nanos(self.server_read_header_timeout));
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
        put(&mut args.namespaces, self.namespaces);
        put(&mut args.namespaces_denylist, self.namespaces_denylist);
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
             server_idle_timeout: 1m30s\nserver_read_timeout: 5\nnamespaces: [b, a]\nport: 9\n\
             auto-gomemlimit: true\nuse_api_server_cache: true\nnamespace: ns\nunknown: {a: 1}\n",
        )
        .expect("valid");
        assert_eq!(Vec::from_iter(args.resources), ["nodes", "pods"]);
        let keys = args.labels_allowlist.keys("pods").expect("list");
        assert_eq!(keys, ["a/b", "x]y"]);
        assert_eq!((args.server_idle_timeout, args.server_read_timeout), (90_000_000_000, 5));
        assert_eq!((args.namespaces, args.port), (vec!["b".to_owned(), "a".to_owned()], 9));
        assert!(args.auto_gomemlimit && args.use_apiserver_cache);
        assert_eq!((args.pod_namespace.as_str(), args.node.as_str()), ("ns", "n"));
    }

    #[test]
    fn empty_files_and_empty_sets_change_nothing() {
        for text in ["", "# nothing\n", "{}", "resources: {}\n"] {
            let args = applied(text).expect("valid");
            assert_eq!(Vec::from_iter(args.resources), ["jobs"], "{text:?}");
        }
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
        for text in ["resources: [pods]\n", "port: x\n", "server_read_timeout: 5q\n", "{{"] {
            assert!(applied(text).is_err(), "{text:?}");
        }
        let error = applied("port: 1\nshard: x\n").expect_err("invalid");
        assert!(error.contains("line 2"), "{error}");
    }
}
