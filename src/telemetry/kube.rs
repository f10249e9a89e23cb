//! Self metrics of the Kubernetes side, with the names and labels of kube-state-metrics.
//!
//! Labels are in byte order of their names, as Go's client writes them.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::registry::Recorder;

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
struct ValueErrorLabels {
    family: String,
    reason: &'static str,
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ErrorLabels {
    namespace: String,
    reason: &'static str,
    resource: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ScopeLabels {
    namespace: String,
    resource: String,
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

/// Why a list or a watch failed, or ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// 401: the server does not know who asks.
    Unauthorized,
    /// 403: who asks may not.
    Forbidden,
    /// 404: the server does not have the resource.
    NotFound,
    /// 410: a version or a token has expired.
    Expired,
    /// 429: the server wants to be asked less.
    Throttled,
    /// 500 and above.
    ServerError,
    /// Any other answer than success.
    Refused,
    /// No connection, or it broke.
    Broken,
    /// No answer within the time for it.
    Timeout,
    /// A connection on which nothing comes any more, though it is open.
    Frozen,
    /// A body that comes too slowly to be of use.
    Slow,
    /// An answer that is not what was asked for, or makes no sense.
    Garbled,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Expired,
        Self::Throttled,
        Self::ServerError,
        Self::Refused,
        Self::Broken,
        Self::Timeout,
        Self::Frozen,
        Self::Slow,
        Self::Garbled,
    ];

    /// The reason that an HTTP status is.
    #[must_use]
    pub fn of_status(code: u16) -> Self {
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            410 => Self::Expired,
            429 => Self::Throttled,
            500.. => Self::ServerError,
            _ => Self::Refused,
        }
    }

    /// The value of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Expired => "expired",
            Self::Throttled => "throttled",
            Self::ServerError => "server_error",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Timeout => "timeout",
            Self::Frozen => "frozen",
            Self::Slow => "slow",
            Self::Garbled => "garbled",
        }
    }

    /// Whether it is trouble of the whole server, as a rule, and not of one resource.
    #[must_use]
    pub fn is_of_the_server(self) -> bool {
        !matches!(self, Self::Forbidden | Self::NotFound | Self::Refused | Self::Expired)
    }
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
    oversized: Family<ResourceLabels, Counter>,
    errors: Family<ErrorLabels, Counter>,
    heard: Family<ScopeLabels, Gauge<f64, AtomicU64>>,
    listed: Family<ScopeLabels, Gauge<f64, AtomicU64>>,
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
    value_errors: Family<ValueErrorLabels, Counter>,
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
    /// Objects that some family has no series of, because they would be too many.
    pub oversized: Counter,
    /// Bytes of list and watch bodies.
    pub received: Counter,
}

/// What is known of one list/watch from its metrics.
#[derive(Clone, Debug, Default)]
pub struct ScopeMetrics {
    /// When anything came of the API server for it, in Unix seconds.
    pub heard: Gauge<f64, AtomicU64>,
    /// When its state was complete, in Unix seconds.
    pub listed: Gauge<f64, AtomicU64>,
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
            oversized: self.oversized.get_or_create_owned(&labels),
            received: self.received.get_or_create_owned(&labels),
        }
    }

    /// The metrics of one list/watch, to be kept by it; `namespace` is empty for all.
    pub fn scope(&self, resource: &str, namespace: &str) -> ScopeMetrics {
        let (namespace, resource) = (namespace.to_owned(), resource.to_owned());
        let labels = ScopeLabels { namespace, resource };
        ScopeMetrics {
            heard: self.heard.get_or_create_owned(&labels),
            listed: self.listed.get_or_create_owned(&labels),
        }
    }

    /// Counts a list or watch that failed or ended before its time; `namespace` is empty for all.
    pub fn failed(&self, resource: &str, namespace: &str, reason: Reason) {
        let (namespace, resource) = (namespace.to_owned(), resource.to_owned());
        let labels = ErrorLabels { namespace, reason: reason.label(), resource };
        self.errors.get_or_create(&labels).inc();
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

    /// Notes that so many definitions of custom resources were added, updated and deleted, and how many there are.
    pub fn definitions(&self, events: [u64; 3], known: usize) {
        for (counter, count) in self.custom_resource_events.iter().zip(events) {
            counter.inc_by(count);
        }
        self.custom_resource_cache.set(i64::try_from(known).unwrap_or(i64::MAX));
    }

    /// Counts values of custom resources that gave no series.
    pub fn value_errors(&self, resource: &str, family: &str, reason: &'static str, count: u64) {
        let (resource, family) = (resource.to_owned(), family.to_owned());
        let labels = ValueErrorLabels { family, reason, resource };
        self.value_errors.get_or_create(&labels).inc_by(count);
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
            "kstatd_kubernetes_oversized_objects",
            "Objects of which a family has no series, because they would be too many",
            self.oversized.clone(),
        );
        registry.register(
            "kstatd_kubernetes_errors",
            "Lists and watches that failed or ended before their time, by reason",
            self.errors.clone(),
        );
        registry.register(
            "kstatd_kubernetes_last_heard_timestamp_seconds",
            "Unix time at which anything last came from the API server for this list/watch",
            self.heard.clone(),
        );
        registry.register(
            "kstatd_kubernetes_last_list_timestamp_seconds",
            "Unix time at which the state of this list/watch was last complete",
            self.listed.clone(),
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
        registry.register(
            "kstatd_custom_resource_value_errors",
            "Values of custom resources that gave no series of a family, by reason, each time an object came",
            self.value_errors.clone(),
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
        metrics.failed("*v1.Pod", "", Reason::Frozen);
        metrics.failed("*v1.Pod", "a", Reason::of_status(503));
        metrics.scope("*v1.Pod", "a").heard.set(2.5);
        metrics.listed("*v1.Pod", 7, 10);
        metrics.shard(1, 3);
        metrics.shard(0, 2);
        metrics.config_loaded(ConfigFile::Options, "/c.yaml", b"a", 1.5);
        metrics.config_failed(ConfigFile::CustomResources, "/r.yaml");
        let body = own.encode(Format::Text);
        for line in [
            "kube_state_metrics_list_total{resource=\"*v1.Pod\",result=\"success\"} 1\n",
            "kube_state_metrics_watch_total{resource=\"*v1.Pod\",result=\"error\"} 1\n",
            "kstatd_kubernetes_errors_total{namespace=\"\",reason=\"frozen\",resource=\"*v1.Pod\"} 1\n",
            "kstatd_kubernetes_errors_total{namespace=\"a\",reason=\"server_error\",resource=\"*v1.Pod\"} 1\n",
            "kstatd_kubernetes_last_heard_timestamp_seconds{namespace=\"a\",resource=\"*v1.Pod\"} 2.5\n",
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
