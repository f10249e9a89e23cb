//! Decides whether changing values are equal.
//!
//! It compares two samples of each side. The sides are not sampled simultaneously, so changing
//! values are never exactly equal: gauges may differ by as much as they changed in between, and
//! counters must increase equally.

use super::known::DifferenceKind;

/// The role of a sample in the comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SampleKind {
    /// A gauge.
    #[default]
    Gauge,
    /// A counter, which may reset to 0.
    Counter,
    /// The creation time of a counter.
    Created,
    /// A quantile, which depends on the observations of the last minutes.
    Quantile,
}

/// The comparison of counters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counters<'b> {
    /// By value.
    Values,
    /// Counters started at different times: by the increase between the last two samples.
    Increases,
    /// The same by the increase since the first samples, given the first two values of each side.
    Since(&'b [[f64; 2]; 2]),
}

/// The maximum relative difference between two increases.
const TOLERANCE: f64 = 0.1;

/// Returns the difference between the values of a series, given the previous and the last sample of
/// each side.
pub(super) fn differ(
    part: SampleKind,
    a: [f64; 2],
    b: [f64; 2],
    counters: Counters<'_>,
) -> Option<DifferenceKind> {
    let increases = !matches!(counters, Counters::Values);
    if increases && matches!(part, SampleKind::Created | SampleKind::Quantile) {
        return None;
    }
    let by_increase = increases && part == SampleKind::Counter;
    if let (true, Counters::Since(first)) = (by_increase, counters) {
        // The sides are sampled at different times, and one may lag behind the other. Less than a
        // round of that leaves the ranges between two samples overlapping.
        let range =
            |[before, now]: [f64; 2], [first, second]: [f64; 2]| (before - second, now - first);
        let ((low_a, high_a), (low_b, high_b)) = (range(a, first[0]), range(b, first[1]));
        let apart = (low_a - high_b).max(low_b - high_a);
        return (apart > TOLERANCE * high_a.max(high_b)).then_some(DifferenceKind::Increase);
    }
    if !by_increase {
        if a.iter().any(|a| b.iter().any(|b| same(*a, *b))) {
            return None;
        }
        let movement = (a[1] - a[0]).abs() + (b[1] - b[0]).abs();
        let apart = (low(a) - high(b)).max(low(b) - high(a));
        if apart <= movement {
            return None;
        }
        // A counter that is constant on one side differs in value, whatever the other side does; so
        // does NaN.
        if part != SampleKind::Counter || same(a[0], a[1]) || same(b[0], b[1]) {
            return Some(DifferenceKind::Value);
        }
    }
    let (a, b) = (increase(a), increase(b));
    let alike = same(a, b) || (a - b).abs() <= TOLERANCE * a.max(b);
    (!alike).then_some(DifferenceKind::Increase)
}

/// Returns whether both are the same number or both NaN.
pub(super) fn same(one: f64, other: f64) -> bool {
    one == other || (one.is_nan() && other.is_nan())
}

/// Returns the increase of a counter. A lower value means a reset.
fn increase([before, now]: [f64; 2]) -> f64 {
    if now < before { now } else { now - before }
}

fn low([one, other]: [f64; 2]) -> f64 {
    one.min(other)
}

fn high([one, other]: [f64; 2]) -> f64 {
    one.max(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Counters<'_> = Counters::Values;
    const INCREASES: Counters<'_> = Counters::Increases;

    #[test]
    fn constant_values_must_be_equal() {
        for part in [SampleKind::Gauge, SampleKind::Counter, SampleKind::Created] {
            assert_eq!(differ(part, [5.0; 2], [5.0; 2], USUAL), None);
            assert_eq!(differ(part, [5.0; 2], [5.1; 2], USUAL), Some(DifferenceKind::Value));
            assert_eq!(differ(part, [f64::NAN; 2], [f64::NAN; 2], USUAL), None);
            assert_eq!(differ(part, [f64::NAN; 2], [1.0; 2], USUAL), Some(DifferenceKind::Value));
            assert_eq!(
                differ(part, [f64::INFINITY; 2], [1.0; 2], USUAL),
                Some(DifferenceKind::Value)
            );
        }
    }

    #[test]
    fn changing_values_may_differ_by_their_change() {
        let gauge = |a, b| differ(SampleKind::Gauge, a, b, USUAL);
        // Read before and after a change.
        assert_eq!(gauge([1.0, 1.0], [1.0, 2.0]), None);
        assert_eq!(gauge([100.0, 110.0], [104.0, 104.0]), None);
        assert_eq!(gauge([100.0, 110.0], [112.0, 120.0]), None);
        assert_eq!(gauge([100.0, 110.0], [3700.0, 3710.0]), Some(DifferenceKind::Value));
        assert_eq!(gauge([100.0, 101.0], [50.0, 50.0]), Some(DifferenceKind::Value));
    }

    #[test]
    fn counters_must_increase_alike() {
        let counter = |a, b| differ(SampleKind::Counter, a, b, USUAL);
        assert_eq!(counter([1000.0, 1100.0], [5.0, 104.0]), None);
        assert_eq!(counter([1000.0, 1100.0], [5.0, 55.0]), Some(DifferenceKind::Increase));
        // Both were reset: 7 and 7.
        assert_eq!(counter([1000.0, 7.0], [5e6, 7.0]), None);
        assert_eq!(counter([1000.0, 1000.0], [5.0, 6.0]), Some(DifferenceKind::Value));
        let counter = |a, b| differ(SampleKind::Counter, a, b, INCREASES);
        assert_eq!(counter([1000.0; 2], [5.0; 2]), None);
        assert_eq!(counter([1000.0, 1010.0], [5.0, 5.0]), Some(DifferenceKind::Increase));
        assert_eq!(
            differ(SampleKind::Gauge, [1.0; 2], [2.0; 2], INCREASES),
            Some(DifferenceKind::Value)
        );
        assert_eq!(differ(SampleKind::Created, [1.0; 2], [2.0; 2], INCREASES), None);
    }
    #[test]
    fn increases_since_the_start_tolerate_a_lag_of_a_round() {
        let since =
            |first: [[f64; 2]; 2], a, b| differ(SampleKind::Counter, a, b, Counters::Since(&first));
        // A single event between the samples of both sides, at the start, in the middle.
        assert_eq!(since([[7.0, 8.0], [1.0, 1.0]], [8.0, 8.0], [1.0, 1.0]), None);
        assert_eq!(since([[7.0; 2], [0.0; 2]], [7.0, 8.0], [1.0, 1.0]), None);
        assert_eq!(since([[7.0; 2], [0.0; 2]], [8.0, 8.0], [0.0, 1.0]), None);
        assert_eq!(since([[0.0; 2], [0.0; 2]], [900.0, 1000.0], [1000.0, 1100.0]), None);
        let lost = Some(DifferenceKind::Increase);
        assert_eq!(since([[7.0; 2], [0.0; 2]], [9.0, 10.0], [0.0, 0.0]), lost);
        assert_eq!(since([[0.0; 2], [0.0; 2]], [900.0, 1000.0], [450.0, 500.0]), lost);
    }
}
