//! Tracks the phase of a connection and the deadlines of its phases and responses.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::request_head::HeadEnd;
use super::timer::Timer;
use crate::util::lock::Lock;

/// The maximum time from the head of a response to its last byte, for a client that announces no
/// scrape timeout.
pub(super) const RESPONSE: Duration = Duration::from_secs(120);

/// The maximum time for a client that does, regardless of the announced timeout.
const LONGEST_RESPONSE: Duration = Duration::from_secs(600);

/// A response whose client accepts no body frame (40 to 60 KiB) for this long is aborted.
const STALL: Duration = Duration::from_secs(10);

/// The maximum handshake time, where no other limit applies.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A connection may be closed for a new one when its request has been incomplete for this long, or
/// when its client has accepted nothing of any response for this long.
const STALL_BEFORE_EVICTION: Duration = Duration::from_secs(1);

/// The same when its oldest request is this old.
const OLD_REQUEST: Duration = Duration::from_secs(10);

/// The timeouts of a server's connections; `None` means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the first byte of a request (or from accepting the connection) to the end of its head.
    pub read_header: Option<Duration>,
    /// From the end of the head to the last byte of the response.
    pub write: Option<Duration>,
    /// From the end of a response to the next request.
    pub idle: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Between two requests.
    Idle,
    /// A request, or the connection, has begun.
    Head,
    /// The response is being produced.
    ResponseFuture,
    /// The response is complete and its last bytes are being sent.
    Sending,
}

/// The state of a connection.
pub(in crate::server) struct State {
    phase: Phase,
    /// The start of the phase.
    since: Instant,
    /// The time of the last bytes received.
    heard: Instant,
    /// The deadline for reading.
    pub(super) read_by: Option<Instant>,
    /// The deadline for writing.
    pub(super) write_by: Option<Instant>,
    /// The time since which the client accepts nothing.
    pub(super) stalled: Option<Instant>,
    head: HeadEnd,
    /// True if the head of the request is complete. Its body may follow before it is being answered.
    has_head: bool,
    /// True if there was a request.
    pub(in crate::server) had_request: bool,
    /// True if the request has a body, which is read while answering.
    has_body: bool,
    /// True if a request had a body, whose rest may still come.
    had_body: bool,
    /// True if it was closed for a new connection.
    is_evicted: bool,
    /// True if new streams of an HTTP/2 connection are refused.
    pub(in crate::server) refuses_streams: bool,
    /// True if requests are multiplexed; only HTTP/2 can find their heads.
    pub(in crate::server) is_http2: bool,
    /// The requests being answered, by exchange number.
    exchanges: BTreeMap<u64, Exchange>,
    /// The number of the next exchange.
    next: u64,
    /// True if a write was too slow.
    pub(super) timed_out: bool,
    /// Called when the client resets the connection without having read the last response.
    unread: Option<Box<dyn FnOnce() + Send>>,
    /// The task that polls the connection.
    task: Option<Waker>,
}

/// A request being answered.
#[derive(Clone, Copy, Debug)]
struct Exchange {
    /// The time its head was complete.
    since: Instant,
    /// The time limit of its response.
    limit: Duration,
    /// The progress of the response, once it has a head.
    response: Option<Progress>,
}

/// The progress of a response.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// The deadline of the response.
    deadline: Instant,
    /// The last time the client accepted a frame of the body.
    taken: Instant,
}

impl Exchange {
    /// Returns the deadline of the response, unless the client accepts more of it.
    fn expires_at(&self) -> Option<Instant> {
        self.response.map(|response| response.deadline.min(response.taken + STALL))
    }
}

/// The order in which connections are closed to make room: first idle ones, then those whose client stalls a request or
/// response, then those with an old request; among equals, the longest waiting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionPriority {
    rank: u8,
    since: Instant,
}

/// The phase of a connection, shared by its stream, its service and the connection limit.
#[derive(Clone)]
pub struct Deadlines {
    limits: Limits,
    pub(in crate::server) state: Arc<Lock<State>>,
}

impl Deadlines {
    /// Starts the timeouts of a connection accepted now.
    pub fn new(limits: Limits) -> Self {
        let state = State {
            phase: Phase::Head,
            since: Instant::now(),
            heard: Instant::now(),
            read_by: after(limits.read_header.or(limits.idle)),
            write_by: None,
            stalled: None,
            head: HeadEnd::default(),
            has_head: false,
            had_request: false,
            has_body: false,
            had_body: false,
            is_evicted: false,
            refuses_streams: false,
            is_http2: false,
            exchanges: BTreeMap::new(),
            next: 0,
            timed_out: false,
            unread: None,
            task: None,
        };
        Self { limits, state: Arc::new(Lock::new(state)) }
    }

    /// Returns a number for the next exchange.
    pub(in crate::server) fn next_exchange(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }

    /// Begins an exchange when the head of its request is complete. Dropping the guard ends it.
    ///
    /// `scrape_timeout` is the timeout announced by the client.
    pub fn answering(
        &self,
        exchange: u64,
        has_body: bool,
        scrape_timeout: Option<Duration>,
    ) -> Answer {
        let limit = scrape_timeout
            .map_or(RESPONSE, |timeout| timeout.saturating_mul(2).min(LONGEST_RESPONSE));
        let write = self.limits.write.filter(|limit| !limit.is_zero());
        let limit = write.map_or(limit, |write| write.min(limit));
        let mut state = self.state.lock();
        state.enter(Phase::ResponseFuture);
        state.exchanges.insert(exchange, Exchange { since: Instant::now(), limit, response: None });
        state.had_request = true;
        // A client that sends another request has read the last response.
        state.unread = None;
        state.has_body = has_body;
        state.had_body |= has_body;
        state.read_by = None;
        state.write_by = after(self.limits.write);
        Answer { deadlines: self.clone(), exchange }
    }

    /// Returns whether the server, and not its client, ends the response of an exchange.
    pub(in crate::server) fn ends_response(&self, exchange: u64) -> bool {
        let state = self.state.lock();
        let expires_at = state.exchanges.get(&exchange).and_then(Exchange::expires_at);
        state.is_evicted || state.timed_out || expires_at.is_some_and(|at| at <= Instant::now())
    }

    /// Calls `unread` if the client resets the connection before its next request. The system does
    /// so when a client closes a connection with unread data. HTTP/2 has its own signal.
    pub(in crate::server) fn on_reset(&self, unread: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if !state.is_http2 {
            state.unread = Some(Box::new(unread));
        }
    }

    /// Called when the socket has failed.
    pub(super) fn failed(&self, error: &io::Error) {
        let unread = {
            let mut state = self.state.lock();
            match error.kind() {
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => state.unread.take(),
                _ => None,
            }
        };
        if let Some(unread) = unread {
            unread();
        }
    }

    /// Completes when the connection must end at once: it was closed for a new one or, with HTTP/1,
    /// its response has timed out. Must be polled by the task that drives the connection, after it.
    pub(in crate::server) async fn expired(&self) {
        let mut timer = Timer::default();
        poll_fn(|cx| {
            let mut state = self.state.lock();
            state.watch(cx);
            if state.is_evicted {
                return Poll::Ready(());
            }
            let ends = state.exchanges.values().filter_map(Exchange::expires_at).min();
            let ends = ends.filter(|_| !state.is_http2);
            drop(state);
            timer.poll(ends, cx)
        })
        .await;
    }

    /// Completes when the response of an exchange has timed out. Must be polled by the task that
    /// drives the exchange, after it.
    pub(in crate::server) async fn response_expired(&self, exchange: u64) {
        let mut timer = Timer::default();
        poll_fn(|cx| {
            let ends = self.state.lock().exchanges.get(&exchange).and_then(Exchange::expires_at);
            timer.poll(ends, cx)
        })
        .await;
    }

    /// Runs the work before the first request, until the connection is closed for a new one or
    /// times out.
    ///
    /// # Errors
    ///
    /// That of `work`, or a timeout.
    pub(in crate::server) async fn before_first_request<T>(
        &self,
        work: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut timer = Timer::default();
        let late = poll_fn(|cx| {
            let mut state = self.state.lock();
            state.watch(cx);
            timer.poll(Some(state.read_by.unwrap_or(state.since + HANDSHAKE)), cx)
        });
        tokio::select! {
            biased;
            result = work => result,
            () = late => Err(io::Error::new(io::ErrorKind::TimedOut, "TLS handshake timed out")),
        }
    }

    /// Returns whether a request is incomplete and nothing was received for `quiet`.
    pub(in crate::server) fn is_request_stalled(&self, quiet: Duration) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Head && state.heard.elapsed() >= quiet
    }

    /// Returns whether no request was being answered for this long.
    pub(in crate::server) fn is_quiet(&self, time: Duration) -> bool {
        let state = self.state.lock();
        state.exchanges.is_empty() && state.since.elapsed() >= time
    }

    /// Closes the connection, unless it is in use again.
    pub(crate) fn evict(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        if state.eviction_priority(now).is_none() {
            return false;
        }
        state.is_evicted = true;
        (state.read_by, state.write_by) = (Some(now), Some(now));
        if let Some(task) = state.task.take() {
            task.wake();
        }
        true
    }

    /// Processes received bytes. Returns how many of them belong to the current request, and the
    /// escaped bytes to use instead, if any.
    pub(super) fn received(&self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let mut state = self.state.lock();
        state.heard = Instant::now();
        if state.is_http2 {
            return (bytes.len(), None);
        }
        if state.phase == Phase::Idle {
            state.enter(Phase::Head);
            state.read_by = after(self.limits.read_header);
        }
        // Only hyper parses the head, which determines the length of the body.
        if state.phase != Phase::Head || state.has_head {
            return (bytes.len(), None);
        }
        let head = state.head;
        let end = state.head.find(bytes);
        state.has_head = end.is_some();
        let end = end.unwrap_or(bytes.len());
        // A longer body would end with what is taken for another request.
        let head = Some(head).filter(|_| !state.had_body);
        (end, head.and_then(|head| head.escape(bytes.get(..end)?)))
    }

    /// Returns whether the next request must wait until the last response is sent, as in the
    /// originals.
    pub(super) fn must_hold_next_request(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state.lock();
        state.watch(cx);
        state.phase == Phase::Sending && !state.has_body && !state.is_http2
    }

    /// Called when the system has accepted everything written.
    pub(in crate::server) fn flushed(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Sending {
            state.enter(Phase::Idle);
            state.read_by = after(self.limits.idle);
            state.write_by = None;
            // Resume withheld reads.
            if let Some(task) = state.task.take() {
                task.wake();
            }
        }
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Instant::now();
        self.stalled = None;
        (self.head, self.has_head) = (HeadEnd::default(), false);
    }

    /// Returns how dispensable the connection is at a point in time; `None` while it is in use.
    pub(in crate::server) fn eviction_priority(&self, now: Instant) -> Option<EvictionPriority> {
        if self.is_evicted {
            return None;
        }
        let after = |patience: Duration, rank: u8, since: Instant| {
            let waited = now.saturating_duration_since(since);
            (waited >= patience).then_some(EvictionPriority { rank, since })
        };
        match self.phase {
            Phase::Idle => after(Duration::ZERO, 0, self.since),
            Phase::Head => after(STALL_BEFORE_EVICTION, 1, self.since),
            Phase::ResponseFuture => self
                .stalled_since()
                .and_then(|since| after(STALL_BEFORE_EVICTION, 1, since))
                .or_else(|| {
                    after(OLD_REQUEST, 2, self.exchanges.values().map(|it| it.since).min()?)
                }),
            Phase::Sending => after(STALL_BEFORE_EVICTION, 1, self.stalled.unwrap_or(self.since)),
        }
    }

    /// Returns the time since which the client has accepted nothing of any response, if the server
    /// is waiting for that.
    fn stalled_since(&self) -> Option<Instant> {
        let is_clients_turn = self.is_http2 || self.stalled.is_some();
        let taken = self.exchanges.values().map(|it| it.response.map(|response| response.taken));
        taken.filter(|_| is_clients_turn).collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Registers the task to wake.
    pub(super) fn watch(&mut self, cx: &Context<'_>) {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            self.task = Some(cx.waker().clone());
        }
    }
}

fn after(limit: Option<Duration>) -> Option<Instant> {
    limit.filter(|limit| !limit.is_zero()).map(|limit| Instant::now() + limit)
}

/// A request being answered, until its response has ended.
pub struct Answer {
    pub(in crate::server) deadlines: Deadlines,
    exchange: u64,
}

impl Answer {
    /// Starts the deadline of the response, which now has a head.
    pub(in crate::server) fn has_head(&self) {
        let now = Instant::now();
        if let Some(exchange) = self.deadlines.state.lock().exchanges.get_mut(&self.exchange) {
            exchange.response = Some(Progress { deadline: now + exchange.limit, taken: now });
        }
    }

    /// Records that the client accepts another frame of the body.
    pub(in crate::server) fn progressed(&self) {
        let mut state = self.deadlines.state.lock();
        let exchange = state.exchanges.get_mut(&self.exchange);
        if let Some(response) = exchange.and_then(|exchange| exchange.response.as_mut()) {
            response.taken = Instant::now();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let mut state = self.deadlines.state.lock();
        let ended = state.exchanges.remove(&self.exchange);
        if !state.exchanges.is_empty() {
            return;
        }
        state.enter(Phase::Sending);
        if state.is_http2 {
            // Nothing is left to send if the client has reset the stream.
            state.read_by = after(self.deadlines.limits.idle);
        } else if let Some(response) = ended.and_then(|exchange| exchange.response) {
            // The last bytes still wait for the socket.
            let earlier = state.write_by.map_or(response.deadline, |by| by.min(response.deadline));
            state.write_by = Some(earlier);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        read_header: Some(Duration::from_secs(3_600)),
        write: None,
        idle: Some(Duration::from_secs(2 * 3_600)),
    };

    #[test]
    fn the_next_request_has_its_own_timeout() {
        let deadlines = Deadlines::new(LIMITS);
        // Identify the active limit by the time that remains.
        let limit = |deadlines: &Deadlines| {
            let left = deadlines.state.lock().read_by?.saturating_duration_since(Instant::now());
            [LIMITS.read_header, LIMITS.idle].into_iter().flatten().find(|limit| left <= *limit)
        };
        assert_eq!(limit(&deadlines), LIMITS.read_header);
        assert_eq!(deadlines.received(b"GET / HTTP/1.1\r\n\r\nGET /"), (18, None));
        let answer = deadlines.answering(1, false, None);
        assert_eq!(limit(&deadlines), None);
        drop(answer);
        let cx = &Context::from_waker(Waker::noop());
        assert!(deadlines.must_hold_next_request(cx), "the answer is not sent yet");
        deadlines.flushed();
        assert!(!deadlines.must_hold_next_request(cx));
        assert_eq!(limit(&deadlines), LIMITS.idle);
        deadlines.received(b"GET /");
        assert_eq!(limit(&deadlines), LIMITS.read_header);
    }

    #[test]
    fn connections_in_use_are_not_evicted() {
        let (idle, new, busy) =
            (Deadlines::new(LIMITS), Deadlines::new(LIMITS), Deadlines::new(LIMITS));
        let answer = busy.answering(1, false, None);
        answer.has_head();
        drop(idle.answering(1, false, None));
        idle.flushed();
        let now = Instant::now();
        assert!(
            new.state.lock().eviction_priority(now).is_none() && !new.evict(now),
            "it has just come"
        );
        let now = now + STALL_BEFORE_EVICTION * 2;
        assert!(idle.state.lock().eviction_priority(now).is_some());
        assert!(
            idle.state.lock().eviction_priority(now) < new.state.lock().eviction_priority(now),
            "between requests goes first"
        );
        assert!(
            busy.state.lock().eviction_priority(now).is_none() && !busy.evict(now),
            "the socket takes all"
        );
        busy.state.lock().stalled = Some(now);
        assert!(
            busy.state.lock().eviction_priority(now).is_some_and(|it| new
                .state
                .lock()
                .eviction_priority(now)
                < Some(it))
        );
        for cut in [idle, new, busy] {
            assert!(cut.evict(now) && !cut.evict(now));
            assert_eq!(cut.state.lock().read_by, Some(now));
        }
        drop(answer);
    }

    /// A client with a closed HTTP/2 window is identified by the frames it does not accept, one
    /// that trickles by its age.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_evicted() {
        let deadlines = Deadlines::new(LIMITS);
        deadlines.state.lock().is_http2 = true;
        let [first, second] = [1, 2].map(|exchange| deadlines.answering(exchange, false, None));
        let rank = || {
            deadlines
                .state
                .lock()
                .eviction_priority(Instant::now())
                .map(|eviction_priority| eviction_priority.rank)
        };
        first.has_head();
        tokio::time::advance(STALL_BEFORE_EVICTION).await;
        assert_eq!(rank(), None, "the other response is being made");
        second.has_head();
        assert_eq!(rank(), None);
        tokio::time::advance(STALL_BEFORE_EVICTION).await;
        assert_eq!(rank(), Some(1));
        second.progressed();
        assert_eq!(rank(), None);
        tokio::time::advance(OLD_REQUEST).await;
        second.progressed();
        assert_eq!(rank(), Some(2));
        drop((first, second));
        assert_eq!(rank(), None, "the last bytes are on their way");
        deadlines.flushed();
        assert_eq!(rank(), Some(0));
    }

    /// The deadline runs from the head to the end, regardless of the socket and of other exchanges
    /// on the connection.
    #[tokio::test(start_paused = true)]
    async fn a_response_ends_at_its_deadline_or_when_it_stalls() {
        let seconds = Duration::from_secs;
        let write = |limit| Limits { write: Some(limit), ..LIMITS };
        for (limits, timeout, takes_each, ends) in [
            (LIMITS, None, None, STALL),
            (LIMITS, None, Some(seconds(9)), seconds(120)),
            (LIMITS, Some(seconds(10)), Some(seconds(9)), seconds(20)),
            (LIMITS, Some(seconds(2)), None, seconds(4)),
            (LIMITS, Some(seconds(86_400)), Some(seconds(9)), seconds(600)),
            (LIMITS, Some(Duration::MAX), Some(seconds(9)), seconds(600)),
            (write(seconds(60)), None, Some(seconds(9)), seconds(60)),
            (write(seconds(300)), None, Some(seconds(9)), seconds(120)),
            (write(Duration::ZERO), None, Some(seconds(9)), seconds(120)),
        ] {
            for is_http2 in [false, true] {
                let deadlines = Deadlines::new(limits);
                if is_http2 {
                    deadlines.state.lock().is_http2 = true;
                }
                let answer = deadlines.answering(7, false, timeout);
                // A handler has no time limit.
                tokio::time::advance(seconds(1_000)).await;
                answer.has_head();
                let begin = Instant::now();
                let reads = async {
                    while let Some(pause) = takes_each {
                        tokio::time::sleep(pause).await;
                        answer.progressed();
                    }
                    std::future::pending::<()>().await;
                };
                let over = async {
                    if is_http2 {
                        deadlines.response_expired(7).await
                    } else {
                        deadlines.expired().await
                    }
                };
                tokio::select! {
                    biased;
                    () = reads => {}
                    () = over => {}
                }
                assert_eq!(begin.elapsed().as_secs(), ends.as_secs(), "{limits:?} {timeout:?}");
            }
        }
    }
}
