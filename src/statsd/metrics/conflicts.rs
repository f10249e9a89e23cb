//! The events rejected because their metric conflicts with an existing one, by metric and type.
//!
//! There may be thousands of series with long names. Scrapes share the names, and their order
//! until there is a new one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::exposition::family::Series;
use crate::util::lock::Lock;

/// The maximum number of metrics and types with their own count.
pub(crate) const MAX_CONFLICT_NAMES: usize = 10_000;

/// The maximum number of bytes kept of a name. Longer ones end in [`ELLIPSIS`] and share a count with others that
/// begin alike.
pub(crate) const MAX_CONFLICT_NAME: usize = 256;

/// The replacement for the rest of a long name. A valid metric name does not contain it.
pub(crate) const ELLIPSIS: &str = "...";

/// The name under which further conflicts are counted.
pub(crate) const OTHER_NAMES: &str = "_other";

/// The counted conflicts.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    counted: Lock<Counted>,
    /// The rows of the latest snapshot. Names are never removed, so they are current if there are as many as counts.
    rows: Lock<Arc<Vec<Row>>>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The index of each count. Names and types are in the order of their labels.
    indexes: BTreeMap<(Arc<str>, &'static str), usize>,
    counts: Vec<u64>,
}

/// A metric and a type, with the index of their count.
#[derive(Debug)]
struct Row {
    name: Arc<str>,
    kind: &'static str,
    index: usize,
}

impl Conflicts {
    /// Adds conflicts between events of the type `kind` and the metric `name`.
    pub(crate) fn add(&self, kind: &'static str, name: &str, by: u64) {
        let name: Arc<str> = if name.len() > MAX_CONFLICT_NAME {
            let kept = name.floor_char_boundary(MAX_CONFLICT_NAME);
            format!("{}{ELLIPSIS}", name.get(..kept).unwrap_or_default()).into()
        } else {
            name.into()
        };
        let mut counted = self.counted.lock();
        let Counted { indexes, counts } = &mut *counted;
        let mut key = (name, kind);
        if counts.len() >= MAX_CONFLICT_NAMES && !indexes.contains_key(&key) {
            key.0 = OTHER_NAMES.into();
        }
        let index = *indexes.entry(key).or_insert(counts.len());
        match counts.get_mut(index) {
            Some(count) => *count += by,
            None => counts.push(by),
        }
    }

    /// Returns the current numbers.
    pub(crate) fn snapshot(&self) -> ConflictSnapshot {
        let mut rows = self.rows.lock();
        let counted = self.counted.lock();
        let counts = counted.counts.clone();
        if rows.len() != counts.len() {
            let all = counted.indexes.iter().map(|((name, kind), &index)| Row {
                name: Arc::clone(name),
                kind,
                index,
            });
            *rows = Arc::new(all.collect());
        }
        ConflictSnapshot { rows: Arc::clone(&rows), counts }
    }
}

/// The conflicts at one moment.
#[derive(Debug)]
pub(crate) struct ConflictSnapshot {
    rows: Arc<Vec<Row>>,
    counts: Vec<u64>,
}

impl ConflictSnapshot {
    /// Returns the number of series.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns a series, in the order of labels.
    pub(crate) fn get(&self, at: usize) -> Option<Series> {
        let Row { name, kind, index } = self.rows.get(at)?;
        let number = *self.counts.get(*index)?;
        Some(Series::new(&[("metric_name", name), ("type", kind)], number as f64))
    }

    /// Returns all series.
    pub(crate) fn series(&self) -> Vec<Series> {
        (0..self.len()).filter_map(|at| self.get(at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::labels;

    #[test]
    fn snapshots_share_their_names() {
        let conflicts = Conflicts::default();
        for name in ["b", "a\"", "a", "a\\", "a\n", "é"] {
            conflicts.add("gauge", name, 1);
            conflicts.add("counter", name, 2);
        }
        let first = conflicts.snapshot();
        conflicts.add("gauge", "b", 5);
        let second = conflicts.snapshot();
        assert!(Arc::ptr_eq(&first.rows, &second.rows));
        let series = second.series();
        assert!(series.is_sorted_by(|a, b| labels::compare(&a.labels, &b.labels).is_lt()));
        assert!(series.contains(&Series::new(&[("metric_name", "b"), ("type", "gauge")], 6.0)));
        conflicts.add("gauge", "c", 1);
        assert_eq!((first.len(), second.len(), conflicts.snapshot().len()), (12, 12, 13));
    }
}
