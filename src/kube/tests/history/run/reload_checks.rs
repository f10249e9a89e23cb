//! Reloads that change the kinds, the time within which any reload takes effect, and the cost of watches that share a connection.

use std::time::Duration;

use tokio::time::Instant;

use super::super::checker::Violation;
use super::super::journal::Topic;
use super::super::queue::Action;
use super::{RELOAD, World};

impl World {
    /// Makes the next change of the kinds.
    pub(super) fn reload_kinds(&mut self) {
        let Some(kinds) = &mut self.kinds else { return };
        let now = Instant::now();
        let (about, next) = kinds.reload();
        self.config.resources = kinds.watched();
        self.server.note(Topic::Line, about);
        if let Some(wait) = next {
            self.queue.add(now + wait, Action::ReloadKinds);
        }
        self.may_miss_events |= kinds.may_miss_events;
        // What returns is listed anew, perhaps in an older state.
        kinds.changed_at(now).for_each(|kind| self.checker.forget(kind));
        self.apply();
    }

    /// Checks that the last reload is applied in time.
    pub(super) fn check_applied(&self) -> Result<(), Violation> {
        let late = self.may_be_stale_until.max(self.disturbed) + *RELOAD;
        if Instant::now() < late
            || !self.lasting.is_empty()
            || self.pipeline.handle().is_applied(self.applied)
        {
            return Ok(());
        }
        let pending = self.pipeline.handle().pending();
        Err(Violation(format!("a reload has not been applied: {pending:?}")))
    }

    /// Checks that watches share a connection again, on which each lasts for minutes, once that is possible.
    pub(super) fn check_sharing(&mut self) -> Result<(), Violation> {
        /// The time over which requests are counted.
        const SPAN: Duration = Duration::from_secs(180);
        let Some(since) = self.scenario.shared_again.map(|since| self.start + since) else {
            return Ok(());
        };
        let now = Instant::now();
        if now < since {
            return Ok(());
        }
        let (begun, before) = *self.shared.get_or_insert((now, self.server.requests()));
        let (made, watches) = (self.server.requests() - before, self.request_limit.watches);
        // A watch lasts five to ten minutes, and each request may have to be repeated.
        if now - begun < SPAN && made > 2 * watches {
            return Err(Violation(format!(
                "{made} requests of {watches} watches in {:?}",
                now - begun
            )));
        }
        Ok(())
    }
}
