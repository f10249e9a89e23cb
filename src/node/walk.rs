//! A walk of our own, for what no cheaper source knows: one thread that takes its time.
//!
//! It has a budget of [calls and bytes](pace) a second, stands back from the disk and the CPU, and rests while the host's
//! IO is under pressure; it goes on where it was. What it knows of a [tree] it keeps, so that a pass looks at each
//! directory once and reads again only those that have changed, and the others by turns.

pub(super) mod cost;
mod files;
mod pace;
mod plan;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

pub(crate) use self::cost::Cost;
use self::pace::{Ended, Pace};
pub(crate) use self::plan::Plan;
use self::tree::Tree;
use super::figure::{Figure, Origin, What};
use super::store::{Place, Store, Target, now};
use super::{mounts, quota, sys};

/// How often what is known so far is shown during a pass.
const SHOWN: Duration = Duration::from_secs(5);

/// A thread that walks, until it is told to end.
pub(crate) struct Walk {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Walk {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The system has no thread.
    pub(crate) fn start(plan: Plan, store: Arc<Store>, cost: Cost) -> std::io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let thread = thread::Builder::new().name("walk".to_owned()).spawn(move || {
            sys::stand_back();
            let pace = Pace::new(&plan, cost, stop);
            let mut walker = Walker { plan, store, pace, trees: BTreeMap::new(), complained: None };
            while walker.pass().is_ok() {}
        })?;
        Ok(Self { ended, thread: Some(thread) })
    }

    fn thread(&self) -> Option<&Thread> {
        self.thread.as_ref().map(JoinHandle::thread)
    }

    /// Whether it runs.
    pub(crate) fn lives(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread() {
            thread.unpark();
        }
        // It looks at the order between two calls.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct Walker {
    plan: Plan,
    store: Arc<Store>,
    pace: Pace,
    trees: BTreeMap<Place, (PathBuf, Tree)>,
    /// What was wrong with the mount table.
    complained: Option<String>,
}

impl Walker {
    /// Goes through everything once, and waits until it is time for the next pass.
    fn pass(&mut self) -> Result<(), Ended> {
        let begun = Instant::now();
        if self.plan.quotas {
            let targets = self.targets(Origin::Quota);
            let places = self.ask_quotas(targets);
            self.store.keep_places(Origin::Quota, &places);
            self.store.settle();
        }
        let mut targets = if self.plan.walk { self.targets(Origin::Walk) } else { Vec::new() };
        targets.extend(self.plan.paths.iter().map(|(name, path)| Target {
            place: Place::Loose(What::Path, Box::from(name.as_str())),
            path: path.clone(),
        }));
        let places: BTreeSet<Place> = targets.iter().map(|target| target.place.clone()).collect();
        self.trees.retain(|place, (path, _)| {
            targets.iter().any(|target| target.place == *place && target.path == *path)
        });
        self.store.keep_places(Origin::Walk, &places);
        for target in targets {
            self.look(target)?;
        }
        self.pace.cost.passes.inc();
        self.pace.note_cpu();
        self.store.settle();
        self.pace.rest(self.plan.interval.saturating_sub(begun.elapsed()))
    }

    fn targets(&mut self, origin: Origin) -> Vec<Target> {
        let overlays = match mounts::overlays(&self.plan.mounts) {
            Ok(overlays) => {
                self.complained = None;
                overlays
            }
            Err(error) => {
                let text = error.to_string();
                if self.complained.as_ref() != Some(&text) {
                    let table = self.plan.mounts.display();
                    tracing::warn!(%table, %error, "writable layers are not found without the mount table");
                    self.complained = Some(text);
                }
                Vec::new()
            }
        };
        self.store.targets(origin, &self.plan.root, overlays)
    }

    fn ask_quotas(&self, targets: Vec<Target>) -> BTreeSet<Place> {
        let mut places = BTreeSet::new();
        for Target { place, path } in targets {
            if let Some((bytes, inodes)) = quota::of(&path, |call| self.pace.cost.count(call)) {
                let (inodes, at) = (Some(inodes), now());
                let figure = Figure { bytes, inodes, at, coverage: 1.0 };
                self.store.enter(&place, Origin::Quota, Some(figure));
                places.insert(place);
            }
        }
        places
    }

    /// Goes through one tree.
    fn look(&mut self, Target { place, path }: Target) -> Result<(), Ended> {
        let tree = self.trees.entry(place.clone()).or_default();
        tree.0.clone_from(&path);
        let (store, mut shown) = (&self.store, Instant::now());
        let show = |figure: Figure| {
            if shown.elapsed() >= SHOWN {
                store.enter(&place, Origin::Walk, Some(figure));
                store.settle();
                shown = Instant::now();
            }
        };
        let found = tree.1.pass(&path, &mut self.pace, self.plan.passes, show)?;
        store.enter(&place, Origin::Walk, found);
        Ok(())
    }
}
