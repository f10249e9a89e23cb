//! Readiness as a set of latches: each part of the start-up holds one and drops it when done.

use std::sync::{Arc, Weak};

use crate::util::lock::Lock;

/// The latches of a process, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Lock<Vec<Weak<str>>>>);

/// A reason for not being ready, until it is dropped.
#[derive(Debug)]
pub struct Latch {
    _reason: Arc<str>,
}

impl Readiness {
    /// Adds a reason for not being ready, in words for an operator ("first list of pods").
    pub fn latch(&self, reason: impl Into<Arc<str>>) -> Latch {
        let reason = reason.into();
        self.0.lock().push(Arc::downgrade(&reason));
        Latch { _reason: reason }
    }

    /// Returns the remaining reasons, oldest first; empty means ready.
    pub fn waiting_for(&self) -> Vec<String> {
        self.0.lock().iter().filter_map(Weak::upgrade).map(|reason| reason.to_string()).collect()
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
