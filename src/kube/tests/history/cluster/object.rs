//! Objects of the simulated cluster, and the series that a scrape has of each.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::super::status::{Phase, Status};
use super::{Kind, NAMESPACES, Scope, TAINTS, WIDGETS};

/// The object that a Kubernetes Event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: &'static str,
    pub name: String,
    pub uid: String,
}

/// An object at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub scope: Scope,
    pub name: String,
    pub uid: String,
    /// A number that is unique to this state.
    pub state: u64,
    pub version: u64,
    /// The status that its kubelet or controller has reported.
    pub status: Arc<Status>,
    /// The object that it is about, if it is an Event, or the job that has created it, if it is a pod of a known one.
    pub subject: Option<Arc<Subject>>,
}

const PHASES: [&str; 5] = ["Pending", "Succeeded", "Failed", "Running", "Unknown"];

impl Object {
    /// Returns it as the object that another one is about, or belongs to.
    pub fn as_subject(&self) -> Arc<Subject> {
        let (name, uid) = (self.name.clone(), self.uid.clone());
        Arc::new(Subject { kind: self.scope.kind.name(), name, uid })
    }

    pub fn phase(&self) -> &'static str {
        let phases = ["Pending", "Running", "Unknown"];
        self.status.end.map_or(phases[self.state as usize % phases.len()], |end| end.phase)
    }

    pub fn is_cordoned(&self) -> bool {
        self.state % 2 == 1
    }

    /// Returns the keys of a node's taints, whose number is that of its series.
    pub fn taints(&self) -> &'static [&'static str] {
        &TAINTS[..self.state as usize / 2 % (TAINTS.len() + 1)]
    }

    /// Returns the number in the name, which determines the place and the owner of a pod.
    fn number(&self) -> u8 {
        self.name.trim_start_matches('o').parse().unwrap_or_default()
    }

    /// Returns the node of a pod.
    pub fn node(&self) -> String {
        format!("node-{}", self.number() % 2)
    }

    /// Returns the address of a pod's node.
    pub fn node_address(&self) -> Ipv4Addr {
        [127, 9, 0, self.number() % 2].into()
    }

    /// Returns status and reason of a pod's DisruptionTarget condition. Some pods have one that was called off.
    pub fn disruption(&self) -> Option<(&'static str, &'static str)> {
        let called_off = ("False", "PreemptionByScheduler");
        let is_called_off = self.number().is_multiple_of(5);
        let disruption = self.status.disruption.map(|reason| ("True", reason));
        disruption.or(is_called_off.then_some(called_off))
    }

    /// Returns true if a pod has the address of its node.
    pub fn is_in_host_network(&self) -> bool {
        self.number().is_multiple_of(12)
    }

    /// Returns the address of a pod, from which it can send lines on the loopback interface. It is reused, and two pods of a
    /// namespace may have the same for a while.
    pub fn address(&self) -> Ipv4Addr {
        if self.is_in_host_network() {
            return self.node_address();
        }
        let namespace = NAMESPACES.iter().position(|name| *name == self.scope.namespace);
        [127, 1, namespace.unwrap_or_default() as u8, self.number() % 12].into()
    }

    /// Returns the second address of a pod, if it has two.
    pub fn second_address(&self) -> Option<Ipv6Addr> {
        let [.., namespace, number] = self.address().octets();
        let has_two = !self.is_in_host_network() && self.number().is_multiple_of(3);
        has_two.then(|| [0xfd00, 0, 0, 0, 0, 0, namespace.into(), number.into()].into())
    }

    /// Returns kind and name of the controller of a pod or job, if it has one.
    pub fn owner(&self) -> Option<(&'static str, String)> {
        let name = self.number() % 3;
        match (self.scope.kind, self.number() % 4) {
            (Kind::Pod, 1) => Some(("StatefulSet", format!("db{name}"))),
            (Kind::Pod, 2) => Some(("Rollout", format!("web{name}"))),
            (Kind::Pod, 3) => Some(match &self.subject {
                Some(job) => ("Job", job.name.clone()),
                None => ("Job", format!("nightly{name}-29500000")),
            }),
            (Kind::Job, 1..) => Some(("CronJob", format!("nightly{name}"))),
            _ => None,
        }
    }

    /// Returns the UID of the controller of a pod or job, if it has one.
    pub fn owner_uid(&self) -> Option<String> {
        let job = self.subject.as_ref().filter(|_| self.scope.kind == Kind::Pod);
        let of_owner =
            |(_, name)| job.map_or_else(|| format!("owner-{name}"), |job| job.uid.clone());
        self.owner().map(of_owner)
    }

    /// Returns reason and type of an Event.
    pub fn reason_and_type(&self) -> (&'static str, &'static str) {
        [("BackOff", "Warning"), ("Scheduled", "Normal")][usize::from(self.number() % 2)]
    }

    /// Returns true if an Event counts its occurrences as a series, like those of `events.k8s.io`.
    pub fn has_series(&self) -> bool {
        self.number() % 4 < 2
    }

    /// Returns the names of a pod's containers. The second one is an init container.
    pub fn containers(&self) -> &'static [&'static str] {
        if self.number().is_multiple_of(3) { &["app", "setup"] } else { &["app"] }
    }

    /// Returns true if the statuses of a pod's containers have the IDs of these.
    pub fn has_container_ids(&self) -> bool {
        !self.number().is_multiple_of(5)
    }

    /// Returns the seconds of 2026 after which a pod started: later ones after earlier ones.
    pub fn started(&self) -> u64 {
        self.uid.trim_start_matches("uid-").parse().unwrap_or_default()
    }

    /// Returns the second of 2026 in which a completed pod ended: that in which its last container did, or its start.
    pub fn ended(&self) -> Option<u64> {
        if self.scope.kind != Kind::Pod {
            return None;
        }
        self.status.end?;
        let stopped = self.status.containers.iter().filter(|one| one.phase == Phase::Terminated);
        let ends = stopped.filter_map(|container| container.ended.last());
        Some(ends.map(|end| end.at).max().unwrap_or_else(|| self.started()))
    }

    /// Returns true if the server serves a version of the kind that this object defines.
    pub fn serves(&self, kind: Kind) -> bool {
        self.is_established()
            && !self.is_being_deleted()
            && match kind {
                Kind::Widget => self.state % 8 != 3,
                _ => matches!(self.state % 8, 0 | 2 | 4 | 5),
            }
    }

    /// Returns true if the server has accepted a definition.
    pub fn is_established(&self) -> bool {
        self.state % 8 != 7
    }

    pub fn is_being_deleted(&self) -> bool {
        self.status.is_being_deleted || self.scope.kind == Kind::Definition && self.state % 8 == 6
    }

    /// Returns the kind that a definition defines, which is part of its plural.
    pub fn defined_kind(&self) -> String {
        if self.name == WIDGETS { "Widget".to_owned() } else { format!("Other{}", self.name) }
    }

    /// Returns the number in its label: that of its state. Most Secrets have the same, so that there are fewer values than objects;
    /// their states are in their types.
    pub fn label_state(&self) -> u64 {
        match self.scope.kind {
            Kind::Secret if self.number() % 5 > 1 => 0,
            _ => self.state,
        }
    }

    pub fn secret_type(&self) -> String {
        format!("example.com/t{}", self.state)
    }

    /// Returns the object in this version of its kind.
    pub fn shown_as(self, kind: Kind) -> Self {
        Self { scope: Scope { kind, ..self.scope }, ..self }
    }

    /// Appends the expected series. They are written by hand, independently of the code under test.
    pub(super) fn lines(&self, out: &mut Vec<String>) {
        let Self { name, uid, state, version, .. } = self;
        let namespace = self.scope.namespace;
        match self.scope.kind {
            Kind::ConfigMap => {
                let who = format!("namespace=\"{namespace}\",configmap=\"{name}\"");
                out.push(format!("kube_configmap_labels{{{who},label_state=\"{state}\"}} 1"));
                out.push(format!("kube_configmap_metadata_resource_version{{{who}}} {version}"));
            }
            Kind::Definition | Kind::Event => {}
            Kind::Job => {
                let who = format!("namespace=\"{namespace}\",job_name=\"{name}\"");
                out.push(format!("kube_job_info{{{who}}} 1"));
                out.push(format!("kube_job_labels{{{who},label_state=\"{state}\"}} 1"));
            }
            Kind::Node => {
                let cordoned = u8::from(self.is_cordoned());
                out.push(format!("kube_node_labels{{node=\"{name}\",label_state=\"{state}\"}} 1"));
                out.push(format!("kube_node_spec_unschedulable{{node=\"{name}\"}} {cordoned}"));
                for key in self.taints() {
                    let taint = format!("key=\"{key}\",value=\"\",effect=\"NoSchedule\"");
                    out.push(format!("kube_node_spec_taint{{node=\"{name}\",{taint}}} 1"));
                }
            }
            Kind::Pod => {
                let who = format!("namespace=\"{namespace}\",pod=\"{name}\",uid=\"{uid}\"");
                out.push(format!("kube_pod_labels{{{who},label_state=\"{state}\"}} 1"));
                for phase in PHASES {
                    let is = u8::from(phase == self.phase());
                    out.push(format!("kube_pod_status_phase{{{who},phase=\"{phase}\"}} {is}"));
                }
            }
            Kind::Secret => {
                let (kind, who) =
                    (self.secret_type(), format!("namespace=\"{namespace}\",secret=\"{name}\""));
                let state = self.label_state();
                out.push(format!("kube_secret_labels{{{who},label_state=\"{state}\"}} 1"));
                out.push(format!("kube_secret_type{{{who},type=\"{kind}\"}} 1"));
            }
            kind @ (Kind::Widget | Kind::WidgetV2) => {
                let who = format!("namespace=\"{namespace}\",name=\"{name}\",uid=\"{uid}\"");
                out.push(format!("{}state{{{who}}} {state}", kind.prefix()));
            }
        }
    }
}
