//! The statuses of objects as their kubelets and controllers know them, with everything that has happened before.

use fastrand::Rng;

use super::cluster::Kind;

/// The reason of a termination that no status describes.
pub const UNKNOWN: &str = "unknown";

/// The conditions of a node.
pub const CONDITIONS: [&str; 2] = ["Ready", "DiskPressure"];

/// The end of a run of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Termination {
    pub reason: &'static str,
    /// The number of the state that is the first one after it, which is also its time.
    pub at: u64,
}

impl Termination {
    pub fn exit_code(&self) -> i32 {
        exit_code(self.reason)
    }
}

/// Returns the exit code of all terminations with a reason.
pub fn exit_code(reason: &str) -> i32 {
    match reason {
        "Completed" => 0,
        "OOMKilled" => 137,
        // On Windows: ended by Ctrl+C.
        _ => -1_073_741_510,
    }
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Waiting,
    Running,
    Terminated,
}

/// A container with all runs that have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub phase: Phase,
    pub ended: Vec<Termination>,
}

impl Container {
    /// Returns `restartCount`, the number of the current or last run.
    pub fn restarts(&self) -> usize {
        self.ended.len() - usize::from(self.phase != Phase::Running && !self.ended.is_empty())
    }

    /// Returns the terminations that `state` and `lastState` describe, with the numbers of their runs.
    pub fn described(&self) -> [Option<(usize, &Termination)>; 2] {
        let run = |back: usize| {
            let run = self.ended.len().checked_sub(back)?;
            Some((run, self.ended.get(run)?))
        };
        match self.phase {
            Phase::Terminated => [run(1), run(2)],
            _ => [None, run(1)],
        }
    }

    /// Returns the number of terminations that this state proves. A waiting container without an ID may have run again
    /// since `lastState`.
    pub fn proven(&self, has_ids: bool) -> usize {
        let is_ambiguous = self.phase == Phase::Waiting && !has_ids;
        self.ended.len().saturating_sub(is_ambiguous.into())
    }

    fn evolve(&mut self, at: u64, rng: &mut Rng) {
        let reasons = ["OOMKilled", "Error", "Completed"];
        self.phase = match self.phase {
            Phase::Running => {
                if rng.u32(0..6) == 0 {
                    // It has run several times since the last report.
                    let unseen = Termination { reason: UNKNOWN, at };
                    self.ended.resize(self.ended.len() + rng.usize(1..3), unseen);
                    self.end_run(reasons[rng.usize(..3)], at);
                    return;
                }
                self.end_run(reasons[rng.usize(..3)], at);
                [Phase::Running, Phase::Waiting, Phase::Terminated][rng.usize(..3)]
            }
            Phase::Terminated if rng.bool() => Phase::Waiting,
            Phase::Terminated | Phase::Waiting => Phase::Running,
        };
    }

    fn end_run(&mut self, reason: &'static str, at: u64) {
        self.ended.push(Termination { reason, at });
    }
}

/// The end of a pod or job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The phase of a pod, or the condition of a job.
    pub phase: &'static str,
    /// `status.reason` of a pod, or the reason of the condition; may be empty.
    pub reason: &'static str,
    /// The number of the first state with it.
    pub at: u64,
}

/// A status of a node's condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    pub status: &'static str,
    /// The number of the state that is the first one with it, which is also its time.
    pub at: u64,
}

/// The status of an object whose events are counted. That of other kinds is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    pub containers: Vec<Container>,
    pub end: Option<End>,
    /// The reason of a pod's DisruptionTarget condition.
    pub disruption: Option<&'static str>,
    pub is_being_deleted: bool,
    /// The statuses that each of a node's [`CONDITIONS`] has had; the first one is that of its creation.
    pub conditions: Vec<Vec<Transition>>,
    /// The number of occurrences that an Event stands for.
    pub occurrences: u32,
}

impl Status {
    /// Returns the status of a new object, which is also its state with the number `at`.
    pub fn new(kind: Kind, containers: usize, at: u64) -> Self {
        let container = Container { phase: Phase::Waiting, ended: Vec::new() };
        match kind {
            Kind::Pod => Self { containers: vec![container; containers], ..Self::default() },
            Kind::Node => {
                let first = ["True", "False"].map(|status| vec![Transition { status, at }]);
                Self { conditions: first.to_vec(), ..Self::default() }
            }
            Kind::Event => Self { occurrences: 1, ..Self::default() },
            _ => Self::default(),
        }
    }

    /// Takes a random step, which the state with the number `at` reports.
    pub fn evolve(&mut self, kind: Kind, at: u64, rng: &mut Rng) {
        match kind {
            Kind::Event => self.occurrences += rng.u32(1..4),
            Kind::Job if self.end.is_none() && rng.bool() => {
                let ends = [
                    ("Complete", ""),
                    ("Failed", "BackoffLimitExceeded"),
                    ("Failed", "PodFailurePolicy"),
                    ("Failed", ""),
                ];
                let (phase, reason) = ends[rng.usize(..4)];
                self.end = Some(End { phase, reason, at });
            }
            _ => {}
        }
        for condition in &mut self.conditions {
            if rng.u32(0..3) == 0 {
                let others = ["True", "False", "Unknown"].into_iter();
                let last = condition.last().map(|last| last.status);
                let others: Vec<_> = others.filter(|other| Some(*other) != last).collect();
                condition.push(Transition { status: others[rng.usize(..2)], at });
            }
        }
        if self.containers.is_empty() || self.end.is_some() {
            return;
        }
        let is_disrupted = self.is_disrupted();
        if self.disruption.is_some() && !self.is_being_deleted && rng.u32(0..3) == 0 {
            self.is_being_deleted = true;
            return;
        }
        match rng.u32(0..40) {
            0 => self.finish("Succeeded", "", at),
            1 => self.finish("Failed", "", at),
            2 if !is_disrupted => self.finish("Failed", "Evicted", at),
            3 if !is_disrupted => {
                let reasons = ["PreemptionByScheduler", "DeletionByTaintManager"];
                self.disruption = Some(reasons[rng.usize(..2)]);
            }
            4 if !is_disrupted => self.is_being_deleted = true,
            5..15 => {}
            _ => {
                let container = rng.usize(..self.containers.len());
                self.containers[container].evolve(at, rng);
            }
        }
    }

    /// Sets the times of a node's conditions as its kubelet does: one that differs from the status in the cluster changes
    /// now, however long it has been so.
    pub fn report_over(&mut self, cluster: &Self, at: u64) {
        for (condition, cluster) in self.conditions.iter_mut().zip(&cluster.conditions) {
            if let (Some(last), Some(cluster)) = (condition.last_mut(), cluster.last()) {
                last.at = if last.status == cluster.status { cluster.at } else { at };
            }
        }
    }

    fn finish(&mut self, phase: &'static str, reason: &'static str, at: u64) {
        self.end = Some(End { phase, reason, at });
        for container in &mut self.containers {
            if container.phase == Phase::Running {
                container.end_run(if phase == "Failed" { "Error" } else { "Completed" }, at);
                container.phase = Phase::Terminated;
            }
        }
    }

    /// Returns true if the pod is about to end.
    pub fn is_disrupted(&self) -> bool {
        self.disruption.is_some() || self.is_being_deleted
    }

    /// Returns the reason with which the pod or job has ended, or would end if it were deleted now.
    pub fn reason(&self) -> &'static str {
        match (self.end, self.disruption) {
            (Some(End { reason, .. }), _) if !reason.is_empty() => reason,
            (_, Some("PreemptionByScheduler")) => "Preempted",
            (_, Some(disruption)) => disruption,
            (Some(end), None) if !self.is_being_deleted => end.phase,
            _ => "Deleted",
        }
    }
}
