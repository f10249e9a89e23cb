//! Counts and reports label sets over budget, by metric and label.

use std::collections::HashMap;
use std::hash::BuildHasher;

use super::placement::ExceededBudget;
use crate::exposition::budget::{self, Action, Limit};
use crate::statsd::clock::Moment;
use crate::util::lock::Lock;

/// The maximum number of entries. Further ones are counted together.
const MAX_ENTRIES: usize = 1_000;
/// The maximum number of bytes kept of a name.
const MAX_NAME: usize = 256;
/// The metric name of the entry for everything further.
const OTHER: &str = "_other";
/// The delay in nanoseconds from the first violation to its report, which thus includes those that follow at
/// once.
const FIRST_REPORT: u64 = 1_000_000_000;
/// The minimum time in nanoseconds between two reports.
const REPORT_PAUSE: u64 = 60_000_000_000;
/// The maximum number of entries that a report lists.
const REPORTED: usize = 10;

/// A violated budget and the number of violations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    pub(crate) metric: String,
    /// The label; empty if the budget is not for a single label.
    pub(crate) label: String,
    pub(crate) limit: Limit,
    pub(crate) action: Action,
    /// The number of label sets. A folded label set counts once while it is remembered.
    pub(crate) times: u64,
    /// The tick of the last violation.
    pub(crate) last: u32,
}

/// A violated budget and the part of its `times` that has been reported.
#[derive(Debug)]
struct Entry {
    violation: Violation,
    reported: u64,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<u64, Entry, foldhash::fast::FixedState>,
    hasher: foldhash::quality::RandomState,
    /// The time of the next report in nanoseconds; `None` if there is nothing to report.
    due: Option<u64>,
    /// The earliest time of another report in nanoseconds.
    next: u64,
}

/// Counts violations of budgets and reports them in the log.
#[derive(Debug, Default)]
pub(crate) struct ViolationLog(Lock<Inner>);

impl ViolationLog {
    /// Adds `times` violations. Returns true if this schedules a [report](Self::due).
    pub(crate) fn record(
        &self,
        metric: &str,
        ExceededBudget { label, limit, action }: &ExceededBudget,
        times: u64,
        now: Moment,
    ) -> bool {
        let (limit, action) = (*limit, *action);
        let (metric, label) = (truncated(metric), truncated(label));
        let inner = &mut *self.0.lock();
        let full = inner.entries.len() >= MAX_ENTRIES;
        let hash = |metric, label| inner.hasher.hash_one((metric, label, limit, action));
        let is_other = full && !inner.entries.contains_key(&hash(metric, label));
        let (metric, label) = if is_other { (OTHER, "") } else { (metric, label) };
        let hash = hash(metric, label);
        let Entry { violation, .. } = inner.entries.entry(hash).or_insert_with(|| Entry {
            violation: Violation {
                metric: metric.to_owned(),
                label: label.to_owned(),
                limit,
                action,
                times: 0,
                last: 0,
            },
            reported: 0,
        });
        (violation.times, violation.last) = (violation.times + times, now.tick());
        let is_first = inner.due.is_none();
        if is_first {
            inner.due = Some((now.nanos() + FIRST_REPORT).max(inner.next));
        }
        is_first
    }

    /// Returns the time of the next report in nanoseconds of the clock; `None` if there is nothing to report.
    pub(crate) fn due(&self) -> Option<u64> {
        self.0.lock().due
    }

    /// Logs the violations since the last report if a report is due.
    pub(crate) fn report_if_due(&self, now: Moment) {
        if self.due().is_some_and(|due| now.nanos() >= due) {
            self.report(now);
        }
    }

    /// Returns the violations since the last report, the most frequent first, with the number of new ones.
    fn take_news(&self, now: Moment) -> Vec<(u64, Violation)> {
        let mut inner = self.0.lock();
        (inner.due, inner.next) = (None, now.nanos() + REPORT_PAUSE);
        let news =
            inner.entries.values_mut().filter(|entry| entry.violation.times > entry.reported);
        let mut news: Vec<(u64, Violation)> = news
            .map(|Entry { violation, reported }| {
                let before = std::mem::replace(reported, violation.times);
                (violation.times - before, violation.clone())
            })
            .collect();
        news.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        news
    }

    /// Logs the violations since the last report: one line for each of the most frequent, and one for the
    /// rest.
    pub(crate) fn report(&self, now: Moment) {
        let news = self.take_news(now);
        for (times, Violation { metric, label, limit, action, .. }) in news.iter().take(REPORTED) {
            tracing::warn!(
                metric,
                label,
                limit = limit.as_str(),
                action = action.as_str(),
                times,
                "Series exceed a budget ({})",
                budget::displayed(limit.as_str())
            );
        }
        let others = news.get(REPORTED..).unwrap_or_default();
        if !others.is_empty() {
            let times: u64 = others.iter().map(|(times, _)| times).sum();
            tracing::warn!(others = others.len(), times, "More series exceed a budget");
        }
    }

    /// Returns all entries, sorted by name.
    pub(crate) fn all(&self) -> Vec<Violation> {
        let inner = self.0.lock();
        let mut all: Vec<Violation> =
            inner.entries.values().map(|entry| entry.violation.clone()).collect();
        all.sort_unstable();
        all
    }
}

/// Returns the part of a name that is kept and shown.
pub(crate) fn truncated(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::statsd::clock::Clock;

    fn exceeded(label: &str, limit: Limit, action: Action) -> ExceededBudget {
        ExceededBudget { label: label.to_owned(), limit, action }
    }

    #[test]
    fn violations_are_distinguished_up_to_a_limit() {
        let log = ViolationLog::default();
        let record = |metric: &str| {
            log.record(
                metric,
                &exceeded("url", Limit::ValuesPerLabel, Action::Folded),
                1,
                Moment::default(),
            );
        };
        for number in 0..MAX_ENTRIES + 5 {
            record(&format!("m{number:05}"));
        }
        record("m00000");
        record(&"x".repeat(60_000));
        let all = log.all();
        let times = |metric: &str| {
            all.iter()
                .filter(|violation| violation.metric == metric)
                .map(|violation| violation.times)
                .sum::<u64>()
        };
        assert_eq!((times("m00000"), times("m00001"), times(OTHER)), (2, 1, 6));
        assert_eq!(all.len(), MAX_ENTRIES + 1);
        assert_eq!(
            all.iter().map(|violation| violation.times).sum::<u64>(),
            MAX_ENTRIES as u64 + 7
        );
    }

    #[test]
    fn a_report_has_what_is_new_since_the_last_one() {
        let (log, clock) = (ViolationLog::default(), Clock::manual());
        let record = |metric: &str, times| {
            log.record(metric, &exceeded("", Limit::Series, Action::Refused), times, clock.now());
        };
        let news = || {
            let news = log.take_news(clock.now()).into_iter();
            news.map(|(times, violation)| (times, violation.metric)).collect::<Vec<_>>()
        };
        let counted = |times, metric: &str| (times, metric.to_owned());
        record("b", 2);
        record("a", 2);
        record("c", 5);
        assert_eq!(news(), [counted(5, "c"), counted(2, "a"), counted(2, "b")]);
        assert!(news().is_empty());
        record("a", 3);
        clock.advance(Duration::from_secs(1));
        record("a", 1);
        assert_eq!(news(), [counted(4, "a")]);
        let all: Vec<_> = log.all().into_iter().map(|known| (known.times, known.last)).collect();
        assert_eq!(all, [(6, 11), (2, 1), (5, 1)]);
    }

    #[test]
    fn the_first_violation_is_reported_at_once_and_others_once_a_minute() {
        let (log, clock) = (ViolationLog::default(), Clock::manual());
        let record =
            || log.record("m", &exceeded("", Limit::Series, Action::Refused), 1, clock.now());
        assert_eq!((record(), record(), log.due()), (true, false, Some(FIRST_REPORT)));
        log.report_if_due(clock.now());
        assert!(log.due().is_some(), "it is not time yet");
        clock.advance(Duration::from_secs(1));
        log.report_if_due(clock.now());
        assert_eq!(log.due(), None);
        assert!(record());
        assert_eq!(log.due(), Some(FIRST_REPORT + REPORT_PAUSE));
    }
}
