//! Detection of servers that were restored from a backup, whose resource versions go back.
//!
//! If a watch resumes from a version that such a server has not reached yet, the server sends neither an error nor the
//! changes in between. So after an interruption, the server's current resourceVersion is compared with those seen before.
//! The versions of built-in kinds are assumed to come from one etcd and are compared with each other; those of other kinds
//! only with themselves.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The resourceVersions seen by all list/watches of one server.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// The newest version of any built-in kind.
    newest: AtomicU64,
    /// The number of times that the server was set back.
    setbacks: AtomicU64,
    /// Notified of each setback. Waiting list/watches continue in the order of their arrival.
    set_back: Notify,
}

impl Versions {
    /// Records the version of an object or bookmark of a built-in kind.
    pub(crate) fn saw(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.newest.fetch_max(version, Ordering::Relaxed);
        }
    }

    /// Returns the number of times that the server was set back. Data from before the last time is unreliable.
    pub(crate) fn setbacks(&self) -> u64 {
        self.setbacks.load(Ordering::Relaxed)
    }

    /// Completes when the number of setbacks differs from `known`.
    pub(crate) async fn set_back_since(&self, known: u64) {
        let set_back = self.set_back.notified();
        if self.setbacks() == known {
            set_back.await;
        }
    }

    /// Returns the newest version of any built-in kind so far.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    /// Returns whether a server that answered with the version `found` is behind, and records a setback of built-in kinds.
    ///
    /// `known` is the version of the kind and `newest` that of all built-in kinds, both from before the request: events
    /// received during the request may be newer than its answer. Versions that are not numbers are never behind.
    pub(crate) fn is_behind(&self, found: &str, known: &str, newest: u64, built_in: bool) -> bool {
        let (Ok(found), Ok(known)) = (found.parse::<u64>(), known.parse::<u64>()) else {
            return false;
        };
        if found < known && built_in {
            self.newest.store(found, Ordering::Relaxed);
            self.setbacks.fetch_add(1, Ordering::Relaxed);
            self.set_back.notify_waiters();
        }
        found < known || built_in && found < newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_behind_any_built_in_kind_is_behind() {
        let versions = Versions::default();
        versions.saw("480");
        versions.saw("400");
        let newest = versions.newest();
        assert!(!versions.is_behind("480", "310", newest, true));
        assert!(versions.is_behind("320", "310", newest, true));
        assert!(!versions.is_behind("320", "310", newest, false));
        assert!(!versions.is_behind("abc", "310", newest, true));
        assert!(!versions.is_behind("1", "", newest, true));
        // Events received after the request may be newer than its answer.
        versions.saw("500");
        assert!(!versions.is_behind("480", "310", newest, true));
        assert_eq!(versions.setbacks(), 0);
        // A custom resource may be in another etcd.
        assert!(versions.is_behind("320", "321", newest, false));
        assert_eq!(versions.setbacks(), 0);
        assert!(versions.is_behind("320", "470", newest, true));
        assert_eq!(versions.setbacks(), 1);
        // Later versions are compared with the version after the setback.
        assert!(!versions.is_behind("321", "310", versions.newest(), true));
    }
}
