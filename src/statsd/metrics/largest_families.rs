//! The families with the most series.

use crate::statsd::series::tree::Snapshot;

/// The maximum number of families listed by name, because clients choose their number.
const MAX_FAMILIES: usize = 50;
/// The label value for all further families, and for a family with this name.
const OTHERS: &str = "other";

/// Returns the number of live series of the largest families.
pub(super) fn series_by_family(families: &Snapshot) -> Vec<(&str, u64)> {
    let mut largest: Vec<(&str, u64)> = Vec::new();
    let mut others = 0;
    for (family, series) in families.families() {
        if &*family.name == OTHERS {
            others += series;
            continue;
        }
        largest.push((&family.name, series));
        // Sorts once in a while, so that a million families need little memory and time.
        if largest.len() >= 64 * MAX_FAMILIES {
            others += keep_largest(&mut largest);
        }
    }
    others += keep_largest(&mut largest);
    largest.push((OTHERS, others));
    largest
}

/// Removes all but the largest families. Returns the number of series removed.
fn keep_largest(families: &mut Vec<(&str, u64)>) -> u64 {
    families.sort_unstable_by_key(|(name, series)| (std::cmp::Reverse(*series), *name));
    families.drain(MAX_FAMILIES.min(families.len())..).map(|(_, series)| series).sum()
}
