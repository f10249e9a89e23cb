//! Options files for kube-state-metrics.

use serde_json::{Map, Value, json};

/// Returns an options file with the values of flags.
///
/// # Panics
///
/// A flag has no key here.
pub fn options_file(flags: &[String]) -> Value {
    let mut out = Map::new();
    for flag in flags {
        let (name, text) = flag.trim_start_matches('-').split_once('=').unwrap_or((flag, "true"));
        let words = || text.split(',').filter(|word| !word.is_empty());
        let set = || Value::Object(words().map(|word| (word.to_owned(), json!({}))).collect());
        let (key, value) = match name.trim_start_matches('-') {
            "resources" => ("resources", set()),
            "metric-allowlist" => ("metric_allowlist", set()),
            "metric-denylist" => ("metric_denylist", set()),
            "metric-opt-in-list" => ("metric_opt_in_list", set()),
            "metric-labels-allowlist" => ("labels_allow_list", allow_list(text)),
            "metric-annotations-allowlist" => ("annotations_allow_list", allow_list(text)),
            "namespaces" => ("namespaces", words().collect()),
            "namespaces-denylist" => ("namespaces_denylist", words().collect()),
            "shard" => ("shard", number(text)),
            "total-shards" => ("total_shards", number(text)),
            "node" => ("node", text.into()),
            "track-unscheduled-pods" => ("track_unscheduled_pods", true.into()),
            "use-apiserver-cache" => ("use_api_server_cache", true.into()),
            "custom-resource-state-only" => ("custom_resources_only", true.into()),
            "custom-resource-state-config" => ("custom_resource_config", text.into()),
            "custom-resource-state-config-file" => {
                ("custom_resource_state_config_file", text.into())
            }
            other => panic!("--{other} has no key"),
        };
        out.insert(key.to_owned(), value);
    }
    out.into()
}

fn number(text: &str) -> Value {
    text.parse::<i64>().map_or(Value::Null, Value::from)
}

/// Converts `a=[x,y],b=[*]`.
fn allow_list(text: &str) -> Value {
    let entries = text.split_inclusive(']').filter_map(|entry| {
        let (resource, keys) = entry.trim_start_matches(',').split_once("=[")?;
        let keys = keys.trim_end_matches(']').split(',').filter(|key| !key.is_empty());
        Some((resource.to_owned(), keys.collect()))
    });
    Value::Object(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_keys() {
        let flags = [
            "--resources=pods,nodes",
            "--metric-labels-allowlist=pods=[a,b],nodes=[*],jobs=[]",
            "--namespaces=a,b",
            "--shard=1",
            "--track-unscheduled-pods",
        ];
        let expected = json!({
            "resources": {"pods": {}, "nodes": {}},
            "labels_allow_list": {"pods": ["a", "b"], "nodes": ["*"], "jobs": []},
            "namespaces": ["a", "b"],
            "shard": 1,
            "track_unscheduled_pods": true,
        });
        assert_eq!(options_file(&flags.map(str::to_owned)), expected);
    }
}
