//! Requests that should not be sent.

use super::super::cluster::Kind;
use super::{RECOVERY, World};

impl World {
    /// Returns the number of lists of kinds whose watches have bookmarks. The versions of others may be older than a compaction.
    pub(super) fn lists(&self) -> u64 {
        let has_all = !self.scenario.has_uncached_events;
        self.server.lists() - if has_all { 0 } else { self.server.lists_of(Kind::Event) }
    }

    /// Describes a request that should not have been sent.
    pub(super) fn needless_request(&self) -> Option<String> {
        self.server.note_applied(self.pipeline.handle().is_applied(self.applied));
        let repeated = self.server.repeated_events();
        let repeated = repeated.filter(|(at, _)| *at > self.disturbed + *RECOVERY);
        self.server.wrong_retry().or(repeated.map(|(_, why)| why))
    }
}
