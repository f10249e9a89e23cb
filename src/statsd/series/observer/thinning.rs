//! The labels of buckets and quantiles, and the reduction of a list of these to fit a budget.

use crate::exposition::float;

/// Returns the text of a bound or quantile as a label value.
pub(super) fn label_text(value: f64) -> Box<[u8]> {
    let mut text = Vec::new();
    float::write(&mut text, value);
    text.into_boxed_slice()
}

/// Returns all but `less` elements, evenly spaced and including the last one.
pub(super) fn thin<T: Clone>(all: &[T], less: u64) -> Vec<T> {
    let keep = all.len().saturating_sub(usize::try_from(less).unwrap_or(usize::MAX));
    (1..=keep).filter_map(|at| all.get(at * all.len() / keep - 1)).cloned().collect()
}
