//! Measures scrape intervals.
//!
//! Requests for the same content with the same address, user agent and path form one scraper. Two Prometheus replicas are
//! independent of each other, and so are several jobs of one, such as those for the virtual shards. If several scrapers
//! cannot be told apart, as behind a proxy, the time between two scrapes alternates: an interval is the longest of the last
//! ones, because that is the time within which each of them comes at least once.

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;

use crate::exposition::ScrapeQuery;

/// Number of scrapers remembered, the latest ones. They take 72 bytes each.
const MAX_SCRAPERS: usize = 1_024;

/// Time after which a scraper is ignored: a multiple of its interval, and a minimum.
const EXPIRY: (u32, Duration) = (3, Duration::from_secs(60));

/// The intervals of all recent scrapers.
#[derive(Debug, Default)]
pub(super) struct ScrapeIntervals(Vec<Scraper>);

#[derive(Debug)]
struct Scraper {
    /// Hash of the query, which includes what tells the scraper from others.
    hash: u64,
    last: Instant,
    /// Last intervals between its scrapes.
    intervals: [Option<Duration>; 3],
}

impl ScrapeIntervals {
    /// Records a scrape that starts at `now`.
    pub(super) fn note(&mut self, query: &ScrapeQuery, now: Instant) {
        let hash = FixedState::default().hash_one(query);
        if let Some(scraper) = self.0.iter_mut().find(|scraper| scraper.hash == hash) {
            scraper.intervals.rotate_left(1);
            scraper.intervals[2] = Some(now.duration_since(scraper.last));
            scraper.last = now;
            return;
        }
        let new = Scraper { hash, last: now, intervals: [None; 3] };
        if self.0.len() < MAX_SCRAPERS {
            self.0.push(new);
        } else if let Some(oldest) = self.0.iter_mut().min_by_key(|scraper| scraper.last) {
            *oldest = new;
        }
    }

    /// Returns the longest interval of all active scrapers.
    pub(super) fn interval(&self, now: Instant) -> Option<Duration> {
        let (times, least) = EXPIRY;
        let of = |scraper: &Scraper| {
            let interval = *scraper.intervals.iter().flatten().max()?;
            let comes = now.duration_since(scraper.last) <= least.max(interval * times);
            comes.then_some(interval)
        };
        self.0.iter().filter_map(of).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::VirtualShard;

    const SECOND: Duration = Duration::from_secs(1);

    fn query(scraper: u64) -> ScrapeQuery {
        ScrapeQuery { scraper, ..ScrapeQuery::default() }
    }

    #[test]
    fn intervals_of_one() {
        let start = Instant::now();
        let mut scrapes = ScrapeIntervals::default();
        let mut after = |seconds: u32| {
            scrapes.note(&query(1), start + seconds * SECOND);
            scrapes.interval(start + seconds * SECOND)
        };
        assert_eq!(after(0), None);
        assert_eq!([10, 20].map(&mut after), [Some(10 * SECOND); 2]);
        // A pause counts for three scrapes.
        assert_eq!([90, 100, 110].map(&mut after), [Some(70 * SECOND); 3]);
        assert_eq!(after(120), Some(10 * SECOND));
    }

    /// Two scrapers that look the same come 2 s apart, every 30 s.
    #[test]
    fn interval_of_scrapers_that_cannot_be_told_apart() {
        let start = Instant::now();
        let mut scrapes = ScrapeIntervals::default();
        for seconds in [0, 2, 30, 32, 60, 62] {
            scrapes.note(&query(1), start + seconds * SECOND);
        }
        assert_eq!(scrapes.interval(start + 62 * SECOND), Some(28 * SECOND));
    }

    #[test]
    fn each_virtual_shard_has_a_scraper() {
        let start = Instant::now();
        let mut scrapes = ScrapeIntervals::default();
        for seconds in [0, 30] {
            for index in 0..200 {
                let shard = Some(VirtualShard { index, total: 200 });
                scrapes.note(&ScrapeQuery { shard, ..query(1) }, start + seconds * SECOND);
            }
        }
        assert_eq!(scrapes.interval(start + 30 * SECOND), Some(30 * SECOND));
    }

    /// Two scrapers in quick succession do not count as one with a short interval.
    #[test]
    fn intervals_of_several() {
        let start = Instant::now();
        let mut scrapes = ScrapeIntervals::default();
        for seconds in [0, 30, 60] {
            scrapes.note(&query(1), start + seconds * SECOND);
            scrapes.note(&query(2), start + (seconds + 2) * SECOND);
            let resources = Some(["pods".to_owned()].into());
            let part = ScrapeQuery { resources, ..query(2) };
            scrapes.note(&part, start + (seconds + 3) * SECOND);
        }
        assert_eq!(scrapes.interval(start + 64 * SECOND), Some(30 * SECOND));
        for often in 70..80 {
            scrapes.note(&query(3), start + often * SECOND);
        }
        assert_eq!(scrapes.interval(start + 80 * SECOND), Some(30 * SECOND));
        for often in 80..300 {
            scrapes.note(&query(3), start + often * SECOND);
        }
        assert_eq!(scrapes.interval(start + 300 * SECOND), Some(SECOND), "the others are gone");
    }

    /// The number of remembered scrapers is bounded.
    #[test]
    fn only_so_many_are_known() {
        let start = Instant::now();
        let mut scrapes = ScrapeIntervals::default();
        for scraper in 0..2_000 {
            scrapes.note(&query(scraper), start);
        }
        assert_eq!(scrapes.0.len(), MAX_SCRAPERS);
        assert_eq!(scrapes.interval(start), None);
        assert!(size_of::<Scraper>() <= 72);
    }
}
