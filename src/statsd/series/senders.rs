//! Who brings new series: by address, and by container where lines say it.
//!
//! Counts are those of the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and
//! Top-k Elements in Data Streams", ICDT 2005) with [`PLACES`] places: whoever brings more than one of [`PLACES`] is
//! among them, and each count is too great by at most what is said beside it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use super::over::beginning;
use crate::growth::Growth;
use crate::statsd::clock::Moment;
use crate::telemetry::countable::Sender;

/// Senders that are told apart.
const PLACES: usize = 256;
/// Bytes of a container id that are kept.
const MAX_CONTAINER: usize = 128;

/// Where a line comes from, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Of the datagram or connection; none for a Unix socket.
    address: Option<IpAddr>,
    /// What the line says of its container, empty if nothing.
    container: String,
}

impl Origin {
    /// Lines come from this address from here on.
    pub(crate) fn set_address(&mut self, address: Option<IpAddr>) {
        self.address = address;
    }

    /// Takes the container's id out of a line: `|c:ID`, as DogStatsD's protocol 1.2 has it.
    pub(crate) fn read_container(&mut self, line: &[u8]) {
        self.container.clear();
        let mut sections = memchr::memchr_iter(b'|', line).filter_map(|at| line.get(at + 1..));
        let Some(id) = sections.find_map(|section| section.strip_prefix(b"c:")) else { return };
        let id = id.get(..memchr::memchr(b'|', id).unwrap_or(id.len())).unwrap_or_default();
        let id = id.get(..id.len().min(MAX_CONTAINER)).unwrap_or_default();
        self.container.push_str(&String::from_utf8_lossy(id));
    }
}

/// What became of a label set that was not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A series of its own.
    Made,
    /// It went beyond a budget.
    Beyond,
}

#[derive(Default)]
struct Counts {
    made: u64,
    beyond: u64,
    /// What those had together that were here before.
    inherited: u64,
    growth: Growth,
    /// Of the last of them.
    metric: String,
}

impl Counts {
    fn note(&mut self, metric: &str, outcome: Outcome, now: Moment) {
        match outcome {
            Outcome::Made => {
                self.made += 1;
                self.growth.note(now.minute(), 1);
            }
            Outcome::Beyond => self.beyond += 1,
        }
        let metric = beginning(metric);
        if self.metric != metric {
            self.metric.clear();
            self.metric.push_str(metric);
        }
    }

    fn total(&self) -> u64 {
        self.made + self.beyond + self.inherited
    }
}

/// Counts new series by sender.
#[derive(Default)]
pub(crate) struct Senders(Mutex<HashMap<Origin, Counts, foldhash::quality::RandomState>>);

impl Senders {
    /// Counts a label set that was not known.
    pub(crate) fn note(&self, origin: &Origin, metric: &str, outcome: Outcome, now: Moment) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(counts) = places.get_mut(origin) {
            return counts.note(metric, outcome, now);
        }
        let mut inherited = 0;
        if places.len() >= PLACES {
            let least = places.iter().min_by_key(|(_, counts)| counts.total());
            if let Some(least) = least.map(|(origin, _)| origin.clone()) {
                inherited = places.remove(&least).map_or(0, |counts| counts.total());
            }
        }
        let mut counts = Counts { inherited, ..Counts::default() };
        counts.note(metric, outcome, now);
        places.insert(origin.clone(), counts);
    }

    /// All that are told apart.
    pub(crate) fn all(&self, now: Moment) -> Vec<Sender> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = |(origin, counts): (&Origin, &Counts)| Sender {
            address: origin.address.map(|address| address.to_string()),
            container: origin.container.clone(),
            new_series: counts.made,
            beyond_budget: counts.beyond,
            missed: counts.inherited,
            new_by_minute: counts.growth.by_minute(now.minute()).to_vec(),
            last_metric: counts.metric.clone(),
        };
        places.iter().map(sender).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(last: u16) -> Origin {
        let [high, low] = last.to_be_bytes();
        Origin { address: Some([10, 0, high, low].into()), container: String::new() }
    }

    #[test]
    fn whoever_brings_much_is_told_among_many_who_bring_little() {
        let senders = Senders::default();
        let now = Moment::default();
        for round in 0..10_000u16 {
            senders.note(&origin(round), "few", Outcome::Made, now);
            if round % 4 == 0 {
                senders.note(&origin(65_535), "many", Outcome::Made, now);
                senders.note(&origin(65_535), "many", Outcome::Beyond, now);
            }
        }
        let all = senders.all(now);
        assert_eq!(all.len(), PLACES);
        let many = all.iter().find(|sender| sender.address.as_deref() == Some("10.0.255.255"));
        let many = many.expect("among them");
        assert_eq!(
            (many.new_series, many.beyond_budget, &*many.last_metric),
            (2_500, 2_500, "many")
        );
        assert_eq!(many.missed, 0);
        // No count is too low, and all together are what came.
        let total: u64 =
            all.iter().map(|each| each.new_series + each.beyond_budget + each.missed).sum();
        assert_eq!(total, 15_000);
    }

    #[test]
    fn containers_are_read_from_lines() {
        let mut origin = Origin::default();
        for (line, id) in [
            (&b"a:1|c|#b:c|c:ci-4711|T1"[..], "ci-4711"),
            (b"a:1|c", ""),
            (b"a:1|c|c:", ""),
            (b"a:1|c|c:in-1", "in-1"),
            (b"a:1|c|c:\xff", "\u{fffd}"),
        ] {
            origin.read_container(line);
            assert_eq!(origin.container, id, "{line:?}");
        }
        let long = [b"a:1|c|c:".as_slice(), &[b'x'; 60_000]].concat();
        origin.read_container(&long);
        assert_eq!(origin.container.len(), MAX_CONTAINER);
    }
}
