//! Reduces a list of buckets or quantiles to fit a budget.

/// Returns all but `less` elements, evenly spaced and including the last one.
pub(super) fn thin<T: Clone>(all: &[T], less: u64) -> Vec<T> {
    let keep = all.len().saturating_sub(usize::try_from(less).unwrap_or(usize::MAX));
    (1..=keep).filter_map(|at| all.get(at * all.len() / keep - 1)).cloned().collect()
}
