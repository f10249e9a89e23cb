//! The history of the last hour: a few time series with one value per 15 s.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Serialize;

/// The interval between values.
pub(crate) const STEP: Duration = Duration::from_secs(15);

/// The number of values kept: one hour.
const STEPS: usize = 240;

/// The maximum number of time series of parts. At four bytes per value this bounds their memory to 240 kB. Those of wholes
/// are few, and come on top, so that no number of parts leaves them out.
const MOST_PARTS: usize = 250;

/// The name of a time series, and the part that it covers (empty for the whole).
type Key = (&'static str, Box<str>);

fn is_part((_, of): &Key) -> bool {
    !of.is_empty()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Level(f64),
    Total(f64),
}

/// The values of one moment.
#[derive(Debug, Default)]
pub(crate) struct Sample(BTreeMap<Key, Number>);

impl Sample {
    /// Adds a gauge value. Values with the same name are summed.
    pub(crate) fn level(&mut self, what: &'static str, of: &str, value: f64) {
        self.add((what, of.into()), Number::Level(0.0), value);
    }

    /// Adds a counter value, whose rate is recorded. Values with the same name are summed.
    pub(crate) fn total(&mut self, what: &'static str, of: &str, value: f64) {
        self.add((what, of.into()), Number::Total(0.0), value);
    }

    fn add(&mut self, key: Key, new: Number, value: f64) {
        match self.0.entry(key).or_insert(new) {
            Number::Level(sum) | Number::Total(sum) => *sum += value,
        }
    }
}

/// The values of the last hour, oldest first; missing ones are NaN.
type Values = VecDeque<f32>;

/// The time series of the last hour.
#[derive(Debug, Default)]
pub(crate) struct History {
    values: BTreeMap<Key, Values>,
    /// The counters of the last sample.
    totals: BTreeMap<Key, f64>,
}

/// The part of the history that is shown.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Past {
    /// Seconds between values.
    pub(crate) step: u64,
    /// The time series; the last value of each is the current one.
    pub(crate) tracks: Vec<Track>,
}

/// A time series of the last hour.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Track {
    /// The name of the value.
    pub(crate) what: &'static str,
    /// The part that it covers; empty for the whole.
    pub(crate) of: String,
    /// The values, oldest first.
    pub(crate) values: Vec<Option<f32>>,
}

impl Track {
    /// Returns the latest value.
    pub(crate) fn last(&self) -> Option<f32> {
        self.values.last().copied().flatten()
    }

    /// Returns the largest value, 0 if there is none.
    pub(crate) fn max(&self) -> f32 {
        self.values.iter().flatten().copied().fold(0.0, f32::max)
    }
}

impl Past {
    /// Returns the time series of a whole.
    pub(crate) fn track(&self, what: &str) -> Option<&Track> {
        self.tracks.iter().find(|track| track.what == what && track.of.is_empty())
    }

    /// Returns the time series of all parts.
    pub(crate) fn parts<'p>(&'p self, what: &'p str) -> impl Iterator<Item = &'p Track> {
        self.tracks.iter().filter(move |track| track.what == what && !track.of.is_empty())
    }
}

impl History {
    /// Adds a sample taken `after` the last one.
    pub(crate) fn enter(&mut self, sample: Sample, after: Duration) {
        let mut totals = BTreeMap::new();
        let mut new = BTreeMap::new();
        for (key, number) in sample.0 {
            let value = match number {
                Number::Level(value) => Some(value),
                Number::Total(value) => {
                    let before = self.totals.get(&key);
                    totals.insert(key.clone(), value);
                    // A counter that was reset has no rate.
                    let grown = before.map(|before| value - before).filter(|grown| *grown >= 0.0);
                    grown.filter(|_| !after.is_zero()).map(|grown| grown / after.as_secs_f64())
                }
            };
            new.insert(key, value.map_or(f32::NAN, |value| value as f32));
        }
        self.totals = totals;
        for (key, values) in &mut self.values {
            values.push_back(new.remove(key).unwrap_or(f32::NAN));
            if values.len() > STEPS {
                values.pop_front();
            }
        }
        self.values.retain(|_, values| values.iter().any(|value| !value.is_nan()));
        let mut parts = self.values.keys().filter(|key| is_part(key)).count();
        for (key, value) in new {
            parts += usize::from(is_part(&key));
            // A missing value may belong to a counter that has just started.
            if !is_part(&key) || parts <= MOST_PARTS {
                let mut values = Values::with_capacity(STEPS + 1);
                values.push_back(if value.is_nan() { 0.0 } else { value });
                self.values.insert(key, values);
            }
        }
    }

    /// Returns the mean over the last minute.
    pub(crate) fn recent(&self, what: &'static str, of: &str) -> Option<f64> {
        let values = self.values.get(&(what, Box::from(of)))?;
        let known = values.iter().rev().take(4).filter(|value| !value.is_nan());
        let (sum, count) = known.fold((0.0, 0), |(sum, n), value| (sum + f64::from(*value), n + 1));
        (count > 0).then(|| sum / f64::from(count))
    }

    /// Returns all wholes, and for each the `most` largest parts.
    pub(crate) fn past(&self, most: usize) -> Past {
        let track = |(&(what, ref of), values): (&Key, &Values)| Track {
            what,
            of: of.to_string(),
            values: values.iter().map(|value| Some(*value).filter(|v| !v.is_nan())).collect(),
        };
        let (mut tracks, mut parts): (Vec<_>, Vec<_>) =
            self.values.iter().map(track).partition(|track| track.of.is_empty());
        let sum = |track: &Track| track.values.iter().flatten().sum::<f32>();
        parts.retain(|part| sum(part) > 0.0);
        parts.sort_by(|a, b| a.what.cmp(b.what).then_with(|| sum(b).total_cmp(&sum(a))));
        for of_one in parts.chunk_by(|a, b| a.what == b.what) {
            tracks.extend_from_slice(of_one.get(..most).unwrap_or(of_one));
        }
        Past { step: STEP.as_secs(), tracks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(level: f64, total: f64) -> Sample {
        let mut sample = Sample::default();
        sample.level("level", "", level - 1.0);
        sample.level("level", "", 1.0);
        sample.total("total", "a", total);
        sample
    }

    #[test]
    fn levels_rates_and_missing_values() {
        let mut history = History::default();
        history.enter(sample(3.0, 100.0), STEP);
        history.enter(sample(4.0, 130.0), STEP);
        history.enter(Sample::default(), STEP);
        history.enter(sample(5.0, 10.0), STEP);
        history.enter(sample(5.0, 40.0), STEP);
        let past = history.past(3);
        let values = |track: Option<&Track>| track.expect("a track").values.clone();
        assert_eq!(values(past.track("level")), [Some(3.0), Some(4.0), None, Some(5.0), Some(5.0)]);
        assert_eq!(
            values(past.parts("total").next()),
            [Some(0.0), Some(2.0), None, None, Some(2.0)]
        );
        assert_eq!(history.recent("total", "a"), Some(2.0));
        assert_eq!(history.recent("total", "b"), None);
    }

    #[test]
    fn history_is_limited_to_an_hour_and_to_a_number_of_series() {
        let mut history = History::default();
        for step in 0..STEPS + 10 {
            let mut sample = Sample::default();
            for part in 0..2 * MOST_PARTS {
                sample.level("part", &part.to_string(), step as f64);
            }
            history.enter(sample, STEP);
        }
        assert_eq!(history.values.len(), MOST_PARTS);
        let first = history.values.values().next().expect("values");
        assert_eq!((first.len(), first.front()), (STEPS, Some(&10.0)));
        let bytes: usize = history.values.values().map(|values| values.capacity() * 4).sum();
        assert!(bytes < 300_000, "{bytes}");
        for _ in 0..STEPS {
            history.enter(Sample::default(), STEP);
        }
        assert!(history.values.is_empty(), "what is gone for an hour has no place");
    }
}
