//! Estimates the datagrams and lines of each sender, and the CPU time that batching would save.
//!
//! Counts come from one datagram in 64, which stands for the others. They are kept for two minutes: the current one and
//! the one before. Each minute is a Space-Saving summary (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent
//! and Top-k Elements in Data Streams", ICDT 2005) of [`PLACES`] senders, so a sender of more than 1/[`PLACES`] of the
//! datagrams is always found, and a flood of addresses takes no more memory.

use std::collections::HashMap;
use std::net::IpAddr;

use super::clock::Moment;
use crate::status::{DatagramSender, LARGEST};
use crate::util::lock::Lock;

/// The number of senders that are tracked.
const PLACES: usize = 256;

/// The CPU time for receiving a datagram apart from its lines, in multiples of the time for a line. Both take 0.3 µs at
/// 150,000 lines per second (docs/senders.md).
const DATAGRAM_COST: f64 = 1.0;

/// The size to which clients fill their datagrams: an Ethernet frame without the headers.
const PAYLOAD: f64 = 1_432.0;

/// The time for which clients collect lines, in seconds.
const FLUSH_INTERVAL: f64 = 0.1;

const MINUTE_NANOS: u64 = 60_000_000_000;

/// The address of a sender; `None` for all senders of a Unix socket.
type Address = Option<IpAddr>;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    datagrams: u64,
    lines: u64,
    bytes: u64,
    /// Datagrams of the senders whose place this one has taken.
    inherited: u64,
}

type Senders = HashMap<Address, Counts, foldhash::quality::RandomState>;

#[derive(Debug, Default)]
struct Minutes {
    /// The number of the current minute.
    minute: u64,
    current: Senders,
    previous: Senders,
}

impl Minutes {
    fn advance(&mut self, minute: u64) {
        if minute > self.minute {
            let last = std::mem::take(&mut self.current);
            self.previous = if minute == self.minute + 1 { last } else { Senders::default() };
            self.minute = minute;
        }
    }

    fn add(&mut self, address: Address, counts: Counts) {
        let senders = &mut self.current;
        let mut inherited = 0;
        if senders.len() >= PLACES && !senders.contains_key(&address) {
            let total = |counts: &Counts| counts.datagrams + counts.inherited;
            let least = senders.iter().min_by_key(|(_, counts)| total(counts));
            if let Some(least) = least.map(|(address, _)| *address) {
                inherited = senders.remove(&least).as_ref().map_or(0, total);
            }
        }
        let sum = senders.entry(address).or_insert(Counts { inherited, ..Counts::default() });
        sum.datagrams += counts.datagrams;
        sum.lines += counts.lines;
        sum.bytes += counts.bytes;
    }
}

/// The load of each sender of datagrams.
#[derive(Debug, Default)]
pub(crate) struct DatagramSenders(Lock<Minutes>);

impl DatagramSenders {
    /// Counts a datagram that stands for `weight` datagrams.
    #[cold]
    pub(crate) fn note(&self, address: Address, datagram: &[u8], weight: u64, now: Moment) {
        let ended = u64::from(datagram.last() != Some(&b'\n'));
        let lines = memchr::memchr_iter(b'\n', datagram).count() as u64 + ended;
        let (lines, bytes) = (weight * lines, weight * datagram.len() as u64);
        let counts = Counts { datagrams: weight, lines, bytes, inherited: 0 };
        let mut minutes = self.0.lock();
        minutes.advance(now.minute());
        minutes.add(address, counts);
    }

    /// Returns the senders that would save most, at most [`LARGEST`].
    pub(crate) fn report(&self, now: Moment) -> Vec<DatagramSender> {
        let mut minutes = self.0.lock();
        minutes.advance(now.minute());
        let mut senders = minutes.current.clone();
        for (address, counts) in &minutes.previous {
            let sum = senders.entry(*address).or_default();
            sum.datagrams += counts.datagrams;
            sum.lines += counts.lines;
            sum.bytes += counts.bytes;
        }
        let begin = minutes.minute.saturating_sub(1) * MINUTE_NANOS;
        drop(minutes);
        let seconds = (now.nanos().saturating_sub(begin) as f64 / 1e9).max(1.0);
        let cost = |counts: &Counts| DATAGRAM_COST * counts.datagrams as f64 + counts.lines as f64;
        let total: f64 = senders.values().map(cost).sum();
        let sender = |(address, counts): (&Address, &Counts)| DatagramSender {
            address: address.map(|address| address.to_string()),
            datagrams_per_second: counts.datagrams as f64 / seconds,
            lines_per_datagram: counts.lines as f64 / counts.datagrams as f64,
            saving: DATAGRAM_COST * superfluous(counts, seconds) / total,
        };
        let mut all: Vec<DatagramSender> = senders.iter().map(sender).collect();
        all.sort_unstable_by(|a, b| {
            b.saving.total_cmp(&a.saving).then_with(|| a.address.cmp(&b.address))
        });
        all.truncate(LARGEST);
        all
    }
}

/// Returns the datagrams that a sender would save if it filled them up to [`PAYLOAD`] with the lines of one
/// [`FLUSH_INTERVAL`].
fn superfluous(counts: &Counts, seconds: f64) -> f64 {
    let (datagrams, lines) = (counts.datagrams as f64, (counts.lines as f64).max(1.0));
    let fitting = (PAYLOAD / (counts.bytes as f64 / lines + 1.0)).floor();
    let collected = lines / seconds * FLUSH_INTERVAL;
    (datagrams - lines / fitting.min(collected).max(1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::statsd::clock::Clock;

    fn address(last: u16) -> Address {
        let [high, low] = last.to_be_bytes();
        Some([10, 0, high, low].into())
    }

    fn at(seconds: u64) -> Moment {
        let clock = Clock::manual();
        clock.advance(Duration::from_secs(seconds));
        clock.now()
    }

    #[test]
    fn the_sender_of_single_lines_is_first_and_saves_what_its_datagrams_cost() {
        let senders = DatagramSenders::default();
        let batch = "requests:1|c\n".repeat(20);
        for _ in 0..1_000 {
            senders.note(address(1), batch.as_bytes(), 64, at(1));
            senders.note(address(2), b"requests:1|c", 64, at(1));
            senders.note(None, b"requests:1|c\nlevel:1|g", 64, at(1));
        }
        let report = senders.report(at(10));
        let names: Vec<_> = report.iter().map(|sender| sender.address.as_deref()).collect();
        assert_eq!(names, [Some("10.0.0.2"), None, Some("10.0.0.1")]);
        let [single, unix, batched] = &report[..] else { panic!("{report:?}") };
        assert_eq!((single.lines_per_datagram, single.datagrams_per_second), (1.0, 6_400.0));
        assert_eq!((unix.lines_per_datagram, batched.lines_per_datagram), (2.0, 20.0));
        // 110 lines of 13 bytes fit. The datagrams of the three cost 2, 3 and 21 lines.
        let expected = (1.0 - 1.0 / 110.0) / 26.0;
        assert!((single.saving - expected).abs() < 1e-9, "{single:?}");
        assert!(single.gains() && unix.gains() && batched.saving < single.saving);
    }

    #[test]
    fn a_rare_sender_has_nothing_to_batch() {
        let senders = DatagramSenders::default();
        for _ in 0..10 {
            senders.note(address(1), b"requests:1|c", 64, at(1));
        }
        // 640 lines in 100 s: fewer than one in each interval.
        let report = senders.report(at(100));
        assert_eq!((report[0].saving, report[0].gains()), (0.0, false));
    }

    #[test]
    fn counts_are_of_the_last_two_minutes() {
        let senders = DatagramSenders::default();
        senders.note(address(1), b"a:1|c", 6_000, at(30));
        senders.note(address(2), b"a:1|c", 6_000, at(70));
        let rates = |seconds: u64| -> Vec<f64> {
            let mut all = senders.report(at(seconds));
            all.sort_unstable_by(|a, b| a.address.cmp(&b.address));
            all.iter().map(|sender| sender.datagrams_per_second).collect()
        };
        assert_eq!(rates(100), [60.0, 60.0]);
        assert_eq!(rates(120), [100.0]);
        assert!(rates(240).is_empty());
        senders.note(address(3), b"a:1|c", 6_000, at(660));
        assert_eq!(rates(660), [100.0]);
    }

    #[test]
    fn a_flood_of_addresses_takes_no_more_room_and_hides_nobody() {
        let senders = DatagramSenders::default();
        for number in 0..50_000u16 {
            senders.note(address(number), b"flood:1|c", 64, at(1));
            if number % 20 == 0 {
                senders.note(address(65_535), b"busy:1|c", 64, at(1));
            }
        }
        let minutes = senders.0.lock();
        assert_eq!(minutes.current.len(), PLACES);
        drop(minutes);
        let report = senders.report(at(10));
        assert_eq!(report.len(), LARGEST);
        assert_eq!(report[0].address.as_deref(), Some("10.0.255.255"));
        assert_eq!(report[0].datagrams_per_second, 16_000.0);
    }
}
