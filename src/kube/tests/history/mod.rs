//! Random histories: the Kubernetes side, from its requests to what a scrape shows, against an API server that misbehaves.
//!
//! A seed decides about everything: the cluster and its changes, the faults, the delays. Time is simulated: the event loop's clock jumps to
//! the next thing that happens, connections are in memory, so that five minutes take about a second, and
//! limits are exact whatever else the machine has to do. [`checker`] holds every scrape against all that ever was.
//!
//! A history can be told by bytes as well ([`told`]), which is how a fuzz target drives it.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib random_histories` runs as many of five minutes each and prints a table of what came of them;
//! with `KSTATD_SEED=n` they begin with that seed, which is the only one where no number is given, and tells of each request.

mod checker;
mod cluster;
mod encode;
mod faults;
mod run;
mod server;
mod wire;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use faults::Fault;
use run::{Outcome, Plan};

/// What came of one fault in many histories.
#[derive(Default)]
struct Row {
    times: usize,
    recovered: Vec<Duration>,
    oldest: Duration,
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Runs histories on all cores; what came of each, in the order of the seeds.
fn run_all(seeds: std::ops::Range<u64>, length: Duration, trace: bool) -> Vec<(u64, Outcome)> {
    let (next, outcomes) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    let mut plan = Plan::random(seed, length);
                    plan.trace = trace;
                    let outcome = run::history(plan);
                    outcomes.lock().expect("no panic").push((seed, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no panic");
    outcomes.sort_by_key(|(seed, _)| *seed);
    outcomes
}

/// Runs the history that bytes tell, and what was wrong with it. `KSTATD_TRACE` prints all that is asked for.
pub fn told(bytes: &[u8]) -> Option<String> {
    let mut plan = Plan::told(bytes);
    plan.trace = std::env::var_os("KSTATD_TRACE").is_some();
    run::history(plan).violation
}

/// The histories that were wrong, a line each.
fn violations(outcomes: &[(u64, Outcome)]) -> String {
    let mut text = String::new();
    for (seed, outcome) in outcomes {
        if let Some(violation) = &outcome.violation {
            let _ = writeln!(text, "KSTATD_SEED={seed}: {violation}");
        }
    }
    text
}

/// A row for each kind of fault: how often, how long until all is well (median, worst), how old the oldest answer was; of those
/// that were alone, and of the others together.
fn table(outcomes: &[(u64, Outcome)]) -> String {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for told in outcomes.iter().flat_map(|(_, outcome)| &outcome.told) {
        let name = if told.alone { told.name } else { "several at once" };
        let row = rows.entry(name).or_default();
        row.times += 1;
        row.oldest = row.oldest.max(told.oldest);
        row.recovered.push(told.recovered);
    }
    let scrapes: usize = outcomes.iter().map(|(_, outcome)| outcome.scrapes).sum();
    let requests: u64 = outcomes.iter().map(|(_, outcome)| outcome.requests).sum();
    let mut text =
        format!("{} histories, {scrapes} scrapes, {requests} requests\n", outcomes.len());
    for (name, mut row) in rows {
        row.recovered.sort();
        let (last, middle) = (row.recovered.last(), row.recovered.get(row.recovered.len() / 2));
        let seconds = |time: Option<&Duration>| time.copied().unwrap_or_default().as_secs_f64();
        let (middle, last, oldest) = (seconds(middle), seconds(last), seconds(Some(&row.oldest)));
        let times = row.times;
        let _ =
            writeln!(text, "| {name} | {times} | {middle:.1} s | {last:.1} s | {oldest:.1} s |");
    }
    text
}

/// Whatever the order, the length and the company of faults: no answer is ever wrong, and each is the present in time.
#[test]
fn random_histories() {
    let seed = variable("KSTATD_SEED");
    let (first, whole) = (seed.unwrap_or(1), Duration::from_secs(300));
    let (count, length) = match variable("KSTATD_HISTORIES") {
        Some(count) => (count, whole),
        None if seed.is_some() => (1, whole),
        None => (24, Duration::from_secs(150)),
    };
    // Of one alone, all that is asked for is told.
    let outcomes = run_all(first..first + count, length, seed.is_some() && count == 1);
    println!("{}", table(&outcomes));
    let violations = violations(&outcomes);
    assert!(violations.is_empty(), "\n{violations}");
}

/// Each fault by itself, over HTTP/2 and HTTP/1.1.
#[test]
fn each_fault_by_itself() {
    let count = variable("KSTATD_HISTORIES").map_or(40, |count| 5 * count as usize);
    let (mut wrong, mut outcomes) = (String::new(), Vec::new());
    let mut rng = fastrand::Rng::with_seed(1);
    let mut known: Vec<(Fault, Duration)> = Vec::new();
    while known.len() < count {
        let (fault, lasts) = Fault::random(&mut rng);
        if known.contains(&(fault.clone(), lasts)) {
            continue;
        }
        known.push((fault.clone(), lasts));
        let seed = known.len() as u64;
        let outcome = run::history(Plan::alone(seed, fault.clone(), lasts));
        if let Some(violation) = &outcome.violation {
            let _ = writeln!(wrong, "{fault:?} for {lasts:?}: {violation}");
        }
        outcomes.push((seed, outcome));
    }
    println!("{}", table(&outcomes));
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// What the fuzz target `watch_model` makes histories of; `KSTATD_TOLD=FILE` runs one of its inputs.
#[test]
fn histories_that_bytes_tell() {
    if let Some(file) = std::env::var_os("KSTATD_TOLD") {
        assert_eq!(told(&std::fs::read(file).expect("a file")), None);
        return;
    }
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..60 {
        let bytes: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(..)).collect();
        assert_eq!(told(&bytes), None, "{bytes:?}");
    }
}
