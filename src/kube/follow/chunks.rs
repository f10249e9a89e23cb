//! The chunks of a response body, and when to give it up because nothing useful comes.
//!
//! A body may be silent, may come too slowly to be of use, or may last longer than was asked for. One
//! alarm notices all of it: it is set to the earliest time at which something may be wrong, not for each
//! chunk. What the chunks mean is not known here.

use std::pin::Pin;
use std::time::Duration;

use crate::kube::client::Body;
use bytes::Bytes;
use http_body_util::BodyExt;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::kube::client::causes;

/// What is owed is looked at so often.
const WINDOW: Duration = Duration::from_secs(5);
/// What has to come in a window while something is owed: 1 KiB/s.
const ENOUGH: usize = 5 * 1024;

/// Why there are no more chunks.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The connection broke.
    Broken(String),
    /// Nothing came for so long, though something had to come.
    Silent(Duration),
    /// Something begun comes too slowly.
    Slow,
    /// It lasts longer than was asked for; nothing came for so long.
    Over(Duration),
}

/// What has begun and is not complete.
#[derive(Clone, Copy, Debug)]
struct Owed {
    /// The end of the window.
    until: Instant,
    /// Bytes received in it.
    bytes: usize,
    /// Whether too little came in the window before.
    slow: bool,
}

/// The chunks of a body.
pub(crate) struct Chunks {
    body: Body,
    /// How long it may be silent.
    idle: Option<Duration>,
    /// When it should have ended.
    end: Option<Instant>,
    owed: Option<Owed>,
    heard: Instant,
    alarm: Pin<Box<Sleep>>,
}

impl Chunks {
    /// A body that is complete only at its end, and may be silent for `idle`.
    pub(crate) fn whole(body: Body, idle: Duration) -> Self {
        let mut chunks = Self::new(body, Some(idle), None);
        chunks.owes(true);
        chunks
    }

    /// A body of events, which may be silent until `end`.
    pub(crate) fn events(body: Body, end: Option<Instant>) -> Self {
        Self::new(body, None, end)
    }

    fn new(body: Body, idle: Option<Duration>, end: Option<Instant>) -> Self {
        let heard = Instant::now();
        let mut chunks =
            Self { body, idle, end, owed: None, heard, alarm: Box::pin(sleep_until(heard)) };
        let next = chunks.next_alarm(heard);
        chunks.alarm.as_mut().reset(next);
        chunks
    }

    /// From here on it may be silent until `end`.
    pub(crate) fn lasts_until(&mut self, end: Option<Instant>) {
        (self.idle, self.end) = (None, end);
        let next = self.next_alarm(Instant::now());
        self.alarm.as_mut().reset(next);
    }

    /// Notes whether something has begun that is not complete.
    pub(crate) fn owes(&mut self, owes: bool) {
        if !owes {
            self.owed = None;
        } else if self.owed.is_none() {
            let until = self.heard + WINDOW;
            self.owed = Some(Owed { until, bytes: 0, slow: false });
            if self.alarm.deadline() > until {
                self.alarm.as_mut().reset(until);
            }
        }
    }

    /// When the last chunk came, or the body began.
    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }

    /// The next chunk, `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Trouble> {
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = &mut self.alarm => {
                    self.alarmed(Instant::now())?;
                    continue;
                }
            };
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| Trouble::Broken(causes(&error)))?;
            // Trailers mean nothing here.
            if let Ok(data) = frame.into_data() {
                self.heard = Instant::now();
                if let Some(owed) = &mut self.owed {
                    owed.bytes += data.len();
                }
                return Ok(Some(data));
            }
        }
    }

    /// The alarm may be too early: then it is set anew.
    fn alarmed(&mut self, now: Instant) -> Result<(), Trouble> {
        let silence = now.duration_since(self.heard);
        if self.end.is_some_and(|end| now >= end) {
            return Err(Trouble::Over(silence));
        }
        if let Some(idle) = self.idle
            && silence >= idle
        {
            return Err(Trouble::Silent(idle));
        }
        if let Some(owed) = &mut self.owed
            && now >= owed.until
        {
            // Where silence has a limit of its own, it is not slowness: the server may be at work.
            let silent = owed.bytes == 0 && self.idle.is_some();
            let slow = owed.bytes < ENOUGH && !silent;
            if slow && owed.slow {
                return Err(Trouble::Slow);
            }
            *owed = Owed { until: now + WINDOW, bytes: 0, slow };
        }
        let next = self.next_alarm(now);
        self.alarm.as_mut().reset(next);
        Ok(())
    }

    /// The earliest time at which something may be wrong.
    fn next_alarm(&self, now: Instant) -> Instant {
        let idle = self.idle.and_then(|idle| self.heard.checked_add(idle));
        let owed = self.owed.map(|owed| owed.until);
        // Without any bound, the time to look again whether there is one.
        let none = now + Duration::from_secs(3600);
        [idle, owed, self.end].into_iter().flatten().min().unwrap_or(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A body on which something was heard a while ago.
    fn heard(idle: Option<Duration>, end: Option<Instant>, ago: Duration) -> Chunks {
        let mut chunks = Chunks::new(Body::from(Bytes::new()), idle, end);
        chunks.heard = chunks.heard.checked_sub(ago).expect("a machine that runs for a while");
        chunks
    }

    #[tokio::test]
    async fn silence_counts_where_something_has_to_come() {
        let now = Instant::now();
        let mut list = heard(Some(WINDOW), None, WINDOW);
        assert!(matches!(list.alarmed(now + WINDOW), Err(Trouble::Silent(_))));
        let mut watch = heard(None, now.checked_add(HOUR), WINDOW);
        assert!(watch.alarmed(now + WINDOW).is_ok());
        match watch.alarmed(now + HOUR) {
            Err(Trouble::Over(silence)) => assert!(silence >= HOUR, "{silence:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_comes_too_slowly_is_given_up_after_two_windows() {
        let mut list = Chunks::whole(Body::from(Bytes::new()), HOUR);
        let start = list.heard();
        let mut window = |number: u32, bytes| {
            list.owed.as_mut().expect("something is owed").bytes += bytes;
            list.alarmed(start + number * WINDOW)
        };
        assert!(window(1, 1).is_ok());
        assert!(window(2, ENOUGH).is_ok());
        assert!(window(3, ENOUGH - 1).is_ok());
        // A server that is at work is silent; that has a bound of its own.
        assert!(window(4, 0).is_ok());
        assert!(window(5, 5).is_ok());
        assert!(matches!(window(6, 5), Err(Trouble::Slow)));
    }

    #[tokio::test]
    async fn an_event_that_has_begun_has_to_come_to_its_end() {
        let mut watch = Chunks::events(Body::from(Bytes::new()), None);
        let start = watch.heard();
        watch.owes(true);
        assert_eq!(watch.alarm.deadline(), start + WINDOW);
        assert!(watch.alarmed(start + WINDOW).is_ok());
        // It comes, and the next one begins.
        watch.owes(false);
        assert!(watch.alarmed(start + 2 * WINDOW).is_ok());
        watch.owes(true);
        assert!(watch.alarmed(start + 3 * WINDOW).is_ok());
        assert!(matches!(watch.alarmed(start + 4 * WINDOW), Err(Trouble::Slow)));
    }
}
