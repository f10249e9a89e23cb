//! How long a metric certainly exists, and how long it may exist: it keeps the time to live of its first line, which is uncertain if
//! the metric may have ended and begun again since.

use std::time::Duration;

use super::History;
use super::checker::{EARLY, LATE};

/// The life of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    /// The time of its last line.
    touched: Duration,
    /// The shortest and the longest possible time to live.
    ttls: [Duration; 2],
}

impl History {
    /// Returns true if a metric certainly exists.
    pub(super) fn exists(&self, life: Option<Lifetime>) -> bool {
        life.is_some_and(|life| !self.ttl || self.now + *EARLY < life.touched + life.ttls[0])
    }

    /// Returns true if a metric may exist.
    pub(super) fn may_exist(&self, life: Option<Lifetime>) -> bool {
        life.is_some_and(|life| !self.ttl || self.now <= life.touched + life.ttls[1] + *LATE)
    }

    /// Returns the life of a metric after a line with this time to live, which has begun it if it did not exist.
    pub(super) fn prolonged(&self, life: Option<Lifetime>, ttl: Duration) -> Lifetime {
        let ttls = match life.filter(|_| self.may_exist(life)) {
            Some(before) if self.exists(life) => before.ttls,
            Some(Lifetime { ttls: [shortest, longest], .. }) => {
                [shortest.min(ttl), longest.max(ttl)]
            }
            None => [ttl; 2],
        };
        Lifetime { touched: self.now, ttls }
    }
}
