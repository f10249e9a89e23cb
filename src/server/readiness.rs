//! Readiness as a set of latches: each part of the start-up holds one and drops it when done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The latches of a process.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<Latches>>);

#[derive(Debug, Default)]
struct Latches {
    next: u64,
    waiting: BTreeMap<u64, String>,
}

/// A reason for not being ready, removed on drop.
#[derive(Debug)]
pub struct Latch {
    readiness: Readiness,
    id: u64,
}

impl Readiness {
    /// Adds a reason for not being ready, in words for an operator ("first list of pods").
    pub fn latch(&self, reason: impl Into<String>) -> Latch {
        let mut latches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = latches.next;
        latches.next += 1;
        latches.waiting.insert(id, reason.into());
        Latch { readiness: self.clone(), id }
    }

    /// Returns the remaining reasons, oldest first; empty means ready.
    pub fn waiting_for(&self) -> Vec<String> {
        let latches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latches.waiting.values().cloned().collect()
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        let mut latches = self.readiness.0.lock().unwrap_or_else(PoisonError::into_inner);
        latches.waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_requires_all_latches_released() {
        let readiness = Readiness::default();
        assert!(readiness.waiting_for().is_empty());
        let pods = readiness.latch("pods");
        let nodes = readiness.latch("nodes");
        assert_eq!(readiness.waiting_for(), ["pods", "nodes"]);
        drop(pods);
        assert_eq!(readiness.waiting_for(), ["nodes"]);
        drop(nodes);
        assert!(readiness.waiting_for().is_empty());
    }
}
