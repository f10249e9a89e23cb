//! The reasons why an event gets no series.

use crate::util::words::words;

words! {
    /// The reason why an event gets no series.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum Rejection {
        /// The metric exists with another kind.
        OtherKind = "other_kind",
        /// The name equals a derived name (`_sum`, `_count`, `_bucket`) of another family, or the reverse.
        DerivedName = "derived_name",
        /// The name is used by another part of the exposition, such as the process's own metrics.
        ReservedName = "reserved_name",
        /// The kind writes this label itself: `quantile` of a summary, `le` of a histogram.
        ReservedLabel = "reserved_label",
        /// The metric name is empty.
        EmptyName = "empty_metric_name",
        /// The metric name is invalid in Prometheus.
        InvalidName = "invalid_metric_name",
        /// The label name is invalid in Prometheus or begins with `__`.
        InvalidLabel = "invalid_label_name",
        /// The maximum number of series is reached.
        SeriesLimit = "series_limit",
        /// A label value is too long, or the label would have too many values, and the metric cannot be folded.
        LabelLimit = "label_limit",
        /// A name is too long.
        NameLimit = "name_limit",
        /// The maximum memory of series is reached.
        MemoryLimit = "memory_limit",
    }
}

impl Rejection {
    /// Returns true if it counts in `events_conflict_total`, as conflicts between metrics do in
    /// statsd_exporter.
    pub(crate) const fn is_conflict(self) -> bool {
        matches!(
            self,
            Self::OtherKind | Self::DerivedName | Self::ReservedName | Self::ReservedLabel
        )
    }
}
