//! The Kubernetes side's data on the status page.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;

use crate::cache::Catalog;
use crate::kube::snapshot::is_absent;
use crate::kube::{self, Client, ListWatch, Phase, PipelineHandle};
use crate::status::{
    EmptyMetric, Facts, Failure, Health, Kind, Kubernetes, ObjectFuture, ObjectName,
    ObjectsOverBudget, Reporter, SHOWN, Sample, excess_rank,
};
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::{MetricPaths, Reason};
use crate::tools::rbac;
use crate::util::lock::Lock;

/// Seconds without any response after which a kind is stale. Watches that last longer than 110 s have a bookmark a minute, and a
/// dead connection is detected within a minute.
const STALE_AFTER: f64 = 120.0;

/// Seconds in which an expired resource version is not shown as a failure; a relist replaces it.
const RELIST_GRACE: f64 = 60.0;

/// Samples between two measurements of the text size, which visits every changed page.
const SAMPLES_PER_MEASUREMENT: u64 = 4;

/// The status page's data source.
pub(super) struct KubeReporter {
    handle: PipelineHandle,
    client: Arc<ArcSwap<Client>>,
    catalog: Catalog,
    metrics: KubeMetrics,
    /// The counts of budget excesses at the last sample, and the times of their last increases.
    over_budget: Lock<Excesses>,
    /// The number of samples taken.
    samples: AtomicU64,
    /// The number of series at the last measurement.
    series: AtomicU64,
}

/// The number of times that each budget was exceeded, and the time of its last increase, by action, label, limit, metric and
/// resource.
#[derive(Default)]
struct Excesses(HashMap<[Box<str>; 5], (u64, f64)>);

impl Excesses {
    /// Takes the present numbers, and returns them in order: first those that grew in the last minutes, then the largest.
    fn sample(&mut self, all: Vec<([Box<str>; 5], u64)>, now: f64) -> Vec<ObjectsOverBudget> {
        let over = |(labels, times): ([Box<str>; 5], u64)| {
            let known = self.0.entry(labels.clone()).or_default();
            if known.0 < times {
                *known = (times, now);
            }
            let [action, label, limit, metric, resource] = labels.map(String::from);
            ObjectsOverBudget { resource, metric, label, limit, action, times, at: known.1 }
        };
        let mut all: Vec<_> = all.into_iter().map(over).collect();
        all.sort_by_key(|over| excess_rank(now, over.at, over.times));
        all
    }
}

fn unix(time: Option<SystemTime>) -> Option<f64> {
    let since = time?.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_millis() as f64 / 1000.0)
}

impl KubeReporter {
    pub(super) fn new(
        handle: PipelineHandle,
        client: Arc<ArcSwap<Client>>,
        catalog: Catalog,
        metrics: KubeMetrics,
    ) -> Self {
        let (samples, series) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { handle, client, catalog, metrics, over_budget: Lock::default(), samples, series }
    }

    /// Returns the budgets exceeded: first those of the last minutes, then the most frequent ones.
    fn over_budget(&self, now: f64) -> Vec<ObjectsOverBudget> {
        self.over_budget.lock().sample(self.metrics.all_over_budget(), now)
    }

    fn measured_series(&self) -> u64 {
        if self.samples.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLES_PER_MEASUREMENT) {
            let facts = self.handle.snapshot();
            let shown = facts.lists.iter().filter(|list| list.shown);
            self.series.store(shown.map(|list| list.size.series).sum(), Ordering::Relaxed);
        }
        self.series.load(Ordering::Relaxed)
    }
}

/// Returns the metrics of custom resources that have objects but no series, among those with an `absent` value. `lacks` tells
/// this of a resource, by its name in the catalog, and one of its families, in all namespaces.
fn empty_metrics(
    lists: &[ListWatch],
    absent: &MetricPaths,
    lacks: impl Fn(&str, &str) -> bool,
) -> Vec<EmptyMetric> {
    let mut empty = Vec::new();
    let mut seen = HashSet::new();
    for ListWatch { api, .. } in lists.iter().filter(|list| list.shown) {
        let resource = api.name();
        let Some(families) = absent.get(&resource) else { continue };
        if !seen.insert(resource.clone()) {
            continue;
        }
        let name = format!("{}/{}, Resource={}", api.group, api.version, api.plural);
        let families = families.iter().filter(|(metric, _)| lacks(&name, metric));
        empty.extend(families.map(|(metric, path)| EmptyMetric {
            resource: resource.clone(),
            metric: metric.clone(),
            path: path.clone(),
        }));
    }
    empty
}

impl Reporter for KubeReporter {
    fn report(&self, facts: &mut Facts) {
        let pipeline = self.handle.snapshot();
        let now = facts.at;
        let mut over_budget = self.over_budget(now);
        over_budget.truncate(SHOWN);
        let works = pipeline.is_server_working();
        // Unknown until the definitions are listed.
        let is_known = pipeline.lists.iter().any(|list| {
            list.api.plural == "customresourcedefinitions" && list.status.is_complete()
        });
        let unserved =
            if is_known { self.metrics.custom.lock().unserved.clone() } else { Vec::new() };
        let absent = self.metrics.custom.lock().absent();
        let empty_metrics = empty_metrics(&pipeline.lists, &absent, |resource, family| {
            self.catalog.lacks_family(resource, family)
        });
        facts.kubernetes = Some(Kubernetes {
            server: self.client.load().url().to_string(),
            shard: self.metrics.shard_of().filter(|(_, total)| *total > 1),
            ready: pipeline.ready,
            pending: pipeline.pending.to_vec(),
            missing_namespaces: pipeline.missing_namespaces.clone(),
            over_budget,
            empty_metrics,
            unserved_kinds: unserved,
            kinds: pipeline.lists.iter().map(|list| kind(list, works, now)).collect(),
        });
    }

    fn explain_object(&self, object: ObjectName) -> Option<ObjectFuture> {
        let (handle, client) = (self.handle.clone(), self.client.load_full());
        Some(Box::pin(async move { kube::explain_object::explain(&handle, &client, object).await }))
    }

    fn sample(&self, sample: &mut Sample) {
        let now = unix(Some(SystemTime::now())).unwrap_or_default();
        self.over_budget(now);
        let mut oldest: Option<f64> = None;
        for pulse in self.handle.pulses() {
            sample.total("events", "", pulse.events as f64);
            sample.total("events", &pulse.kind, pulse.events as f64);
            if pulse.shown {
                sample.level("objects", "", pulse.objects as f64);
                let age = unix(pulse.current).map(|current| (now - current).max(0.0));
                oldest = age.map(|age| oldest.unwrap_or(age).max(age)).or(oldest);
            }
        }
        if let Some(oldest) = oldest {
            sample.level("age", "", oldest);
        }
        sample.level("series", "", self.measured_series() as f64);
    }
}

/// Returns true for an expired resource version that a relist is about to replace.
fn is_transient(failure: &kube::Failure, now: f64) -> bool {
    let since = unix(Some(failure.since)).unwrap_or(now);
    failure.reason == Some(Reason::Expired) && now - since < RELIST_GRACE
}

fn kind(list: &ListWatch, server_works: bool, now: f64) -> Kind {
    let status = &list.status;
    let heard = unix(status.heard);
    let is_absent = server_works && is_absent(list);
    let failure = status.failure.as_ref();
    let failure = failure.filter(|failure| !is_absent && !is_transient(failure, now));
    let failure = failure.map(|failure| Failure {
        since: unix(Some(failure.since)).unwrap_or(now),
        reason: failure.reason.map(Reason::as_str),
        of_the_server: failure.reason.is_some_and(Reason::is_of_the_server),
        message: match &list.selectors {
            Some(selectors) if failure.reason == Some(Reason::Refused) => {
                format!("{}, with {selectors}", failure.message)
            }
            _ => failure.message.clone(),
        },
    });
    let forbidden = status.failure.as_ref().is_some_and(|f| f.reason == Some(Reason::Forbidden));
    Kind {
        health: match (&failure, heard) {
            _ if is_absent => Health::Absent,
            (Some(_), _) => Health::Failing,
            (None, _) if !status.is_complete() => Health::Starting,
            (None, Some(heard)) if now - heard > STALE_AFTER => Health::Stale,
            (None, _) => Health::Ok,
        },
        resource: list.api.name(),
        namespace: status.namespace.clone(),
        selectors: list.selectors.clone(),
        phase: match status.phase {
            Phase::Listing => "listing",
            Phase::Watching => "watching",
            Phase::Waiting => "waiting",
        },
        shown: list.shown,
        given_up: status.given_up,
        objects: status.objects as u64,
        coming: if status.phase == Phase::Listing { status.coming as u64 } else { 0 },
        series: list.size.series,
        bytes: list.size.bytes,
        left_out: list.rejected,
        listed: unix(status.listed),
        heard,
        current: unix(status.current()),
        events_per_second: None,
        errors: list.errors.iter().map(|errors| errors.count).sum(),
        failure,
        missing_rule: forbidden
            .then(|| rbac::rule_to_list_and_watch(&list.api.group, &list.api.plural)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::kube::snapshot::tests::list_watch;

    #[test]
    fn empty_metrics_of_a_kind_are_looked_up_once_for_all_namespaces() {
        let lists: Vec<ListWatch> = (0..1_000)
            .flat_map(|number| ["as", "bs"].map(|kind| list_watch(kind, &format!("n{number}"), 1)))
            .collect();
        let paths =
            || ["first", "second"].map(|name| (name.to_owned(), "spec.x".to_owned())).into();
        let absent = ["as", "bs"].map(|kind| (format!("{kind}.v1.example.io"), paths())).into();
        let calls = Cell::new(0);
        let empty = empty_metrics(&lists, &absent, |resource, family| {
            calls.set(calls.get() + 1);
            (resource, family) != ("example.io/v1, Resource=bs", "second")
        });
        let found: Vec<_> = empty.iter().map(|of| (&*of.resource, &*of.metric)).collect();
        let (a, b) = ("as.v1.example.io", "bs.v1.example.io");
        assert_eq!(found, [(a, "first"), (a, "second"), (b, "first")]);
        assert_eq!(calls.get(), 4);
    }

    /// A budget that was exceeded often in the past does not hide one that is exceeded now.
    #[test]
    fn recent_excesses_come_first() {
        let all = |counts: [u64; 3]| {
            let counts = ["often", "seldom", "never"].into_iter().zip(counts);
            let labels =
                |metric: &str| ["folded", "l", "values-per-label", metric, "pods"].map(Box::from);
            counts
                .filter(|(_, times)| *times > 0)
                .map(|(metric, times)| (labels(metric), times))
                .collect()
        };
        let mut excesses = Excesses::default();
        let mut order = |counts: [u64; 3], now: f64| {
            let all = excesses.sample(all(counts), now).into_iter();
            all.map(|over| (over.metric, over.at)).collect::<Vec<_>>()
        };
        assert_eq!(
            order([1_000, 1, 0], 100.0),
            [("often".into(), 100.0), ("seldom".into(), 100.0)]
        );
        assert_eq!(
            order([1_000, 2, 0], 500.0),
            [("seldom".into(), 500.0), ("often".into(), 100.0)]
        );
        assert_eq!(
            order([1_000, 2, 0], 900.0),
            [("often".into(), 100.0), ("seldom".into(), 500.0)]
        );
    }
}
