//! Limits the number of open connections to the descriptors available for HTTP, and at most [`MAX_CONNECTIONS`].
//!
//! Unused connections must not keep out active clients. When the limit is reached, the least useful connection is
//! closed for the new one; if all are in use, the new one waits briefly and is then rejected. All listeners share the
//! limit; a part of it is reserved for the telemetry listener.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connection::Deadlines;
use crate::telemetry::connections::CONNECTIONS;
use crate::util::descriptors::{self, Descriptors, Permit, Share};
use crate::util::lock::Lock;
use crate::util::log_limit::LogLimit;

/// The maximum number of connections regardless of descriptors, because each costs memory too.
const MAX_CONNECTIONS: usize = 1_024;

/// The part that is reserved for the telemetry listener.
const TELEMETRY_RESERVE: usize = 16;

/// The time that a new connection waits for room.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The interval of checks while waiting: descriptors outside HTTP become free too.
const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The connection limit and its current use.
pub(crate) struct Admission {
    descriptors: &'static Descriptors,
    most: usize,
    reserved: usize,
    open: Lock<OpenConnections>,
    freed: Notify,
}

#[derive(Default)]
struct OpenConnections {
    next: u64,
    connections: HashMap<u64, (Share, Deadlines)>,
    /// True if the last connection was refused; the next one then waits less.
    full: bool,
    log_limit: LogLimit,
    /// Connections closed since the last log message.
    closed: u64,
    refused: u64,
}

/// A connection slot, released on drop.
pub(crate) struct ConnectionSlot<'a> {
    admission: &'a Admission,
    id: u64,
    permit: Option<Permit<'static>>,
}

/// Returns the limit of this process.
pub(crate) fn of_process() -> &'static Admission {
    static PROCESS: OnceLock<Admission> = OnceLock::new();
    PROCESS.get_or_init(|| {
        Admission::new(descriptors::of_process(), MAX_CONNECTIONS, TELEMETRY_RESERVE)
    })
}

impl Admission {
    fn new(descriptors: &'static Descriptors, most: usize, reserved: usize) -> Self {
        Self { descriptors, most, reserved, open: Lock::default(), freed: Notify::new() }
    }

    /// Waits for a slot for an accepted connection; `None` if the wait times out.
    pub(crate) async fn admit(
        &self,
        deadlines: &Deadlines,
        share: Share,
    ) -> Option<ConnectionSlot<'_>> {
        if let Some(place) = self.try_admit(deadlines, share) {
            return Some(place);
        }
        let patience = if self.open.lock().full { RECHECK_INTERVAL } else { WAIT_TIMEOUT };
        let end = Instant::now() + patience;
        loop {
            self.make_room(share);
            let look = end.min(Instant::now() + RECHECK_INTERVAL);
            // The result does not matter; the next iteration checks again.
            drop(timeout_at(look, self.freed.notified()).await);
            if let Some(place) = self.try_admit(deadlines, share) {
                return Some(place);
            }
            if Instant::now() >= end {
                CONNECTIONS.refused.inc();
                let mut open = self.open.lock();
                (open.full, open.refused) = (true, open.refused + 1);
                self.log_full(&mut open, Instant::now());
                return None;
            }
        }
    }

    fn try_admit(&self, deadlines: &Deadlines, share: Share) -> Option<ConnectionSlot<'_>> {
        let mut open = self.open.lock();
        let others = open.connections.values().filter(|(other, _)| *other != Share::Telemetry);
        let is_full = match share {
            Share::Telemetry => open.connections.len() >= self.most,
            // There are usually few connections.
            _ => {
                open.connections.len() >= self.most - self.reserved
                    && others.count() >= self.most - self.reserved
            }
        };
        if is_full {
            return None;
        }
        let permit = self.descriptors.take(share)?;
        let id = open.next;
        open.next += 1;
        open.full = false;
        open.connections.insert(id, (share, deadlines.clone()));
        CONNECTIONS.open.add(1.0);
        Some(ConnectionSlot { admission: self, id, permit: Some(permit) })
    }

    /// Closes the most dispensable connection whose slot a connection of this share may take, if
    /// there is one.
    fn make_room(&self, share: Share) {
        let now = Instant::now();
        let mut open = self.open.lock();
        let [own, other] = match share {
            Share::Telemetry => [Share::Telemetry, Share::Http],
            _ => [Share::Http, Share::Telemetry],
        };
        let other = Some(other).filter(|other| self.descriptors.exceeds_guarantee(*other));
        let eviction_priority = open.connections.values().filter_map(|(share, deadlines)| {
            let eviction_priority = deadlines.state.lock().eviction_priority(now)?;
            (*share == own || Some(*share) == other).then_some((eviction_priority, deadlines))
        });
        let chosen = eviction_priority.min_by_key(|(eviction_priority, _)| *eviction_priority);
        if chosen.is_some_and(|(_, deadlines)| deadlines.evict(now)) {
            CONNECTIONS.closed_for_another.inc();
            open.closed += 1;
            self.log_full(&mut open, now);
        }
    }

    /// Logs the effect of the limit, at once and then at most once a minute.
    fn log_full(&self, open: &mut OpenConnections, now: Instant) {
        if open.log_limit.add(1, now.into_std()).is_none() {
            return;
        }
        tracing::warn!(
            open = open.connections.len(),
            closed = open.closed,
            refused = open.refused,
            open_files = self.descriptors.limit,
            "HTTP connection limit reached: closing idle connections, or rejecting new ones with 503"
        );
        (open.closed, open.refused) = (0, 0);
    }
}

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        self.admission.open.lock().connections.remove(&self.id);
        self.permit = None;
        CONNECTIONS.open.add(-1.0);
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
        Box::leak(Box::new(Admission::new(descriptors, most, 0)))
    }

    /// A connection whose request is being answered.
    async fn busy(admission: &'static Admission) -> (ConnectionSlot<'static>, impl Sized) {
        let deadlines = Deadlines::new(LIMITS);
        let place = admission.admit(&deadlines, Share::Http).await.expect("room");
        (place, deadlines.answering(1, false, None))
    }

    #[tokio::test]
    async fn a_freed_slot_goes_to_the_waiting_client() {
        let admission = admission(1);
        let (place, answer) = busy(admission).await;
        let waiting = tokio::spawn(async move {
            let deadlines = Deadlines::new(LIMITS);
            admission.admit(&deadlines, Share::Http).await.is_some()
        });
        tokio::task::yield_now().await;
        drop((place, answer));
        assert!(waiting.await.expect("no panic"));
        assert_eq!(admission.descriptors.used_by(Share::Http), 0);
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_evicted() {
        let admission = admission(3);
        let _busy = busy(admission).await;
        let mut idle = Vec::new();
        for _ in 0..2 {
            let deadlines = Deadlines::new(LIMITS);
            let place = admission.admit(&deadlines, Share::Http).await.expect("room");
            drop(deadlines.answering(1, false, None));
            deadlines.flushed();
            idle.push((place, deadlines));
        }
        admission.make_room(Share::Http);
        let now = Instant::now();
        let is_cut = |(_, deadlines): &(ConnectionSlot<'_>, Deadlines)| {
            deadlines.state.lock().eviction_priority(now).is_none()
        };
        assert_eq!(idle.iter().map(is_cut).collect::<Vec<_>>(), [true, false]);
    }

    #[tokio::test]
    async fn a_full_server_rejects_new_connections_quickly() {
        let admission = admission(1);
        let kept = busy(admission).await;
        let newcomer = Deadlines::new(LIMITS);
        assert!(admission.admit(&newcomer, Share::Http).await.is_none());
        assert!(admission.open.lock().full);
        assert!(admission.admit(&newcomer, Share::Http).await.is_none());
        drop(kept);
        assert!(admission.admit(&newcomer, Share::Http).await.is_some());
        assert!(!admission.open.lock().full);
    }

    /// The main listener cannot use up the slots and descriptors of the telemetry listener.
    #[tokio::test(start_paused = true)]
    async fn the_telemetry_listener_has_reserved_slots() {
        // 32 descriptors for connections, of which 8 are shared and 4 reserved for the telemetry
        // listener.
        for (limit, most, main) in [(1 << 16, 3, 2), (64, 100, 16)] {
            let descriptors = Box::leak(Box::new(Descriptors::new(limit)));
            let admission = Box::leak(Box::new(Admission::new(descriptors, most, 1)));
            let mut kept = Vec::new();
            let deadlines = || {
                let deadlines = Deadlines::new(LIMITS);
                let answer = deadlines.answering(1, false, None);
                (deadlines, answer)
            };
            for _ in 0..main {
                let (deadlines, answer) = deadlines();
                let place = admission.admit(&deadlines, Share::Http).await;
                kept.push((place.expect("room"), answer));
            }
            let (newcomer, _answer) = deadlines();
            assert!(admission.admit(&newcomer, Share::Http).await.is_none());
            assert!(admission.admit(&newcomer, Share::Telemetry).await.is_some());
        }
    }
}
