//! The changes and the faults of a history: how long each excuses a scrape that is not current.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::super::cluster::{KEPT_VERSIONS, Scope, scopes};
use super::super::faults::{Fault, RECOVERY, SILENCE};
use super::super::queue::Action;
use super::super::scenario::{MIN_TAIL, Pace, ScheduledFault};
use super::super::setup::{write_token, write_wrong_token};
use super::{FaultResult, LIST, REFUSED, RELOAD, RecoveringFault, World};

impl World {
    /// Makes the change that a seed determines, or a random one.
    pub(super) fn change(&mut self, seed: Option<u64>) {
        if !self.is_server_away() {
            match seed {
                Some(seed) => self.server.cluster().change(&mut Rng::with_seed(seed)),
                None => self.server.cluster().change(&mut self.rng),
            }
        }
        if seed.is_none() {
            let wait = match self.scenario.pace {
                Pace::Quiet => 40_000,
                Pace::Usual if self.rng.u32(0..10) == 0 => 5_000,
                Pace::Usual => 400,
                Pace::Busy => 60,
            };
            let wait = Duration::from_millis(self.rng.u64(1..wait));
            self.queue.add(Instant::now() + wait, Action::Change(None));
        }
    }

    /// Deletes many objects, unless the server is away.
    pub(super) fn delete(&mut self, seed: u64) {
        if !self.is_server_away() {
            self.server.cluster().thin_out(&mut Rng::with_seed(seed));
        }
    }

    /// Returns true while the server is down, so that nothing can change.
    fn is_server_away(&self) -> bool {
        let is_away =
            |fault: &Fault| matches!(fault, Fault::Restarted { .. } | Fault::Restored { .. });
        self.lasting.iter().any(|(id, _)| is_away(&self.scenario.events[*id].fault))
    }

    /// Begins a fault.
    pub(super) fn begin(&mut self, id: usize) {
        let now = Instant::now();
        let ScheduledFault { fault, duration, is_secondary, .. } = &self.scenario.events[id];
        self.server.begin_fault(id, fault);
        if let (Fault::TokenReplaced, Some(folder)) = (fault, self.folders.last())
            && id.is_multiple_of(2)
        {
            write_wrong_token(&self.server, folder.path());
        }
        if *fault == Fault::TokenRotated {
            self.renew_token();
        }
        match fault {
            Fault::Denied(_) | Fault::GoAway => {}
            _ if fault.is_disconnect() && self.pending.len() <= 1 => self.refusals.cut(now),
            _ if fault.is_disconnect() => {}
            _ => self.refusals.disturb(),
        }
        let is_unwatched = matches!(fault, Fault::WatchesRefused { code: 403, .. });
        let is_alone =
            self.pending.is_empty() && self.limits.is_none() && self.object_limit.is_none();
        self.unwatched = (is_unwatched && is_alone).then(|| self.server.lists());
        let mut grace = fault.grace(*duration);
        if fault.is_refusal_of_many() {
            let list_watches = self.request_limit.watches.try_into().unwrap_or(u32::MAX);
            grace = grace.max(*duration + REFUSED * list_watches + LIST);
        }
        // A list/watch that waits before its next attempt does not notice that the server is away. It notices that its
        // version is from the future when its first watch ends that does not fail at once.
        if matches!(fault, Fault::Restored { .. })
            && let Some(last) = self.last_end(|other| matches!(other, Fault::Flapping(_)))
        {
            grace = grace.max(*duration + *SILENCE + (last - now));
        }
        // Bytes that arrive late let a connection look alive whose server is gone.
        if fault.is_silence() || self.pending.iter().any(|other| other.is_silence) {
            let own_end = fault.is_slow().then(|| now + *duration);
            let last = self.last_end(Fault::is_slow).max(own_end);
            grace = last.map_or(grace, |last| grace.max(last + *SILENCE - now));
        }
        // All watches that have a connection to themselves end at the same time, and only then notice a refusal.
        let is_refused_late = matches!(fault, Fault::WatchesRefused { .. }) && !self.scenario.http2;
        let is_noticed_late = fault.is_noticed_late() || is_refused_late;
        let unnoticed = if is_noticed_late { grace + *RECOVERY } else { Duration::ZERO };
        self.request_limit.changed(now + unnoticed);
        self.may_miss_events |= self.reloaded.is_some_and(|at| now - at < *RELOAD);
        self.may_be_stale_until = self.may_be_stale_until.max(now + grace);
        if !is_secondary {
            let isolated = self.pending.is_empty();
            self.pending.iter_mut().for_each(|other| other.result.isolated = false);
            let (name, zero) = (fault.name(), Duration::ZERO);
            let result = FaultResult { name, recovered: zero, oldest: zero, isolated };
            let from = if fault.is_silence() { now } else { now + *duration };
            let (is_silence, until) = (fault.is_silence(), now + grace);
            // Only a compaction affects versions from before the last fault.
            let is_compaction = *fault == Fault::OldCompacted;
            let calm = if is_compaction { KEPT_VERSIONS } else { *RECOVERY };
            // What was left out is listed anew if there is room for it.
            let is_limited = self.limits.is_some() || self.object_limit.is_some();
            let is_calm = self.custom.is_none() && !is_limited && now - self.disturbed > calm;
            let lists = (is_calm && fault.is_disconnect()).then(|| self.lists());
            self.pending.push(RecoveringFault { result, from, until, is_silence, lists });
        }
        self.disturbed = self.disturbed.max(now + grace);
        if *duration > Duration::ZERO {
            self.lasting.push((id, now));
        }
        self.queue.add(now + *duration, Action::End(id));
    }

    /// Lets lists be on their way, slowly, in this time at most, in some histories.
    pub(super) fn slow_lists(&mut self, wait: Duration) {
        let switch = self.start.elapsed() + wait;
        let Some(rng) = &mut self.scenario.slow_lists else { return };
        if rng.u32(0..3) == 0 || switch + MIN_TAIL > self.scenario.length {
            return;
        }
        let begin = switch - Duration::from_millis(rng.u64(100..4_000)).min(wait);
        let slow = Fault::SlowLists(Duration::from_millis(rng.u64(1_000..6_000)));
        let duration = Duration::from_millis(rng.u64(4_000..10_000));
        // Each list/watch lists anew.
        let (compacted, later) = (Fault::Compacted, begin + Duration::from_millis(10));
        for (fault, begin, duration, is_secondary) in
            [(slow, begin, duration, false), (compacted, later, Duration::ZERO, true)]
        {
            let id = self.scenario.events.len();
            self.scenario.events.push(ScheduledFault { fault, begin, duration, is_secondary });
            self.queue.add(self.start + begin, Action::Begin(id));
        }
    }

    /// Returns the latest end of the active faults of a sort, if there are any.
    fn last_end(&self, is_of_sort: impl Fn(&Fault) -> bool) -> Option<Instant> {
        let lasting = self.lasting.iter().map(|(id, since)| (&self.scenario.events[*id], *since));
        let of_sort = lasting.filter(|(event, _)| is_of_sort(&event.fault));
        of_sort.map(|(event, since)| since + event.duration).max()
    }

    /// Ends a fault.
    pub(super) fn end(&mut self, id: usize) {
        if let (Some(before), Fault::WatchesRefused { streaming, .. }) =
            (self.unwatched.take(), &self.scenario.events[id].fault)
        {
            // One at once and then one every half minute. A streaming list that is refused counts like the list that follows.
            let cycles = self.scenario.events[id].duration.as_secs() / 30 + 2;
            let most = self.request_limit.watches * cycles * if *streaming { 2 } else { 1 };
            let lists = self.server.lists() - before;
            if lists > most {
                self.violate(&format!("{lists} lists of what cannot be watched, not {most}"), "");
            }
        }
        self.server.end_fault(id);
        self.request_limit.changed(Instant::now());
        self.lasting.retain(|(other, _)| *other != id);
        self.renew_token();
    }

    /// Writes the token that the server accepts, unless a fault withholds it.
    fn renew_token(&self) {
        let is_withheld =
            |(id, _): &(usize, Instant)| self.scenario.events[*id].fault == Fault::TokenReplaced;
        if let Some(folder) = self.folders.last()
            && !self.lasting.iter().any(is_withheld)
        {
            write_token(&self.server, folder.path());
        }
    }

    /// Notes the scopes that an active fault refuses.
    pub(super) fn note_refusals(&mut self, now: Instant) {
        if now >= self.may_be_stale_until {
            self.refusals.forget_ended(now);
        }
        for scope in scopes(&self.scenario.kinds) {
            if let Some(since) = self.refused_since(scope) {
                self.refusals.note(scope, since, now);
            }
        }
    }

    /// Returns the time since which an active fault has refused a scope.
    pub(super) fn refused_since(&self, scope: Scope) -> Option<Instant> {
        let is_refusal = |fault: &Fault| match fault {
            Fault::Denied(kind) => *kind == scope.kind,
            Fault::Flapping(flap) => !flap.breaks(scope.kind),
            Fault::Status { code: 401 | 403 | 404, .. } | Fault::TokenReplaced => true,
            _ => false,
        };
        let refusals =
            self.lasting.iter().filter(|(id, _)| is_refusal(&self.scenario.events[*id].fault));
        refusals.map(|(_, since)| *since).min()
    }
}
