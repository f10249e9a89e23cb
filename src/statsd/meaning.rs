//! Why a sample or a line was refused, in words for people.

/// What a word of the ledger means.
pub(crate) fn meaning(word: &str) -> &'static str {
    match word {
        "no_event" => "its rate leaves no event of it",
        "illegal_negative_counter" => "a counter cannot fall",
        "malformed_line" => "not NAME:VALUE|TYPE",
        "mixed_tagging_styles" => "tags in the name and behind the value",
        "not_enough_parts_after_colon" => "no type behind the value",
        "invalid_extended_aggregate_type" => "several values of a type that has one",
        "malformed_component" => "too many or empty sections behind the type",
        "malformed_value" => "the value is not a number",
        "invalid_sample_factor" => "a bad sampling rate or an unknown section",
        "malformed_container_id" => "a bad container ID",
        "illegal_event" => "an unknown type",
        "other_kind" => "the metric exists with another type",
        "derived_name" => {
            "a summary or histogram has or would have a series of the same name: _sum, _count, _bucket"
        }
        "reserved_name" => "the name belongs to the exporter's own metrics",
        "reserved_label" => "summaries write quantile and histograms write le themselves",
        "empty_metric_name" => "no name is left",
        "invalid_metric_name" => "not a metric name for Prometheus",
        "invalid_label_name" => {
            "a label name that is empty, not one for Prometheus, or begins with __"
        }
        "series_limit" => "there are as many series as allowed",
        "label_limit" => {
            "a label has a value that is too long or one too many, and the metric does not add up"
        }
        "name_limit" => "the name of the metric or of a label is too long",
        "memory_limit" => "the series need as much memory as allowed",
        "dogstatsd_event" => "events have no place in metrics",
        "dogstatsd_service_check" => "service checks have no place in metrics",
        "tag_error" => "a tag was left out",
        _ => "refused",
    }
}
