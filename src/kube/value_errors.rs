//! Values of custom resources that give no series: counted, and named in the log once a minute.
//!
//! Objects come again and again with the same fault. So each family has a line for each reason at most once a minute,
//! with the first object as an example and the number of values since the last line.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use crate::resources::custom::{Reason, ValueError, ValueErrors};
use crate::telemetry::KubeMetrics;

/// Between two lines about the same.
const PAUSE: Duration = Duration::from_secs(60);

/// Families that are remembered. Beyond them, those whose pause is over are forgotten.
const MOST: usize = 10_000;

/// Counts and logs.
#[derive(Debug)]
pub struct ValueErrorLog {
    metrics: KubeMetrics,
    /// The log's verbosity, as `-v` has it.
    verbosity: i64,
    said: Mutex<HashMap<(String, String, Reason), Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    since: u64,
}

impl ValueErrorLog {
    /// Counts into `metrics`, logs what `verbosity` lets through.
    #[must_use]
    pub fn new(metrics: KubeMetrics, verbosity: i64) -> Self {
        Self { metrics, verbosity, said: Mutex::default() }
    }

    /// How many values a line now has to speak of; `None` if there was one not long ago.
    fn due(&self, error: &ValueError<'_>, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST {
            said.retain(|_, said| now.duration_since(said.at) < PAUSE);
        }
        let key = (error.resource.to_owned(), error.family.to_owned(), error.reason);
        if let Some(said) = said.get_mut(&key) {
            let count = said.since + error.count;
            let is_due = now.duration_since(said.at) >= PAUSE;
            *said = if is_due {
                Said { at: now, since: 0 }
            } else {
                Said { at: said.at, since: count }
            };
            return is_due.then_some(count);
        }
        let has_room = said.len() < MOST;
        if has_room {
            said.insert(key, Said { at: now, since: 0 });
        }
        has_room.then_some(error.count)
    }
}

impl ValueErrors for ValueErrorLog {
    fn value_error(&self, error: &ValueError<'_>) {
        let reason = error.reason.as_str();
        self.metrics.value_errors(error.resource, error.family, reason, error.count);
        if i64::from(error.log_v) > self.verbosity {
            return;
        }
        let Some(values) = self.due(error, Instant::now()) else { return };
        let ValueError { resource, family, path, namespace, name, value, .. } = error;
        tracing::warn!(
            resource,
            family,
            reason,
            path,
            namespace,
            name,
            value,
            values,
            "a value of a custom resource gives no series"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_for_each_distinct_error() {
        let log = ValueErrorLog::new(KubeMetrics::default(), 0);
        let error = |family, reason, count| ValueError {
            resource: "r",
            family,
            reason,
            path: "[a]",
            namespace: "",
            name: "n",
            value: "x",
            count,
            log_v: 0,
        };
        let start = Instant::now();
        assert_eq!(log.due(&error("f", Reason::Nothing, 1), start), Some(1));
        assert_eq!(log.due(&error("f", Reason::Nothing, 2), start + PAUSE / 2), None);
        assert_eq!(log.due(&error("f", Reason::WrongType, 1), start), Some(1));
        assert_eq!(log.due(&error("g", Reason::Nothing, 1), start), Some(1));
        assert_eq!(log.due(&error("f", Reason::Nothing, 1), start + PAUSE), Some(3));
    }
}
