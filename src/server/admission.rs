//! Which connections may be open: as many as there are descriptors for HTTP, and never more than
//! [`MOST`].
//!
//! Connections that nobody uses must not keep out those that somebody does. When there is no room, the
//! connection that can best be done without is closed for the newcomer; if all are in use, the newcomer
//! waits a little and is then refused. All listeners of the process share the room.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connection::Deadlines;
use crate::descriptors::{self, Descriptors, Permit, Share};
use crate::telemetry::connections::CONNECTIONS;

/// Most connections, however many descriptors there are: each costs memory too.
const MOST: usize = 1_024;

/// How long a newcomer waits for room.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often it looks whether there is some now: descriptors of others become free too.
const LOOK: Duration = Duration::from_millis(50);

/// How often the log says that the limit acts.
const SAY: Duration = Duration::from_secs(60);

/// The room for HTTP connections.
pub(crate) struct Admission {
    descriptors: &'static Descriptors,
    most: usize,
    open: Mutex<Open>,
    freed: Notify,
}

#[derive(Default)]
struct Open {
    next: u64,
    connections: HashMap<u64, Deadlines>,
    /// Whether the last newcomer was refused; the next one then does not wait as long.
    full: bool,
    said: Option<Instant>,
    /// Since the log said something.
    closed: u64,
    refused: u64,
}

/// A connection's place; its drop gives it back.
pub(crate) struct Place<'a> {
    admission: &'a Admission,
    id: u64,
    permit: Option<Permit<'static>>,
}

/// The room of this process.
pub(crate) fn of_process() -> &'static Admission {
    static PROCESS: OnceLock<Admission> = OnceLock::new();
    PROCESS.get_or_init(|| Admission::new(descriptors::of_process(), MOST))
}

impl Admission {
    fn new(descriptors: &'static Descriptors, most: usize) -> Self {
        Self { descriptors, most, open: Mutex::default(), freed: Notify::new() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that was accepted now, if there is one or will be soon.
    pub(crate) async fn admit(&self, deadlines: &Deadlines) -> Option<Place<'_>> {
        if let Some(place) = self.enter(deadlines) {
            return Some(place);
        }
        let patience = if self.open().full { LOOK } else { PATIENCE };
        let end = Instant::now() + patience;
        loop {
            self.make_room();
            let look = end.min(Instant::now() + LOOK);
            // Whether somebody left or not, the next look tells.
            drop(timeout_at(look, self.freed.notified()).await);
            if let Some(place) = self.enter(deadlines) {
                return Some(place);
            }
            if Instant::now() >= end {
                self.refused();
                return None;
            }
        }
    }

    fn enter(&self, deadlines: &Deadlines) -> Option<Place<'_>> {
        let mut open = self.open();
        if open.connections.len() >= self.most {
            return None;
        }
        let permit = self.descriptors.take(Share::Http)?;
        let id = open.next;
        open.next += 1;
        open.full = false;
        open.connections.insert(id, deadlines.clone());
        CONNECTIONS.opened();
        Some(Place { admission: self, id, permit: Some(permit) })
    }

    /// Closes the connection that can best be done without, if there is one.
    fn make_room(&self) {
        let now = Instant::now();
        let mut open = self.open();
        let dispensable = open.connections.values().filter_map(|deadlines| {
            let dispensable = deadlines.dispensable(now)?;
            Some((dispensable, deadlines))
        });
        let chosen = dispensable.min_by_key(|(dispensable, _)| *dispensable);
        if chosen.is_some_and(|(_, deadlines)| deadlines.cut(now)) {
            CONNECTIONS.closed_for_another();
            open.closed += 1;
            self.say(&mut open, now);
        }
    }

    fn refused(&self) {
        CONNECTIONS.refused();
        let mut open = self.open();
        open.full = true;
        open.refused += 1;
        self.say(&mut open, Instant::now());
    }

    /// Says in the log what the limit did, at once and then once a minute while it goes on.
    fn say(&self, open: &mut Open, now: Instant) {
        if open.said.is_some_and(|said| now.saturating_duration_since(said) < SAY) {
            return;
        }
        tracing::warn!(
            open = open.connections.len(),
            closed = open.closed,
            refused = open.refused,
            open_files = self.descriptors.limit(),
            "There is no room for another HTTP connection: idle ones are closed, and if there are none, \
             new ones refused with 503"
        );
        open.said = Some(now);
        (open.closed, open.refused) = (0, 0);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.admission.open().connections.remove(&self.id);
        self.permit = None;
        CONNECTIONS.closed();
        self.admission.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::connection::Limits;

    const LIMITS: Limits = Limits { read_header: None, write: None, idle: None };

    fn admission(most: usize) -> &'static Admission {
        let descriptors = Box::leak(Box::new(Descriptors::new(1 << 16)));
        Box::leak(Box::new(Admission::new(descriptors, most)))
    }

    /// A connection whose request is being answered.
    async fn busy(admission: &'static Admission) -> (Place<'static>, impl Sized) {
        let deadlines = Deadlines::new(LIMITS);
        let place = admission.admit(&deadlines).await.expect("room");
        (place, deadlines.answering(false))
    }

    #[tokio::test]
    async fn a_place_that_becomes_free_is_taken_by_who_waits() {
        let admission = admission(1);
        let (place, answer) = busy(admission).await;
        let waiting = tokio::spawn(async move {
            let deadlines = Deadlines::new(LIMITS);
            admission.admit(&deadlines).await.is_some()
        });
        tokio::task::yield_now().await;
        drop((place, answer));
        assert!(waiting.await.expect("no panic"));
        assert_eq!(admission.descriptors.used_by(Share::Http), 0);
    }

    #[tokio::test]
    async fn the_one_idle_longest_goes_and_those_in_use_stay() {
        let admission = admission(3);
        let _busy = busy(admission).await;
        let mut idle = Vec::new();
        for _ in 0..2 {
            let deadlines = Deadlines::new(LIMITS);
            let place = admission.admit(&deadlines).await.expect("room");
            drop(deadlines.answering(false));
            deadlines.flushed();
            idle.push((place, deadlines));
        }
        admission.make_room();
        let now = Instant::now();
        let is_cut = |(_, deadlines): &(Place<'_>, Deadlines)| deadlines.dispensable(now).is_none();
        assert_eq!(idle.iter().map(is_cut).collect::<Vec<_>>(), [true, false]);
    }

    #[tokio::test]
    async fn without_any_room_the_newcomer_is_refused_and_the_next_one_sooner() {
        let admission = admission(1);
        let kept = busy(admission).await;
        let newcomer = Deadlines::new(LIMITS);
        assert!(admission.admit(&newcomer).await.is_none());
        assert!(admission.open().full);
        assert!(admission.admit(&newcomer).await.is_none());
        drop(kept);
        assert!(admission.admit(&newcomer).await.is_some());
        assert!(!admission.open().full);
    }
}
