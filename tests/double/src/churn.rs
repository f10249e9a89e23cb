//! Changes of the cluster: a sequence of steps, each of which is exactly one watch event.
//!
//! Nine of ten steps report the status of a pod, as kubelets do. The others renew leases, change deployments and
//! endpoint slices, and replace pods, which then start up over several events. The seed determines the sequence; only
//! its rate is real time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::layout::{Controller, Item, Phase};
use super::random::Random;
use super::world::{Collection, World};

/// Steps per second of the cluster's clock, regardless of the actual rate.
pub const STEPS_PER_SECOND: u64 = 100;

/// The source of changes.
pub struct Churn {
    world: Arc<World>,
    pods: Arc<Collection>,
    others: Vec<Arc<Collection>>,
    random: Random,
    /// Unix time of the initial state.
    epoch: i64,
    steps: u64,
    /// The current pod of each slot.
    places: Vec<Item>,
    /// Slots whose pod was deleted and waits for its successor, or whose pod is starting.
    starting: VecDeque<(u32, Next)>,
    other_items: Vec<Vec<Item>>,
}

#[derive(Clone, Copy)]
enum Next {
    Create,
    Bind,
    Run,
}

impl Churn {
    /// Creates the changes of a synthetic cluster; `None` if it has no pods, and for other clusters.
    pub fn new(world: &Arc<World>) -> Option<Self> {
        let layout = world.source.layout()?;
        let pods = Arc::clone(world.named("pods")?);
        let mut places = pods.items();
        if places.is_empty() {
            return None;
        }
        places.sort_unstable_by_key(|item| item.index);
        let names = ["leases", "deployments", "endpointslices", "nodes"];
        let others: Vec<_> = names.iter().filter_map(|name| world.named(name)).collect();
        let others: Vec<_> = others.into_iter().filter(|list| !list.items().is_empty()).collect();
        Some(Self {
            world: Arc::clone(world),
            pods,
            other_items: others.iter().map(|collection| collection.items()).collect(),
            others: others.into_iter().cloned().collect(),
            random: Random::new(layout.seed ^ 0x63_68_75_72_6e),
            epoch: layout.epoch,
            steps: 0,
            places,
            starting: VecDeque::new(),
        })
    }

    /// Makes one change.
    pub fn step(&mut self) {
        self.steps += 1;
        let now = self.epoch + (self.steps / STEPS_PER_SECOND) as i64;
        match self.random.below(100) {
            0..2 => self.replace(now),
            2..8 if !self.starting.is_empty() => self.advance(now),
            8..14 if !self.others.is_empty() => self.touch_other(now),
            _ => self.report(now),
        }
    }

    /// Deletes a pod of a deployment; its replica set then creates another.
    fn replace(&mut self, now: i64) {
        let place = self.random.below(self.places.len() as u32);
        let item = self.places[place as usize];
        let controller =
            self.world.source.layout().map(|layout| layout.workload(item.workload).controller);
        let waiting = self.starting.iter().any(|(starting, _)| *starting == place);
        if controller != Some(Controller::Deployment) || waiting {
            return self.report(now);
        }
        self.world.delete(&self.pods, &item);
        self.starting.push_back((place, Next::Create));
    }

    /// Advances the pod that has waited longest by one step.
    fn advance(&mut self, now: i64) {
        let Some((place, next)) = self.starting.pop_front() else {
            return;
        };
        let item = &mut self.places[place as usize];
        item.changed = now;
        let then = match next {
            Next::Create => {
                item.incarnation += 1;
                while self.world.get(&self.pods, item).is_some() {
                    item.incarnation += 1;
                }
                (item.created, item.restarts, item.phase) = (now, 0, Phase::Pending);
                Some(Next::Bind)
            }
            Next::Bind => {
                item.phase = Phase::Creating;
                Some(Next::Run)
            }
            Next::Run => {
                item.phase = Phase::Running;
                None
            }
        };
        let item = *item;
        self.starting.extend(then.map(|next| (place, next)));
        self.world.put(&self.pods, item);
    }

    /// Reports the status of a pod: a changed readiness or a restarted container.
    fn report(&mut self, now: i64) {
        let mut place = self.random.below(self.places.len() as u32);
        // Skips pods that are being replaced.
        while self.starting.iter().any(|(starting, _)| *starting == place) {
            if self.starting.len() >= self.places.len() {
                return self.advance(now);
            }
            place = (place + 1) % self.places.len() as u32;
        }
        let restart = self.random.below(4) == 0;
        let item = &mut self.places[place as usize];
        item.changed = now;
        item.revision += 1;
        match item.phase {
            Phase::Running if restart => {
                item.restarts += 1;
                item.phase = Phase::CrashLoop;
            }
            Phase::Running => item.phase = Phase::NotReady,
            Phase::Succeeded | Phase::Failed => {}
            _ => item.phase = Phase::Running,
        }
        self.world.put(&self.pods, *item);
    }

    /// Updates an object that is not a pod.
    fn touch_other(&mut self, now: i64) {
        // Leases are renewed most often.
        let which = match self.random.below(8) {
            at @ 0..3 => at as usize + 1,
            _ => 0,
        };
        let Some((collection, items)) = self.others.get(which).zip(self.other_items.get_mut(which))
        else {
            return self.report(now);
        };
        let at = self.random.below(items.len() as u32) as usize;
        let item = &mut items[at];
        item.changed = now;
        item.revision += 1;
        self.world.put(collection, *item);
    }
}

/// Makes steps at the rate of `rate` (events per second) until its sender is dropped.
pub async fn run(mut step: impl FnMut(), mut rate: watch::Receiver<f64>) {
    loop {
        let pace = *rate.borrow_and_update();
        let start = Instant::now();
        let mut done = 0_u64;
        loop {
            if pace > 0.0 {
                let due = (start.elapsed().as_secs_f64() * pace) as u64;
                while done < due {
                    step();
                    done += 1;
                }
            }
            // With a rate of zero, waits until it changes.
            let next = if pace > 0.0 { (done + 1) as f64 / pace } else { 1e6 };
            tokio::select! {
                changed = rate.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                () = sleep_until(start + Duration::from_secs_f64(next.min(1e6))) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::source::Source;

    fn synthetic(pods: u32, epoch: i64) -> Source {
        Source::Synthetic(Box::new(Layout::new(pods, 5, epoch)))
    }

    #[test]
    fn every_step_is_one_change_and_pods_come_back() {
        let world = Arc::new(World::new(synthetic(200, 1_800_000_000), 100_000));
        let start = world.version();
        let mut churn = Churn::new(&world).unwrap();
        for _ in 0..20_000 {
            churn.step();
        }
        assert_eq!(world.changes(), 20_000);
        assert_eq!(world.version(), start + 20_000);
        let pods = world.named("pods").unwrap();
        let waiting =
            churn.starting.iter().filter(|(_, next)| matches!(next, Next::Create)).count();
        assert_eq!(pods.items().len() + waiting, 200);
        assert!(pods.items().iter().any(|item| item.incarnation > 0));
        let changes = pods.changes_after(start, usize::MAX).unwrap();
        assert!(changes.len() > 17_000);
    }

    #[test]
    fn one_pod_is_enough() {
        let world = Arc::new(World::new(synthetic(1, 1_800_000_000), 10));
        let mut churn = Churn::new(&world).unwrap();
        for _ in 0..1_000 {
            churn.step();
        }
        assert_eq!(world.changes(), 1_000);
        assert!(Churn::new(&Arc::new(World::new(synthetic(0, 0), 10))).is_none());
    }
}
