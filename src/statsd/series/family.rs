//! A metric family: what all series of one name share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::observer::Falls;
use crate::exposition::family as exposition;

/// What the series of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Summary,
    Histogram,
    /// A count of distinct members, exposed as a gauge.
    Set,
}

impl Kind {
    /// All kinds; `ALL[kind as usize] == kind`.
    pub(crate) const ALL: [Self; 5] =
        [Self::Counter, Self::Gauge, Self::Summary, Self::Histogram, Self::Set];

    /// The label `type` of `statsd_exporter_metrics_total`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
            Self::Set => "set",
        }
    }

    /// The type that an exposition shows.
    pub(crate) const fn shown(self) -> exposition::Kind {
        match self {
            Self::Counter => exposition::Kind::Counter,
            Self::Gauge | Self::Set => exposition::Kind::Gauge,
            Self::Summary => exposition::Kind::Summary,
            Self::Histogram => exposition::Kind::Histogram,
        }
    }

    /// Whether one series of this kind has several samples with derived names.
    pub(crate) const fn is_observer(self) -> bool {
        matches!(self, Self::Summary | Self::Histogram)
    }
}

/// What all series of one name share.
#[derive(Debug)]
pub(crate) struct Family {
    /// Metric name.
    pub(crate) name: Box<str>,
    /// Hash of the label names of its first series. Only if others join, sets of label names are counted one by one.
    pub(crate) first_set: u64,
    pub(crate) id: u32,
    /// Number of its help text in the registry.
    pub(crate) help: u32,
    live: AtomicU32,
    /// Lines of the text format of all its series, and of the widest that it has had.
    samples: AtomicU64,
    widest: AtomicU32,
    /// Lines for which a place is kept.
    kept: AtomicU32,
    pub(crate) kind: Kind,
    has_nan: AtomicBool,
    /// It has the series for label sets beyond a budget.
    has_overflow: AtomicBool,
    /// Told by its observers; no other kind has it.
    falls: Option<Arc<Falls>>,
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
            widest: AtomicU32::new(0),
            kept: AtomicU32::new(0),
            kind,
            has_nan: AtomicBool::new(false),
            has_overflow: AtomicBool::new(false),
            falls: kind.is_observer().then(Arc::default),
        }
    }

    /// Series alive. Changed by the registry's writer alone.
    pub(crate) fn live(&self) -> u32 {
        self.live.load(Ordering::Relaxed)
    }

    /// Counts one series more; returns how many there are now.
    pub(crate) fn born(&self) -> u32 {
        self.live.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts one series less; returns how many there are now.
    pub(crate) fn died(&self) -> u32 {
        self.live.fetch_sub(1, Ordering::Relaxed) - 1
    }

    /// Lines of the text format of all its series. As what follows, changed by the registry's writer alone.
    pub(crate) fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Lines of the widest series that it has had.
    pub(crate) fn widest(&self) -> u64 {
        u64::from(self.widest.load(Ordering::Relaxed))
    }

    /// Counts the lines of a new series.
    pub(crate) fn widen(&self, width: u64, is_overflow: bool) {
        self.samples.fetch_add(width, Ordering::Relaxed);
        self.widest.fetch_max(u32::try_from(width).unwrap_or(u32::MAX), Ordering::Relaxed);
        if is_overflow {
            self.has_overflow.store(true, Ordering::Relaxed);
        }
    }

    /// Counts out the lines of a series that has gone.
    pub(crate) fn narrow(&self, width: u64, is_overflow: bool) {
        self.samples.fetch_sub(width, Ordering::Relaxed);
        if is_overflow {
            self.has_overflow.store(false, Ordering::Relaxed);
        }
    }

    /// Whether it has the series for label sets beyond a budget.
    pub(crate) fn has_overflow(&self) -> bool {
        self.has_overflow.load(Ordering::Relaxed)
    }

    /// Lines for which a place is kept.
    pub(crate) fn kept(&self) -> u64 {
        u64::from(self.kept.load(Ordering::Relaxed))
    }

    /// Keeps a place for so many lines from now on.
    pub(crate) fn keep(&self, width: u64) {
        self.kept.store(u32::try_from(width).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Remembers that a counter of this family became NaN, which OpenMetrics does not allow a counter to be.
    pub(crate) fn mark_nan(&self) {
        self.has_nan.store(true, Ordering::Relaxed);
    }

    /// Whether a counter of this family may be NaN.
    pub(crate) fn has_nan(&self) -> bool {
        self.has_nan.load(Ordering::Relaxed)
    }

    /// What its observers tell whether their sums may fall.
    pub(crate) fn falls(&self) -> Arc<Falls> {
        self.falls.as_ref().map_or_else(Arc::default, Arc::clone)
    }

    /// Whether a sum of this family may fall, so that it is no counter.
    pub(crate) fn may_fall(&self) -> bool {
        self.falls.as_ref().is_some_and(|falls| falls.get())
    }
}
