//! Counts values of custom resources that yield no series, and logs them at most once a minute.
//!
//! The same error recurs with every update of an object. Each combination of family and reason is therefore logged at
//! most once a minute, with the first object as an example and the number of values since the previous line.

use std::time::Instant;

use hashbrown::HashMap;

use crate::resources::custom::{Reason, ValueError, ValueErrors};
use crate::telemetry::KubeMetrics;
use crate::util::lock::Lock;
use crate::util::log_limit::LogLimit;

/// The maximum number of tracked combinations. Beyond it, those not logged within the last minute are dropped.
const MAX_TRACKED: usize = 10_000;

/// Counts and logs value errors.
#[derive(Debug)]
pub struct ValueErrorLog {
    metrics: KubeMetrics,
    /// The log verbosity (`-v`).
    verbosity: i64,
    logged: Lock<HashMap<(String, String, Reason), LogLimit>>,
}

impl ValueErrorLog {
    /// Counts errors in `metrics` and logs those that `verbosity` includes.
    #[must_use]
    pub fn new(metrics: KubeMetrics, verbosity: i64) -> Self {
        Self { metrics, verbosity, logged: Lock::default() }
    }

    /// Returns the number of values to report in a log line, or `None` if a line was logged less than a minute ago.
    fn due(&self, error: &ValueError<'_>, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock();
        if logged.len() >= MAX_TRACKED {
            logged.retain(|_, limit| limit.is_recent(now));
        }
        let key = (error.resource.to_owned(), error.family.to_owned(), error.reason);
        if logged.len() >= MAX_TRACKED && !logged.contains_key(&key) {
            return None;
        }
        logged.entry(key).or_default().add(error.count, now)
    }
}

impl ValueErrors for ValueErrorLog {
    fn value_error(&self, error: &ValueError<'_>) {
        // With an `errorLogV`, the author of the metric expects objects without a value.
        let is_optional = error.reason == Reason::Nothing && error.log_v > 0;
        let reason = if is_optional { "optional" } else { error.reason.as_str() };
        let errors = self.metrics.value_errors.with([error.family, reason, error.resource]);
        errors.inc_by(error.count);
        if error.reason == Reason::Nothing && !is_optional {
            self.metrics.note_absent_value(error.resource, error.family, error.path);
        }
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
            "Custom resource value yields no series"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::log_limit::INTERVAL;

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
        assert_eq!(log.due(&error("f", Reason::Nothing, 2), start + INTERVAL / 2), None);
        assert_eq!(log.due(&error("f", Reason::WrongType, 1), start), Some(1));
        assert_eq!(log.due(&error("g", Reason::Nothing, 1), start), Some(1));
        assert_eq!(log.due(&error("f", Reason::Nothing, 1), start + INTERVAL), Some(3));
    }
}
