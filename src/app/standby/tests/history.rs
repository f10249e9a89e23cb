//! Random histories of a group of replicas: processes start, end, are killed and are frozen, the network between them is
//! cut, clients send lines, and a scraper asks all of them. In some histories all replicas get another shard, one after the other.
//!
//! - While a replica runs, a scrape of all replicas gets the metrics, in any format.
//! - Once nothing has been wrong for four seconds, exactly one replica exposes them, and it stays the same. One that lists
//!   does not expose if another one has listed.
//! - Each replica has applied each line exactly once that any of them has received since its start, unless the other one was
//!   killed within 100 ms, or while something was wrong.
//! - In some histories lines get labels of the pod that sent them, if the replica that received them knew its pods. One that
//!   starts waits for its pods before it applies lines of others, up to ten seconds.
//! - In some histories the replicas have a relay: it gets each line once, from the replica that received it.
//! - Two idle replicas poll each other twice a second.
//! - In some histories they find each other by a name, and then know the replicas that it has. While it cannot be resolved,
//!   they keep those that they know.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib standby` runs 100 histories of two minutes, `KSTATD_SEED=n` sets the first seed,
//! and `KSTATD_FIRST=1` ends them at the first violation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, sleep, timeout};

use super::checker::Checker;
use super::network::{CONTAINER, Group, PLAIN, Process};
use crate::app::standby::Standby;
use crate::exposition::message::{self, Delimited};
use crate::exposition::{Format, ScrapeQuery};
use crate::kube::tests::history::journal::{Entry, Topic, describe};
use crate::kube::tests::history::setup::in_simulated_time;
use crate::telemetry::Recorder;
use crate::tests::env_number;
use crate::tests::replay::{Journal, assert_same_in_another_process};
use crate::tests::seeds::run_all;

/// The time after which a scraper gives up.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that a process needs for its first lists, in milliseconds, and the factor for one of four.
const SYNC: u64 = 2_000;
const SLOW: u32 = 20;

/// The average number of steps until all replicas get another shard, and from one replica to the next.
const RELOADS: [u32; 2] = [150, 8];

/// The outcome of a history.
struct Outcome {
    violation: Option<String>,
    journal: Vec<Entry>,
    scrapes: usize,
}

/// What the history and its scrapes share.
struct Record {
    checker: Checker,
    begin: Instant,
    journal: Vec<Entry>,
    violation: Option<String>,
    scrapes: usize,
}

impl Record {
    fn note(&mut self, topic: Topic, text: String) {
        self.journal.push(Entry { at: self.begin.elapsed(), topic, text });
    }

    fn check(&mut self, result: Result<(), String>) {
        let Err(why) = result else { return };
        let at = self.begin.elapsed().as_secs_f64();
        self.note(Topic::Violation, why.clone());
        self.violation.get_or_insert(format!("after {at:.3} s {why}"));
    }
}

/// A history in progress.
struct History {
    rng: Rng,
    group: Group,
    /// Determines the reloads, if there are any.
    reloads: Option<Rng>,
    /// Determines when the name of the replicas cannot be resolved, if they have one.
    names: Option<Rng>,
    /// Determines the scrapes whose clients disconnect.
    disconnects: Rng,
    /// Determines when a line without a sender follows others.
    plain: Rng,
    /// Determines the formats of scrapes.
    formats: Rng,
    /// The number of processes so far.
    started: usize,
    record: Arc<Mutex<Record>>,
    /// Scrapes and ends in progress.
    tasks: JoinSet<()>,
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a replica answers a scrape in one of three formats with metrics.
fn exposes(standby: &Standby, format: usize) -> bool {
    let (source, query) =
        (standby.gate(Arc::new(Recorder::new().finish())), ScrapeQuery::default());
    match format {
        0 => source.frames(Format::Text, &query).any(|frame| !frame.is_empty()),
        1 => source.deflated(Format::Text, &query).next().is_some(),
        _ => {
            let body = source.typed(&query).expect("a typed body");
            message::frames(vec![body], Delimited::default()).any(|frame| !frame.is_empty())
        }
    }
}

/// Does what a process does that is asked to end.
async fn end(standby: Standby, record: Arc<Mutex<Record>>, number: usize) {
    standby.leave().await;
    lock(&record).checker.stops(number);
    standby.drain().await;
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let relays = Rng::with_seed(seed ^ 0x4ed8_aa4a_e341_8acb).bool();
        let mut names = Rng::with_seed(seed ^ 0x1f83_d9ab_fb41_bd6b);
        let names = names.bool().then_some(names);
        let group = Group::new(rng.usize(2..4), &mut rng, relays, names.is_some());
        let is_enriched = Rng::with_seed(seed ^ 0x2b3e_6c1f_d041_9e57).bool();
        if is_enriched {
            group.enrich();
        }
        let record = Record {
            checker: Checker::new(is_enriched),
            begin: Instant::now(),
            journal: Vec::new(),
            violation: None,
            scrapes: 0,
        };
        let (record, tasks) = (Arc::new(Mutex::new(record)), JoinSet::new());
        let mut reloads = Rng::with_seed(seed ^ 0x67ca_6d62_2a19_7c5e);
        let reloads = reloads.bool().then_some(reloads);
        let disconnects = Rng::with_seed(seed ^ 0x5be0_cd19_137e_2179);
        let plain = Rng::with_seed(seed ^ 0x9b05_688c_2b3e_6c1f);
        let formats = Rng::with_seed(seed ^ 0x3c6e_f372_fe94_f82b);
        Self { rng, group, reloads, names, disconnects, plain, formats, started: 0, record, tasks }
    }

    fn note(&self, text: String) {
        lock(&self.record).note(Topic::Line, text);
    }

    /// Returns one of the addresses with a process for which this holds.
    fn any(&mut self, is_wanted: impl Fn(&Process) -> bool) -> Option<(usize, usize)> {
        let number = |process: &Process| is_wanted(process).then_some(process.number);
        let found: Vec<(usize, usize)> = (self.group.running().into_iter())
            .filter_map(|at| Some((at, self.group.with(at, number)??)))
            .collect();
        (!found.is_empty()).then(|| found[self.rng.usize(..found.len())])
    }

    fn start(&mut self) {
        let running = self.group.running();
        let free: Vec<usize> = (0..self.group.size()).filter(|at| !running.contains(at)).collect();
        if free.is_empty() {
            return;
        }
        let at = free[self.rng.usize(..free.len())];
        let mut sync = Duration::from_millis(self.rng.u64(0..SYNC));
        if self.started % 4 == 3 {
            sync *= SLOW;
        }
        self.started += 1;
        let number = self.group.start(at, sync);
        self.note(format!("process {number} starts at address {at}, is synced after {sync:?}"));
        lock(&self.record).checker.started(&self.group, number, sync);
    }

    fn kill(&mut self) {
        let Some((at, number)) = self.any(|_| true) else { return };
        self.group.kill(at);
        self.note(format!("process {number} is killed"));
        lock(&self.record).checker.ended(&self.group, number);
    }

    /// Asks a process to end. It does what a process does then.
    fn leave(&mut self) {
        let Some((at, number)) = self.any(|process| !process.is_frozen()) else { return };
        {
            let mut record = lock(&self.record);
            if record.checker.is_leaving(number) {
                return;
            }
            record.note(Topic::Line, format!("process {number} is asked to end"));
            record.checker.leaves(&self.group, number);
        }
        let (group, record) = (self.group.clone(), Arc::clone(&self.record));
        let end = self.group.with(at, |process| {
            let standby = process.standby.clone();
            let stop = Arc::clone(&record);
            process.gated(end(standby, stop, number))
        });
        let Some(end) = end else { return };
        self.tasks.spawn_local(async move {
            end.await;
            // It may have been killed meanwhile.
            if group.with(at, |process| process.number) == Some(number) {
                group.kill(at);
                let mut record = lock(&record);
                record.note(Topic::Line, format!("process {number} ends"));
                record.checker.ended(&group, number);
            }
        });
    }

    fn freeze(&mut self) {
        let Some((at, number)) = self.any(|process| !process.is_frozen()) else { return };
        self.group.with(at, |process| process.freeze(true));
        self.note(format!("process {number} is frozen"));
        lock(&self.record).checker.frozen(&self.group, number);
    }

    fn thaw(&mut self) -> bool {
        let Some((at, number)) = self.any(Process::is_frozen) else { return false };
        self.group.with(at, |process| process.freeze(false));
        self.note(format!("process {number} continues"));
        lock(&self.record).checker.thawed(&self.group, number);
        true
    }

    fn cut(&mut self) {
        let one = self.rng.usize(..self.group.size());
        let other = (one + self.rng.usize(1..self.group.size())) % self.group.size();
        self.group.cut(one, other, true);
        self.note(format!("addresses {one} and {other} do not reach each other"));
        lock(&self.record).checker.network_changed(&self.group);
    }

    fn heal(&mut self) -> bool {
        let cuts = self.group.cuts();
        let Some(&(one, other)) = cuts.get(self.rng.usize(..cuts.len().max(1))) else {
            return false;
        };
        self.group.cut(one, other, false);
        self.note(format!("addresses {one} and {other} reach each other again"));
        lock(&self.record).checker.network_changed(&self.group);
        true
    }

    /// Begins to give all replicas another shard at times, or lets the next one have it.
    fn reload(&mut self) {
        let outdated = self.group.outdated();
        let Some(rng) = &mut self.reloads else { return };
        let [change, next] = RELOADS;
        if rng.u32(0..if outdated.is_empty() { change } else { next }) > 0 {
            return;
        }
        if outdated.is_empty() {
            self.group.change_shard();
            self.note("all processes are to have another shard".to_owned());
            return lock(&self.record).checker.reloaded(&self.group);
        }
        let can_reload = |at: &&usize| self.group.with(**at, Process::is_frozen) == Some(false);
        let outdated: Vec<&usize> = outdated.iter().filter(can_reload).collect();
        if let Some(at) = rng.choice(&outdated) {
            self.reload_one(**at);
        }
    }

    fn reload_one(&self, at: usize) {
        self.group.reload(at);
        let number = self.group.with(at, |process| process.number).unwrap_or_default();
        self.note(format!("process {number} has another shard"));
        lock(&self.record).checker.reloaded(&self.group);
    }

    /// Sends lines to a process.
    fn send(&mut self) {
        let Some((at, number)) = self.any(|process| !process.is_frozen()) else { return };
        let count = self.rng.usize(1..30);
        let mut record = lock(&self.record);
        if record.checker.has_stopped(number) {
            return;
        }
        let mut text = format!("lines_of_{number}:1|c|c:{CONTAINER}\n").repeat(count);
        if self.plain.bool() {
            text.push_str(PLAIN);
        }
        self.group.with(at, |process| process.lines.receive(text.as_bytes()));
        record.note(Topic::Line, format!("process {number} receives {count} lines"));
        record.checker.received(number, count);
    }

    fn check_relayed(&self) {
        let mut record = lock(&self.record);
        let result = record.checker.check_relayed(&self.group);
        record.check(result);
    }

    /// Sometimes begins scrapes of all replicas whose clients disconnect within 20 ms.
    fn disconnect_scrapes(&mut self, began: Instant) {
        if self.disconnects.u32(0..4) > 0 {
            return;
        }
        let after = Duration::from_millis(self.disconnects.u64(0..20));
        for at in self.group.running() {
            let scrape = self.group.with(at, |process| {
                let standby = process.standby.clone();
                process.gated(async move { standby.confirm(began).await })
            });
            self.tasks.spawn(async move { drop(timeout(after, scrape.expect("it runs")).await) });
        }
    }

    /// Scrapes all replicas at once.
    fn scrape(&mut self) {
        self.check_relayed();
        let began = Instant::now();
        self.disconnect_scrapes(began);
        let mut answers = JoinSet::new();
        for at in self.group.running() {
            let format = self.formats.usize(0..3);
            let scrape = self.group.with(at, |process| {
                let (standby, number) = (process.standby.clone(), process.number);
                process.gated(async move {
                    standby.confirm(Instant::now()).await;
                    (number, exposes(&standby, format))
                })
            });
            answers.spawn(timeout(SCRAPE_TIMEOUT, scrape.expect("it runs")));
        }
        let (group, record) = (self.group.clone(), Arc::clone(&self.record));
        self.tasks.spawn(async move {
            let answers: BTreeMap<usize, bool> =
                answers.join_all().await.into_iter().flatten().collect();
            let mut record = lock(&record);
            record.note(Topic::Scrape, format!("{answers:?}"));
            record.scrapes += 1;
            if let Err(why) = record.checker.scraped(began, &answers) {
                let known: Vec<_> = (group.running().into_iter())
                    .filter_map(|at| group.with(at, Process::describe))
                    .collect();
                record.check(Err(format!("{why}; {known:?}")));
            }
        });
    }

    /// Performs one random action.
    fn step(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        match self.rng.u32(0..100) {
            0..45 => self.send(),
            45..70 => self.scrape(),
            70..77 => self.start(),
            77..79 => self.kill(),
            79..81 => self.leave(),
            81..85 => self.freeze(),
            85..90 => drop(self.thaw()),
            90..93 => self.cut(),
            _ => drop(self.heal()),
        }
    }

    /// Ends all faults, waits until their effects are over and checks everything.
    async fn calm(&mut self) {
        while self.thaw() || self.heal() {}
        self.group.outdated().into_iter().for_each(|at| self.reload_one(at));
        self.start();
        while !lock(&self.record).checker.is_settled() {
            sleep(Duration::from_millis(self.rng.u64(10..300))).await;
            if self.rng.bool() { self.send() } else { self.scrape() }
        }
        let can_fail = self.names.as_mut().is_some_and(Rng::bool);
        if can_fail {
            self.note("the name cannot be resolved".to_owned());
            self.group.set_resolvable(false);
        }
        // Long enough for several look-ups.
        for _ in 0..if can_fail { 80 } else { 20 } {
            sleep(Duration::from_millis(self.rng.u64(10..300))).await;
            if self.rng.bool() { self.send() } else { self.scrape() }
        }
        self.group.set_resolvable(true);
        // No line and no scrape is on its way.
        sleep(Duration::from_secs(1)).await;
        let result = lock(&self.record).checker.check_lines(&self.group);
        lock(&self.record).check(result);
        for at in self.group.running() {
            let lost = self.group.with(at, |one| one.standby.0.lost.get());
            let lost = lost.unwrap_or(0);
            let result = if lost == 0 { Ok(()) } else { Err(format!("{lost} lines are lost")) };
            lock(&self.record).check(result);
        }
        self.check_relayed();
        drop(self.group.take_requests());
        let idle = Duration::from_secs(10);
        sleep(idle).await;
        let result = Checker::check_requests(&self.group.take_requests(), idle);
        lock(&self.record).check(result);
        let result = self.group.check_addresses();
        lock(&self.record).check(result);
    }

    /// Asks one process to end that has just received lines, or freezes one for a while in which nothing else happens.
    async fn stop_one(&mut self) {
        if self.rng.bool() {
            (0..self.rng.u32(1..8)).for_each(|_| self.send());
            return self.leave();
        }
        self.freeze();
        for _ in 0..self.rng.u32(1..12) {
            sleep(Duration::from_millis(self.rng.u64(0..1_000))).await;
            self.scrape();
        }
        self.thaw();
        self.scrape();
    }
}

fn run(seed: u64, length: Duration) -> Outcome {
    let tasks = LocalSet::new();
    in_simulated_time(
        seed,
        tasks.run_until(async {
            let mut history = History::new(seed);
            let begin = Instant::now();
            history.start();
            while begin.elapsed() < length && lock(&history.record).violation.is_none() {
                // Faults and their ends come in all distances from each other.
                let pause = if history.rng.u32(0..4) == 0 { 3 } else { 400 };
                sleep(Duration::from_millis(history.rng.u64(0..pause))).await;
                history.reload();
                if history.rng.u32(0..150) == 0 {
                    history.calm().await;
                    history.stop_one().await;
                } else {
                    history.step();
                }
            }
            history.calm().await;
            for at in history.group.running() {
                history.group.kill(at);
            }
            let mut record = lock(&history.record);
            let (violation, journal) =
                (record.violation.take(), std::mem::take(&mut record.journal));
            let violation = violation.or((record.scrapes == 0).then(|| "no scrape".to_owned()));
            Outcome { violation, journal, scrapes: record.scrapes }
        }),
    )
}

/// In any history one replica exposes, and each has all lines.
#[test]
fn random_histories() {
    let seed = env_number("KSTATD_SEED");
    let count = env_number("KSTATD_HISTORIES").unwrap_or(if seed.is_some() { 1 } else { 20 });
    let first = seed.unwrap_or(1);
    let (mut wrong, mut scrapes, mut seconds) = (String::new(), 0, 0);
    let run = |seed| run(seed, Duration::from_secs(120));
    for (seed, outcome) in run_all(first..first + count, run, |one| one.violation.is_some()) {
        scrapes += outcome.scrapes;
        seconds += outcome.journal.last().map_or(0, |entry| entry.at.as_secs());
        if let Some(violation) = outcome.violation {
            wrong.push_str(&describe("standby", seed, &violation, &outcome.journal));
        }
    }
    println!("{count} histories, {seconds} s of simulated time, {scrapes} scrapes");
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A seed determines each line and scrape: two processes do the same.
#[test]
fn a_seed_determines_the_history() {
    let first = env_number("KSTATD_SEED").unwrap_or(1);
    let seeds = first..first + env_number("KSTATD_HISTORIES").unwrap_or(4);
    let journal = |seed| {
        let outcome = run(seed, Duration::from_secs(60));
        let lines = outcome.journal.iter().map(|entry| format!("{entry:?}")).collect();
        Journal { seed, lines }
    };
    assert_same_in_another_process(
        concat!(module_path!(), "::a_seed_determines_the_history"),
        || seeds.map(journal).collect(),
    );
}
