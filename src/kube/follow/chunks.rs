//! Reads the chunks of a response body and detects stalls.
//!
//! A body fails if it is silent for too long, if an object arrives too slowly, or if a watch does not end in time.
//! A single timer covers all of these: it is set to the earliest deadline and is not reset for each chunk. The content of
//! the chunks is not interpreted here.

use std::pin::Pin;
use std::time::Duration;

use crate::kube::client::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::kube::client::causes;

/// The interval at which the transfer rate of an incomplete object is checked.
const WINDOW: Duration = Duration::from_secs(5);
/// The minimum number of bytes in a window while an object is incomplete: 1 KiB/s.
const MIN_BYTES: usize = 5 * 1024;

/// The reason why a body was given up.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// The connection was closed or reset.
    Broken(String),
    /// The connection was closed because the server did not answer a probe.
    Dead(String),
    /// Neither an event nor a bookmark arrived for this long.
    NoHeartbeat(Duration),
    /// No data arrived for this long, although the body was incomplete.
    Silent(Duration),
    /// An incomplete object arrives at less than the minimum transfer rate.
    Slow,
    /// The watch did not end in time. The value is the time since the last data.
    Overdue(Duration),
}

/// The transfer rate check of an incomplete object.
#[derive(Clone, Copy, Debug)]
struct RateWindow {
    /// The end of the current window.
    until: Instant,
    /// The number of bytes received in the window.
    bytes: usize,
    /// The previous window had too few bytes.
    slow: bool,
}

/// The time limits of a watch; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// The time by which the watch has to end.
    pub(crate) end: Option<Instant>,
    /// The longest silence. It is longer than the interval of bookmarks.
    pub(crate) heartbeat: Option<Duration>,
}

/// A response body that is read chunk by chunk, with stall detection.
pub(crate) struct Chunks {
    body: Body,
    /// The longest silence of a list; `None` for a watch.
    idle: Option<Duration>,
    /// The bounds of a watch.
    bounds: Bounds,
    /// Set while an object is incomplete.
    rate_window: Option<RateWindow>,
    /// The time of the last chunk with data.
    heard: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Chunks {
    /// Creates a list body: incomplete until its end, and silent for at most `idle`.
    pub(crate) fn whole(body: Body, idle: Duration) -> Self {
        let mut chunks = Self::new(body, Some(idle), Bounds::default());
        chunks.set_incomplete(true);
        chunks
    }

    /// Creates the body of a watch.
    pub(crate) fn events(body: Body, bounds: Bounds) -> Self {
        Self::new(body, None, bounds)
    }

    fn new(body: Body, idle: Option<Duration>, bounds: Bounds) -> Self {
        let heard = Instant::now();
        let mut chunks = Self {
            body,
            idle,
            bounds,
            rate_window: None,
            heard,
            timer: Box::pin(sleep_until(heard)),
        };
        let next = chunks.next_deadline(heard);
        chunks.timer.as_mut().reset(next);
        chunks
    }

    /// Turns a streaming list that is complete into a watch, or sets other bounds of a watch.
    pub(crate) fn become_watch(&mut self, bounds: Bounds) {
        (self.idle, self.bounds) = (None, bounds);
        let next = self.next_deadline(Instant::now());
        self.timer.as_mut().reset(next);
    }

    /// Sets whether an object is incomplete, which requires a minimum transfer rate.
    pub(crate) fn set_incomplete(&mut self, is_incomplete: bool) {
        if !is_incomplete {
            self.rate_window = None;
        } else if self.rate_window.is_none() {
            let until = self.heard + WINDOW;
            self.rate_window = Some(RateWindow { until, bytes: 0, slow: false });
            if self.timer.deadline() > until {
                self.timer.as_mut().reset(until);
            }
        }
    }

    /// Returns when the last chunk with data arrived, or the body was created.
    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }

    /// Waits for the next chunk, `None` at the end.
    ///
    /// # Errors
    /// The connection broke, or the body stalled or did not end in time.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = &mut self.timer => {
                    self.check_deadlines(Instant::now())?;
                    continue;
                }
            };
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| {
                let (is_silent, message) = (error.is_silent, causes(&error));
                if is_silent { ReadError::Dead(message) } else { ReadError::Broken(message) }
            })?;
            // Trailers are ignored.
            if let Ok(data) = frame.into_data() {
                // HTTP/2 servers end a stream with an empty frame, after any silence.
                if !data.is_empty() {
                    self.heard = Instant::now();
                }
                if let Some(rate_window) = &mut self.rate_window {
                    rate_window.bytes += data.len();
                }
                return Ok(Some(data));
            }
        }
    }

    /// Handles the timer: fails if a deadline has passed, else sets the timer to the next one.
    fn check_deadlines(&mut self, now: Instant) -> Result<(), ReadError> {
        let silence = now.duration_since(self.heard);
        if self.bounds.end.is_some_and(|end| now >= end) {
            return Err(ReadError::Overdue(silence));
        }
        if let Some(idle) = self.idle
            && silence >= idle
        {
            return Err(ReadError::Silent(idle));
        }
        if self.bounds.heartbeat.is_some_and(|longest| silence >= longest) {
            return Err(ReadError::NoHeartbeat(silence));
        }
        if let Some(rate_window) = &mut self.rate_window
            && now >= rate_window.until
        {
            // Complete silence of a list is limited by `idle`: the server may still be preparing data.
            let silent = rate_window.bytes == 0 && self.idle.is_some();
            let slow = rate_window.bytes < MIN_BYTES && !silent;
            if slow && rate_window.slow {
                return Err(ReadError::Slow);
            }
            *rate_window = RateWindow { until: now + WINDOW, bytes: 0, slow };
        }
        let next = self.next_deadline(now);
        self.timer.as_mut().reset(next);
        Ok(())
    }

    /// Returns the earliest deadline.
    fn next_deadline(&self, now: Instant) -> Instant {
        let silence = [self.idle, self.bounds.heartbeat].into_iter().flatten().min();
        let silent = silence.and_then(|silence| self.heard.checked_add(silence));
        let rate_window = self.rate_window.map(|rate_window| rate_window.until);
        // Without any deadline, check again in an hour.
        let none = now + Duration::from_secs(3600);
        [silent, rate_window, self.bounds.end].into_iter().flatten().min().unwrap_or(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A body whose last chunk arrived `ago`.
    fn heard(idle: Option<Duration>, bounds: Bounds, ago: Duration) -> Chunks {
        let mut chunks = Chunks::new(Body::from(Bytes::new()), idle, bounds);
        chunks.heard = chunks.heard.checked_sub(ago).expect("a machine that runs for a while");
        chunks
    }

    #[tokio::test]
    async fn silence_is_limited_if_data_is_expected() {
        let now = Instant::now();
        let mut list = heard(Some(WINDOW), Bounds::default(), WINDOW);
        assert!(matches!(list.check_deadlines(now + WINDOW), Err(ReadError::Silent(_))));
        let end = now.checked_add(HOUR);
        let mut watch = heard(None, Bounds { end, heartbeat: None }, WINDOW);
        assert!(watch.check_deadlines(now + WINDOW).is_ok());
        match watch.check_deadlines(now + HOUR) {
            Err(ReadError::Overdue(silence)) => assert!(silence >= HOUR, "{silence:?}"),
            other => panic!("{other:?}"),
        }
        let mut watch = heard(None, Bounds { end, heartbeat: Some(3 * WINDOW) }, WINDOW);
        assert!(watch.check_deadlines(now + WINDOW).is_ok());
        assert!(matches!(watch.check_deadlines(now + 3 * WINDOW), Err(ReadError::NoHeartbeat(_))));
    }

    #[tokio::test]
    async fn the_timer_is_at_the_earliest_deadline() {
        let before =
            |instant: Instant| instant.checked_sub(Duration::from_nanos(1)).expect("later");
        let mut list = heard(Some(WINDOW), Bounds::default(), Duration::ZERO);
        let due = list.heard() + WINDOW;
        assert_eq!(list.timer.deadline(), due);
        assert!(list.check_deadlines(before(due)).is_ok());
        assert_eq!(list.timer.deadline(), due);
        assert!(matches!(list.check_deadlines(due), Err(ReadError::Silent(WINDOW))));
        let end = list.heard() + 2 * WINDOW;
        list.become_watch(Bounds { end: Some(end), heartbeat: None });
        assert_eq!(list.timer.deadline(), end);
        assert!(list.check_deadlines(before(end)).is_ok());
        let twice = 2 * WINDOW;
        let result = list.check_deadlines(end);
        assert!(matches!(result, Err(ReadError::Overdue(silence)) if silence == twice));
        let heartbeat = Some(3 * WINDOW);
        list.become_watch(Bounds { end: list.heard().checked_add(HOUR), heartbeat });
        let due = list.heard() + 3 * WINDOW;
        assert_eq!(list.timer.deadline(), due);
        assert!(list.check_deadlines(before(due)).is_ok());
        assert!(matches!(list.check_deadlines(due), Err(ReadError::NoHeartbeat(_))));
        // An incomplete object has an earlier one.
        list.set_incomplete(true);
        assert_eq!(list.timer.deadline(), list.heard() + WINDOW);
        let mut unbounded = heard(None, Bounds::default(), Duration::ZERO);
        let now = unbounded.heard();
        assert!(unbounded.check_deadlines(now).is_ok());
        assert_eq!(unbounded.timer.deadline(), now + HOUR);
    }

    #[tokio::test]
    async fn slow_body_fails_after_two_windows() {
        let mut list = Chunks::whole(Body::from(Bytes::new()), HOUR);
        let start = list.heard();
        let mut window = |number: u32, bytes| {
            list.rate_window.as_mut().expect("an incomplete object").bytes += bytes;
            list.check_deadlines(start + number * WINDOW)
        };
        assert!(window(1, 1).is_ok());
        assert!(window(2, MIN_BYTES).is_ok());
        assert!(window(3, MIN_BYTES - 1).is_ok());
        // Silence while the server prepares data has its own limit.
        assert!(window(4, 0).is_ok());
        assert!(window(5, 5).is_ok());
        assert!(matches!(window(6, 5), Err(ReadError::Slow)));
    }

    #[tokio::test]
    async fn incomplete_event_has_a_minimum_transfer_rate() {
        let mut watch = Chunks::events(Body::from(Bytes::new()), Bounds::default());
        let start = watch.heard();
        watch.set_incomplete(true);
        assert_eq!(watch.timer.deadline(), start + WINDOW);
        assert!(watch.check_deadlines(start + WINDOW).is_ok());
        // The event is complete, and the next one begins.
        watch.set_incomplete(false);
        assert!(watch.check_deadlines(start + 2 * WINDOW).is_ok());
        watch.set_incomplete(true);
        assert!(watch.check_deadlines(start + 3 * WINDOW).is_ok());
        assert!(matches!(watch.check_deadlines(start + 4 * WINDOW), Err(ReadError::Slow)));
    }
}
