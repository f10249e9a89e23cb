//! Search for the smallest case that still shows a difference.

use std::time::Instant;

/// Input that can be made smaller.
pub trait Shrink: Clone {
    /// Returns smaller variants, the smallest first.
    fn smaller(&self) -> Vec<Self>;
}

/// Returns copies of a list without a half, a quarter, and so on down to one element.
pub fn lists<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    let mut out = Vec::new();
    let mut size = list.len();
    while size > 0 {
        for start in (0..list.len()).step_by(size) {
            let end = list.len().min(start + size);
            out.push(list.iter().take(start).chain(list.iter().skip(end)).cloned().collect());
        }
        size /= 2;
    }
    out
}

/// Replaces a case by smaller ones while they differ, until none does or the deadline passes. `differs` returns the
/// difference that a case shows.
pub fn shrink<C: Shrink, D>(
    mut case: C,
    mut found: D,
    deadline: Instant,
    mut differs: impl FnMut(&C) -> Option<D>,
) -> (C, D) {
    'smaller: loop {
        for candidate in case.smaller() {
            if Instant::now() > deadline {
                return (case, found);
            }
            if let Some(difference) = differs(&candidate) {
                (case, found) = (candidate, difference);
                continue 'smaller;
            }
        }
        return (case, found);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Numbers(Vec<u32>);

    impl Shrink for Numbers {
        fn smaller(&self) -> Vec<Self> {
            lists(&self.0).into_iter().map(Self).collect()
        }
    }

    #[test]
    fn only_what_differs_is_left() {
        let needed = |case: &Numbers| {
            let has = |number| case.0.contains(&number);
            (has(7) && has(40)).then_some(case.0.len())
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let all = Numbers((0..100).collect());
        let found = shrink(all, 100, deadline, needed);
        assert_eq!(found, (Numbers(vec![7, 40]), 2));
    }
}
