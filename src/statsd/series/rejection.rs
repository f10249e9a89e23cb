//! Why a sample gets no series.

/// Why an event found no series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rejection {
    /// The name is known with another kind.
    OtherKind,
    /// A derived name (`_sum`, `_count`, `_bucket`) of this or another family is the same.
    DerivedName,
    /// The name belongs to the process's own metrics or to another part of the exposition.
    ReservedName,
    /// A label that this kind writes itself: `quantile` on a summary, `le` on a histogram.
    ReservedLabel,
    /// No name is left.
    EmptyName,
    /// A name Prometheus does not accept.
    InvalidName,
    /// A label name Prometheus does not accept or that begins with `__`.
    InvalidLabel,
    /// There are as many series as allowed.
    SeriesLimit,
    /// A label has a value that is too long or one too many, and the metric does not add up.
    LabelLimit,
    /// A name is too long.
    NameLimit,
    /// The series need as much memory as allowed.
    MemoryLimit,
}

impl Rejection {
    /// All rejections; `ALL[r as usize] == r`.
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

    /// Value of a label `reason`.
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

    /// Whether it counts in `events_conflict_total`, as the original counts clashes between metrics.
    pub(crate) const fn is_conflict(self) -> bool {
        matches!(
            self,
            Self::OtherKind | Self::DerivedName | Self::ReservedName | Self::ReservedLabel
        )
    }
}
