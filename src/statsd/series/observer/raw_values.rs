//! The newest values of a summary, which its sketches do not have yet.

use super::quantile::Weighted;

/// Values in the order of their arrival, in the narrowest form that represents each of them exactly: most
/// timers report whole milliseconds. A summary has up to 500 of them, so their size decides what it costs.
#[derive(Debug)]
pub(super) enum RawValues {
    /// Whole numbers below 65,536.
    Short(Vec<u16>),
    /// Larger whole numbers, halves, quarters.
    Narrow(Vec<f32>),
    Wide(Vec<f64>),
    /// The only form with other weights than 1.
    Weighted(Vec<Weighted>),
}

/// A form of a value.
trait Form: Copy {
    /// Returns `None` if the value has no such form.
    fn of(value: Weighted) -> Option<Self>;

    fn weighted(self) -> Weighted;
}

impl Form for u16 {
    fn of(Weighted { value, weight }: Weighted) -> Option<Self> {
        let short = value as Self;
        // In contrast to `==`, the bits distinguish -0 from 0.
        (weight == 1 && f64::from(short).to_bits() == value.to_bits()).then_some(short)
    }

    fn weighted(self) -> Weighted {
        f64::from(self).weighted()
    }
}

impl Form for f32 {
    fn of(Weighted { value, weight }: Weighted) -> Option<Self> {
        let narrow = value as Self;
        (weight == 1 && f64::from(narrow) == value).then_some(narrow)
    }

    fn weighted(self) -> Weighted {
        f64::from(self).weighted()
    }
}

impl Form for f64 {
    fn of(Weighted { value, weight }: Weighted) -> Option<Self> {
        (weight == 1).then_some(value)
    }

    fn weighted(self) -> Weighted {
        Weighted { value: self, weight: 1 }
    }
}

impl Form for Weighted {
    fn of(value: Weighted) -> Option<Self> {
        Some(value)
    }

    fn weighted(self) -> Weighted {
        self
    }
}

/// Evaluates an expression for the vector of each form.
macro_rules! each_form {
    ($of:expr, $values:ident => $result:expr) => {
        match $of {
            RawValues::Short($values) => $result,
            RawValues::Narrow($values) => $result,
            RawValues::Wide($values) => $result,
            RawValues::Weighted($values) => $result,
        }
    };
}

/// Appends a value if it has this form. The capacity grows by an eighth, because doubling leaves a third of it
/// unused on average, and by multiples of 16 bytes, as allocators round sizes up.
fn push<T: Form>(values: &mut Vec<T>, value: Weighted) -> bool {
    let Some(value) = T::of(value) else { return false };
    if values.len() == values.capacity() {
        let more = (values.len() / 8).max(1).next_multiple_of(16 / size_of::<T>());
        values.reserve_exact(more);
    }
    values.push(value);
    true
}

fn heap_bytes<T>(values: &Vec<T>) -> usize {
    size_of::<T>() * values.capacity()
}

impl RawValues {
    /// Returns no values, without an allocation.
    pub(super) fn new() -> Self {
        Self::Short(Vec::new())
    }

    /// Returns the number of values, not of their weights.
    pub(super) fn len(&self) -> usize {
        each_form!(self, values => values.len())
    }

    /// Returns the number of heap bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        each_form!(self, values => heap_bytes(values))
    }

    /// Appends a value.
    pub(super) fn push(&mut self, value: f64, weight: u64) {
        let value = Weighted { value, weight };
        while !each_form!(&mut *self, values => push(values, value)) {
            self.widen();
        }
    }

    /// Changes all values to the next wider form.
    fn widen(&mut self) {
        *self = match self {
            Self::Short(values) => Self::Narrow(values.iter().map(|&value| value.into()).collect()),
            Self::Narrow(values) => Self::Wide(values.iter().map(|&value| value.into()).collect()),
            Self::Wide(_) | Self::Weighted(_) => Self::Weighted(self.from(0)),
        };
    }

    /// Returns the values from index `first` on.
    pub(super) fn from(&self, first: usize) -> Vec<Weighted> {
        each_form!(self, values => values.iter().skip(first).map(|value| value.weighted()).collect())
    }

    /// Removes the first `count` values. Without any values left, the form is the narrowest again.
    pub(super) fn remove_first(&mut self, count: usize) {
        match self {
            Self::Short(values) => drop(values.drain(..count)),
            _ if count == self.len() => *self = Self::new(),
            _ => each_form!(self, values => drop(values.drain(..count))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(values: &RawValues) -> Vec<(f64, u64)> {
        values.from(0).iter().map(|each| (each.value, each.weight)).collect()
    }

    #[test]
    fn each_form_keeps_all_values() {
        let mut values = RawValues::new();
        for number in 0..100 {
            values.push(f64::from(number) / 2.0, 1);
        }
        assert!(values.heap_bytes() <= 113 * 4 + 16, "{}", values.heap_bytes());
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
        assert_eq!(values.from(2).len(), 1);
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
            assert!(matches!(values, RawValues::Short(_)));
        }
        let mut values = RawValues::new();
        values.push(-0.0, 1);
        values.push(f64::NAN, 1);
        assert!(all(&values)[0].0.is_sign_negative() && all(&values)[1].0.is_nan());
    }

    #[test]
    fn whole_milliseconds_take_two_bytes() {
        let mut values = RawValues::new();
        for number in 0..500 {
            values.push(f64::from(number * 131), 1);
        }
        assert!(values.heap_bytes() <= 563 * 2 + 16, "{}", values.heap_bytes());
        for (value, size) in [(65_536.0, 4), (0.5, 4), (-1.0, 4), (0.1, 8)] {
            let mut values = RawValues::new();
            (0..32).for_each(|_| values.push(value, 1));
            assert_eq!(values.heap_bytes(), 32 * size, "{value}");
            assert_eq!(all(&values), [(value, 1); 32]);
        }
    }
}
