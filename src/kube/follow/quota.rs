//! `--object-limit`: how many objects of a kind are kept, over all its namespaces, pages and events.
//!
//! A list/watch counts with what it shows or with what it is collecting, whichever is more, so that the
//! bound holds before and after a new state takes the place of an old one. Which objects they are, and
//! where they are kept, is not known here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::telemetry::metric::Counter;

/// How often the log tells of a kind that objects are left out.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The bound of one kind.
#[derive(Debug)]
pub(crate) struct Quota {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The list/watches of the kind.
    members: Vec<Member>,
    /// What they keep together.
    total: usize,
    /// When the log told of it last.
    told: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    kept: usize,
    /// Whether there are objects that its last list, or an event since, had to leave out.
    lacks: bool,
}

impl Quota {
    /// `limit` objects for so many list/watches together.
    pub(crate) fn new(limit: u64, members: usize) -> Arc<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let members = vec![Member::default(); members];
        Arc::new(Self { limit, state: Mutex::new(State { members, total: 0, told: None }) })
    }

    /// The part of one list/watch, which has this many objects now.
    pub(crate) fn share(self: &Arc<Self>, number: usize, kept: usize, left_out: Counter) -> Share {
        let share = Share { quota: Arc::clone(self), number, left_out };
        share.keeps(kept);
        share
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one list/watch has of a [`Quota`].
#[derive(Debug)]
pub(crate) struct Share {
    quota: Arc<Quota>,
    number: usize,
    left_out: Counter,
}

impl Share {
    /// Whether one more may be added to a state of `len` objects.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let state = self.quota.lock();
        len < state.members[self.number].kept || state.total < self.quota.limit
    }

    /// Notes how many objects there are: shown or being collected, whichever is more.
    pub(crate) fn keeps(&self, kept: usize) {
        let mut state = self.quota.lock();
        let before = std::mem::replace(&mut state.members[self.number].kept, kept);
        state.total = (state.total + kept).saturating_sub(before);
    }

    /// A new list begins, which sees everything again.
    pub(crate) fn begins(&self) {
        self.quota.lock().members[self.number].lacks = false;
    }

    /// Notes that objects were left out. Whether the log should tell.
    pub(crate) fn leave_out(&self, objects: u64) -> bool {
        self.left_out.inc_by(objects);
        let mut state = self.quota.lock();
        state.members[self.number].lacks = true;
        let due = state.told.is_none_or(|told| told.elapsed() >= TELL_EVERY);
        if due {
            state.told = Some(Instant::now());
        }
        due
    }

    /// Whether there is room for something that was left out.
    pub(crate) fn wants_list(&self) -> bool {
        let state = self.quota.lock();
        state.members[self.number].lacks && state.total < self.quota.limit
    }

    /// The bound.
    pub(crate) fn limit(&self) -> usize {
        self.quota.limit
    }

    /// What all list/watches of the kind keep together.
    pub(crate) fn total(&self) -> usize {
        self.quota.lock().total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_bounded_whatever_its_lists_do() {
        let quota = Quota::new(5, 2);
        let [one, two] = [0, 1].map(|number| quota.share(number, 0, Counter::default()));
        one.keeps(3);
        two.keeps(2);
        assert!(!one.has_room(3) && !two.has_room(2));
        // A new list takes the room of what it replaces, and no more.
        assert!(one.has_room(2) && two.has_room(1));
        assert!(!one.wants_list());
        assert!(one.leave_out(1) && !one.leave_out(1), "the log is told once");
        assert_eq!(one.left_out.get(), 2);
        assert!(!one.wants_list(), "there is no room");
        two.keeps(1);
        assert!(one.wants_list() && !two.wants_list());
        one.begins();
        assert!(!one.wants_list() && one.has_room(3));
        assert_eq!((one.total(), one.limit()), (4, 5));
    }
}
