//! The events of one pod: terminations of its containers, and its end.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashSet;
use tokio::time::Instant;

use super::containers::ContainerRecord;
use super::counters::Owner;
use super::families::{FINISHED, POD_TERMINATIONS, TERMINATIONS};
use super::objects::Past;
use super::totals::{Totals, WorkloadOwner};
use crate::kube::observed::{Metadata, Pod};
use crate::kube::workloads::objects::Workload;
use crate::resources::kinds::pods::{ContainerStatus, Terminated};

/// The reasons of terminations whose counters exist from the first pod of a workload.
const USUAL_TERMINATIONS: [&str; 3] = ["Completed", "Error", "OOMKilled"];
/// The same for the ends of pods.
const USUAL_ENDS: [&str; 3] = ["Evicted", "Failed", "Succeeded"];

/// The reason of what happened unseen.
pub(super) const UNKNOWN: &str = "unknown";
/// The reason of the end of an object that was deleted before it had finished.
pub(super) const DELETED: &str = "Deleted";

/// The part of a pod's past that has been counted.
#[derive(Debug, Default)]
pub(super) struct PodRecord {
    /// The pod's own counters, once it has any.
    owner: Option<Owner>,
    /// The labels of the pod and of its workload on the pod's own counters, rendered.
    labels: Box<[u8]>,
    /// The counters of its workload, once that is known. They remain known when the pod is gone.
    workload: Option<WorkloadOwner>,
    /// It counts as a pod of the workload.
    is_member: bool,
    names: Box<[Arc<str>]>,
    /// The containers that have terminated.
    containers: BTreeMap<Arc<str>, ContainerRecord>,
    is_finished: bool,
    /// The reason why the pod is about to end.
    ending: Option<Box<str>>,
    /// The events before the workload was known, and how often each has happened.
    pending: BTreeMap<Event, u64>,
    /// `resets` of the totals when the usual counters were created.
    declared: Option<u32>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Termination { container: Arc<str>, reason: Box<str>, exit_code: Option<i32> },
    End { reason: Box<str> },
}

impl PodRecord {
    /// Takes the next state of the pod. `is_news` states whether what it reports has just happened. `known` are the names of
    /// containers.
    pub(super) fn observe(
        &mut self,
        pod: &Pod<'_>,
        is_news: bool,
        known: &mut HashSet<Arc<str>>,
        totals: &mut Totals,
    ) {
        let status = &pod.status;
        let containers = || {
            let started = status.init_container_statuses.iter().chain(&status.container_statuses);
            started.chain(&status.ephemeral_container_statuses)
        };
        let names = || {
            let specified = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            let attached = status.ephemeral_container_statuses.iter().map(|status| &status.name);
            specified.map(|container| &container.name).chain(attached)
        };
        if !names().map(|name| &**name).eq(self.names.iter().map(|name| &**name)) {
            self.names = names().map(|name| intern(known, name)).collect();
            self.declared = None;
        }
        for status in containers() {
            self.observe_container(status, is_news, known);
        }
        let disruption = status.conditions.iter().find(|condition| {
            &*condition.kind == "DisruptionTarget" && &*condition.status == "True"
        });
        let disruption = disruption.map(|condition| named(&condition.reason));
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        let ending = disruption.or(is_deleted.then_some(DELETED));
        if self.ending.as_deref() != ending {
            self.ending = ending.map(Box::from);
        }
        if !self.is_finished && status.is_finished() {
            let reason = Some(&*status.reason).filter(|reason| !reason.is_empty());
            let reason = reason.map(named).or(ending).unwrap_or(&status.phase);
            self.is_finished = true;
            if is_news {
                self.pending.insert(Event::End { reason: reason.into() }, 1);
            }
        }
        if self.owner.is_none() && !self.pending.is_empty() {
            let Metadata { namespace, name, uid, .. } = &pod.metadata;
            self.owner = Some(totals.of_pods.owner(&[namespace, name, uid]));
        }
        self.settle(totals);
    }

    fn observe_container(
        &mut self,
        status: &ContainerStatus<'_>,
        is_news: bool,
        names: &mut HashSet<Arc<str>>,
    ) {
        let known = self.containers.get(&*status.name);
        let mut record = known.cloned().unwrap_or_default();
        let pending = &mut self.pending;
        record.observe(status, |terminated, count| {
            if is_news {
                let container = intern(names, &status.name);
                let reason = terminated.map_or(UNKNOWN, reason).into();
                let exit_code = terminated.map(|terminated| terminated.exit_code);
                let event = Event::Termination { container, reason, exit_code };
                *pending.entry(event).or_default() += u64::from(count);
            }
        });
        if known.map_or(record != ContainerRecord::default(), |known| *known != record) {
            self.containers.insert(intern(names, &status.name), record);
        }
    }

    /// Counts the pod as one of its workload.
    pub(super) fn assign(&mut self, workload: &Workload, totals: &mut Totals, now: Instant) {
        let owner = totals.owner(workload);
        if self.is_member && self.workload.as_ref() == Some(&owner) {
            return self.settle(totals);
        }
        totals.enter(&owner, now);
        let old = self.workload.replace(owner);
        if let Some(old) = old.filter(|_| std::mem::replace(&mut self.is_member, true)) {
            totals.leave(&old, now);
        }
        self.is_member = true;
        self.declared = None;
        self.settle(totals);
    }

    /// Returns the counters of its workload, if that is or was known.
    pub(super) fn workload(&self) -> Option<&WorkloadOwner> {
        self.workload.as_ref()
    }

    /// Counts the pending events, if the workload is known.
    pub(super) fn settle(&mut self, totals: &mut Totals) {
        let Some(workload) = &self.workload else { return };
        let (is_counted, is_shown) = totals.serves(workload);
        if self.declared != Some(totals.resets) {
            self.declared = Some(totals.resets);
            let each = self.names.iter().flat_map(|name| {
                USUAL_TERMINATIONS.map(|reason| (TERMINATIONS, vec![&**name, reason], 0))
            });
            let ends = USUAL_ENDS.map(|reason| (FINISHED, vec![reason], 0));
            totals.add(workload, each.chain(ends));
        }
        if self.pending.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.pending);
        let of_workload = events.iter().map(|(event, count)| match event {
            Event::Termination { container, reason, .. } => {
                (TERMINATIONS, vec![&**container, &**reason], *count)
            }
            Event::End { reason } => (FINISHED, vec![&**reason], *count),
        });
        totals.add(workload, of_workload);
        let Some(owner) = self.owner.as_ref().filter(|_| is_counted) else { return };
        for (event, count) in &events {
            let Event::Termination { container, reason, exit_code } = event else { continue };
            let exit_code = exit_code.map(|code| code.to_string()).unwrap_or_default();
            let values = [container, &**reason, &exit_code];
            totals.of_pods.add(owner, POD_TERMINATIONS, &values, *count);
        }
        if is_shown {
            totals.of_pods.publish_with(owner, &self.labels);
        }
    }

    /// Replaces the labels on the pod's own counters.
    pub(super) fn relabel(&mut self, labels: &[u8], Totals { of_pods: counters, .. }: &mut Totals) {
        if *self.labels == *labels {
            return;
        }
        self.labels = labels.into();
        if let Some(owner) = self.owner.as_ref().filter(|owner| counters.shows(owner)) {
            counters.publish_with(owner, labels);
        }
    }

    /// Shows or hides the pod's own counters after a change of the shard or of the budget.
    pub(super) fn reshard(&self, totals: &mut Totals) {
        let (Some(workload), Some(owner)) = (&self.workload, &self.owner) else { return };
        match totals.serves(workload) {
            (true, true) => totals.of_pods.publish_with(owner, &self.labels),
            (true, false) => totals.of_pods.hide(owner),
            (false, _) => totals.of_pods.remove(owner),
        }
    }
}

impl Past for PodRecord {
    type Totals = Totals;

    fn end(&mut self, unseen: bool, totals: &mut Totals) {
        if !std::mem::replace(&mut self.is_finished, true) {
            let reason = self.ending.clone();
            let reason = reason.unwrap_or_else(|| if unseen { UNKNOWN } else { DELETED }.into());
            self.pending.insert(Event::End { reason }, 1);
        }
        self.settle(totals);
    }

    /// Takes the pod out of its workload and removes its own counters.
    fn leave(&mut self, totals: &mut Totals, now: Instant) {
        if let Some(workload) = self.workload.as_ref().filter(|_| self.is_member) {
            totals.leave(workload, now);
        }
        self.is_member = false;
        if let Some(owner) = self.owner.take() {
            totals.of_pods.remove(&owner);
        }
        self.declared = None;
    }
}

fn intern(names: &mut HashSet<Arc<str>>, name: &str) -> Arc<str> {
    Arc::clone(names.get_or_insert_with(name, |name| name.into()))
}

/// Returns the reason of a termination. The API does not require one.
fn reason<'t>(terminated: &'t Terminated<'_>) -> &'t str {
    match &*terminated.reason {
        "" if terminated.exit_code == 0 => "Completed",
        "" => "Error",
        reason => reason,
    }
}

/// Returns the reason of the end of a pod: one word for the preemptions by scheduler and kubelet, else that of the API.
fn named(reason: &str) -> &str {
    match reason {
        "PreemptionByScheduler" | "Preempting" => "Preempted",
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::workloads::ledger::counters::LedgerOptions;
    use crate::resources::ObjectBytes;
    use crate::telemetry::KubeMetrics;
    use crate::wire::view::decode;

    /// A container that restarts for ever takes no more and more memory while the workload of its pod is unknown.
    #[test]
    fn events_without_a_workload_are_kept_as_numbers() {
        let options = LedgerOptions::default();
        let mut totals = Totals::new(&options, &KubeMetrics::default());
        let (mut record, mut known) = (PodRecord::default(), HashSet::new());
        for restarts in 0..100 {
            let status = format!(
                r#"{{"status":{{"containerStatuses":[{{"name":"c","restartCount":{restarts},"state":{{"terminated":{{"exitCode":1,"containerID":"{restarts}"}}}}}}]}}}}"#
            );
            let pod = decode(ObjectBytes::Json(status.as_bytes())).expect("a pod");
            record.observe(&pod, true, &mut known, &mut totals);
        }
        assert_eq!(record.pending.values().collect::<Vec<_>>(), [&100]);
    }
}
