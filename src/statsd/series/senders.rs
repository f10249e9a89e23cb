//! Counts new series by sender: by address, and by container ID if lines have one.
//!
//! Uses the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and
//! Top-k Elements in Data Streams", ICDT 2005) with [`MAX_SENDERS`] counters. Every sender of more than
//! 1/[`MAX_SENDERS`] of the new series is listed, and each count is too large by at most `inherited`.

use std::collections::HashMap;
use std::net::IpAddr;

use super::budget_violations::truncated;
use crate::statsd::clock::Moment;
use crate::telemetry::countable::Sender;
use crate::util::lock::Lock;
use crate::util::per_minute::PerMinuteCounter;

/// The number of counters.
const MAX_SENDERS: usize = 256;
/// The maximum number of bytes kept of a container ID.
const MAX_CONTAINER: usize = 128;

/// The origin of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The address of the datagram or connection; `None` for a Unix socket and another replica.
    pub(crate) address: Option<IpAddr>,
    /// True for lines that another replica received.
    is_replica: bool,
    /// The container ID in the line; empty if there is none.
    container: String,
}

impl Origin {
    /// Returns the origin of lines that another replica received.
    pub(crate) fn replica() -> Self {
        Self { is_replica: true, ..Self::default() }
    }

    /// Sets the container ID that the line states; empty if it states none.
    pub(crate) fn set_container(&mut self, id: &str) {
        self.container.clear();
        self.container.push_str(&id[..id.floor_char_boundary(MAX_CONTAINER)]);
    }
}

/// The result for a label set without a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A series was created for it.
    Created,
    /// It exceeded a budget.
    OverBudget,
}

#[derive(Default)]
struct Counts {
    created: u64,
    over_budget: u64,
    /// The total of the evicted counter that this one replaced.
    inherited: u64,
    growth: PerMinuteCounter,
    /// The metric of the last label set.
    metric: String,
}

impl Counts {
    fn record(&mut self, metric: &str, outcome: Outcome, now: Moment) {
        match outcome {
            Outcome::Created => {
                self.created += 1;
                self.growth.add(now.minute(), 1);
            }
            Outcome::OverBudget => self.over_budget += 1,
        }
        let metric = truncated(metric);
        if self.metric != metric {
            self.metric.clear();
            self.metric.push_str(metric);
        }
    }

    fn total(&self) -> u64 {
        self.created + self.over_budget + self.inherited
    }
}

/// Counts new series by sender.
#[derive(Default)]
pub(crate) struct Senders(Lock<HashMap<Origin, Counts, foldhash::quality::RandomState>>);

impl Senders {
    /// Counts a label set without a series.
    pub(crate) fn record(&self, origin: &Origin, metric: &str, outcome: Outcome, now: Moment) {
        let mut counters = self.0.lock();
        if let Some(counts) = counters.get_mut(origin) {
            return counts.record(metric, outcome, now);
        }
        let mut inherited = 0;
        if counters.len() >= MAX_SENDERS {
            let least = counters.iter().min_by_key(|(_, counts)| counts.total());
            if let Some(least) = least.map(|(origin, _)| origin.clone()) {
                inherited = counters.remove(&least).map_or(0, |counts| counts.total());
            }
        }
        let mut counts = Counts { inherited, ..Counts::default() };
        counts.record(metric, outcome, now);
        counters.insert(origin.clone(), counts);
    }

    /// Returns all counted senders.
    pub(crate) fn all(&self, now: Moment) -> Vec<Sender> {
        let counters = self.0.lock();
        let sender = |(origin, counts): (&Origin, &Counts)| Sender {
            address: origin.address.map(|address| address.to_string()),
            replica: origin.is_replica,
            container: origin.container.clone(),
            new_series: counts.created,
            beyond_budget: counts.over_budget,
            missed: counts.inherited,
            new_by_minute: counts.growth.by_minute(now.minute()).to_vec(),
            last_metric: counts.metric.clone(),
        };
        counters.iter().map(sender).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(last: u16) -> Origin {
        let [high, low] = last.to_be_bytes();
        Origin { address: Some([10, 0, high, low].into()), ..Origin::default() }
    }

    #[test]
    fn a_frequent_sender_is_counted_among_many_rare_ones() {
        let senders = Senders::default();
        let now = Moment::default();
        for round in 0..10_000u16 {
            senders.record(&origin(round), "few", Outcome::Created, now);
            if round % 4 == 0 {
                senders.record(&origin(65_535), "many", Outcome::Created, now);
                senders.record(&origin(65_535), "many", Outcome::OverBudget, now);
            }
        }
        let all = senders.all(now);
        assert_eq!(all.len(), MAX_SENDERS);
        let many = all.iter().find(|sender| sender.address.as_deref() == Some("10.0.255.255"));
        let many = many.expect("among them");
        assert_eq!(
            (many.new_series, many.beyond_budget, &*many.last_metric),
            (2_500, 2_500, "many")
        );
        assert_eq!(many.missed, 0);
        // No count is too low, and the total is exact.
        let total: u64 =
            all.iter().map(|each| each.new_series + each.beyond_budget + each.missed).sum();
        assert_eq!(total, 15_000);
    }

    #[test]
    fn containers_have_a_maximum_length() {
        let mut origin = Origin::default();
        for (id, length) in [("", 0), ("ci-4711", 7), (&"x".repeat(60_000), MAX_CONTAINER)] {
            origin.set_container(id);
            assert_eq!(origin.container.len(), length);
        }
        origin.set_container(&"ä".repeat(MAX_CONTAINER));
        assert_eq!(origin.container, "ä".repeat(MAX_CONTAINER / 2));
    }
}
