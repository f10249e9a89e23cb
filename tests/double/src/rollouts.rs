//! Changes of a replayed cluster: rollouts of workloads, a number of them at a time. Each repeats the events of the
//! recorded rollout, so its pods are created under new names and those of the old revision are deleted.

use std::sync::Arc;

use super::churn::STEPS_PER_SECOND;
use super::random::Random;
use super::replay::{Rollout, RolloutTimes};
use super::world::{ChangeKind, World};

/// One in this many workloads is rolled out at a time.
const PART: usize = 50;

/// The source of changes.
pub struct Rollouts {
    world: Arc<World>,
    random: Random,
    /// Unix time of the initial state.
    epoch: i64,
    steps: u64,
    workloads: Vec<Workload>,
    running: Vec<Running>,
}

/// The state of a workload between rollouts.
#[derive(Clone, Copy)]
struct Workload {
    /// Number of the current revision.
    generation: u32,
    times: RolloutTimes,
    is_running: bool,
}

/// A rollout of which some events are made.
struct Running {
    workload: u32,
    rollout: Rollout,
    /// Index of the next event.
    next: usize,
}

impl Rollouts {
    /// Creates the changes of a replayed cluster; `None` without workloads, and for other clusters.
    pub fn new(world: &Arc<World>) -> Option<Self> {
        let replay = world.source.replay()?;
        let state = |workload| Workload {
            generation: 1,
            times: replay.rollout_times(workload),
            is_running: false,
        };
        let workloads: Vec<_> = (0..replay.workloads.len() as u32).map(state).collect();
        let random = Random::new(replay.seed ^ 0x72_6f_6c_6c);
        let any = !workloads.is_empty();
        any.then(|| Self {
            world: Arc::clone(world),
            random,
            epoch: replay.epoch,
            steps: 0,
            workloads,
            running: Vec::new(),
        })
    }

    /// Makes one change.
    pub fn step(&mut self) {
        self.steps += 1;
        if self.running.len() < self.workloads.len().div_ceil(PART) {
            self.start();
        }
        let at = self.random.below(self.running.len() as u32) as usize;
        let world = Arc::clone(&self.world);
        let (Some(replay), Some(running)) = (world.source.replay(), self.running.get_mut(at))
        else {
            return;
        };
        let unit = replay.workloads[running.workload as usize];
        let recorded = &replay.recording.units[unit];
        let event = recorded.events[running.next];
        let item = replay.item(unit, event.state, running.workload, &running.rollout);
        let resource = &recorded.object(&recorded.states[event.state as usize]).resource;
        if let Some(collection) = world.named(resource) {
            match event.kind {
                ChangeKind::Deleted => world.delete(collection, &item),
                ChangeKind::Added | ChangeKind::Modified => world.put(collection, item),
            }
        }
        running.next += 1;
        if running.next == recorded.events.len() {
            self.finish(at);
        }
    }

    fn start(&mut self) {
        let mut at = self.random.below(self.workloads.len() as u32) as usize;
        // There are always more workloads than rollouts, or a single workload without one.
        while self.workloads[at].is_running {
            at = (at + 1) % self.workloads.len();
        }
        let now = self.epoch + (self.steps / STEPS_PER_SECOND) as i64;
        let workload = &mut self.workloads[at];
        workload.is_running = true;
        let rollout =
            Rollout { generation: workload.generation, start: now, times: workload.times };
        self.running.push(Running { workload: at as u32, rollout, next: 0 });
    }

    fn finish(&mut self, at: usize) {
        let Running { workload, rollout, .. } = self.running.swap_remove(at);
        let workload = &mut self.workloads[workload as usize];
        workload.generation += 1;
        workload.times.previous = rollout.times.current;
        workload.times.current = rollout.start;
        workload.is_running = false;
    }
}
