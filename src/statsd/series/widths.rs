//! The number of live series of a family by their number of samples.
//!
//! Nearly all families have series of one width. Others have rules or reloads with other buckets or quantiles, or an overflow
//! series with fewer of them. Only those have an entry here.

use std::collections::{BTreeMap, HashMap};

use super::family::Family;

/// The number of series by width, for families with several widths by ID.
#[derive(Debug, Default)]
pub(crate) struct Widths(HashMap<u32, BTreeMap<u64, u32>>);

impl Widths {
    /// Adds a series of this width. Its family already counts it.
    pub(crate) fn add(&mut self, family: &Family, width: u64) {
        let (widest, others) = (family.max_samples(), family.live().saturating_sub(1));
        if others == 0 {
            self.0.remove(&family.id);
            return family.set_max_samples(width);
        }
        if let Some(series) = self.0.get_mut(&family.id) {
            *series.entry(width).or_default() += 1;
        } else if width != widest {
            self.0.insert(family.id, BTreeMap::from([(widest, others), (width, 1)]));
        }
        family.set_max_samples(widest.max(width));
    }

    /// Removes a series of this width. Its family no longer counts it.
    pub(crate) fn remove(&mut self, family: &Family, width: u64) {
        let Some(series) = self.0.get_mut(&family.id) else { return };
        if let Some(count) = series.get_mut(&width) {
            *count -= 1;
            if *count == 0 {
                series.remove(&width);
            }
        }
        if let Some((widest, _)) = series.last_key_value() {
            family.set_max_samples(*widest);
        }
        if series.len() < 2 {
            self.0.remove(&family.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statsd::series::family::Kind;

    #[test]
    fn the_widest_live_series_counts() {
        let (mut widths, family) = (Widths::default(), Family::new("a", 7, Kind::Histogram, 0, 0));
        let mut live = Vec::new();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            if live.is_empty() || random.u8(..) < 120 {
                let width = random.u64(3..6);
                live.push(width);
                family.add_series();
                widths.add(&family, width);
            } else {
                let width = live.swap_remove(random.usize(..live.len()));
                family.remove_series();
                widths.remove(&family, width);
            }
            if let Some(widest) = live.iter().max() {
                assert_eq!(family.max_samples(), *widest, "{live:?}");
            }
            let is_narrow = live.iter().all(|width| Some(width) == live.first());
            assert_eq!(widths.0.is_empty(), is_narrow, "{live:?}");
        }
    }
}
