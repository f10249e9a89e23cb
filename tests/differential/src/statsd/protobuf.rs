//! The delimited protobuf exposition as lines, one for each metric, without help texts and times of creation.

use std::fmt::Write as _;

use anyhow::Result;
use prost::Message;

#[derive(Message)]
struct Family {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
}

#[derive(Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Single>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Single>,
    #[prost(message, optional, tag = "4")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Message)]
struct Single {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Message)]
struct Summary {
    #[prost(uint64, optional, tag = "1")]
    count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    quantiles: Vec<Quantile>,
}

#[derive(Message)]
struct Quantile {
    #[prost(double, optional, tag = "1")]
    quantile: Option<f64>,
    #[prost(double, optional, tag = "2")]
    value: Option<f64>,
}

#[derive(Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    buckets: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "9")]
    negative_spans: Vec<Span>,
    #[prost(sint64, repeated, packed = "false", tag = "10")]
    negative_deltas: Vec<i64>,
    #[prost(message, repeated, tag = "12")]
    positive_spans: Vec<Span>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_deltas: Vec<i64>,
}

#[derive(Message)]
struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    cumulative: Option<u64>,
    #[prost(double, optional, tag = "2")]
    bound: Option<f64>,
}

#[derive(Message)]
struct Span {
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

/// Returns the metrics of the families for which `wanted` is true.
///
/// # Errors
///
/// The body is malformed.
pub fn lines(mut body: &[u8], wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut out = Vec::new();
    while !body.is_empty() {
        let family = Family::decode_length_delimited(&mut body)?;
        if !wanted(&family.name) {
            continue;
        }
        for metric in &family.metrics {
            let mut line = format!("protobuf {} type {}", family.name, family.kind);
            for label in &metric.labels {
                let _ = write!(line, " {}={:?}", label.name, label.value);
            }
            for (name, single) in [("gauge", &metric.gauge), ("counter", &metric.counter)] {
                if let Some(single) = single {
                    let _ = write!(line, " {name} {:?}", single.value);
                }
            }
            if let Some(summary) = &metric.summary {
                // Which of two equal zeros is a quantile depends on the order of arrival in the original.
                let summary = format!("{summary:?}").replace("-0.0)", "0.0)");
                let _ = write!(line, " {summary}");
            }
            if let Some(histogram) = &metric.histogram {
                let _ = write!(line, " {histogram:?}");
            }
            out.push(line);
        }
    }
    Ok(out)
}
