//! Runs simulated histories, one for each seed.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::env_number;

/// Runs a history for each seed on all cores and returns the outcomes, sorted by seed. With `KSTATD_FIRST` it stops at
/// the first one that is wrong.
pub(crate) fn run_all<O: Send>(
    seeds: Range<u64>,
    run: impl Fn(u64) -> O + Sync,
    is_wrong: impl Fn(&O) -> bool + Sync,
) -> Vec<(u64, O)> {
    let (first, found) = (env_number("KSTATD_FIRST").is_some(), AtomicBool::new(false));
    let (next, outcomes) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) || first && found.load(Ordering::Relaxed) {
                        return;
                    }
                    let outcome = run(seed);
                    found.fetch_or(is_wrong(&outcome), Ordering::Relaxed);
                    outcomes.lock().expect("no panic").push((seed, outcome));
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("no panic");
    outcomes.sort_by_key(|(seed, _)| *seed);
    outcomes
}
