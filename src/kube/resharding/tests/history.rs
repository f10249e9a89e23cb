//! Random scalings of a StatefulSet whose pods move from one assignment to the next, some without being able to ask each other. A seed
//! determines everything, in computed time.
//!
//! - No object is missing for longer than a quarter of the scrape interval beyond it: each interval between two scrapes that show it, of
//!   whichever pods, is bounded.
//! - If pods can ask each other, a pod that loses an object is scraped with it once more at most after another one shows it, unless the
//!   StatefulSet is scaled again before the pods have finished: then what they show stays.
//! - All pods have finished soon after all of them are ready.
//!
//! `KSTATD_HISTORIES=1000 cargo test --lib resharding::tests::history` runs 1,000 histories, `KSTATD_SEED=n` sets the first seed, and
//! `KSTATD_FIRST=1` ends them at the first violation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fastrand::Rng;

use super::super::*;
use crate::tests::env_number;
use crate::tests::seeds::run_all;

/// The time between two steps: the interval of polls.
const STEP: Duration = Duration::from_millis(25);
/// The number of objects.
const OBJECTS: u32 = 40;
/// The time from a new assignment until the list/watches have it.
const OBSERVED: Duration = Duration::from_millis(50);
/// The longest time from a change of the StatefulSet until a pod knows it.
const DETECTED: u64 = 500;
/// The time without changes at the end of a scaling.
const CALM: Duration = Duration::from_secs(90);

fn detected(index: i32, total: i64) -> DetectedShard {
    DetectedShard { shard: Shard::new(index, total), all_ready: true }
}

/// A pod, from the start of its process on.
struct Pod {
    transition: ShardTransition,
    /// When it gets each state of the StatefulSet.
    coming: Vec<(Instant, DetectedShard)>,
    /// When its list/watches have the current assignment, and have listed all of its objects.
    observed_at: Instant,
    listed_at: Instant,
    /// When its first lists are complete.
    first_listed_at: Instant,
    /// Since when it has been asking the other pods about this number of shards.
    asks: Option<(i64, Instant)>,
    /// The stages that it has reported, with the number of shards, newest last.
    reported: Vec<(i64, i64)>,
    /// The time of its next scrape.
    scrape_at: Instant,
    scrapes: u32,
}

impl Pod {
    fn new(detected: DetectedShard, now: Instant, rng: &mut Rng, interval: Duration) -> Self {
        let listed_at = now + Duration::from_millis(rng.u64(300..3_000));
        Self {
            transition: ShardTransition::new(detected, now),
            coming: Vec::new(),
            observed_at: now + OBSERVED,
            listed_at,
            first_listed_at: listed_at,
            asks: None,
            reported: Vec::new(),
            scrape_at: now + interval.mul_f64(rng.f64()),
            scrapes: 0,
        }
    }

    fn total(&self) -> i64 {
        self.transition.shard.total
    }
}

/// The scrapes that have shown an object.
#[derive(Default)]
struct Shown {
    last: Option<Instant>,
    last_by: Option<usize>,
    /// The pods that have shown it first and last, and the number of scrapes of the former one since the latter has shown it.
    former: Option<usize>,
    by: Option<usize>,
    doubles: u32,
}

struct History {
    rng: Rng,
    now: Instant,
    interval: Duration,
    pods: Vec<Pod>,
    can_ask: bool,
    /// The StatefulSet has been scaled again before the pods had finished.
    is_scaled_again: bool,
    shown: BTreeMap<u32, Shown>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (now, total) = (Instant::now(), rng.i64(1..4));
        let interval = Duration::from_secs([5, 15, 30][rng.usize(0..3)]);
        let can_ask = rng.bool();
        let (pods, shown) = (Vec::new(), BTreeMap::new());
        let mut history = Self { rng, now, interval, pods, can_ask, is_scaled_again: false, shown };
        for index in 0..total {
            let detected = detected(index as i32, total);
            let pod = Pod::new(detected, now, &mut history.rng, interval);
            history.pods.push(pod);
        }
        history
    }

    /// Returns what a pod knows of the others.
    fn peers(&self, at: usize) -> PeerStages {
        let pod = &self.pods[at];
        let Some((total, since)) = pod.asks else { return PeerStages::from_answers(vec![None]) };
        if self.now < since + Duration::from_millis(200) {
            return PeerStages::default();
        }
        let others = (0..total).filter(|number| *number != at as i64);
        let answer = |number: i64| {
            let other = self.pods.get(number as usize).filter(|_| self.can_ask)?;
            // The answer of some polls ago.
            let (of, stage) = other.reported.iter().rev().nth(4)?;
            Some(if *of == total { *stage } else { peer_stage::BEHIND })
        };
        PeerStages::from_answers(others.map(answer).collect())
    }

    /// Lets a pod take its steps.
    fn advance(&mut self, at: usize) {
        let now = self.now;
        let gains = Duration::from_millis(self.rng.u64(100..3_000));
        let pod = &mut self.pods[at];
        while let Some(detected) = pod.coming.pop_if(|(due, _)| *due <= now) {
            if pod.transition.retarget(detected.1, now) {
                (pod.observed_at, pod.listed_at) = (now + OBSERVED, now + gains);
            }
        }
        let total = pod.total();
        match pod.transition.poll_change(pod.asks.map(|(total, _)| total)) {
            PollChange::Keep => {}
            PollChange::Restart => pod.asks = Some((total, now)),
            PollChange::Stop => pod.asks = None,
        }
        let peers = self.peers(at);
        let pod = &mut self.pods[at];
        let applied = now >= pod.observed_at;
        let sync = SyncProgress { applied, complete: applied && now >= pod.listed_at };
        let stage = pod.transition.reported_stage(sync, now);
        pod.reported.push((total, stage));
        let scrape_interval = (pod.scrapes > 1).then_some(self.interval);
        let inputs = TransitionInputs { sync, scrape_interval, peers };
        if pod.transition.advance(&inputs, now) {
            pod.observed_at = now + OBSERVED;
        }
    }

    /// Scrapes a pod, if it is time.
    fn scrape(&mut self, at: usize) -> Result<(), String> {
        let (now, pod) = (self.now, &mut self.pods[at]);
        if now < pod.scrape_at {
            return Ok(());
        }
        pod.scrape_at += self.interval;
        pod.scrapes += 1;
        if now < pod.first_listed_at {
            return Ok(());
        }
        for object in 0..OBJECTS {
            let uid = format!("uid-{object}");
            if !pod.transition.shard.ownership(uid.as_bytes()).is_exposed() {
                continue;
            }
            let shown = self.shown.entry(object).or_default();
            let longest = self.interval.mul_f64(1.25) + Duration::from_millis(500);
            if let Some(gap) = shown.last.map(|last| now - last).filter(|gap| *gap > longest) {
                return Err(format!(
                    "{uid} is missing for {gap:?}, scraped each {:?}",
                    self.interval
                ));
            }
            (shown.last, shown.last_by) = (Some(now), Some(at));
            if shown.by == Some(at) {
                continue;
            }
            if shown.former == Some(at) {
                shown.doubles += 1;
                if self.can_ask && !self.is_scaled_again && shown.doubles > 1 {
                    return Err(format!("{uid} is shown by two pods for several scrapes"));
                }
            } else {
                (shown.former, shown.by, shown.doubles) = (shown.by, Some(at), 0);
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += STEP;
        (0..self.pods.len()).for_each(|at| self.advance(at));
        (0..self.pods.len()).try_for_each(|at| self.scrape(at))
    }

    fn run_for(&mut self, time: Duration) -> Result<(), String> {
        let end = self.now + time;
        while self.now < end {
            self.step()?;
        }
        Ok(())
    }

    /// Tells all pods about a state of the StatefulSet.
    fn publish(&mut self, total: i64, all_ready: bool) {
        for (index, pod) in self.pods.iter_mut().enumerate() {
            let due = self.now + Duration::from_millis(self.rng.u64(0..DETECTED));
            let detected = DetectedShard { all_ready, ..detected(index as i32, total) };
            // Each pod gets all states, in their order.
            let due = pod.coming.first().map_or(due, |(last, _)| due.max(*last));
            pod.coming.insert(0, (due, detected));
        }
    }

    /// Adds pods, sometimes more of them before the first have finished, and waits until all have.
    fn scale_up(&mut self) -> Result<(), String> {
        // One pod shows each object by now. It may be one that has lost it before.
        for shown in self.shown.values_mut() {
            (shown.former, shown.by) = (None, shown.last_by);
        }
        self.is_scaled_again = false;
        let mut total = self.add_pods()?;
        self.is_scaled_again = self.rng.u32(0..3) == 0;
        if self.is_scaled_again {
            let pause = Duration::from_millis(self.rng.u64(0..10_000));
            self.run_for(pause)?;
            total = self.add_pods()?;
        }
        while self.pods.iter().any(|pod| self.now < pod.first_listed_at) {
            self.step()?;
        }
        // Probes and the status of the StatefulSet take a while.
        let pause = Duration::from_millis(self.rng.u64(500..10_000));
        self.run_for(pause)?;
        self.publish(total, true);
        let ready = self.now;
        while self.pods.iter().any(|pod| pod.transition.is_in_progress()) {
            self.step()?;
            let longest = self.interval + 4 * STEP_DELAY;
            if self.now - ready > longest {
                let stages = self.pods.iter().map(|pod| pod.transition.shard);
                let stages: Vec<_> = stages.collect();
                return Err(format!("{stages:?} {longest:?} after all pods were ready"));
            }
        }
        self.run_for(CALM)
    }

    /// Starts up to three more pods, and returns their new number.
    fn add_pods(&mut self) -> Result<i64, String> {
        let before = self.pods.len() as i64;
        let total = before + self.rng.i64(1..4);
        self.publish(total, false);
        for index in before..total {
            let pause = Duration::from_millis(self.rng.u64(500..8_000));
            self.run_for(pause)?;
            let detected = DetectedShard { all_ready: false, ..detected(index as i32, total) };
            let pod = Pod::new(detected, self.now, &mut self.rng, self.interval);
            self.pods.push(pod);
        }
        Ok(total)
    }
}

fn run(seed: u64) -> Result<(), String> {
    let mut history = History::new(seed);
    history.run_for(CALM)?;
    (0..3).try_for_each(|_| history.scale_up())
}

/// In any history each object is in the scrapes, and all pods finish in time.
#[test]
fn random_histories() {
    let (first, count) = (env_number("KSTATD_SEED").unwrap_or(1), env_number("KSTATD_HISTORIES"));
    let mut wrong = String::new();
    for (seed, result) in run_all(first..first + count.unwrap_or(200), run, Result::is_err) {
        if let Err(why) = result {
            let _ = writeln!(wrong, "KSTATD_SEED={seed}: {why}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
