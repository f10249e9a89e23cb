//! A directory walk for usage that no cheaper source knows, on one low-priority thread.
//!
//! The walk has a budget of [calls and bytes](rate_limiter) per second, runs at idle IO priority, and
//! pauses while the host is under IO pressure. It caches each [tree], so that a pass stats each
//! directory once and reads only those that changed, plus a rotating share of the others.

mod config;
mod files;
pub(super) mod metrics;
mod rate_limiter;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(crate) use self::config::WalkConfig;
pub(crate) use self::metrics::WalkMetrics;
use self::rate_limiter::{RateLimiter, Stopped};
use self::tree::Tree;
use super::figure::{Figure, Origin, PartKind};
use super::store::{MeasuredObject, Store, Target, now};
use super::{mounts, quota, sys};

/// The interval at which partial results are published during a pass.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(5);

/// Enough for a thousand nested directories, even in a debug build; unused pages cost nothing.
const STACK: usize = 32 << 20;

/// A walker thread, which stops when dropped.
pub(crate) struct Walk {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Walk {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When the system cannot create a thread.
    pub(crate) fn start(
        config: WalkConfig,
        store: Arc<Store>,
        metrics: WalkMetrics,
    ) -> std::io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let thread =
            thread::Builder::new().name("walk".to_owned()).stack_size(STACK).spawn(move || {
                sys::lower_priority();
                let limiter = RateLimiter::new(&config, metrics, stop);
                let mut walker = Walker {
                    config,
                    store,
                    limiter,
                    trees: BTreeMap::new(),
                    parts: 1,
                    logged_error: None,
                };
                while walker.pass().is_ok() {}
            })?;
        Ok(Self { ended, thread })
    }

    /// Returns whether the thread is running.
    pub(crate) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // The thread ends before its next system call. It is not waited for: a file system that does not answer may hold it.
    }
}

struct Walker {
    config: WalkConfig,
    store: Arc<Store>,
    limiter: RateLimiter,
    trees: BTreeMap<MeasuredObject, (PathBuf, Tree)>,
    /// The number of [parts] of the memory.
    parts: usize,
    /// The last logged error of the mount table.
    logged_error: Option<String>,
}

impl Walker {
    /// Walks all targets once, then waits for the next pass.
    fn pass(&mut self) -> Result<(), Stopped> {
        let begun = Instant::now();
        if self.config.quotas {
            let targets = self.targets(Origin::Quota);
            let places = self.read_quotas(targets);
            self.store.retain_objects(Origin::Quota, &places);
            self.store.publish();
        }
        let mut targets = if self.config.walk { self.targets(Origin::Walk) } else { Vec::new() };
        targets.extend(self.config.paths.iter().map(|(name, path)| Target {
            place: MeasuredObject::unassigned(PartKind::Path, name),
            path: path.clone(),
        }));
        let places: BTreeSet<MeasuredObject> =
            targets.iter().map(|target| target.place.clone()).collect();
        let paths: BTreeSet<(&MeasuredObject, &PathBuf)> =
            targets.iter().map(|target| (&target.place, &target.path)).collect();
        self.trees.retain(|place, (path, _)| paths.contains(&(place, path)));
        self.store.retain_objects(Origin::Walk, &places);
        self.parts = parts(self.parts, places.len());
        let own = self.config.memory / 2 / self.parts;
        let extra = |of: Option<&(PathBuf, Tree)>| {
            of.map_or(0, |(_, tree)| tree.memory().saturating_sub(own))
        };
        let mut taken: usize = self.trees.values().map(|tree| extra(Some(tree))).sum();
        for target in targets {
            let place = target.place.clone();
            taken -= extra(self.trees.get(&place));
            let walked = self.walk_tree(target, self.memory_of(own, taken));
            taken += extra(self.trees.get(&place));
            walked?;
        }
        let trees = || self.trees.values().map(|(_, tree)| tree);
        self.limiter.metrics.memory.set(trees().map(|tree| tree.memory() as f64).sum());
        self.limiter.metrics.skipped.set(trees().map(|tree| tree.skipped() as f64).sum());
        self.limiter.metrics.passes.inc();
        self.limiter.record_cpu();
        self.store.publish();
        self.limiter.sleep(self.config.interval.saturating_sub(begun.elapsed()))
    }

    fn targets(&mut self, origin: Origin) -> Vec<Target> {
        let overlays = match mounts::overlays(&self.config.mounts) {
            Ok(overlays) => {
                self.logged_error = None;
                overlays
            }
            Err(error) => {
                let text = error.to_string();
                if self.logged_error.as_ref() != Some(&text) {
                    let table = self.config.mounts.display();
                    tracing::warn!(%table, %error, "Cannot read the mount table, writable layers are not measured");
                    self.logged_error = Some(text);
                }
                Vec::new()
            }
        };
        self.store.targets(origin, &self.config.root, overlays)
    }

    fn read_quotas(&self, targets: Vec<Target>) -> BTreeSet<MeasuredObject> {
        let mut places = BTreeSet::new();
        for Target { place, path } in targets {
            if let Some((bytes, inodes)) = quota::of(&path, |call| self.limiter.metrics.count(call))
            {
                let (inodes, at) = (Some(inodes), now());
                let figure = Figure { bytes, inodes, at, coverage: 1.0 };
                self.store.enter(&place, Origin::Quota, Some(figure));
                places.insert(place);
            }
        }
        places
    }

    /// Returns the memory budget of a tree, in bytes. Each tree has one of the [parts] of one half of the total.
    /// Of the other half, a tree may use what the others leave, but at most half of it, so that one exploding tree does not
    /// starve the next. `own` is that part, and `taken` what the others have taken of the other half.
    fn memory_of(&self, own: usize, taken: usize) -> usize {
        let pool = self.config.memory / 2;
        own + pool.saturating_sub(taken).min(pool / 2)
    }

    /// Walks one tree with a memory budget in bytes.
    fn walk_tree(&mut self, Target { place, path }: Target, memory: usize) -> Result<(), Stopped> {
        let tree = self.trees.entry(place.clone()).or_default();
        tree.0.clone_from(&path);
        let (store, mut shown) = (&self.store, Instant::now());
        let show = |figure: Figure| {
            if shown.elapsed() >= PUBLISH_INTERVAL {
                store.enter(&place, Origin::Walk, Some(figure));
                store.publish();
                shown = Instant::now();
            }
        };
        let found = tree.1.pass(&path, &mut self.limiter, memory, show)?;
        store.enter(&place, Origin::Walk, found);
        Ok(())
    }
}

/// Returns the number of parts into which the memory of `count` trees is split: a power of two, at least `count`. It becomes smaller
/// only if at most a quarter of the parts is used: a tree at its limit starts over when its part becomes smaller, and pods come
/// and go all the time.
fn parts(before: usize, count: usize) -> usize {
    let wanted = count.max(1).next_power_of_two();
    if wanted > before || wanted <= before / 4 { wanted } else { before }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn parts_seldom_become_smaller() {
        let (mut all, mut changes) = (1, 0);
        let comings_and_goings = [32, 33].into_iter().cycle().take(100);
        for count in (0..=1_000).chain(comings_and_goings) {
            let next = parts(all, count);
            assert!(next >= count);
            (changes, all) = (changes + usize::from(next != all), next);
        }
        // Ten while the number grows, from 1,024 to 32 parts, and to 64.
        assert_eq!((changes, all), (12, 64));
    }

    /// As in a system call about a file of a server that is gone.
    #[test]
    fn the_end_does_not_wait_for_a_file_system() {
        let (release, held) = mpsc::channel::<()>();
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let walk = Walk {
            ended,
            thread: thread::spawn(move || {
                let _ = held.recv();
            }),
        };
        assert!(walk.is_running());
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || {
            drop(walk);
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("it does not wait");
        assert!(stop.load(Ordering::Relaxed));
        drop(release);
    }
}
