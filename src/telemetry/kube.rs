//! Self metrics of the Kubernetes side, with kube-state-metrics' names and labels.
//!
//! Labels are sorted by name, like Go's client does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::metric::{Counter, Gauge, Labelled, own_metrics};
use crate::util::lock::Lock;
use crate::util::words::words;

words! {
    /// The reason why a list or watch failed or ended early.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Reason {
        /// 401: the credentials were not accepted.
        Unauthorized = "unauthorized",
        /// 403: the request is not permitted.
        Forbidden = "forbidden",
        /// 404: the server does not have the resource.
        NotFound = "not_found",
        /// 410: a resource version or continue token has expired.
        Expired = "expired",
        /// 429: the server throttles requests.
        Throttled = "throttled",
        /// An internal server error (500 and above).
        ServerError = "server_error",
        /// Any other unsuccessful status.
        Refused = "refused",
        /// The connection failed or was closed.
        Broken = "broken",
        /// No response within the timeout.
        Timeout = "timeout",
        /// An open connection without any traffic.
        Frozen = "frozen",
        /// A body that is received too slowly.
        Slow = "slow",
        /// A response that is malformed or unexpected.
        Garbled = "garbled",
    }
}

impl Reason {
    /// Returns the reason for an HTTP status.
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

    /// Returns whether such failures usually affect the entire server rather than one resource.
    pub fn is_of_the_server(self) -> bool {
        !matches!(self, Self::Forbidden | Self::NotFound | Self::Refused | Self::Expired)
    }
}

/// The family and the path of metrics of custom resources, by resource.
pub(crate) type MetricPaths = BTreeMap<String, BTreeSet<(String, String)>>;

/// Possible problems of the custom resource configuration, for the status page.
#[derive(Debug, Default)]
pub(crate) struct CustomProblems {
    /// Paths without a value. Those of other configurations than the current one are kept: their list/watches may not be replaced
    /// yet, and stay without a new list if the change is taken back.
    absent: MetricPaths,
    /// The metrics in the current configuration that should have a value.
    required: MetricPaths,
    /// Entries for kinds that the API server does not serve.
    pub(crate) unserved: Vec<String>,
}

impl CustomProblems {
    /// Returns the paths without a value that the current configuration requires.
    pub(crate) fn absent(&self) -> MetricPaths {
        let required = self.required.iter().filter_map(|(resource, required)| {
            let absent = self.absent.get(resource)? & required;
            (!absent.is_empty()).then(|| (resource.clone(), absent))
        });
        required.collect()
    }

    /// Sets the metrics that should have a value. Of a resource with many absent paths, those that neither they nor the previous
    /// ones include are forgotten.
    pub(crate) fn require(&mut self, required: MetricPaths) {
        let previous = std::mem::replace(&mut self.required, required);
        for (resource, absent) in &mut self.absent {
            if absent.len() > MAX_ABSENT {
                let known = [&self.required, &previous].map(|paths| paths.get(resource));
                absent.retain(|path| known.iter().flatten().any(|paths| paths.contains(path)));
            }
        }
    }
}

/// The number of absent paths of a resource above which those of former configurations are forgotten.
const MAX_ABSENT: usize = 1_000;

/// The definitions of custom resources, whose lists and watches kube-state-metrics does not count.
const DEFINITIONS: &str = "*v1.CustomResourceDefinition";

/// The query of own metrics for the stage of a shard change alone, which pods of a sharded deployment send to one another.
pub(crate) const SHARD_STAGE_QUERY: &str = "name%5B%5D=kstatd_kubernetes_shard_stage";

own_metrics! {
    /// The counters of the Kubernetes pipeline; clones share the same series. `resource` is the
    /// originals' Go type name, such as `*v1.Pod`.
    #[derive(Clone, Debug)]
    pub struct KubeMetrics {
        counter pub(crate) value_errors: Labelled<Counter, 3> ["family", "reason", "resource"] =
            "kstatd_custom_resource_value_errors_total",
            "Custom resource values that produced no sample, by reason, counted on each update of an object.";
        counter errors: Labelled<Counter, 3> ["namespace", "reason", "resource"] =
            "kstatd_kubernetes_errors_total",
            "Lists and watches that failed or ended early, by reason.";
        counter events: Labelled<Counter, 2> ["resource", "type"] =
            "kstatd_kubernetes_events_total",
            "Watch events received, including the initial events of streaming lists.";
        counter malformed: Labelled<Counter, 1> ["resource"] =
            "kstatd_kubernetes_malformed_objects_total",
            "Objects without series because they could not be decoded.";
        counter over_budget: Labelled<Counter, 5> ["action", "label", "limit", "metric_name", "resource"] =
            "kstatd_kubernetes_over_budget_total",
            "Times an object exceeded a budget, by action.";
        counter left_out: Labelled<Counter, 1> ["resource"] =
            "kstatd_kubernetes_objects_over_limit_total",
            "Objects omitted because of --object-limit, counted on each update, including those on pages not requested.";
        counter oversized: Labelled<Counter, 1> ["resource"] =
            "kstatd_kubernetes_oversized_objects_total",
            "Objects that lack the series of a family because there would be too many.";
        counter received: Labelled<Counter, 1> ["resource"] =
            "kstatd_kubernetes_received_bytes_total",
            "Bytes received in list and watch response bodies.";
        counter pub(crate) restarts: Labelled<Counter, 1> ["resource"] = "kstatd_kubernetes_restarts_total",
            "List/watches restarted after a bug in this program; the previous state was served meanwhile.";
        gauge shard_stage: Labelled<Gauge, 1> ["total"] = "kstatd_kubernetes_shard_stage",
            "Resharding stage of this process: -1 starting, 0 incomplete, 1 watching, 2 serving, 3 exclusive.";
        gauge config_hash: Labelled<Gauge, 2> ["filename", "type"] =
            "kube_state_metrics_config_hash",
            "First six bytes of the MD5 of a configuration file, as a number.";
        counter definitions_added: Counter =
            "kube_state_metrics_custom_resource_state_add_events_total",
            "Events of this kind seen for custom resource definitions.";
        gauge custom_resource_cache: Gauge = "kube_state_metrics_custom_resource_state_cache",
            "Custom resource definitions known.";
        counter definitions_deleted: Counter =
            "kube_state_metrics_custom_resource_state_delete_events_total",
            "Events of this kind seen for custom resource definitions.";
        counter definitions_updated: Counter =
            "kube_state_metrics_custom_resource_state_update_events_total",
            "Events of this kind seen for custom resource definitions.";
        gauge reload_time: Labelled<Gauge, 2> ["filename", "type"] =
            "kube_state_metrics_last_config_reload_success_timestamp_seconds",
            "Unix time of the last successful load of a configuration file.";
        gauge reload_ok: Labelled<Gauge, 2> ["filename", "type"] =
            "kube_state_metrics_last_config_reload_successful",
            "1 if the last load of a configuration file succeeded, else 0.";
        gauge list_objects: Labelled<Gauge, 1> ["resource"] = "kube_state_metrics_list_objects",
            "Objects kept by the last list.";
        gauge list_objects_limit: Labelled<Gauge, 1> ["resource"] =
            "kube_state_metrics_list_objects_limit",
            "Maximum number of objects kept per list.";
        counter list: Labelled<Counter, 2> ["resource", "result"] = "kube_state_metrics_list_total",
            "Plain list calls to the API server, by result.";
        gauge shard_ordinal: Labelled<Gauge, 1> ["shard_ordinal"] =
            "kube_state_metrics_shard_ordinal",
            "Zero-based shard of this process.";
        gauge total_shards: Gauge = "kube_state_metrics_total_shards",
            "Total number of shards.";
        counter watch: Labelled<Counter, 2> ["resource", "result"] =
            "kube_state_metrics_watch_total",
            "Watch calls to the API server, streaming lists among them, by result.";
    }
    state {
        /// The number of shards that the stage refers to, once there is one.
        stage_total: Arc<Lock<Option<i64>>>,
        pub(crate) custom: Arc<Lock<CustomProblems>>,
        /// The resources with an object limit; `None` until the configuration has changed.
        limited: Arc<Lock<Option<BTreeSet<String>>>>,
    }
}

/// The maximum number of label combinations of exceeded budgets.
const MAX_OVER_BUDGET: usize = 1_000;

/// The counters of one list/watch.
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
    /// Unreadable objects, which have no series.
    pub malformed: Counter,
    /// Objects without series in some family, because there would be too many.
    pub oversized: Counter,
    /// Objects beyond the limit of objects to keep.
    pub left_out: Counter,
    /// Bytes of list and watch bodies.
    pub received: Counter,
}

words! {
    /// The file that a configuration metric describes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ConfigFile {
        /// The options file, `--config`.
        Options = "config",
        /// The custom resource configuration.
        CustomResources = "customresourceconfig",
    }
}

fn result(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "error" }
}

/// Events of custom resource definitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionEvents {
    /// New definitions.
    pub added: u64,
    /// Changed definitions.
    pub updated: u64,
    /// Deleted definitions.
    pub deleted: u64,
}

impl KubeMetrics {
    /// Counts a plain list request.
    pub fn list(&self, resource: &str, succeeded: bool) {
        if resource != DEFINITIONS {
            self.list.with([resource, result(succeeded)]).inc();
        }
    }

    /// Counts a watch request, including streaming lists.
    pub fn watch(&self, resource: &str, succeeded: bool) {
        if resource != DEFINITIONS {
            self.watch.with([resource, result(succeeded)]).inc();
        }
    }

    /// Returns the counters of a resource.
    pub fn reflector(&self, resource: &str) -> ReflectorMetrics {
        let event = |kind| self.events.with([resource, kind]);
        ReflectorMetrics {
            added: event("added"),
            modified: event("modified"),
            deleted: event("deleted"),
            bookmarks: event("bookmark"),
            malformed: self.malformed.with([resource]),
            oversized: self.oversized.with([resource]),
            left_out: self.left_out.with([resource]),
            received: self.received.with([resource]),
        }
    }

    /// Counts a list or watch that failed or ended early; `namespace` is empty for all.
    pub fn failed(&self, resource: &str, namespace: &str, reason: Reason) {
        self.errors.with([namespace, reason.as_str(), resource]).inc();
    }

    /// Records the number of objects of a resource after a list; only with `--object-limit`.
    pub fn listed(&self, resource: &str, objects: usize) {
        self.set_limited(&self.list_objects, resource, objects);
    }

    /// Records the object limit of a resource whose list begins.
    pub(crate) fn limited(&self, resource: &str, limit: usize) {
        self.set_limited(&self.list_objects_limit, resource, limit);
    }

    /// Sets a number of a resource with an object limit, unless it has none any more.
    fn set_limited(&self, gauge: &Labelled<Gauge, 1>, resource: &str, number: usize) {
        let limited = self.limited.lock();
        if limited.as_ref().is_none_or(|limited| limited.contains(resource)) {
            gauge.with([resource]).set(number as f64);
        }
    }

    /// Removes the numbers of objects of all resources but these. Others that are [listed](Self::listed) before their list/watches
    /// are replaced do not bring them back.
    pub(crate) fn keep_listed(&self, resources: &[&str]) {
        let mut limited = self.limited.lock();
        *limited = Some(resources.iter().map(|&resource| resource.to_owned()).collect());
        for gauge in [&self.list_objects, &self.list_objects_limit] {
            for ([resource], _) in gauge.each() {
                if !resources.contains(&&*resource) {
                    gauge.remove([&*resource]);
                }
            }
        }
    }

    /// Counts objects of a resource that exceed a budget: action, label, limit and metric, and how
    /// often. Beyond [`MAX_OVER_BUDGET`] combinations they share one series.
    pub(crate) fn over_budget(&self, labels: [&str; 4], resource: &str, times: u64) {
        let [action, label, limit, metric] = labels;
        let is_known = self.over_budget.len() < MAX_OVER_BUDGET;
        let (label, metric) =
            if is_known || self.over_budget.has([action, label, limit, metric, resource]) {
                (label, metric)
            } else {
                ("", "_other")
            };
        self.over_budget.with([action, label, limit, metric, resource]).inc_by(times);
    }

    /// Returns the exceeded budgets (action, label, limit, metric and resource), with how often
    /// each was exceeded.
    pub(crate) fn all_over_budget(&self) -> Vec<([Box<str>; 5], u64)> {
        self.over_budget.each().into_iter().map(|(labels, times)| (labels, times.get())).collect()
    }

    /// Records the shard of this process, replacing the previous one.
    pub fn shard(&self, ordinal: i64, total: i64) {
        self.shard_ordinal.clear();
        self.shard_ordinal.with([&ordinal.to_string()]).set(ordinal as f64);
        self.total_shards.set(total as f64);
    }

    /// Returns the shard of this process and the number of shards.
    pub(crate) fn shard_of(&self) -> Option<(i64, i64)> {
        let ordinal = self.shard_ordinal.each().first()?.1.get();
        Some((ordinal as i64, self.total_shards.get() as i64))
    }

    /// Records the progress of a resharding to `total` shards: -1 starting, 0 not watching all of
    /// the new share, 1 watching all of it, 2 serving the gained objects, 3 no longer serving the
    /// lost ones. There is one series.
    pub fn shard_stage(&self, total: i64, level: i64) {
        // Clearing on every call would let a concurrent scrape find no series.
        let mut stage_total = self.stage_total.lock();
        if stage_total.replace(total) != Some(total) {
            self.shard_stage.clear();
        }
        self.shard_stage.with([&total.to_string()]).set(level as f64);
    }

    /// Records that a configuration file with this content is in use since `now` (Unix seconds).
    pub fn config_loaded(&self, file: ConfigFile, path: &str, content: &[u8], now: f64) {
        let path = cleaned(path);
        let labels = [&*path, file.as_str()];
        self.config_hash.with(labels).set(config_hash(content) as f64);
        self.reload_ok.with(labels).set(1.0);
        self.reload_time.with(labels).set(now);
    }

    /// Records that a configuration file could not be loaded.
    pub fn config_failed(&self, file: ConfigFile, path: &str) {
        self.reload_ok.with([&*cleaned(path), file.as_str()]).set(0.0);
    }

    /// Removes a configuration file that is no longer configured.
    pub(crate) fn config_forgotten(&self, file: ConfigFile, path: &str) {
        for series in [&self.config_hash, &self.reload_ok, &self.reload_time] {
            series.remove([&*cleaned(path), file.as_str()]);
        }
    }

    /// Counts events of custom resource definitions and records the current number of definitions.
    pub fn definitions(&self, events: DefinitionEvents, known: usize) {
        let DefinitionEvents { added, updated, deleted } = events;
        self.definitions_added.inc_by(added);
        self.definitions_updated.inc_by(updated);
        self.definitions_deleted.inc_by(deleted);
        self.custom_resource_cache.set(known as f64);
    }

    /// Notes the path of a metric at which an object had no value.
    pub(crate) fn note_absent_value(&self, resource: &str, family: &str, path: &str) {
        let mut custom = self.custom.lock();
        let paths = custom.absent.entry(resource.to_owned()).or_default();
        paths.insert((family.to_owned(), path.to_owned()));
    }
}

/// Returns a path as Go's `filepath.Clean` does, which kube-state-metrics shows: without `.`, double slashes, and `..` after a name.
fn cleaned(path: &str) -> String {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match (part, clean.components().next_back()) {
            (Component::ParentDir, Some(Component::Normal(_))) => {
                clean.pop();
            }
            (Component::ParentDir, Some(Component::RootDir)) | (Component::CurDir, _) => {}
            _ => clean.push(part),
        }
    }
    if clean.as_os_str().is_empty() { ".".to_owned() } else { clean.to_string_lossy().into() }
}

/// Returns the first six bytes of the MD5 digest as a little-endian number, which dashboards compare between replicas.
fn config_hash(content: &[u8]) -> u64 {
    let md5::Digest(digest) = md5::compute(content);
    digest.iter().take(6).rev().fold(0, |hash, byte| (hash << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::Format;
    use crate::telemetry::Recorder;

    #[test]
    fn paths_are_shown_clean() {
        for (path, clean) in [
            ("./a.yaml", "a.yaml"),
            ("/a//b/./c/", "/a/b/c"),
            ("a/../b", "b"),
            ("../a/..", ".."),
            ("/../a", "/a"),
            ("a/..", "."),
        ] {
            assert_eq!(cleaned(path), clean, "{path}");
        }
    }

    #[test]
    fn absent_values_are_forgotten_when_the_configuration_no_longer_requires_them() {
        let metrics = KubeMetrics::default();
        let require = |paths: &[[&str; 2]]| {
            let paths = paths.iter().map(|path| path.map(str::to_owned).into());
            metrics.custom.lock().require(BTreeMap::from([("r".to_owned(), paths.collect())]));
        };
        let absent = || {
            let paths = metrics.custom.lock().absent().into_values().flatten();
            paths.map(|(family, path)| format!("{family} {path}")).collect::<Vec<_>>()
        };
        require(&[["f", "[a]"], ["g", "[b]"], ["h", "[c]"]]);
        for (family, path) in [("f", "[a]"), ("g", "[b]"), ("h", "[c]")] {
            metrics.note_absent_value("r", family, path);
        }
        assert_eq!(absent(), ["f [a]", "g [b]", "h [c]"]);
        // One is corrected, one is optional or removed.
        require(&[["f", "[a]"], ["g", "[d]"]]);
        assert_eq!(absent(), ["f [a]"]);
        // A list/watch that the reload has not replaced yet.
        metrics.note_absent_value("r", "h", "[c]");
        assert_eq!(absent(), ["f [a]"]);
        metrics.custom.lock().require(BTreeMap::new());
        assert!(absent().is_empty());
        // Objects are not listed again for a change that is taken back at once.
        require(&[["f", "[a]"], ["h", "[c]"]]);
        assert_eq!(absent(), ["f [a]", "h [c]"]);
        // Nor if some were listed with the changed path, or change while it applies.
        require(&[["f", "[e]"], ["h", "[c]"]]);
        metrics.note_absent_value("r", "f", "[e]");
        metrics.note_absent_value("r", "f", "[a]");
        assert_eq!(absent(), ["f [e]", "h [c]"]);
        require(&[["f", "[a]"], ["h", "[c]"]]);
        assert_eq!(absent(), ["f [a]", "h [c]"]);
    }

    #[test]
    fn absent_values_of_many_former_configurations_are_forgotten() {
        let metrics = KubeMetrics::default();
        let path = |number: usize| ("f".to_owned(), number.to_string());
        let require = |number| {
            metrics
                .custom
                .lock()
                .require(BTreeMap::from([("r".to_owned(), [path(number)].into())]));
        };
        let noted = || metrics.custom.lock().absent["r"].len();
        for number in 0..=MAX_ABSENT {
            require(number);
            metrics.note_absent_value("r", "f", &number.to_string());
        }
        assert_eq!(noted(), MAX_ABSENT + 1);
        // The previous one may come back.
        require(0);
        assert_eq!(noted(), 2);
        require(MAX_ABSENT);
        assert_eq!(metrics.custom.lock().absent()["r"], [path(MAX_ABSENT)].into());
    }

    /// A list/watch may list again before the reload that removes its limit replaces it.
    #[test]
    fn numbers_of_objects_do_not_return_without_a_limit() {
        let metrics = KubeMetrics::default();
        let listed = || -> [BTreeSet<Box<str>>; 2] {
            metrics.limited("*v1.Pod", 10);
            metrics.listed("*v1.Pod", 7);
            metrics.limited("*v1.Node", 10);
            metrics.listed("*v1.Node", 3);
            let gauges = [&metrics.list_objects, &metrics.list_objects_limit];
            gauges.map(|gauge| gauge.each().into_iter().map(|([resource], _)| resource).collect())
        };
        let [pods, nodes]: [Box<str>; 2] = ["*v1.Pod".into(), "*v1.Node".into()];
        assert_eq!(listed(), [(); 2].map(|()| BTreeSet::from([pods.clone(), nodes.clone()])));
        metrics.keep_listed(&["*v1.Pod"]);
        assert_eq!(listed(), [(); 2].map(|()| BTreeSet::from([pods.clone()])));
        metrics.keep_listed(&[]);
        assert_eq!(listed(), [(); 2].map(|()| BTreeSet::new()));
        metrics.keep_listed(&["*v1.Node"]);
        assert_eq!(listed(), [(); 2].map(|()| BTreeSet::from([nodes.clone()])));
    }

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
        metrics.list(DEFINITIONS, true);
        metrics.watch(DEFINITIONS, false);
        metrics.failed("*v1.Pod", "", Reason::Frozen);
        metrics.failed("*v1.Pod", "a", Reason::of_status(503));
        metrics.limited("*v1.Pod", 10);
        metrics.listed("*v1.Pod", 7);
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

    #[test]
    fn hashes_of_kube_state_metrics() {
        for case in crate::recorded::cases("ksm/config_hash.json", 6) {
            let content = case["content"].as_str().expect("content");
            assert_eq!(
                config_hash(content.as_bytes()).to_string(),
                case["value"].as_str().expect("value")
            );
        }
    }
}
