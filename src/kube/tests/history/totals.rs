//! The totals of namespaces and the counters of events, and the comparison of the former with the pods of the same scrape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::accounts::{Account, Accounts};
use super::cluster::{Cluster, Kind};
use super::completed::Dropped;
use super::ledger::shows_uid;
use super::status::End;
use crate::cache::Catalog;
use crate::kube::WatchedResource;
use crate::kube::shard::Shard;
use crate::kube::workloads::ledger::{LedgerOptions, RESOURCES, SharedLedger};
use crate::kube::workloads::{FAMILIES, PodLabels, Subject, WorkloadOptions, Workloads};
use crate::pods::PodIndex;
use crate::telemetry::KubeMetrics;

/// Returns totals over the pods of namespaces, and counters of events, which are kept for `retention` after the end of a
/// workload. Pods are also entered into the index of senders, with the workload of their owners if it `resolves`
/// these, and otherwise the one that the names of these imply. Their series get these labels. There are at most `max_series` of rows, if it is not 0.
pub fn namespace_totals(
    catalog: &Catalog,
    metrics: &KubeMetrics,
    (senders, resolves): (Option<&Arc<PodIndex>>, bool),
    retention: Duration,
    pod_labels: PodLabels,
    max_series: u64,
) -> (Workloads, Arc<SharedLedger>) {
    let subjects = [Subject::Namespace, Subject::Pod];
    let families = FAMILIES
        .iter()
        .filter(|family| subjects.contains(&family.subject) || family.name == WORKLOADS);
    let counted = RESOURCES.iter().flat_map(|resource| resource.families).map(|family| family.name);
    let ledger =
        LedgerOptions { families: counted.collect(), retention, ..LedgerOptions::default() };
    let families = families.collect();
    let is_partial = senders.is_some() && !resolves;
    let options =
        WorkloadOptions { families, ledger, is_partial, pod_labels, max_series, may_change: true };
    let ledger = SharedLedger::new(&options.ledger, catalog, metrics);
    (Workloads::new(&options, catalog, metrics, &ledger, senders, Shard::ALL), ledger)
}

/// Observes the resources of these kinds, and no others: the cluster does not have all owners of pods.
pub fn attach(workloads: &Workloads, resources: &mut Vec<WatchedResource>, kinds: &[Kind]) {
    workloads.attach(resources);
    resources.retain(|resource| kinds.iter().any(|kind| kind.plural() == resource.api.plural));
}

/// The family with a series for each workload.
const WORKLOADS: &str = "kstatd_workload_info";

/// The family with a series for each reason for which containers wait.
const WAITING: &str = "kstatd_namespace_pods_waiting{";

/// The largest number of series of a namespace.
const MAX_NAMESPACE_SERIES: u64 = 20;

/// The lines of a scrape by subject, without comments.
#[derive(Default)]
pub struct Lines<'b> {
    /// The states of objects.
    pub states: Vec<&'b str>,
    /// The totals of namespaces.
    pub totals: Vec<&'b str>,
    /// The workloads of pods.
    pub rows: Vec<&'b str>,
    /// The series of workloads.
    pub workloads: Vec<&'b str>,
    /// The counters of events.
    pub counters: Vec<&'b str>,
}

impl<'b> Lines<'b> {
    pub fn of(body: &'b str) -> Self {
        let mut lines = Self::default();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            match line {
                _ if line.starts_with("kstatd_namespace_") => lines.totals.push(line),
                _ if line.starts_with("kstatd_pod_workload_info{") => lines.rows.push(line),
                _ if line.starts_with(WORKLOADS) => lines.workloads.push(line),
                _ if line.starts_with("kstatd_") => lines.counters.push(line),
                _ => lines.states.push(line),
            }
        }
        lines
    }

    /// Returns the number of series that have a budget of their own.
    fn budgeted(&self) -> u64 {
        (self.totals.len() + self.rows.len() + self.workloads.len()) as u64
    }
}

/// Returns the value of a label.
fn label<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// Returns the numbers of pods that have certainly lost their series, by namespace and phase. Totals count them.
fn certainly_dropped(cluster: &Cluster, dropped: Dropped) -> BTreeMap<(String, String), f64> {
    let mut counts: BTreeMap<(String, String), f64> = BTreeMap::new();
    let pods = cluster.of_kind(Kind::Pod);
    for pod in pods {
        let is_dropped = |end: &End| dropped.has_certainly(pod.ended(), end.at);
        let Some(end) = pod.status.end.filter(is_dropped) else { continue };
        let key = (pod.scope.namespace.to_owned(), end.phase.to_owned());
        *counts.entry(key).or_default() += 1.0;
    }
    counts
}

/// Returns the number of pods of a namespace that have ended in this phase, may have lost their series, and are not certainly known to
/// be gone.
fn possibly_dropped(
    accounts: &Accounts,
    dropped: Dropped,
    (namespace, phase): &(String, String),
) -> usize {
    let pods = accounts.of_kind(Kind::Pod).map(|(_, account)| account);
    let of_namespace = pods.filter(|pod| pod.object.scope.namespace == namespace);
    let of_phase = of_namespace.filter(|pod| pod.status.end.is_some_and(|end| end.phase == phase));
    let is_gone = |pod: &&Account| {
        !pod.is_present && pod.removed_at.is_some_and(|at| dropped.certainly_knows(at))
    };
    of_phase.filter(|pod| !is_gone(pod)).count()
}

/// The reasons for which totals and workloads may differ from the pods of the same scrape.
#[derive(Clone, Copy)]
pub struct Differences {
    /// The shard that has them.
    pub shard: Shard,
    /// The completed pods that have lost their series, if any do. Totals still count them.
    pub dropped: Option<Dropped>,
    /// The largest number of series; without a limit 0.
    pub max_series: u64,
    /// Budgets leave out objects, but not their workloads.
    pub are_left_out: bool,
}

/// Checks that each pod of a shard that has existed since `since` has a workload. There are at most `max_series` of rows, if it is not 0.
///
/// # Errors
/// Names a pod without one.
pub fn check_rows(
    lines: &Lines<'_>,
    accounts: &Accounts,
    (shard, max_series): (Shard, u64),
    since: Instant,
) -> Result<(), String> {
    let series = lines.budgeted();
    if max_series > 0 && series >= max_series {
        return Ok(());
    }
    let rows = uids(&lines.rows, "kstatd_pod_workload_info{");
    let has_row = |uid: &String, account: &Account| {
        let is_there = account.is_present && account.removals == 0 && account.created_at < since;
        !is_there || account.workload.is_none() || !shows_uid(shard, uid) || rows.contains(uid)
    };
    match accounts.of_kind(Kind::Pod).find(|(uid, account)| !has_row(uid, account)) {
        Some((uid, _)) => Err(format!("{uid} has no workload beside pods that are left out")),
        None => Ok(()),
    }
}

/// Checks that each job that belongs to nothing is a workload, and that each workload of this type is such a job or has pods.
///
/// # Errors
/// Names a job or workload.
fn compare_jobs(
    lines: &Lines<'_>,
    accounts: &Accounts,
    may_miss: bool,
    are_left_out: bool,
) -> Result<(), String> {
    let of_lines = |lines: &[&'_ str], name: &str, job: &str| -> BTreeSet<(String, String)> {
        let lines = lines.iter().filter(|line| line.starts_with(name));
        let names = lines.filter_map(|line| Some((label(line, "namespace")?, label(line, job)?)));
        names.map(|(namespace, job)| (namespace.to_owned(), job.to_owned())).collect()
    };
    let is_of_job = |line: &&&str| line.contains("workload_type=\"job\"");
    let of_jobs = |lines: &[&'_ str]| {
        let lines: Vec<&str> = lines.iter().filter(is_of_job).copied().collect();
        of_lines(&lines, "", "workload")
    };
    let (workloads, with_pods) = (of_jobs(&lines.workloads), of_jobs(&lines.rows));
    let jobs = of_lines(&lines.states, "kube_job_info{", "job_name");
    let of_accounts = accounts.of_kind(Kind::Job).map(|(_, account)| &account.object);
    let alone = of_accounts.filter(|job| job.owner().is_none());
    let alone: BTreeSet<(&str, &str)> =
        alone.map(|job| (job.scope.namespace, &*job.name)).collect();
    let mut missing = jobs.difference(&workloads);
    let missing = missing.find(|(namespace, name)| alone.contains(&(namespace, name)));
    if let Some(job) = missing.filter(|_| !may_miss) {
        return Err(format!("the job {job:?} is no workload"));
    }
    match workloads.difference(&jobs).find(|workload| !with_pods.contains(*workload)) {
        Some(workload) if !are_left_out => {
            Err(format!("{workload:?} is a workload, but neither a job nor one of a pod"))
        }
        _ => Ok(()),
    }
}

/// Returns the UIDs of the lines with this beginning.
fn uids(lines: &[&str], name: &str) -> BTreeSet<String> {
    let of_pods = lines.iter().filter(|line| line.starts_with(name));
    of_pods.filter_map(|line| label(line, "uid")).map(str::to_owned).collect()
}

/// Compares totals and workloads with the pods of the same scrape.
///
/// # Errors
/// Describes the difference.
pub fn compare(
    lines: &Lines<'_>,
    cluster: &Cluster,
    Differences { shard, dropped, max_series, are_left_out }: Differences,
) -> Result<(), String> {
    let accounts = &cluster.accounts;
    let is_empty = |line: &&&str| line.starts_with(WAITING) && line.ends_with(" 0");
    if let Some(line) = lines.totals.iter().find(is_empty) {
        return Err(format!("no pod waits for this reason any more: {line}"));
    }
    let series = lines.budgeted();
    // A row that fits into the room that is left has been taken.
    let may_miss = |row: u64| max_series > 0 && series + row > max_series;
    let count = |lines: &[&str], name: &str| {
        let mut sums: BTreeMap<(String, String), f64> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.starts_with(name)) {
            let (Some(namespace), Some(phase)) = (label(line, "namespace"), label(line, "phase"))
            else {
                continue;
            };
            let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok());
            *sums.entry((namespace.to_owned(), phase.to_owned())).or_default() +=
                value.unwrap_or(f64::NAN);
        }
        sums
    };
    let (have, mut want) = (
        count(&lines.totals, "kstatd_namespace_pods{"),
        count(&lines.states, "kube_pod_status_phase{"),
    );
    want.retain(|(namespace, _), _| shows_uid(shard, namespace));
    let least = dropped.map(|dropped| certainly_dropped(cluster, dropped)).unwrap_or_default();
    if dropped.is_some() {
        // A namespace may have no other pods.
        let of_shard = least.keys().filter(|(namespace, _)| shows_uid(shard, namespace));
        for key in have.keys().chain(of_shard) {
            want.entry(key.clone()).or_default();
        }
    }
    if may_miss(MAX_NAMESPACE_SERIES) {
        want.retain(|key, _| have.contains_key(key));
    }
    let are_equal = have.keys().eq(want.keys())
        && have.iter().all(|(key, have)| {
            let least = least.get(key).copied().unwrap_or_default();
            let most = dropped.map_or(0, |dropped| possibly_dropped(accounts, dropped, key)) as f64;
            (least..=most).contains(&(have - want[key]))
        });
    if !are_equal {
        return Err(format!("totals {have:?}, pods {want:?}, at least {least:?} without series"));
    }
    if shard == Shard::ALL {
        compare_jobs(lines, accounts, may_miss(1), are_left_out)?;
    }
    let rows = uids(&lines.rows, "kstatd_pod_workload_info{");
    let mut pods = uids(&lines.states, "kube_pod_labels{");
    pods.retain(|uid| shows_uid(shard, uid));
    if let Some(uid) = rows.difference(&pods).next() {
        return Err(format!("{uid} has a workload, but is no pod of {shard:?}"));
    }
    // The owners of some pods are not watched.
    let is_known = |uid: &&String| accounts.get(uid).is_some_and(|one| one.workload.is_some());
    match pods.difference(&rows).find(is_known) {
        Some(uid) if !may_miss(1) => {
            Err(format!("{uid} has no workload, {series} series of {max_series}"))
        }
        _ => Ok(()),
    }
}
