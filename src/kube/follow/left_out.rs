//! The objects that a budget leaves without series: how many of each namespace.
//!
//! An object is known by its key alone, 32 bytes whatever it is, so that totals stay exact at any number of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use crate::cache::Key;

/// Namespaces with the number of their objects.
pub(crate) type Namespaces = Vec<(Vec<u8>, u64)>;

/// Those of one list/watch.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    present: Objects,
    /// Those of the state that is being collected.
    collected: Option<Objects>,
}

#[derive(Debug, Default)]
struct Objects {
    /// With the number of the namespace.
    keys: HashMap<Key, u32, foldhash::fast::FixedState>,
    /// The namespaces that there were, and how many objects they have.
    namespaces: Namespaces,
    numbers: HashMap<Vec<u8>, u32, foldhash::fast::RandomState>,
}

impl Objects {
    fn note(&mut self, key: Key, namespace: &[u8]) {
        if self.keys.contains_key(&key) {
            return;
        }
        let number = self.numbers.get(namespace).copied().unwrap_or_else(|| {
            let number = self.namespaces.len() as u32;
            self.namespaces.push((namespace.to_vec(), 0));
            self.numbers.insert(namespace.to_vec(), number);
            number
        });
        self.keys.insert(key, number);
        if let Some((_, count)) = self.namespaces.get_mut(number as usize) {
            *count += 1;
        }
    }

    fn forget(&mut self, key: Key) {
        if self.keys.is_empty() {
            return;
        }
        let Some(number) = self.keys.remove(&key) else { return };
        if let Some((_, count)) = self.namespaces.get_mut(number as usize) {
            *count = count.saturating_sub(1);
        }
        if self.keys.is_empty() {
            *self = Self::default();
        }
    }
}

impl State {
    /// Those of the state that objects belong to.
    fn current(&mut self) -> &mut Objects {
        self.collected.as_mut().unwrap_or(&mut self.present)
    }
}

impl LeftOut {
    /// An object has no series.
    pub(super) fn note(&self, key: Key, namespace: &[u8]) {
        self.lock().current().note(key, namespace);
    }

    /// An object has series, or is gone.
    pub(super) fn forget(&self, key: Key) {
        self.lock().current().forget(key);
    }

    /// From here on objects belong to a new state.
    pub(super) fn collect(&self) {
        self.lock().collected = Some(Objects::default());
    }

    /// What was collected is the state, or is dropped.
    pub(super) fn settle(&self, commits: bool) {
        let mut state = self.lock();
        if let Some(collected) = state.collected.take().filter(|_| commits) {
            state.present = collected;
        }
    }

    /// All objects are gone.
    pub(super) fn clear(&self) {
        *self.lock() = State::default();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.lock().present.keys.len() as u64
    }

    /// How many of each namespace.
    pub(crate) fn namespaces(&self) -> Namespaces {
        let state = self.lock();
        state.present.namespaces.iter().filter(|(_, count)| *count > 0).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
