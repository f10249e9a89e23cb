//! Labels of pods and of their workloads on the series of pods in a history (`--pod-workload-labels`).
//!
//! In a scrape all series of a pod have the same of these labels: those of the state of the pod that is shown, and those of
//! the state of its job that the same scrape shows, or of any state of a job of another shard. So have the pod's own counters.
//! Without the labels the series are compared like any others.

use std::collections::BTreeMap;

use super::accounts::Accounts;
use super::cluster::{Kind, Object};
use super::object_shards::ExposedShards;
use crate::cache::fnv1a64;
use crate::kube::workloads::PodLabels;

/// The labels, as the flag states them.
const FLAG: &str = "workload,workload_type,labels=[state],pod_labels=[state]";

/// The counter that pods have of their own.
const COUNTER: &str = "kstatd_pod_container_terminations_total{";

/// Returns the labels of histories with or without them.
pub fn selected(is_on: bool) -> PodLabels {
    PodLabels::parse(if is_on { FLAG } else { "" }).expect("a valid flag")
}

/// The series of one pod in a scrape.
#[derive(Default)]
struct Pod<'b> {
    /// The labels of each series.
    labels: Vec<&'b str>,
    /// The number of the state that it is in.
    state: Option<&'b str>,
}

/// The jobs of a scrape.
struct Jobs<'b> {
    /// The number of the state of each, by UID.
    states: BTreeMap<&'b str, &'b str>,
    /// The shards whose jobs these are, if they are not those of all.
    shards: Option<ExposedShards>,
}

impl<'b> Jobs<'b> {
    /// Returns the number of the state of a job, if it is known. That of one of another shard is the one in the labels of its pod, if
    /// these have one.
    fn state(&self, uid: &str, of_pod: &'b str, accounts: &Accounts) -> Option<&'b str> {
        if self.shards.is_none_or(|shards| shards.show(fnv1a64(uid.as_bytes()))) {
            return self.states.get(uid).copied();
        }
        if !of_pod.contains(",workload=") {
            return None;
        }
        let Some((_, rest)) = of_pod.split_once(",workload_label_state=\"") else {
            return Some("");
        };
        let state = rest.split_once('"')?.0;
        (accounts.state(state.parse().ok()?)?.0 == uid).then_some(state)
    }
}

/// Takes the labels off the series of pods, and compares them, and those of the pods' `counters`, with the pods and jobs of the same
/// scrape, which shows those of these shards.
///
/// # Errors
/// Describes the difference.
pub fn separate(
    states: &mut Vec<&str>,
    counters: &[&str],
    accounts: &Accounts,
    shards: Option<ExposedShards>,
) -> Result<Vec<String>, String> {
    // The UID of a job in a state tells it from others of the same name.
    let lines = states.iter().copied();
    let of_jobs = lines.filter_map(|line| job(line, accounts)).collect();
    let jobs = Jobs { states: of_jobs, shards };
    let (mut pods, mut others): (BTreeMap<&str, Pod<'_>>, Vec<String>) = Default::default();
    for line in states.extract_if(.., |line| Kind::of_line(line) == Some(Kind::Pod)) {
        let (uid, before, labels, rest) =
            split(line).ok_or_else(|| format!("a pod without a UID: {line}"))?;
        let pod = pods.entry(uid).or_default();
        pod.labels.push(labels);
        pod.state = pod.state.or_else(|| state(rest));
        others.push(format!("{before}{rest}"));
    }
    for line in counters.iter().filter(|line| line.starts_with(COUNTER)) {
        if let Some((uid, _, labels, _)) = split(line)
            && let Some(pod) = pods.get_mut(uid)
        {
            pod.labels.push(labels);
        }
    }
    for (uid, pod) in pods {
        let Some((account, state)) = accounts.get(uid).zip(pod.state) else { continue };
        let of_workload = workload(&account.object, (&jobs, pod.labels[0]), accounts);
        let wanted = format!(",pod_label_state=\"{state}\"{of_workload}");
        if let Some(other) = pod.labels.iter().find(|labels| **labels != wanted) {
            return Err(format!("{uid} has the labels {other}, not {wanted}"));
        }
    }
    Ok(others)
}

/// Returns the UID of the job of a series, and the number of the state that it is in.
fn job<'a>(line: &'a str, accounts: &'a Accounts) -> Option<(&'a str, &'a str)> {
    let state = state(line.strip_prefix("kube_job_labels{")?)?;
    let (uid, _) = accounts.state(state.parse().ok()?)?;
    Some((uid, state))
}

/// Returns the value of the label that the number of a state is.
fn state(labels: &str) -> Option<&str> {
    let (_, rest) = labels.split_once(",label_state=\"")?;
    Some(rest.split_once('"')?.0)
}

/// Returns the UID of a pod, its series up to that, the labels after it that are not of the family, and the rest.
fn split(line: &str) -> Option<(&str, &str, &str, &str)> {
    let start = line.find("uid=\"")? + "uid=\"".len();
    let end = start + line[start..].find('"')?;
    let (before, after) = line.split_at(end + 1);
    let own = [",label_state=", ",phase=", ",container="]
        .into_iter()
        .filter_map(|name| after.find(name))
        .min()?;
    let (labels, rest) = after.split_at(own);
    Some((&line[start..end], before, labels, rest))
}

/// Returns the labels of a pod's workload, if it is known. A series of the pod has the labels `shown`.
fn workload<'b>(pod: &Object, (jobs, shown): (&Jobs<'b>, &'b str), accounts: &Accounts) -> String {
    let named = |name: &str, kind: &str| {
        let kind = kind.to_lowercase();
        format!(",workload=\"{name}\",workload_type=\"{kind}\"")
    };
    match pod.owner() {
        None => named(&pod.name, "barepod"),
        Some(("Job", name)) => {
            let uid = pod.owner_uid().unwrap_or_default();
            let state = jobs.state(&uid, shown, accounts);
            let Some((state, job)) = state.zip(accounts.get(&uid)) else {
                return String::new();
            };
            match job.object.owner() {
                None => format!("{},workload_label_state=\"{state}\"", named(&name, "job")),
                Some((kind, name)) => named(&name, kind),
            }
        }
        Some((kind, name)) => named(&name, kind),
    }
}
