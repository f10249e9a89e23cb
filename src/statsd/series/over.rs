//! What went beyond a budget: which metric, which label, how often.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use crate::exposition::budget::{Action, Limit};
use crate::statsd::clock::Moment;

/// Metrics with a label that are told apart; those beyond are counted together.
const MAX_ENTRIES: usize = 1_000;
/// Bytes of a name that are kept.
const MAX_NAME: usize = 256;
/// The name of those that are counted together.
const REST: &str = "_other";
/// Nanoseconds between two lines of log.
const LOG_PAUSE: u64 = 60_000_000_000;

/// Something that went beyond a budget, and how often.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Over {
    pub(crate) metric: String,
    /// Empty where it is not about one label.
    pub(crate) label: String,
    pub(crate) limit: Limit,
    pub(crate) action: Action,
    /// Label sets that came without being known. Lines of one that is folded are known from then on.
    pub(crate) times: u64,
    /// Tick of the last one.
    pub(crate) last: u32,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<u64, Over, foldhash::fast::FixedState>,
    hasher: foldhash::quality::RandomState,
    next_log: u64,
    since: u64,
}

/// Counts them.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Inner>);

impl Ledger {
    /// Counts one, and says so in the log once a minute.
    pub(crate) fn note(
        &self,
        metric: &str,
        label: &str,
        limit: Limit,
        action: Action,
        now: Moment,
    ) {
        let (metric, label) = (beginning(metric), beginning(label));
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.since += 1;
        if now.nanos() >= inner.next_log {
            inner.next_log = now.nanos() + LOG_PAUSE;
            let times = std::mem::take(&mut inner.since);
            tracing::warn!(
                metric,
                label,
                limit = limit.as_str(),
                action = action.as_str(),
                times,
                "series go beyond a budget (--limit.{})",
                limit.as_str()
            );
        }
        let hash = inner.hasher.hash_one((metric, label, limit, action));
        let full = inner.entries.len() >= MAX_ENTRIES;
        if let Some(over) = inner.entries.get_mut(&hash) {
            (over.times, over.last) = (over.times + 1, now.tick());
            return;
        }
        let (metric, label) = if full { (REST, "") } else { (metric, label) };
        let hash = if full { inner.hasher.hash_one((metric, label, limit, action)) } else { hash };
        let over = inner.entries.entry(hash).or_insert_with(|| Over {
            metric: metric.to_owned(),
            label: label.to_owned(),
            limit,
            action,
            times: 0,
            last: 0,
        });
        (over.times, over.last) = (over.times + 1, now.tick());
    }

    /// Everything that was counted, in the order of the names.
    pub(crate) fn all(&self) -> Vec<Over> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Over> = inner.entries.values().cloned().collect();
        all.sort();
        all
    }
}

/// As much of a name as is kept and shown.
pub(crate) fn beginning(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offenders_are_told_apart_up_to_a_bound() {
        let ledger = Ledger::default();
        let note = |metric: &str| {
            ledger.note(metric, "url", Limit::ValuesPerLabel, Action::Folded, Moment::default());
        };
        for number in 0..MAX_ENTRIES + 5 {
            note(&format!("m{number:05}"));
        }
        note("m00000");
        note(&"x".repeat(60_000));
        let all = ledger.all();
        let times = |metric: &str| {
            all.iter().filter(|over| over.metric == metric).map(|over| over.times).sum::<u64>()
        };
        assert_eq!((times("m00000"), times("m00001"), times(REST)), (2, 1, 6));
        assert_eq!(all.len(), MAX_ENTRIES + 1);
        assert_eq!(all.iter().map(|over| over.times).sum::<u64>(), MAX_ENTRIES as u64 + 7);
    }
}
