//! Whether a server has been set back: restored from a backup, it counts versions from an older one on.
//!
//! A watch from a version that such a server has not reached yet is silent until it has, and tells nothing of what was lost or came to be
//! in between. So after a time in which this may have happened, the server's present version is
//! compared with those that were seen. Versions of built-in kinds are of one row (one etcd); of other kinds that is not known.

use std::sync::atomic::{AtomicU64, Ordering};

/// The versions of all list/watches of one server.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// The newest of a built-in kind.
    newest: AtomicU64,
    /// How often the server was set back.
    setbacks: AtomicU64,
}

impl Versions {
    /// Something of a built-in kind came with this version.
    pub(crate) fn saw(&self, version: &str) {
        if let Ok(version) = version.parse() {
            self.newest.fetch_max(version, Ordering::Relaxed);
        }
    }

    /// How often the server was set back so far: what is known from before is not to be relied on.
    pub(crate) fn setbacks(&self) -> u64 {
        self.setbacks.load(Ordering::Relaxed)
    }

    /// Whether a server at the version `found` is behind what is known of a kind, or of all built-in ones. Versions that are no numbers
    /// cannot be compared.
    pub(crate) fn is_behind(&self, found: &str, known: &str, built_in: bool) -> bool {
        let (Ok(found), Ok(known)) = (found.parse::<u64>(), known.parse::<u64>()) else {
            return false;
        };
        if found < known && built_in {
            self.newest.store(found, Ordering::Relaxed);
            self.setbacks.fetch_add(1, Ordering::Relaxed);
        }
        found < known || built_in && found < self.newest.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_any_built_in_kind_is_behind() {
        let versions = Versions::default();
        versions.saw("480");
        versions.saw("400");
        assert!(!versions.is_behind("480", "310", true));
        assert!(versions.is_behind("320", "310", true));
        assert!(!versions.is_behind("320", "310", false));
        assert!(!versions.is_behind("abc", "310", true) && !versions.is_behind("1", "", true));
        assert_eq!(versions.setbacks(), 0);
        // A custom kind may have another store.
        assert!(versions.is_behind("320", "321", false));
        assert_eq!(versions.setbacks(), 0);
        assert!(versions.is_behind("320", "470", true));
        assert_eq!(versions.setbacks(), 1);
        // From here on it counts from there.
        assert!(!versions.is_behind("321", "310", true));
    }
}
