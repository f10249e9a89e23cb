//! Objects that pass from one shard to another: what is gained waits unseen, what is lost is still shown.
//!
//! While a share changes, objects of the old and of the new one are followed. Those that only the new one
//! has are kept rendered, so that all of them can be shown at one moment; those that only the old one has
//! are noted, so that all of them can go at one moment. When these moments are is not known here.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cache::{Kept, Rendered, Replacement, Store};
use crate::kube::shard::{Part, Shard};

/// What passes, of one state of a list/watch.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    gained: HashMap<Vec<u8>, Rendered>,
    /// Series of those.
    series: u64,
    lost: HashSet<Vec<u8>>,
}

impl Passing {
    /// An object of the state that is being collected.
    pub(crate) fn collect(&mut self, part: Part, object: &Rendered, state: &mut Replacement) {
        match part {
            Part::Gained => return self.gain(object),
            Part::Lost => {
                self.lost.insert(object.uid.clone());
            }
            Part::Kept | Part::Foreign => {}
        }
        state.push(object);
    }

    fn gain(&mut self, object: &Rendered) {
        let old = self.gained.insert(object.uid.clone(), object.clone());
        self.series += u64::from(object.series);
        self.series -= old.map_or(0, |old| u64::from(old.series));
    }

    /// What was gained, which waits no longer.
    fn take(&mut self) -> HashMap<Vec<u8>, Rendered> {
        self.series = 0;
        std::mem::take(&mut self.gained)
    }

    /// An object is gone.
    pub(crate) fn forget(&mut self, uid: &[u8]) {
        self.series -= self.gained.remove(uid).map_or(0, |old| u64::from(old.series));
        self.lost.remove(uid);
    }

    /// Whether nothing passes.
    pub(crate) fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty()
    }

    /// Series of what waits unseen.
    pub(crate) fn series(&self) -> u64 {
        self.series
    }

    /// Shows the object with this uid, if it waits unseen.
    pub(crate) fn look(&self, uid: &[u8], see: impl FnOnce(Kept<'_>)) {
        if let Some(object) = self.gained.get(uid) {
            see(Kept::from(object));
        }
    }

    /// Shows all that wait unseen.
    pub(crate) fn each(&self, mut see: impl FnMut(Kept<'_>)) {
        self.gained.values().for_each(|object| see(Kept::from(object)));
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
            Part::Gained => return state.passing.gain(object),
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
            passing.take().values().for_each(|object| collected.push(object));
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

    /// Series of what waits unseen.
    pub(crate) fn hidden_series(&self) -> u64 {
        self.lock().passing.series()
    }

    /// As [`Passing::look`].
    pub(crate) fn look(&self, uid: &[u8], see: impl FnOnce(Kept<'_>)) {
        self.lock().passing.look(uid, see);
    }

    /// As [`Passing::each`].
    pub(crate) fn each(&self, see: impl FnMut(Kept<'_>)) {
        self.lock().passing.each(see);
    }

    /// Goes one step further with the same share: shows what was gained, or leaves what was lost.
    pub(crate) fn show(&self, shard: Shard, store: &Store) {
        let mut state = self.lock();
        state.shard = shard;
        if shard.shows_gained() {
            state.passing.take().values().for_each(|object| store.apply(object));
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
