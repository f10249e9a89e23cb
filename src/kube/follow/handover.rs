//! Objects that pass from one shard to another: what is gained waits unseen, what is lost is still shown.
//!
//! While a share changes, objects of the old and of the new one are followed. Those that only the new one
//! has are kept rendered, so that all of them can be shown at one moment; those that only the old one has
//! are noted, so that all of them can go at one moment. When these moments are is not known here.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cache::{Rendered, Replacement, Store};
use crate::kube::shard::{Part, Shard};

/// What passes, of one state of a list/watch.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    gained: HashMap<Vec<u8>, Rendered>,
    lost: HashSet<Vec<u8>>,
}

impl Passing {
    /// An object of the state that is being collected.
    pub(crate) fn collect(&mut self, part: Part, object: &Rendered, state: &mut Replacement) {
        match part {
            Part::Gained => {
                self.gained.insert(object.uid.clone(), object.clone());
                return;
            }
            Part::Lost => {
                self.lost.insert(object.uid.clone());
            }
            Part::Kept | Part::Foreign => {}
        }
        state.push(object);
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, uid: &[u8]) {
        self.gained.remove(uid);
        self.lost.remove(uid);
    }

    /// Whether it waits unseen.
    pub(crate) fn hides(&self, uid: &[u8]) -> bool {
        self.gained.contains_key(uid)
    }

    /// How many wait unseen.
    pub(crate) fn hidden(&self) -> usize {
        self.gained.len()
    }
}

/// The share of a list/watch, and what passes of the state that is shown.
#[derive(Debug)]
pub(crate) struct Handover(Mutex<State>);

#[derive(Debug)]
struct State {
    shard: Shard,
    passing: Passing,
}

impl Handover {
    pub(crate) fn new(shard: Shard) -> Self {
        Self(Mutex::new(State { shard, passing: Passing::default() }))
    }

    /// The share.
    pub(crate) fn shard(&self) -> Shard {
        self.lock().shard
    }

    /// An object is there, new or changed.
    pub(crate) fn put(&self, part: Part, object: &Rendered, store: &Store) {
        let mut state = self.lock();
        match part {
            Part::Gained => {
                state.passing.gained.insert(object.uid.clone(), object.clone());
                return;
            }
            Part::Lost => {
                state.passing.lost.insert(object.uid.clone());
            }
            Part::Kept | Part::Foreign => {}
        }
        store.apply(object);
    }

    /// What was collected is the state from here on.
    pub(crate) fn commit(&self, mut passing: Passing, mut collected: Replacement) {
        let mut state = self.lock();
        if state.shard.shows_gained() {
            passing.gained.drain().for_each(|(_, object)| collected.push(&object));
        }
        if !state.shard.shows_lost() {
            for uid in passing.lost.drain() {
                collected.delete(&uid);
            }
        }
        state.passing = passing;
        collected.commit();
    }

    /// An object is gone.
    pub(crate) fn forget(&self, uid: &[u8]) {
        self.lock().passing.forget(uid);
    }

    /// All objects are gone.
    pub(crate) fn clear(&self) {
        self.lock().passing = Passing::default();
    }

    /// Whether it waits unseen.
    pub(crate) fn hides(&self, uid: &[u8]) -> bool {
        self.lock().passing.hides(uid)
    }

    /// How many wait unseen.
    pub(crate) fn hidden(&self) -> usize {
        self.lock().passing.hidden()
    }

    /// Goes one step further with the same share: shows what was gained, or leaves what was lost.
    pub(crate) fn show(&self, shard: Shard, store: &Store) {
        let mut state = self.lock();
        state.shard = shard;
        if shard.shows_gained() {
            std::mem::take(&mut state.passing.gained)
                .values()
                .for_each(|object| store.apply(object));
        }
        if !shard.shows_lost() {
            for uid in std::mem::take(&mut state.passing.lost) {
                store.delete(&uid);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
