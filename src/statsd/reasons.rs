//! Explanations of the reasons for which samples and lines are rejected.

/// Describes a reason in a few words.
pub(crate) fn describe_reason(reason: &str) -> &'static str {
    match reason {
        "no_event" => "the sample rate yields no observation",
        "illegal_negative_counter" => "a counter cannot decrease",
        "malformed_line" => "not NAME:VALUE|TYPE",
        "mixed_tagging_styles" => "tags both in the name and after the value",
        "not_enough_parts_after_colon" => "no type after the value",
        "invalid_extended_aggregate_type" => "this type does not allow several values",
        "malformed_component" => "too many or empty sections after the type",
        "malformed_value" => "the value is not a number",
        "invalid_sample_factor" => "an invalid sample rate or an unknown section",
        "malformed_container_id" => "an invalid container ID",
        "too_many_tags" => "more than 1,000 tags",
        "illegal_event" => "an unknown type",
        "other_kind" => "the metric exists with another type",
        "derived_name" => {
            "another metric has or would have a series with this name: _sum, _count or _bucket"
        }
        "reserved_name" => "the name is used by another metric of the exposition",
        "reserved_label" => "summaries set quantile and histograms set le themselves",
        "empty_metric_name" => "the metric name is empty",
        "invalid_metric_name" => "not a valid Prometheus metric name",
        "invalid_label_name" => "not a valid Prometheus label name, or one that begins with __",
        "series_limit" => "the maximum number of series is reached",
        "label_limit" => {
            "a label has a value that is too long or one value too many, and this metric type cannot be folded"
        }
        "name_limit" => "the name of the metric or of a label is too long",
        "memory_limit" => "the maximum memory for series is reached",
        "dogstatsd_event" => "DogStatsD events are not metrics",
        "dogstatsd_service_check" => "DogStatsD service checks are not metrics",
        "tag_error" => "an invalid tag was ignored",
        _ => "rejected",
    }
}
