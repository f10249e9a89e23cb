//! The newest values of a summary, which its sketches do not have yet.

use super::quantile::Weighted;

/// Values in the order of their arrival, in the narrowest form that represents each of them exactly: most
/// timers report integers. A busy summary has up to 500 of them, so their size decides what a summary costs.
#[derive(Debug)]
pub(super) enum RawValues {
    /// Every value is an `f32`, and every weight is 1.
    Narrow(Vec<f32>),
    /// Every weight is 1.
    Wide(Vec<f64>),
    Weighted(Vec<Weighted>),
}

/// Appends a value. The capacity grows by a quarter, because doubling leaves a third of it unused on average.
fn push<T>(values: &mut Vec<T>, value: T) {
    if values.len() == values.capacity() {
        values.reserve_exact((values.len() / 4).max(4));
    }
    values.push(value);
}

impl RawValues {
    /// Returns no values, without an allocation.
    pub(super) fn new() -> Self {
        Self::Narrow(Vec::new())
    }

    /// Returns the number of values, not of their weights.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Narrow(values) => values.len(),
            Self::Wide(values) => values.len(),
            Self::Weighted(values) => values.len(),
        }
    }

    /// Returns the number of heap bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Narrow(values) => size_of::<f32>() * values.capacity(),
            Self::Wide(values) => size_of::<f64>() * values.capacity(),
            Self::Weighted(values) => size_of::<Weighted>() * values.capacity(),
        }
    }

    /// Appends a value.
    pub(super) fn push(&mut self, value: f64, weight: u64) {
        let narrow = value as f32;
        match self {
            Self::Narrow(values) if weight == 1 && f64::from(narrow) == value => {
                return push(values, narrow);
            }
            Self::Wide(values) if weight == 1 => return push(values, value),
            Self::Weighted(values) => return push(values, Weighted { value, weight }),
            Self::Narrow(_) | Self::Wide(_) => {}
        }
        *self = if weight == 1 {
            Self::Wide(self.from(0).map(|each| each.value).collect())
        } else {
            Self::Weighted(self.from(0).collect())
        };
        self.push(value, weight);
    }

    /// Returns the values from index `first` on.
    pub(super) fn from(&self, first: usize) -> Box<dyn Iterator<Item = Weighted> + '_> {
        let unweighted = |value| Weighted { value, weight: 1 };
        match self {
            Self::Narrow(values) => {
                Box::new(values.iter().skip(first).map(move |&value| unweighted(value.into())))
            }
            Self::Wide(values) => {
                Box::new(values.iter().skip(first).map(move |&value| unweighted(value)))
            }
            Self::Weighted(values) => Box::new(values.iter().skip(first).copied()),
        }
    }

    /// Removes the first `count` values. Without any values left it is narrow again.
    pub(super) fn remove_first(&mut self, count: usize) {
        match self {
            Self::Narrow(values) => drop(values.drain(..count)),
            _ if count == self.len() => *self = Self::new(),
            Self::Wide(values) => drop(values.drain(..count)),
            Self::Weighted(values) => drop(values.drain(..count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(values: &RawValues) -> Vec<(f64, u64)> {
        values.from(0).map(|each| (each.value, each.weight)).collect()
    }

    #[test]
    fn each_form_keeps_all_values() {
        let mut values = RawValues::new();
        for number in 0..100 {
            values.push(f64::from(number) / 2.0, 1);
        }
        assert!(values.heap_bytes() <= 125 * 4, "{}", values.heap_bytes());
        values.push(0.1, 1);
        values.push(f64::NEG_INFINITY, 1);
        values.push(7.0, 3);
        values.push(8.0, 1);
        let mut want: Vec<_> = (0..100).map(|number| (f64::from(number) / 2.0, 1)).collect();
        want.extend([(0.1, 1), (f64::NEG_INFINITY, 1), (7.0, 3), (8.0, 1)]);
        assert_eq!(all(&values), want);
        assert_eq!(values.len(), 104);
        values.remove_first(101);
        assert_eq!(all(&values), [(f64::NEG_INFINITY, 1), (7.0, 3), (8.0, 1)]);
        assert_eq!(values.from(2).count(), 1);
    }

    #[test]
    fn values_that_do_not_fit_are_wide_until_all_are_gone() {
        for value in [0.1, f64::MAX, 16_777_217.0, 1e-320] {
            let mut values = RawValues::new();
            values.push(1.0, 1);
            values.push(value, 1);
            assert_eq!(all(&values), [(1.0, 1), (value, 1)]);
            values.remove_first(1);
            assert!(matches!(values, RawValues::Wide(_)));
            values.remove_first(1);
            assert!(matches!(values, RawValues::Narrow(_)));
        }
        let mut values = RawValues::new();
        values.push(f64::NAN, 1);
        values.push(-0.0, 1);
        assert!(all(&values)[0].0.is_nan() && all(&values)[1].0.is_sign_negative());
    }
}
