//! A snapshot of the pipeline's state: the single source for own metrics, `/readyz?verbose` and the status page.
//!
//! [`PipelineSnapshot`] is assembled on request ([`PipelineHandle::snapshot`](super::PipelineHandle::snapshot)) from
//! counters that list/watches maintain anyway, so it costs nothing between requests.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::follow::progress::{Failure, ListWatch, Totals};
use crate::exposition::family::{Family, FamilyRow, Kind, Series, family_rows};
use crate::telemetry::kube::Reason;
use crate::util::work_counter;

/// The state of the pipeline at one moment.
#[derive(Clone, Debug)]
pub struct PipelineSnapshot {
    /// All list/watches: kinds in configuration order, namespaces in flag order.
    pub lists: Vec<ListWatch>,
    /// True once every list/watch has been complete or was denied by the server.
    pub ready: bool,
    /// Kinds to which the latest configuration is not applied yet.
    pub pending: Arc<[String]>,
    /// Configured namespaces that did not exist when the API server was asked.
    pub missing_namespaces: Vec<String>,
}

/// The exposed list/watches of one kind, one for each namespace.
#[derive(Clone, Debug)]
pub struct KindSnapshot<'f> {
    /// The plural for a built-in kind, `plural.version.group` for a custom one.
    pub name: String,
    /// The list/watches; never empty.
    pub lists: Vec<&'f ListWatch>,
    /// True if some list/watch of any kind works.
    server_works: bool,
}

/// The severity of the problem of one list/watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Objects are exposed as of the last success.
    Stale,
    /// The first list has not completed, and no request has failed.
    Unlisted,
    /// The first list has failed.
    Missing,
    /// The objects were dropped after `--staleness-limit`.
    GivenUp,
}

impl PipelineSnapshot {
    /// Returns the exposed kinds, sorted by name.
    pub fn kinds(&self) -> Vec<KindSnapshot<'_>> {
        let mut kinds: BTreeMap<String, Vec<&ListWatch>> = BTreeMap::new();
        for list in self.lists.iter().filter(|list| list.shown) {
            kinds.entry(list.api.name()).or_default().push(list);
        }
        let server_works = self.is_server_working();
        let kind = |(name, lists)| KindSnapshot { name, lists, server_works };
        kinds.into_iter().map(kind).collect()
    }

    /// Returns whether some list/watch works, so that a 404 for another one concerns its kind.
    pub(crate) fn is_server_working(&self) -> bool {
        self.lists.iter().any(|list| list.status.failure.is_none() && list.status.is_complete())
    }

    /// Returns the own metrics of all exposed list/watches.
    pub(super) fn families(&self) -> impl Iterator<Item = Family> {
        // A namespace that is configured twice has two list/watches.
        let mut lists: BTreeMap<(&str, String), Vec<&ListWatch>> = BTreeMap::new();
        for list in self.lists.iter().filter(|list| list.shown) {
            let namespace = list.status.namespace.as_deref().unwrap_or_default();
            lists.entry((namespace, list.api.unique_label())).or_default().push(list);
        }
        GAUGES.iter().map(move |&FamilyRow { name, help, kind, value }| {
            let series = lists.iter().map(|((namespace, resource), lists)| {
                Series::new(&[("namespace", namespace), ("resource", resource)], value(lists))
            });
            Family { name, help, kind, series: series.collect() }.sorted()
        })
    }
}

/// Returns the namespaces without objects. One that was missing and was created later has some.
pub(super) fn without_objects(mut namespaces: Vec<String>, lists: &[ListWatch]) -> Vec<String> {
    let mut occupied = HashSet::new();
    // Once for all namespaces, of which there may be as many as list/watches.
    for ListWatch { status, .. } in lists {
        work_counter::add(1);
        occupied.extend(status.namespace.as_deref().filter(|_| status.objects > 0));
    }
    namespaces.retain(|namespace| !occupied.contains(namespace.as_str()));
    namespaces
}

/// The name of the family of [`object_totals`].
const OBJECT_TOTALS: &str = "kstatd_kube_objects";

/// Returns whether [`PipelineSnapshot::families`] or [`object_totals`] have a family with this name.
pub(super) fn is_own_name(name: &str) -> bool {
    name == OBJECT_TOTALS || GAUGES.iter().any(|row| row.name == name)
}

/// Returns the metric that counts the objects of each kind and namespace, including those rejected by a budget.
pub(super) fn object_totals(all: &[Totals]) -> Family {
    let mut metrics: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for Totals { resource, shown, rejected } in all {
        let rejected = rejected.iter().map(|(namespace, count)| (namespace, count));
        for (namespace, count) in shown.iter().chain(rejected) {
            let namespace = String::from_utf8_lossy(namespace).into_owned();
            *metrics.entry((namespace, resource)).or_default() += count;
        }
    }
    let series = metrics.iter().map(|((namespace, resource), count)| {
        Series::new(&[("namespace", namespace), ("resource", resource)], *count as f64)
    });
    Family {
        name: OBJECT_TOTALS,
        help: "Objects in each namespace, including those without series because of a budget.",
        kind: Kind::Gauge,
        series: series.collect(),
    }
    .sorted()
}

/// A family with the function that returns its value.
type Row = FamilyRow<fn(&[&ListWatch]) -> f64>;

/// Metrics with the labels `namespace` (a configured namespace, or empty for all) and `resource`.
const GAUGES: &[Row] = family_rows! {
    Gauge "kstatd_kubernetes_objects", "Exposed objects.":
        |lists| total(lists, |list| list.status.objects as u64);
    Gauge "kstatd_kubernetes_left_out_objects",
        "Objects without series because of a budget (--limit.series-per-kind).":
        |lists| total(lists, |list| list.rejected);
    Gauge "kstatd_kubernetes_series", "Series of the exposed objects.":
        |lists| total(lists, |list| list.size.series);
    Gauge "kstatd_kubernetes_bytes", "Uncompressed size of these series in a scrape.":
        |lists| total(lists, |list| list.size.bytes);
    Gauge "kstatd_kubernetes_synced",
        "1 while a complete state is exposed, of any age; 0 before the first list and after the objects were dropped.":
        |lists| f64::from(lists.iter().all(|list| list.status.is_complete()));
    Gauge "kstatd_kubernetes_last_list_success_timestamp_seconds",
        "Unix time of the last complete list, 0 for never.":
        |lists| earliest(lists, |list| list.status.listed);
    Gauge "kstatd_kubernetes_last_heard_timestamp_seconds",
        "Unix time of the last response of the API server, including errors; 0 for never.":
        |lists| earliest(lists, |list| list.status.heard);
};

fn total(lists: &[&ListWatch], of: fn(&ListWatch) -> u64) -> f64 {
    lists.iter().map(|list| of(list)).sum::<u64>() as f64
}

/// Returns the earliest of the times, in seconds of Unix time; 0 if there is none for a list/watch.
fn earliest(lists: &[&ListWatch], of: fn(&ListWatch) -> Option<SystemTime>) -> f64 {
    let times = lists.iter().map(|list| of(list).unwrap_or(UNIX_EPOCH));
    let since = times.min().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.unwrap_or_default().as_secs_f64()
}

impl KindSnapshot<'_> {
    /// Describes the most severe problem of its list/watches. Contains neither server messages nor namespaces: not every
    /// reader is allowed to see those.
    pub fn problem(&self) -> Option<String> {
        let present = self.lists.iter().filter(|list| !(self.server_works && is_absent(list)));
        let all = present.filter_map(|list| problem_of(list));
        let (affected, total) = (all.clone().count(), self.lists.len());
        // Bugs in this program come last.
        let rank = |failure: &Failure| (failure.reason.is_none(), failure.reason);
        let (severity, failure) =
            all.max_by_key(|(severity, failure)| (*severity, failure.map(rank)))?;
        let cause = |failure: &Failure| failure.reason.map_or("fault", Reason::as_str);
        let mut text = failure.map_or("not listed yet", cause).to_owned();
        let since = failure.and_then(|failure| jiff::Timestamp::try_from(failure.since).ok());
        text += &since.map_or(String::new(), |since| format!(" since {since:.0}"));
        text += match severity {
            Severity::Stale | Severity::Unlisted => "",
            Severity::Missing => ", never listed",
            Severity::GivenUp => ", no longer shown",
        };
        if total != 1 {
            text += &format!(", in {affected} of {total} namespaces");
        }
        Some(text)
    }

    /// Returns true if all its list/watches are running. One that is not has panicked and will be restarted.
    pub fn is_running(&self) -> bool {
        self.lists.iter().all(|list| !list.status.stopped)
    }
}

/// Returns whether the API server, if it works, lacks the kind: an older release, or an API that it does not enable.
pub(crate) fn is_absent(list: &ListWatch) -> bool {
    let reason = list.status.failure.as_ref().and_then(|failure| failure.reason);
    reason == Some(Reason::NotFound) && list.status.listed.is_none()
}

fn problem_of(list: &ListWatch) -> Option<(Severity, Option<&Failure>)> {
    let status = &list.status;
    let severity = match &status.failure {
        None if status.is_complete() => return None,
        None => Severity::Unlisted,
        Some(_) if status.given_up => Severity::GivenUp,
        Some(_) if status.listed.is_none() => Severity::Missing,
        Some(_) => Severity::Stale,
    };
    Some((severity, status.failure.as_ref()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cache::Size;
    use crate::kube::{ApiResource, Phase, Status};

    /// Returns a list/watch of a custom kind in a namespace.
    pub(crate) fn list_watch(plural: &str, namespace: &str, objects: usize) -> ListWatch {
        let status = Status {
            resource: plural.to_owned(),
            namespace: Some(namespace.to_owned()),
            phase: Phase::Watching,
            listed: Some(SystemTime::now()),
            heard: Some(SystemTime::now()),
            encoding: None,
            objects,
            coming: 0,
            failure: None,
            given_up: false,
            stopped: false,
        };
        let api = ApiResource {
            group: "example.io".to_owned(),
            version: "v1".to_owned(),
            plural: plural.to_owned(),
            kind: String::new(),
            list_kind: String::new(),
            namespaced: true,
            protobuf: false,
            label: String::new(),
        };
        let (selectors, size, errors) = (None, Size::default(), Vec::new());
        ListWatch { status, api, selectors, size, events: 0, errors, shown: true, rejected: 0 }
    }

    #[test]
    fn missing_namespaces_are_found_in_one_pass() {
        let names: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
        let mut lists: Vec<ListWatch> =
            names.iter().map(|name| list_watch("as", name, 0)).collect();
        lists.push(list_watch("bs", "n7", 1));
        work_counter::take();
        let missing = without_objects(names.clone(), &lists);
        assert_eq!(work_counter::take(), 1_001);
        assert!(missing.len() == 999 && !missing.contains(&"n7".to_owned()));
    }
}
