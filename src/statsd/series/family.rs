//! A metric family: everything that the series of one name share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::observer::DecreaseFlag;
use crate::exposition::family as exposition;
use crate::util::words::words;

words! {
    /// The kind of the series of a family.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub(crate) enum Kind {
        Counter = "counter",
        Gauge = "gauge",
        Summary = "summary",
        Histogram = "histogram",
        /// The number of distinct members, exposed as a gauge.
        Set = "set",
    }
}

impl Kind {
    /// Returns the type shown in the exposition.
    pub(crate) const fn exposed_kind(self) -> exposition::Kind {
        match self {
            Self::Counter => exposition::Kind::Counter,
            Self::Gauge | Self::Set => exposition::Kind::Gauge,
            Self::Summary => exposition::Kind::Summary,
            Self::Histogram => exposition::Kind::Histogram,
        }
    }

    /// Returns true if a series of this kind has several samples with derived names.
    pub(crate) const fn is_observer(self) -> bool {
        matches!(self, Self::Summary | Self::Histogram)
    }
}

/// A metric family.
#[derive(Debug)]
pub(crate) struct Family {
    /// The metric name.
    pub(crate) name: Box<str>,
    /// The hash of the label names of its first series. Series are counted per set of label names only once a
    /// second set exists.
    pub(crate) first_set: u64,
    pub(crate) id: u32,
    /// The index of its help text in the registry.
    pub(crate) help: u32,
    live: AtomicU32,
    /// The number of samples of all series, and of the widest live series.
    samples: AtomicU64,
    max_samples: AtomicU32,
    /// The number of samples reserved for the overflow series.
    reserved: AtomicU32,
    pub(crate) kind: Kind,
    has_nan: AtomicBool,
    /// True if the family has an overflow series.
    has_overflow: AtomicBool,
    /// Set by its observers; `None` for other kinds.
    decrease_flag: Option<Arc<DecreaseFlag>>,
}

impl Family {
    pub(crate) fn new(name: &str, id: u32, kind: Kind, help: u32, first_set: u64) -> Self {
        Self {
            name: name.into(),
            first_set,
            id,
            help,
            live: AtomicU32::new(0),
            samples: AtomicU64::new(0),
            max_samples: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            kind,
            has_nan: AtomicBool::new(false),
            has_overflow: AtomicBool::new(false),
            decrease_flag: kind.is_observer().then(Arc::default),
        }
    }

    /// Returns the number of live series. Only the registry's writer changes it.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// Adds a series and returns the new number of live series.
    pub(crate) fn add_series(&self) -> u32 {
        self.live.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Removes a series and returns the new number of live series.
    pub(crate) fn remove_series(&self) -> u32 {
        self.live.fetch_sub(1, Ordering::Relaxed) - 1
    }

    /// Returns the number of samples of all series. Only the registry's writer changes this and the following
    /// numbers.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Returns the number of samples of the widest live series.
    pub(crate) fn max_samples(&self) -> u64 {
        u64::from(self.max_samples.load(Ordering::Relaxed))
    }

    /// Sets the number of samples of the widest live series.
    pub(crate) fn set_max_samples(&self, samples: u64) {
        self.max_samples.store(u32::try_from(samples).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Adds the samples of a new series.
    pub(crate) fn add_samples(&self, samples: u64, is_overflow: bool) {
        self.samples.fetch_add(samples, Ordering::Relaxed);
        if is_overflow {
            self.has_overflow.store(true, Ordering::Relaxed);
        }
    }

    /// Subtracts the samples of a removed series.
    pub(crate) fn remove_samples(&self, samples: u64, is_overflow: bool) {
        self.samples.fetch_sub(samples, Ordering::Relaxed);
        if is_overflow {
            self.has_overflow.store(false, Ordering::Relaxed);
        }
    }

    /// Returns true if the family has an overflow series.
    pub(crate) fn has_overflow(&self) -> bool {
        self.has_overflow.load(Ordering::Relaxed)
    }

    /// Returns the number of samples reserved for the overflow series.
    pub(crate) fn reserved(&self) -> u64 {
        u64::from(self.reserved.load(Ordering::Relaxed))
    }

    /// Sets the number of samples reserved for the overflow series.
    pub(crate) fn set_reserved(&self, samples: u64) {
        self.reserved.store(u32::try_from(samples).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Records that a counter of this family became NaN, which OpenMetrics forbids.
    pub(crate) fn mark_nan(&self) {
        self.has_nan.store(true, Ordering::Relaxed);
    }

    /// Returns true if a counter of this family may be NaN.
    pub(crate) fn has_nan(&self) -> bool {
        self.has_nan.load(Ordering::Relaxed)
    }

    /// Returns the flag that its observers set when their sums may decrease.
    pub(crate) fn decrease_flag(&self) -> Arc<DecreaseFlag> {
        self.decrease_flag.as_ref().map_or_else(Arc::default, Arc::clone)
    }

    /// Returns true if a sum of this family may decrease, so that it is not a valid counter.
    pub(crate) fn may_decrease(&self) -> bool {
        self.decrease_flag.as_ref().is_some_and(|decrease_flag| decrease_flag.get())
    }
}
