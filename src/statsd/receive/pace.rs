//! How long a thread stays away from its UDP socket between two reads, as a network card coalesces interrupts.
//!
//! To be woken for each datagram costs several times the datagram. While they come singly but fast the thread lets some
//! gather in the receive buffer. It goes by the rate it saw last and by the size of that buffer: far less may come
//! during a nap than fits, and a stream in which a nap would gather next to nothing gets none. Nothing is polled: after
//! a nap the thread waits for a datagram as ever. What a read gave comes in, a nap goes out; sockets are others'
//! business.

use std::time::{Duration, Instant};

/// No scrape and no person sees that a number came this much later.
const LONGEST: Duration = Duration::from_millis(1);
/// What the fastest sender makes the kernel charge to a receive buffer: small datagrams, one every half microsecond.
/// A burst that begins with a nap finds room for all it can send until its end.
const BURST_BYTES_PER_SECOND: f64 = 1.5e9;
/// Share of the receive buffer that may fill up during a nap at the rate seen last.
const SHARE: f64 = 1.0 / 8.0;
/// A nap that gathers fewer datagrams costs more than it saves.
const WORTHWHILE: f64 = 2.0;
/// What the kernel charges for a datagram beside its bytes, which it rounds up to at most twice as many.
const CHARGE: usize = 768;

/// The pace of one socket.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The longest nap this receive buffer allows.
    longest: Duration,
    /// Bytes charged that may gather during a nap.
    room: f64,
    /// When the socket was last seen empty.
    since: Instant,
    /// Datagrams and charge since then.
    datagrams: usize,
    charged: usize,
}

impl Pace {
    /// The pace for a receive buffer of so many bytes, as the kernel counts them.
    pub(crate) fn new(buffer: usize, now: Instant) -> Self {
        let burst = Duration::from_secs_f64(buffer as f64 / BURST_BYTES_PER_SECOND);
        Self {
            longest: LONGEST.min(burst),
            room: buffer as f64 * SHARE,
            since: now,
            datagrams: 0,
            charged: 0,
        }
    }

    /// Takes note that the socket was found empty. Returns how long to stay away from it.
    pub(crate) fn empty(&mut self, now: Instant) -> Option<Duration> {
        if self.datagrams == 0 { None } else { self.after(0, 0, false, now) }
    }

    /// Takes note of a read that ended at `now`: so many datagrams of so many bytes, and whether the socket may hold
    /// more. Returns how long to stay away from it.
    pub(crate) fn after(
        &mut self,
        datagrams: usize,
        bytes: usize,
        more: bool,
        now: Instant,
    ) -> Option<Duration> {
        self.datagrams += datagrams;
        self.charged += datagrams * CHARGE + 2 * bytes;
        if more {
            return None;
        }
        let elapsed = now.duration_since(self.since).as_secs_f64();
        self.since = now;
        let (datagrams, charged) =
            (std::mem::take(&mut self.datagrams), std::mem::take(&mut self.charged));
        let nap = (elapsed * self.room / charged as f64).min(self.longest.as_secs_f64());
        let gathered = datagrams as f64 * nap / elapsed;
        (gathered >= WORTHWHILE).then(|| Duration::from_secs_f64(nap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: usize = 8 << 20;

    /// The nap after reads that each took `datagrams` of `length` bytes and lie `every` apart.
    fn nap(buffer: usize, datagrams: usize, length: usize, every: Duration) -> Option<Duration> {
        let start = Instant::now();
        let mut pace = Pace::new(buffer, start);
        pace.after(datagrams, datagrams * length, false, start + every);
        pace.after(datagrams, datagrams * length, false, start + every * 2)
    }

    #[test]
    fn a_fast_stream_of_single_datagrams_is_gathered() {
        assert_eq!(nap(BUFFER, 1, 40, Duration::from_micros(10)), Some(LONGEST));
    }

    #[test]
    fn a_slow_stream_is_taken_as_it_comes() {
        assert_eq!(nap(BUFFER, 1, 40, Duration::from_micros(600)), None);
        assert_eq!(nap(BUFFER, 1, 40, Duration::from_secs(1)), None);
        assert_eq!(nap(BUFFER, 1, 40, Duration::ZERO), None);
    }

    #[test]
    fn more_is_read_before_a_nap() {
        let start = Instant::now();
        let mut pace = Pace::new(BUFFER, start);
        let at = |micros| start + Duration::from_micros(micros);
        assert_eq!(pace.after(64, 64 * 40, true, at(500)), None);
        assert_eq!(pace.after(36, 36 * 40, false, at(1_000)), Some(LONGEST));
        // Those before the nap do not count twice.
        assert_eq!(pace.after(1, 40, false, at(2_000)), None);
        // The last of them may have filled a batch, so that only the next read shows that there were no more.
        assert_eq!(pace.after(64, 64 * 40, true, at(2_500)), None);
        assert_eq!(pace.empty(at(2_501)), Some(LONGEST));
        assert_eq!(pace.empty(at(2_502)), None);
    }

    #[test]
    fn neither_the_stream_nor_a_burst_fills_the_buffer_during_a_nap() {
        for buffer in [2_304, 212_992, 425_984, BUFFER, 64 << 20] {
            for length in [0, 40, 1_400, 65_507] {
                for micros in [1, 3, 10, 100, 1_000] {
                    let every = Duration::from_micros(micros);
                    let Some(nap) = nap(buffer, 1, length, every) else { continue };
                    let charge = (CHARGE + 2 * length) as f64;
                    let gathered = nap.as_secs_f64() / every.as_secs_f64() * charge;
                    assert!(gathered <= buffer as f64 / 8.0 * 1.001, "{buffer} {length} {micros}");
                    let burst = nap.as_secs_f64() * BURST_BYTES_PER_SECOND;
                    assert!(burst <= buffer as f64 * 1.001, "{buffer} {length} {micros}");
                    assert!(nap <= LONGEST);
                }
            }
        }
    }
}
