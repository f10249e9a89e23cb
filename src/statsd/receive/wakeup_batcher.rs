//! Delays reads from a UDP socket to batch wakeups, similar to interrupt coalescing of a network card.
//!
//! A wakeup per datagram costs several times as much as the datagram. If single datagrams arrive quickly, the
//! thread pauses while some accumulate in the receive buffer. The duration follows from the recent rate and
//! the size of the buffer: far less than the buffer holds may arrive, and there is no pause if it would
//! gather almost nothing. After a pause the thread waits for a datagram as usual; nothing is polled.

use std::time::{Duration, Instant};

/// The maximum pause. Such a delay is visible neither in scrapes nor to users.
const MAX_PAUSE: Duration = Duration::from_millis(1);
/// The maximum rate at which a sender fills a receive buffer, as charged by the kernel: small datagrams every
/// half microsecond. A burst that starts during a pause fits into the buffer until the end of the pause.
const BURST_BYTES_PER_SECOND: f64 = 1.5e9;
/// The fraction of the receive buffer that may fill during a pause at the recent rate.
const BUFFER_SHARE: f64 = 1.0 / 8.0;
/// The minimum number of datagrams for which a pause pays off.
const MIN_GATHERED: f64 = 2.0;
/// The kernel's overhead per datagram in bytes. In addition, it rounds the length up to at most twice its
/// value.
const DATAGRAM_OVERHEAD: usize = 768;

/// The wakeup batching of one socket.
#[derive(Debug)]
pub(crate) struct WakeupBatcher {
    /// The longest pause that this receive buffer allows.
    max_pause: Duration,
    /// The bytes, as charged by the kernel, that may accumulate during a pause.
    max_charged: f64,
    /// The time at which the socket was last empty.
    last_empty: Instant,
    /// The number of datagrams and their charged bytes since then.
    datagrams: usize,
    charged: usize,
}

impl WakeupBatcher {
    /// Creates the state for a receive buffer of `buffer` bytes, as charged by the kernel.
    pub(crate) fn new(buffer: usize, now: Instant) -> Self {
        let burst = Duration::from_secs_f64(buffer as f64 / BURST_BYTES_PER_SECOND);
        Self {
            max_pause: MAX_PAUSE.min(burst),
            max_charged: buffer as f64 * BUFFER_SHARE,
            last_empty: now,
            datagrams: 0,
            charged: 0,
        }
    }

    /// Records that the socket was empty. Returns the pause.
    pub(crate) fn record_empty(&mut self, now: Instant) -> Option<Duration> {
        if self.datagrams == 0 { None } else { self.record_read(0, 0, false, now) }
    }

    /// Records a read that ended at `now`, with its datagrams and bytes. `more` is true if the socket may
    /// contain more. Returns the pause.
    pub(crate) fn record_read(
        &mut self,
        datagrams: usize,
        bytes: usize,
        more: bool,
        now: Instant,
    ) -> Option<Duration> {
        self.datagrams += datagrams;
        self.charged += datagrams * DATAGRAM_OVERHEAD + 2 * bytes;
        if more {
            return None;
        }
        let elapsed = now.duration_since(self.last_empty).as_secs_f64();
        self.last_empty = now;
        let (datagrams, charged) =
            (std::mem::take(&mut self.datagrams), std::mem::take(&mut self.charged));
        let pause = (elapsed * self.max_charged / charged as f64).min(self.max_pause.as_secs_f64());
        let gathered = datagrams as f64 * pause / elapsed;
        (gathered >= MIN_GATHERED).then(|| Duration::from_secs_f64(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: usize = 8 << 20;

    /// Returns the pause after reads of `datagrams` of `length` bytes at intervals of `every`.
    fn pause(buffer: usize, datagrams: usize, length: usize, every: Duration) -> Option<Duration> {
        let start = Instant::now();
        let mut batcher = WakeupBatcher::new(buffer, start);
        batcher.record_read(datagrams, datagrams * length, false, start + every);
        batcher.record_read(datagrams, datagrams * length, false, start + every * 2)
    }

    #[test]
    fn fast_single_datagrams_are_batched() {
        assert_eq!(pause(BUFFER, 1, 40, Duration::from_micros(10)), Some(MAX_PAUSE));
    }

    #[test]
    fn a_slow_stream_is_not_delayed() {
        assert_eq!(pause(BUFFER, 1, 40, Duration::from_micros(600)), None);
        assert_eq!(pause(BUFFER, 1, 40, Duration::from_secs(1)), None);
        assert_eq!(pause(BUFFER, 1, 40, Duration::ZERO), None);
    }

    #[test]
    fn the_socket_is_emptied_before_a_pause() {
        let start = Instant::now();
        let mut batcher = WakeupBatcher::new(BUFFER, start);
        let at = |micros| start + Duration::from_micros(micros);
        assert_eq!(batcher.record_read(64, 64 * 40, true, at(500)), None);
        assert_eq!(batcher.record_read(36, 36 * 40, false, at(1_000)), Some(MAX_PAUSE));
        // Datagrams before the pause do not count again.
        assert_eq!(batcher.record_read(1, 40, false, at(2_000)), None);
        // The last batch may have been full, so only the next read shows that the socket is empty.
        assert_eq!(batcher.record_read(64, 64 * 40, true, at(2_500)), None);
        assert_eq!(batcher.record_empty(at(2_501)), Some(MAX_PAUSE));
        assert_eq!(batcher.record_empty(at(2_502)), None);
    }

    #[test]
    fn neither_the_stream_nor_a_burst_overflows_the_buffer_during_a_pause() {
        for buffer in [2_304, 212_992, 425_984, BUFFER, 64 << 20] {
            for length in [0, 40, 1_400, 65_507] {
                for micros in [1, 3, 10, 100, 1_000] {
                    let every = Duration::from_micros(micros);
                    let Some(pause) = pause(buffer, 1, length, every) else { continue };
                    let charge = (DATAGRAM_OVERHEAD + 2 * length) as f64;
                    let gathered = pause.as_secs_f64() / every.as_secs_f64() * charge;
                    assert!(gathered <= buffer as f64 / 8.0 * 1.001, "{buffer} {length} {micros}");
                    let burst = pause.as_secs_f64() * BURST_BYTES_PER_SECOND;
                    assert!(burst <= buffer as f64 * 1.001, "{buffer} {length} {micros}");
                    assert!(pause <= MAX_PAUSE);
                }
            }
        }
    }
}
