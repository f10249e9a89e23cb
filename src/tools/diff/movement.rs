//! Whether values that move are the same.
//!
//! Two samples of each side flow in. Nothing makes the two sides be read at one moment, so what moves is not the same to
//! the last digit: gauges may be apart by as much as they moved meanwhile, counters have to grow alike.

use super::what::What;

/// What a sample is to a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It goes up and down.
    Gauge,
    /// It grows, but for a start from 0.
    Counter,
    /// When a counter began.
    Created,
}

/// How values are compared.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// How much of the larger one two increases may be apart.
    pub tolerance: f64,
    /// Whether counters began at different times, so that their increases alone say something.
    pub increases: bool,
}

/// How the values of a series differ, from the sample before and from the last one.
pub(super) fn differ(part: Part, a: [f64; 2], b: [f64; 2], manner: Manner) -> Option<What> {
    if manner.increases && part == Part::Created {
        return None;
    }
    let by_increase = manner.increases && part == Part::Counter;
    if !by_increase {
        if a.iter().any(|a| b.iter().any(|b| same(*a, *b))) {
            return None;
        }
        let movement = (a[1] - a[0]).abs() + (b[1] - b[0]).abs();
        let apart = (low(a) - high(b)).max(low(b) - high(a));
        if apart <= movement {
            return None;
        }
        // A counter that stood still on one side differs in its value whatever the other did; so does what is NaN.
        if part != Part::Counter || same(a[0], a[1]) || same(b[0], b[1]) {
            return Some(What::Value);
        }
    }
    let (a, b) = (increase(a), increase(b));
    let alike = same(a, b) || (a - b).abs() <= manner.tolerance * a.max(b);
    (!alike).then_some(What::Increase)
}

/// Whether it is the same number, or none both times.
pub(super) fn same(one: f64, other: f64) -> bool {
    one == other || (one.is_nan() && other.is_nan())
}

/// By how much a counter grew. One that fell began again.
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

    const USUAL: Manner = Manner { tolerance: 0.1, increases: false };
    const INCREASES: Manner = Manner { increases: true, ..USUAL };

    #[test]
    fn what_stands_still_has_to_be_the_same() {
        for part in [Part::Gauge, Part::Counter, Part::Created] {
            assert_eq!(differ(part, [5.0; 2], [5.0; 2], USUAL), None);
            assert_eq!(differ(part, [5.0; 2], [5.1; 2], USUAL), Some(What::Value));
            assert_eq!(differ(part, [f64::NAN; 2], [f64::NAN; 2], USUAL), None);
            assert_eq!(differ(part, [f64::NAN; 2], [1.0; 2], USUAL), Some(What::Value));
            assert_eq!(differ(part, [f64::INFINITY; 2], [1.0; 2], USUAL), Some(What::Value));
        }
    }

    #[test]
    fn what_moves_may_be_apart_by_its_movement() {
        let gauge = |a, b| differ(Part::Gauge, a, b, USUAL);
        // Read before and after a change.
        assert_eq!(gauge([1.0, 1.0], [1.0, 2.0]), None);
        assert_eq!(gauge([100.0, 110.0], [104.0, 104.0]), None);
        assert_eq!(gauge([100.0, 110.0], [112.0, 120.0]), None);
        assert_eq!(gauge([100.0, 110.0], [3700.0, 3710.0]), Some(What::Value));
        assert_eq!(gauge([100.0, 101.0], [50.0, 50.0]), Some(What::Value));
    }

    #[test]
    fn counters_grow_alike() {
        let counter = |a, b| differ(Part::Counter, a, b, USUAL);
        assert_eq!(counter([1000.0, 1100.0], [5.0, 104.0]), None);
        assert_eq!(counter([1000.0, 1100.0], [5.0, 55.0]), Some(What::Increase));
        // Both began again: 7 and 7.
        assert_eq!(counter([1000.0, 7.0], [5e6, 7.0]), None);
        assert_eq!(counter([1000.0, 1000.0], [5.0, 6.0]), Some(What::Value));
        let counter = |a, b| differ(Part::Counter, a, b, INCREASES);
        assert_eq!(counter([1000.0; 2], [5.0; 2]), None);
        assert_eq!(counter([1000.0, 1010.0], [5.0, 5.0]), Some(What::Increase));
        assert_eq!(differ(Part::Gauge, [1.0; 2], [2.0; 2], INCREASES), Some(What::Value));
        assert_eq!(differ(Part::Created, [1.0; 2], [2.0; 2], INCREASES), None);
    }
}
