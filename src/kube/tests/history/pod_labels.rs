//! Labels of pods and of their workloads on the series of pods in a history (`--pod-workload-labels`).
//!
//! In a scrape all series of a pod have the same of these labels: those of the state of the pod that is shown, and those of
//! the state of its job that the same scrape shows. Without them the series are compared like any others.

use std::collections::BTreeMap;

use super::accounts::Accounts;
use super::cluster::{Kind, Object};
use crate::kube::workloads::PodLabels;

/// The labels, as the flag states them.
const FLAG: &str = "workload,workload_type,labels=[state],pod_labels=[state]";

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

/// Takes the labels off the series of pods, and compares them with the pods and jobs of the same scrape.
///
/// # Errors
/// Describes the difference.
pub fn separate(states: &mut Vec<&str>, accounts: &Accounts) -> Result<Vec<String>, String> {
    // The UID of a job in a state tells it from others of the same name.
    let lines = states.iter().copied();
    let jobs: BTreeMap<&str, &str> = lines.filter_map(|line| job(line, accounts)).collect();
    let (mut pods, mut others): (BTreeMap<&str, Pod<'_>>, Vec<String>) = Default::default();
    for line in states.extract_if(.., |line| Kind::of_line(line) == Some(Kind::Pod)) {
        let (uid, before, labels, rest) =
            split(line).ok_or_else(|| format!("a pod without a UID: {line}"))?;
        let pod = pods.entry(uid).or_default();
        pod.labels.push(labels);
        pod.state = pod.state.or_else(|| state(rest));
        others.push(format!("{before}{rest}"));
    }
    for (uid, pod) in pods {
        let Some((account, state)) = accounts.get(uid).zip(pod.state) else { continue };
        let of_workload = workload(&account.object, &jobs, accounts);
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
    let own = [",label_state=", ",phase="].into_iter().filter_map(|name| after.find(name)).min()?;
    let (labels, rest) = after.split_at(own);
    Some((&line[start..end], before, labels, rest))
}

/// Returns the labels of a pod's workload, if it is known.
fn workload(pod: &Object, jobs: &BTreeMap<&str, &str>, accounts: &Accounts) -> String {
    let named = |name: &str, kind: &str| {
        let kind = kind.to_lowercase();
        format!(",workload=\"{name}\",workload_type=\"{kind}\"")
    };
    match pod.owner() {
        None => named(&pod.name, "barepod"),
        Some(("Job", name)) => {
            let uid = pod.owner_uid().unwrap_or_default();
            let Some((state, job)) = jobs.get(&*uid).zip(accounts.get(&uid)) else {
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
