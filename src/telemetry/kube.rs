//! Self metrics of the Kubernetes side, with the names and labels of kube-state-metrics.
//!
//! Labels are in byte order of their names, as Go's client writes them.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::Recorder;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CallLabels {
    resource: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabels {
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EventLabels {
    resource: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FileLabels {
    filename: String,
    r#type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ShardLabels {
    shard_ordinal: i64,
}

/// What the Kubernetes pipeline counts; cheap to clone, every clone counts into the same series.
///
/// `resource` is the Go type text of the originals, `*v1.Pod`.
#[derive(Clone, Debug, Default)]
pub struct KubeMetrics {
    list: Family<CallLabels, Counter>,
    watch: Family<CallLabels, Counter>,
    events: Family<EventLabels, Counter>,
    malformed: Family<ResourceLabels, Counter>,
    received: Family<ResourceLabels, Counter>,
    restarts: Family<ResourceLabels, Counter>,
    list_objects: Family<ResourceLabels, Gauge>,
    list_objects_limit: Family<ResourceLabels, Gauge>,
    shard_ordinal: Family<ShardLabels, Gauge>,
    total_shards: Gauge,
    config_hash: Family<FileLabels, Gauge<f64, AtomicU64>>,
    reload_ok: Family<FileLabels, Gauge>,
    reload_time: Family<FileLabels, Gauge<f64, AtomicU64>>,
    custom_resource_events: [Counter; 3],
    custom_resource_cache: Gauge,
}

/// What one list/watch counts while it follows a resource.
#[derive(Clone, Debug, Default)]
pub struct ReflectorMetrics {
    /// `ADDED` events.
    pub added: Counter,
    /// `MODIFIED` events.
    pub modified: Counter,
    /// `DELETED` events.
    pub deleted: Counter,
    /// `BOOKMARK` events.
    pub bookmarks: Counter,
    /// Objects that could not be read, which have no series.
    pub malformed: Counter,
    /// Bytes of list and watch bodies.
    pub received: Counter,
}

/// Which file a configuration metric is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    /// The options file, `--config`.
    Options,
    /// The custom resource configuration.
    CustomResources,
}

impl ConfigFile {
    fn label(self) -> &'static str {
        match self {
            Self::Options => "config",
            Self::CustomResources => "customresourceconfig",
        }
    }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "error" }
}

impl KubeMetrics {
    /// Counts a plain list call.
    pub fn list(&self, resource: &str, succeeded: bool) {
        let labels = CallLabels { result: result(succeeded), resource: resource.to_owned() };
        self.list.get_or_create(&labels).inc();
    }

    /// Counts a watch call, streaming lists among them.
    pub fn watch(&self, resource: &str, succeeded: bool) {
        let labels = CallLabels { result: result(succeeded), resource: resource.to_owned() };
        self.watch.get_or_create(&labels).inc();
    }

    /// The counters of a resource, to be kept by what follows it.
    pub fn reflector(&self, resource: &str) -> ReflectorMetrics {
        let event = |r#type| {
            let labels = EventLabels { resource: resource.to_owned(), r#type };
            self.events.get_or_create_owned(&labels)
        };
        let labels = ResourceLabels { resource: resource.to_owned() };
        ReflectorMetrics {
            added: event("added"),
            modified: event("modified"),
            deleted: event("deleted"),
            bookmarks: event("bookmark"),
            malformed: self.malformed.get_or_create_owned(&labels),
            received: self.received.get_or_create_owned(&labels),
        }
    }

    /// Notes how many objects the last list kept and under which limit; only with `--object-limit`.
    pub fn listed(&self, resource: &str, objects: u64, limit: u64) {
        let labels = ResourceLabels { resource: resource.to_owned() };
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.list_objects.get_or_create(&labels).set(signed(objects));
        self.list_objects_limit.get_or_create(&labels).set(signed(limit));
    }

    /// Counts a list/watch that ended by a fault of this program and is started again.
    pub fn restarted(&self, resource: &str) {
        let labels = ResourceLabels { resource: resource.to_owned() };
        self.restarts.get_or_create(&labels).inc();
    }

    /// Notes the shard that this process keeps. There is one series, whatever the earlier shard was.
    pub fn shard(&self, ordinal: i64, total: i64) {
        self.shard_ordinal.clear();
        self.shard_ordinal.get_or_create(&ShardLabels { shard_ordinal: ordinal }).set(ordinal);
        self.total_shards.set(total);
    }

    /// Notes that a configuration file with this content is in force since `now` (Unix seconds).
    pub fn config_loaded(&self, file: ConfigFile, path: &str, content: &[u8], now: f64) {
        let labels = FileLabels { r#type: file.label(), filename: path.to_owned() };
        self.config_hash.get_or_create(&labels).set(super::md5::config_hash(content) as f64);
        self.reload_ok.get_or_create(&labels).set(1);
        self.reload_time.get_or_create(&labels).set(now);
    }

    /// Notes that a configuration file could not be used.
    pub fn config_failed(&self, file: ConfigFile, path: &str) {
        let labels = FileLabels { r#type: file.label(), filename: path.to_owned() };
        self.reload_ok.get_or_create(&labels).set(0);
    }

    /// Registers everything.
    pub fn register(&self, recorder: &mut Recorder) {
        let registry = &mut recorder.registry;
        add(registry, "list", "Plain list calls to the API server, by result", &self.list);
        add(
            registry,
            "watch",
            "Watch calls to the API server, streaming lists among them, by result",
            &self.watch,
        );
        registry.register(
            "kstatd_kubernetes_events",
            "Watch events received, those of a streaming list's initial state among them",
            self.events.clone(),
        );
        registry.register(
            "kstatd_kubernetes_malformed_objects",
            "Objects that could not be read and have no series for it",
            self.malformed.clone(),
        );
        registry.register(
            "kstatd_kubernetes_received_bytes",
            "Bytes of list and watch bodies received",
            self.received.clone(),
        );
        registry.register(
            "kstatd_kubernetes_restarts",
            "List/watches started again after a fault of this program; the old state was served meanwhile",
            self.restarts.clone(),
        );
        add(registry, "list_objects", "Objects that the last list kept", &self.list_objects);
        add(
            registry,
            "list_objects_limit",
            "Most objects that a list may keep",
            &self.list_objects_limit,
        );
        add(
            registry,
            "shard_ordinal",
            "Zero-based shard that this process keeps",
            &self.shard_ordinal,
        );
        add(registry, "total_shards", "Shards in all", &self.total_shards);
        add(
            registry,
            "config_hash",
            "First six bytes of the MD5 of a configuration file, as a number",
            &self.config_hash,
        );
        add(
            registry,
            "last_config_reload_successful",
            "Whether the last load of a configuration file succeeded",
            &self.reload_ok,
        );
        add(
            registry,
            "last_config_reload_success_timestamp_seconds",
            "Unix time of the last successful load of a configuration file",
            &self.reload_time,
        );
        let [added, updated, deleted] = &self.custom_resource_events;
        for (event, counter) in [("add", added), ("update", updated), ("delete", deleted)] {
            add(
                registry,
                &format!("custom_resource_state_{event}_events"),
                "Events of this kind seen for custom resource definitions",
                counter,
            );
        }
        add(
            registry,
            "custom_resource_state_cache",
            "Custom resource definitions known",
            &self.custom_resource_cache,
        );
    }
}

fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: &M) {
    registry.register(format!("kube_state_metrics_{name}"), help, metric.clone());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Format;

    #[test]
    fn names_labels_and_values() {
        let metrics = KubeMetrics::default();
        let mut recorder = Recorder::default();
        metrics.register(&mut recorder);
        let own = recorder.finish();
        let fresh = own.encode(Format::Text);
        assert!(fresh.contains("kube_state_metrics_custom_resource_state_add_events_total 0\n"));
        assert!(!fresh.contains("kube_state_metrics_list_total{"), "{fresh}");
        metrics.list("*v1.Pod", true);
        metrics.watch("*v1.Pod", false);
        metrics.listed("*v1.Pod", 7, 10);
        metrics.shard(1, 3);
        metrics.shard(0, 2);
        metrics.config_loaded(ConfigFile::Options, "/c.yaml", b"a", 1.5);
        metrics.config_failed(ConfigFile::CustomResources, "/r.yaml");
        let body = own.encode(Format::Text);
        for line in [
            "kube_state_metrics_list_total{resource=\"*v1.Pod\",result=\"success\"} 1\n",
            "kube_state_metrics_watch_total{resource=\"*v1.Pod\",result=\"error\"} 1\n",
            "kube_state_metrics_list_objects{resource=\"*v1.Pod\"} 7\n",
            "kube_state_metrics_list_objects_limit{resource=\"*v1.Pod\"} 10\n",
            "kube_state_metrics_shard_ordinal{shard_ordinal=\"0\"} 0\n",
            "kube_state_metrics_total_shards 2\n",
            "kube_state_metrics_last_config_reload_successful{filename=\"/c.yaml\",type=\"config\"} 1\n",
            "kube_state_metrics_last_config_reload_successful{filename=\"/r.yaml\",type=\"customresourceconfig\"} 0\n",
            "kube_state_metrics_last_config_reload_success_timestamp_seconds{filename=\"/c.yaml\",type=\"config\"} 1.5\n",
            "kube_state_metrics_config_hash{filename=\"/c.yaml\",type=\"config\"} 2.6581004751694e+14\n",
        ] {
            assert!(body.contains(line), "{line} in {body}");
        }
        assert_eq!(body.matches("kube_state_metrics_shard_ordinal{").count(), 1);
    }
}
