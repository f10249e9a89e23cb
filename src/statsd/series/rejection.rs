//! The reasons why an event gets no series.

/// The reason why an event gets no series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// The metric exists with another kind.
    OtherKind,
    /// The name equals a derived name (`_sum`, `_count`, `_bucket`) of another family, or the reverse.
    DerivedName,
    /// The name is used by another part of the exposition, such as the process's own metrics.
    ReservedName,
    /// The kind writes this label itself: `quantile` of a summary, `le` of a histogram.
    ReservedLabel,
    /// The metric name is empty.
    EmptyName,
    /// The metric name is invalid in Prometheus.
    InvalidName,
    /// The label name is invalid in Prometheus or begins with `__`.
    InvalidLabel,
    /// The maximum number of series is reached.
    SeriesLimit,
    /// A label value is too long, or the label would have too many values, and the metric cannot be folded.
    LabelLimit,
    /// A name is too long.
    NameLimit,
    /// The maximum memory of series is reached.
    MemoryLimit,
}

impl Rejection {
    /// All rejections: `ALL[r as usize] == r`.
    pub(crate) const ALL: [Self; 11] = [
        Self::OtherKind,
        Self::DerivedName,
        Self::ReservedName,
        Self::ReservedLabel,
        Self::EmptyName,
        Self::InvalidName,
        Self::InvalidLabel,
        Self::SeriesLimit,
        Self::LabelLimit,
        Self::NameLimit,
        Self::MemoryLimit,
    ];

    /// Returns the value of the label `reason`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::OtherKind => "other_kind",
            Self::DerivedName => "derived_name",
            Self::ReservedName => "reserved_name",
            Self::ReservedLabel => "reserved_label",
            Self::EmptyName => "empty_metric_name",
            Self::InvalidName => "invalid_metric_name",
            Self::InvalidLabel => "invalid_label_name",
            Self::SeriesLimit => "series_limit",
            Self::LabelLimit => "label_limit",
            Self::NameLimit => "name_limit",
            Self::MemoryLimit => "memory_limit",
        }
    }

    /// Returns true if it counts in `events_conflict_total`, as conflicts between metrics do in
    /// statsd_exporter.
    pub(crate) const fn is_conflict(self) -> bool {
        matches!(
            self,
            Self::OtherKind | Self::DerivedName | Self::ReservedName | Self::ReservedLabel
        )
    }
}
