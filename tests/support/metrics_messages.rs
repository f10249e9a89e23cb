//! The messages of the protobuf exposition
//! (<https://github.com/prometheus/client_model/blob/master/io/prometheus/client/metrics.proto>), without those that neither
//! original sends.
#![allow(dead_code, reason = "every reader uses a part of them")]

use prost::Message;

#[derive(Message)]
pub struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub help: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub metrics: Vec<Metric>,
}

#[derive(Message)]
pub struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub labels: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub gauge: Option<Single>,
    #[prost(message, optional, tag = "3")]
    pub counter: Option<Single>,
    #[prost(message, optional, tag = "4")]
    pub summary: Option<SummaryMessage>,
    #[prost(message, optional, tag = "7")]
    pub histogram: Option<HistogramMessage>,
}

#[derive(Message)]
pub struct LabelPair {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub value: Option<String>,
}

#[derive(Message)]
pub struct Single {
    #[prost(double, optional, tag = "1")]
    pub value: Option<f64>,
    #[prost(message, optional, tag = "3")]
    pub created: Option<Timestamp>,
}

#[derive(Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Message)]
pub struct SummaryMessage {
    #[prost(uint64, optional, tag = "1")]
    pub count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub quantiles: Vec<QuantileMessage>,
    #[prost(message, optional, tag = "4")]
    pub created: Option<Timestamp>,
}

#[derive(Message)]
pub struct QuantileMessage {
    #[prost(double, optional, tag = "1")]
    pub quantile: Option<f64>,
    #[prost(double, optional, tag = "2")]
    pub value: Option<f64>,
}

#[derive(Message)]
pub struct HistogramMessage {
    #[prost(uint64, optional, tag = "1")]
    pub count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub buckets: Vec<BucketMessage>,
    #[prost(sint32, optional, tag = "5")]
    pub schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub zero_count: Option<u64>,
    #[prost(message, repeated, tag = "9")]
    pub negative_spans: Vec<SpanMessage>,
    #[prost(sint64, repeated, packed = "false", tag = "10")]
    pub negative_deltas: Vec<i64>,
    #[prost(message, repeated, tag = "12")]
    pub positive_spans: Vec<SpanMessage>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub positive_deltas: Vec<i64>,
    #[prost(message, optional, tag = "15")]
    pub created: Option<Timestamp>,
}

#[derive(Message)]
pub struct BucketMessage {
    #[prost(uint64, optional, tag = "1")]
    pub cumulative: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub bound: Option<f64>,
}

#[derive(Message)]
pub struct SpanMessage {
    #[prost(sint32, optional, tag = "1")]
    pub offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub length: Option<u32>,
}
