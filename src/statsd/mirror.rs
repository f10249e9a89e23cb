//! The latest lines that this process received from clients, for other replicas that keep the same series.
//!
//! Lines are numbered in the order of their batches. A reader asks for the lines from a number on, so it notices lines
//! that were evicted before it read them, and a repeated request loses nothing. Lines that came from another replica
//! are never part of it, so they do not return to where they came from.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use super::relay::RelayBatch;
use crate::util::lock::Lock;

/// The maximum size of the kept lines in bytes.
const KEPT_BYTES: usize = 8 << 20;

/// The shortest time between evicted batches whose numbers are remembered.
const EVICTED_INTERVAL: Duration = Duration::from_millis(100);

/// The largest number of evicted batches whose numbers are remembered: ten minutes.
const MAX_EVICTED: usize = 6_000;

/// The byte before and after the UID of a line's sender.
const SENDER: u8 = 1;

/// Returns the parts of a line with the UID of the pod that sent it, for a replica that resolves senders too.
pub(super) fn with_sender<'a>(uid: Option<&'a str>, line: &'a [u8]) -> [&'a [u8]; 4] {
    [&[SENDER], uid.unwrap_or_default().as_bytes(), &[SENDER], line]
}

/// Splits a line with its sender. A line without one has an empty UID.
pub(super) fn split_sender(line: &[u8]) -> (&[u8], &[u8]) {
    let after = line.strip_prefix(&[SENDER]).unwrap_or_default();
    match after.iter().position(|byte| *byte == SENDER) {
        Some(end) => {
            (after.get(..end).unwrap_or_default(), after.get(end + 1..).unwrap_or_default())
        }
        None => (b"", line),
    }
}

/// A bounded log of the latest lines.
#[derive(Debug)]
pub(crate) struct Mirror {
    started: Instant,
    kept: Lock<Kept>,
    /// The number of the next line.
    next: watch::Sender<u64>,
    /// True if each line has its [sender](with_sender).
    pub(crate) has_senders: bool,
}

#[derive(Debug, Default)]
struct Kept {
    batches: VecDeque<KeptBatch>,
    bytes: usize,
    /// The time and the first line of evicted batches, at least [`EVICTED_INTERVAL`] apart.
    evicted: VecDeque<(Instant, u64)>,
}

impl Kept {
    /// Remembers when the line with number `first` was received, which is not kept.
    fn note_evicted(&mut self, received: Instant, first: u64) {
        let is_due = |(last, _): &(Instant, u64)| received - *last >= EVICTED_INTERVAL;
        if self.evicted.back().is_none_or(is_due) {
            self.evicted.push_back((received, first));
        }
        if self.evicted.len() > MAX_EVICTED {
            self.evicted.pop_front();
        }
    }
}

#[derive(Debug)]
struct KeptBatch {
    /// The number of its first line.
    first: u64,
    received: Instant,
    lines: u64,
    /// The memory that it takes.
    cost: usize,
    text: Bytes,
}

/// A range of consecutive lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MirroredLines {
    /// The number of the first line.
    pub(crate) first: u64,
    /// The number after the last line.
    pub(crate) next: u64,
    /// The lines, each followed by a line feed.
    pub(crate) text: Vec<u8>,
}

impl Mirror {
    /// Returns an empty log. `has_senders` states whether each line has its [sender](with_sender).
    pub(super) fn new(has_senders: bool) -> Self {
        let (started, kept) = (Instant::now(), Lock::default());
        Self { started, kept, next: watch::Sender::new(0), has_senders }
    }

    /// Adds a batch and evicts the oldest ones beyond the limit.
    pub(super) fn push(&self, batch: RelayBatch) {
        let (lines, cost) = (batch.lines, batch.cost());
        let text = Bytes::from(batch.text);
        let mut kept = self.kept.lock();
        let first = *self.next.borrow();
        while kept.bytes + cost > KEPT_BYTES
            && let Some(evicted) = kept.batches.pop_front()
        {
            kept.bytes -= evicted.cost;
            kept.note_evicted(evicted.received, evicted.first);
        }
        let received = Instant::now();
        if cost <= KEPT_BYTES {
            kept.bytes += cost;
            kept.batches.push_back(KeptBatch { first, received, lines, cost, text });
        } else {
            kept.note_evicted(received, first);
        }
        // Under the lock, so that numbers are given in the order of the batches.
        self.next.send_replace(first + lines);
    }

    /// Returns lines from number `from` on, or from the first kept one after it. Without `from`, returns no lines and the
    /// current number. There are up to `limit` bytes, or a single longer line. A reader that resolves no senders gets the
    /// lines without them.
    pub(crate) fn read(
        &self,
        from: Option<u64>,
        with_senders: bool,
        limit: usize,
    ) -> MirroredLines {
        let (first, next, parts) = self.parts(from, limit);
        let keeps_senders = with_senders || !self.has_senders;
        let mut text = Vec::with_capacity(parts.iter().map(Bytes::len).sum());
        for part in parts {
            if keeps_senders {
                text.extend_from_slice(&part);
                continue;
            }
            for line in part.split_inclusive(|byte| *byte == b'\n') {
                text.extend_from_slice(split_sender(line).1);
            }
        }
        MirroredLines { first, next, text }
    }

    /// Returns the number of the first of these lines, that after the last one, and the batches. They are copied without
    /// the lock, which the receivers of lines need.
    fn parts(&self, from: Option<u64>, limit: usize) -> (u64, u64, Vec<Bytes>) {
        let kept = self.kept.lock();
        let end = *self.next.borrow();
        let from = from.unwrap_or(u64::MAX);
        let at = kept.batches.partition_point(|kept| kept.first + kept.lines <= from);
        let first = kept.batches.get(at).map_or(end, |kept| kept.first.max(from));
        let (mut next, mut bytes, mut parts) = (first, 0, Vec::new());
        for KeptBatch { first, lines, text, .. } in kept.batches.range(at..) {
            if bytes >= limit || *first > next {
                break;
            }
            // A reader may have got a part of the first batch.
            let (part, rest) = split_lines(after_lines(text, next - first), limit - bytes);
            if part.len() > limit - bytes && !parts.is_empty() {
                break;
            }
            next = if rest.is_empty() { first + lines } else { next + count_lines(part) };
            bytes += part.len();
            parts.push(text.slice_ref(part));
            if !rest.is_empty() {
                break;
            }
        }
        (first, next, parts)
    }

    /// Returns the number of the first line that was received within the last `time`. Of evicted lines, up to 100 ms may be
    /// missing, and all but the last ten minutes unless `time` goes back to the start, when it is 0.
    pub(crate) fn first_within(&self, time: Duration) -> u64 {
        if self.started.elapsed() <= time {
            return 0;
        }
        let kept = self.kept.lock();
        let is_older = |received: &Instant| received.elapsed() > time;
        let at = kept.evicted.partition_point(|(received, _)| is_older(received));
        if let Some((_, first)) = kept.evicted.get(at) {
            return *first;
        }
        let at = kept.batches.partition_point(|kept| is_older(&kept.received));
        kept.batches.get(at).map_or(*self.next.borrow(), |kept| kept.first)
    }

    /// Returns a receiver of the number of the next line.
    pub(crate) fn next(&self) -> watch::Receiver<u64> {
        self.next.subscribe()
    }
}

/// Splits a text after the lines in its first `limit` bytes, but after one line at least if there is one.
pub(crate) fn split_lines(text: &[u8], limit: usize) -> (&[u8], &[u8]) {
    let end = match text.get(..limit) {
        None => None,
        Some(start) => memchr::memrchr(b'\n', start).or_else(|| memchr::memchr(b'\n', text)),
    };
    text.split_at(end.map_or(text.len(), |end| end + 1))
}

/// Returns the number of lines of a text.
pub(crate) fn count_lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

/// Returns the text after this many lines.
pub(crate) fn after_lines(text: &[u8], count: u64) -> &[u8] {
    let Some(last) = count.checked_sub(1) else { return text };
    let end = memchr::memchr_iter(b'\n', text).nth(usize::try_from(last).unwrap_or(usize::MAX));
    end.and_then(|end| text.get(end + 1..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn batch(lines: &[&str]) -> RelayBatch {
        let mut batch = RelayBatch::default();
        lines.iter().for_each(|line| batch.push(line.as_bytes()));
        batch
    }

    fn read(mirror: &Mirror, from: Option<u64>) -> (u64, u64, String) {
        let MirroredLines { first, next, text } = mirror.read(from, false, LIMIT);
        (first, next, String::from_utf8(text).expect("UTF-8"))
    }

    #[test]
    fn lines_are_read_in_order_and_again() {
        let mirror = Mirror::new(false);
        assert_eq!(read(&mirror, None), (0, 0, String::new()));
        mirror.push(batch(&["a:1|c", "b:1|c"]));
        mirror.push(batch(&["c:1|c"]));
        for _ in 0..2 {
            assert_eq!(read(&mirror, Some(0)), (0, 3, "a:1|c\nb:1|c\nc:1|c\n".to_owned()));
        }
        // A reader that was interrupted continues within a batch.
        assert_eq!(read(&mirror, Some(1)), (1, 3, "b:1|c\nc:1|c\n".to_owned()));
        assert_eq!(read(&mirror, Some(2)), (2, 3, "c:1|c\n".to_owned()));
        for from in [None, Some(3), Some(u64::MAX)] {
            assert_eq!(read(&mirror, from), (3, 3, String::new()), "{from:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn lines_are_found_by_their_age() {
        let (mirror, second) = (Mirror::new(false), Duration::from_secs(1));
        for lines in [&["a:1|c", "b:1|c"][..], &["c:1|c"]] {
            tokio::time::advance(10 * second).await;
            mirror.push(batch(lines));
        }
        tokio::time::advance(second).await;
        let found = [0, 1, 10, 11, 20, 21, u64::MAX];
        let found = found.map(|age| mirror.first_within(Duration::from_secs(age)));
        assert_eq!(found, [3, 2, 2, 0, 0, 0, 0]);
    }

    /// The replica that asks must know how many lines it has lost.
    #[tokio::test(start_paused = true)]
    async fn evicted_lines_are_found_by_their_age() {
        let (mirror, second) = (Mirror::new(false), Duration::from_secs(1));
        let long = "x".repeat(KEPT_BYTES / 2 - 1_000);
        for _ in 0..6 {
            tokio::time::advance(10 * second).await;
            mirror.push(batch(&[&long]));
        }
        mirror.push(batch(&[&"x".repeat(KEPT_BYTES)]));
        mirror.push(batch(&["a:1|c"]));
        let found = [0, 1, 10, 25, 45, 59, 60].map(|age| mirror.first_within(age * second));
        assert_eq!(found, [5, 5, 4, 3, 1, 0, 0]);
        assert_eq!(mirror.read(Some(4), false, LIMIT).first, 7, "the reader sees the gap");
    }

    #[test]
    fn senders_are_read_by_those_who_want_them() {
        let mirror = Mirror::new(true);
        let mut lines = RelayBatch::default();
        lines.push_parts(&with_sender(Some("u1"), b"a:1|c"));
        lines.push_parts(&with_sender(None, b"\x01b\x01:1|c"));
        mirror.push(lines);
        assert_eq!(read(&mirror, Some(0)).2, "a:1|c\n\x01b\x01:1|c\n");
        assert_eq!(read(&mirror, Some(1)).2, "\x01b\x01:1|c\n");
        let text = mirror.read(Some(0), true, LIMIT).text;
        let lines: Vec<_> = text.split(|byte| *byte == b'\n').map(split_sender).collect();
        let none: &[u8] = b"";
        assert_eq!(
            lines,
            [(&b"u1"[..], &b"a:1|c"[..]), (none, &b"\x01b\x01:1|c"[..]), (none, none)]
        );
    }

    #[test]
    fn evicted_and_oversized_batches_leave_a_gap() {
        let mirror = Mirror::new(false);
        let long = "x".repeat(KEPT_BYTES / 4);
        (0..5).for_each(|_| mirror.push(batch(&[&long, "a:1|c"])));
        let lines = mirror.read(Some(0), true, LIMIT);
        // The first two batches were evicted, and a line is longer than the limit.
        assert_eq!((lines.first, lines.next), (4, 5));
        assert_eq!(mirror.read(Some(5), true, LIMIT).next, 6);
        assert!(mirror.kept.lock().bytes <= KEPT_BYTES);
        mirror.push(batch(&[&"y".repeat(KEPT_BYTES)]));
        mirror.push(batch(&["z:1|c"]));
        assert_eq!(read(&mirror, Some(10)), (11, 12, "z:1|c\n".to_owned()));
    }
}
