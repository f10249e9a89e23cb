//! The `--object-limit`: the maximum number of objects of a kind over all its namespaces.
//!
//! A list/watch counts with its served objects or those collected by a list in progress, whichever are more, so that the
//! limit holds before and after the new state replaces the old one. Only numbers are known here, not objects.

use std::sync::Arc;
use std::time::Instant;

use crate::telemetry::metric::Counter;
use crate::util::lock::Lock;
use crate::util::log_limit::LogLimit;

/// The object limit of one kind.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: usize,
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    /// The list/watches of the kind.
    members: Vec<Member>,
    /// The number of objects of all list/watches of the kind.
    total: usize,
    /// The number of list/watches that list again because there is room for an object.
    claims: usize,
    /// Limits log lines about rejected objects.
    log_limit: LogLimit,
}

#[derive(Clone, Debug, Default)]
struct Member {
    /// The number of objects.
    kept: usize,
    /// Objects of its last list, or of an event since, were rejected.
    has_rejected: bool,
    /// It lists again because there is room, which the others leave to it.
    has_claim: bool,
}

impl Quota {
    /// Creates a limit shared by `members` list/watches.
    pub(crate) fn new(limit: u64, members: usize) -> Arc<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let members = vec![Member::default(); members];
        Arc::new(Self {
            limit,
            state: Lock::new(State {
                members,
                total: 0,
                claims: 0,
                log_limit: LogLimit::default(),
            }),
        })
    }

    /// Returns the share of one list/watch, which has `kept` objects now. Rejected objects are counted in `rejected`.
    pub(crate) fn share(self: &Arc<Self>, number: usize, kept: usize, rejected: Counter) -> Share {
        let share = Share { quota: Arc::clone(self), number, rejected };
        share.set_size(kept);
        share
    }

    /// Returns the limit.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of objects of all list/watches of the kind.
    pub(crate) fn total(&self) -> usize {
        self.state.lock().total
    }
}

/// The share of one list/watch in a [`Quota`].
#[derive(Debug)]
pub(crate) struct Share {
    quota: Arc<Quota>,
    number: usize,
    rejected: Counter,
}

impl Share {
    /// Returns whether an object may be added to a state of `len` objects.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let state = self.quota.state.lock();
        len < state.members[self.number].kept || state.total < self.quota.limit
    }

    /// Sets the number of objects: served or being collected, whichever is larger.
    pub(crate) fn set_size(&self, kept: usize) {
        let mut state = self.quota.state.lock();
        let before = std::mem::replace(&mut state.members[self.number].kept, kept);
        state.total = (state.total + kept).saturating_sub(before);
    }

    /// Starts a new list, which receives all objects again.
    pub(crate) fn begin_list(&self) {
        self.quota.state.lock().members[self.number].has_rejected = false;
    }

    /// Counts rejected objects; returns whether to log them.
    pub(crate) fn reject(&self, objects: u64) -> bool {
        self.rejected.inc_by(objects);
        let mut state = self.quota.state.lock();
        state.members[self.number].has_rejected = true;
        state.log_limit.add(objects, Instant::now()).is_some()
    }

    /// Returns whether there is room for a rejected object. The list/watch is then to list again, and the others find no room
    /// until [`Share::end_list`]: if one object goes, not all namespaces of the kind list again.
    pub(crate) fn claim_room(&self) -> bool {
        let state = &mut *self.quota.state.lock();
        let member = &mut state.members[self.number];
        let has_room = state.total + state.claims < self.quota.limit;
        if member.has_rejected && !member.has_claim && has_room {
            member.has_claim = true;
            state.claims += 1;
        }
        member.has_claim
    }

    /// Ends a list, and leaves the room that it claimed to the others.
    pub(crate) fn end_list(&self) {
        let state = &mut *self.quota.state.lock();
        state.claims -= usize::from(std::mem::take(&mut state.members[self.number].has_claim));
    }

    /// Returns what the list/watches of the kind share.
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_holds_during_relists() {
        let quota = Quota::new(5, 2);
        let [one, two] = [0, 1].map(|number| quota.share(number, 0, Counter::default()));
        one.set_size(3);
        two.set_size(2);
        assert!(!one.has_room(3) && !two.has_room(2));
        // A new list takes the room of what it replaces, and no more.
        assert!(one.has_room(2) && two.has_room(1));
        assert!(!one.claim_room());
        assert!(one.reject(1) && !one.reject(1), "logged once");
        assert_eq!(one.rejected.get(), 2);
        assert!(!one.claim_room(), "there is no room");
        two.set_size(1);
        assert!(one.claim_room() && !two.claim_room());
        assert!(!two.reject(1) && !two.claim_room(), "the room is that of the first");
        one.begin_list();
        one.end_list();
        assert!(!one.claim_room() && one.has_room(3) && two.claim_room());
        assert_eq!((quota.total(), quota.limit()), (4, 5));
    }
}
