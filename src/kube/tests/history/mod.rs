//! Random histories: the whole pipeline, from its requests to a scrape, against a simulated API server with faults.
//!
//! A seed determines everything: the cluster and its changes, the faults and the delays. Time is simulated: the clock
//! of the event loop jumps to the next event and connections are in memory, so five minutes take a few seconds and
//! limits are exact on a busy machine, too. [`checker`] compares every scrape with all states that the cluster ever
//! had, and [`ledger`] the counters of events with an account of what has happened.
//!
//! Bytes can describe a history as well ([`run_bytes`]), for a fuzz target.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib random_histories` runs 100 histories of five minutes and prints the results
//! for each kind of fault. `KSTATD_SEED=n` sets the first seed; without `KSTATD_HISTORIES` only that seed runs, and
//! each request is printed. With `KSTATD_FIRST=1` the histories end at the first violation, as `tests/mutants/run` needs it.

mod accounts;
pub(super) mod body;
mod checker;
pub(crate) mod cluster;
#[cfg(test)]
mod combined;
mod completed;
mod counters;
mod custom;
mod encode;
mod encode_status;
mod ends;
mod fault_mix;
pub(crate) mod faults;
mod forms;
mod idle;
pub(crate) mod journal;
mod kind_reloads;
mod kube_events;
mod late_faults;
mod ledger;
mod ledger_reloads;
mod limits;
mod lives;
mod network;
mod nodes;
mod object_limit;
mod object_shards;
mod plugin;
mod pod_labels;
mod pod_track;
mod queue;
mod refusals;
mod rejected_tokens;
mod reload;
mod responses;
mod retry_after;
pub(crate) mod run;
pub(crate) mod scenario;
pub(crate) mod server;
pub(crate) mod setup;
pub(crate) mod signal;
mod snapshot;
mod status;
mod totals;
mod wire;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use faults::{Fault, Flap};
use run::Outcome;
use scenario::Scenario;

use crate::tests::env_number;
#[cfg(test)]
use crate::tests::replay::{Journal, assert_same_in_another_process};
use crate::tests::seeds;

/// The results of one kind of fault over many histories.
#[derive(Default)]
struct FaultStats {
    times: usize,
    recovered: Vec<Duration>,
    oldest: Duration,
}

/// Runs one history for each seed on all cores and returns the outcomes, sorted by seed. With `KSTATD_FIRST` it stops at
/// the first violation.
fn run_all(
    seeds: std::ops::Range<u64>,
    make: impl Fn(u64) -> Scenario + Sync,
    trace: bool,
) -> Vec<(u64, Outcome)> {
    let run = |seed| {
        let mut scenario = make(seed);
        scenario.trace = trace;
        run::simulate(scenario)
    };
    seeds::run_all(seeds, run, |outcome| outcome.violation.is_some())
}

/// Runs the history described by bytes and returns the violation, if any. `KSTATD_TRACE` prints each request.
pub fn run_bytes(bytes: &[u8]) -> Option<String> {
    let mut scenario = Scenario::from_bytes(bytes);
    scenario.trace = std::env::var_os("KSTATD_TRACE").is_some();
    run::simulate(scenario).violation
}

/// Returns the histories with a violation, one per line, and writes the timeline of each.
fn violations(outcomes: &[(u64, Outcome)]) -> String {
    let mut text = String::new();
    for (seed, outcome) in outcomes {
        if let Some(violation) = &outcome.violation {
            text.push_str(&journal::describe("seed", *seed, violation, &outcome.journal));
        }
    }
    text
}

/// Returns a table with a row for each kind of fault: occurrences, median and longest recovery, and age of the oldest
/// exposed state. Isolated faults have a row per kind; overlapping ones share a row.
fn table(outcomes: &[(u64, Outcome)]) -> String {
    let mut rows: BTreeMap<&str, FaultStats> = BTreeMap::new();
    for result in outcomes.iter().flat_map(|(_, outcome)| &outcome.fault_results) {
        let name = if result.isolated { result.name } else { "several at once" };
        let row = rows.entry(name).or_default();
        row.times += 1;
        row.oldest = row.oldest.max(result.oldest);
        row.recovered.push(result.recovered);
    }
    let scrapes: usize = outcomes.iter().map(|(_, outcome)| outcome.scrapes).sum();
    let requests: u64 = outcomes.iter().map(|(_, outcome)| outcome.requests).sum();
    let relists: u64 = outcomes.iter().map(|(_, outcome)| outcome.relists).sum();
    let ends = outcomes.iter().filter_map(|(_, outcome)| outcome.journal.last());
    let seconds: u64 = ends.map(|entry| entry.at.as_secs()).sum();
    let mut text = format!(
        "{} histories, {seconds} s of simulated time, {scrapes} scrapes, {requests} requests, {relists} relists\n",
        outcomes.len()
    );
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

/// In any sequence and combination of faults no scrape is ever wrong, and each is current in time.
#[test]
fn random_histories() {
    run_random(Scenario::random, 24);
}

/// The same with few kinds of faults that come again and again, servers that lack features, and shards of objects.
#[test]
fn histories_of_random_mixes() {
    run_random(Scenario::of_random_mix, 12);
}

/// Runs the histories that the environment asks for, or the `usual` number of shorter ones.
fn run_random(make: fn(u64, Duration) -> Scenario, usual: u64) {
    let seed = env_number("KSTATD_SEED");
    let (first, whole) = (seed.unwrap_or(1), Duration::from_secs(300));
    let (count, length) = match env_number("KSTATD_HISTORIES") {
        Some(count) => (count, whole),
        None if seed.is_some() => (1, whole),
        None => (usual, Duration::from_secs(150)),
    };
    // A single history prints each request.
    let outcomes =
        run_all(first..first + count, |seed| make(seed, length), seed.is_some() && count == 1);
    println!("{}", table(&outcomes));
    let violations = violations(&outcomes);
    assert!(violations.is_empty(), "\n{violations}");
}

/// A seed determines each request, response, event and scrape, and their times: two processes do the same to the byte.
#[test]
fn a_seed_determines_the_history() {
    let first = env_number("KSTATD_SEED").unwrap_or(1);
    let seeds = first..first + env_number("KSTATD_HISTORIES").unwrap_or(20);
    let journal = |(seed, outcome): (u64, Outcome)| {
        let lines: Vec<String> = outcome.journal.iter().map(|entry| format!("{entry:?}")).collect();
        assert!(lines.len() > 300, "seed {seed}: {} lines", lines.len());
        Journal { seed, lines }
    };
    let make = |seed| Scenario::random(seed, Duration::from_secs(100));
    assert_same_in_another_process(
        concat!(module_path!(), "::a_seed_determines_the_history"),
        || run_all(seeds, make, false).into_iter().map(journal).collect(),
    );
}

/// Each pair of faults at once, also of a fault with itself. `KSTATD_PAIRS=1` runs all 780 of them, otherwise every 18th.
/// `KSTATD_SEED` runs one of them and prints each request.
#[test]
fn pairs_of_faults() {
    let choices = 0..Fault::CHOICES;
    let pairs: Vec<(u32, u32)> =
        choices.flat_map(|one| (one..Fault::CHOICES).map(move |other| (one, other))).collect();
    let (step, only) =
        (if env_number("KSTATD_PAIRS").is_some() { 1 } else { 18 }, env_number("KSTATD_SEED"));
    let seeds = only.map_or(0..pairs.len() as u64 / step, |only| only / step..only / step + 1);
    let make = |seed| {
        let (one, other) = pairs[(seed * step) as usize];
        Scenario::pair_of_faults(one, other)
    };
    let outcomes = run_all(seeds, make, only.is_some());
    println!("{}", table(&outcomes));
    let violations = violations(&outcomes);
    assert!(violations.is_empty(), "\n{violations}");
}

/// Each fault in isolation, over HTTP/2 and HTTP/1.1. `KSTATD_SEED` runs one of them and prints each request.
#[test]
fn isolated_faults() {
    let count = env_number("KSTATD_HISTORIES").map_or(40, |count| 5 * count as usize);
    let only = env_number("KSTATD_SEED");
    let (mut wrong, mut outcomes) = (String::new(), Vec::new());
    let mut rng = fastrand::Rng::with_seed(1);
    let mut known: Vec<(Fault, Duration)> = Vec::new();
    while known.len() < count {
        let (fault, duration) = Fault::random(Fault::CHOICES, &mut rng);
        if known.contains(&(fault.clone(), duration)) {
            continue;
        }
        known.push((fault.clone(), duration));
        let seed = known.len() as u64;
        if only.is_some_and(|only| only != seed) {
            continue;
        }
        let mut scenario = Scenario::isolated_fault(seed, fault.clone(), duration);
        scenario.trace = only.is_some();
        let outcome = run::simulate(scenario);
        if let Some(violation) = &outcome.violation {
            let _ = writeln!(wrong, "KSTATD_SEED={seed}, {fault:?} for {duration:?}: {violation}");
        }
        outcomes.push((seed, outcome));
    }
    println!("{}", table(&outcomes));
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Watches that open and then fail cost few requests in every variant: error events and cuts, immediately and later,
/// all kinds or three while the others are forbidden, with lists that take 2 s, over HTTP/2 and HTTP/1.1. Each two of these
/// are combined; `KSTATD_HISTORIES` runs all combinations, and `KSTATD_SEED` one of them.
#[test]
fn flapping_watches_cost_few_requests() {
    let (mut wrong, mut outcomes) = (String::new(), Vec::new());
    let (only, mut seed) = (env_number("KSTATD_SEED"), 0);
    let is_short = only.is_none() && env_number("KSTATD_HISTORIES").is_none();
    for (row, code) in [0, 403, 410, 500].into_iter().enumerate() {
        for (block, (others_forbidden, http2)) in
            [(false, false), (false, true), (true, false), (true, true)].into_iter().enumerate()
        {
            let times = [(0, 0), (0, 2), (300, 0), (1_500, 2), (6_000, 0)];
            for (column, (after, list)) in times.into_iter().enumerate() {
                let (after, list) = (Duration::from_millis(after), Duration::from_secs(list));
                let fault = Fault::Flapping(Flap { code, after, list, others_forbidden });
                seed += 1;
                // A Latin square.
                let is_left_out = is_short && (row + column) % 4 != block;
                if is_left_out || only.is_some_and(|only| only != seed) {
                    continue;
                }
                let mut scenario =
                    Scenario::single_fault(seed, http2, fault.clone(), Duration::from_secs(50));
                scenario.trace = only.is_some();
                let outcome = run::simulate(scenario);
                if let Some(violation) = &outcome.violation {
                    let _ = writeln!(
                        wrong,
                        "KSTATD_SEED={seed}, {fault:?}, HTTP/2 {http2}: {violation}"
                    );
                }
                outcomes.push((seed, outcome));
            }
        }
    }
    println!("{}", table(&outcomes));
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A client that may list but not watch lists each kind every half minute, and not at every attempt to watch.
#[test]
fn few_lists_while_watches_are_refused() {
    for (seed, streaming) in [(1, false), (2, true)] {
        let fault = Fault::WatchesRefused { code: 403, streaming };
        let outcome =
            run::simulate(Scenario::isolated_fault(seed, fault, Duration::from_secs(120)));
        assert_eq!(outcome.violation, None);
        // A streaming list that is refused counts like the list that follows.
        let lists = if streaming { outcome.relists / 2 } else { outcome.relists };
        let kinds = cluster::ALL_KINDS.len() as u64;
        assert!((3 * kinds..=5 * kinds).contains(&lists), "{lists} lists of {kinds} kinds");
    }
}

/// A new connection suggests a server with other kinds, except over HTTP/1.1, where each watch has its own connection.
#[test]
fn new_connection_retries_missing_kinds() {
    assert_eq!(run::simulate(Scenario::server_replaced(true)).violation, None);
    let violation =
        run::simulate(Scenario::server_replaced(false)).violation.expect("it is found later");
    assert!(violation.contains("Widget"), "{violation}");
}

/// After a disconnect from a healthy server watches resume without a relist, no matter how busy the server is. The other
/// histories check this, too, for servers that are less busy.
#[test]
fn no_relist_after_a_disconnect() {
    let mut wrong = String::new();
    for seed in 0..env_number("KSTATD_HISTORIES").unwrap_or(4) {
        let outcome = run::simulate(Scenario::disconnects(seed, seed % 2 == 0));
        let Outcome { violation, relists, .. } = &outcome;
        if violation.is_some() || *relists > 0 {
            let _ = writeln!(wrong, "seed {seed}: {relists} lists, {violation:?}");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Inputs with which `watch_model` found defects.
const FOUND: [&[u8]; 1] = [
    // A restored server ends a silent watch with an empty frame, which was taken for a sign of life.
    b"!\0b@\x05cA\ndB\x8e\x0e\x82\x0feC\x14fD\x19gE",
];

/// The same histories as the fuzz target `watch_model`. `KSTATD_HISTORY=FILE` runs one of its inputs.
#[test]
fn histories_from_bytes() {
    if let Some(file) = std::env::var_os("KSTATD_HISTORY") {
        assert_eq!(run_bytes(&std::fs::read(file).expect("a file")), None);
        return;
    }
    for bytes in FOUND {
        assert_eq!(run_bytes(bytes), None, "{bytes:?}");
    }
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..60 {
        let bytes: Vec<u8> = (0..rng.usize(0..80)).map(|_| rng.u8(..)).collect();
        assert_eq!(run_bytes(&bytes), None, "{bytes:?}");
    }
}
