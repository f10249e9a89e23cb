//! Length-delimited `io.prometheus.client.MetricFamily` messages.
//!
//! Source: `io/prometheus/client/metrics.proto` of Prometheus' client model (proto2: repeated numbers are not packed).
//! A message begins with its length. Counters and gauges have a length that does not depend on their values, so a large
//! family is measured first and then streamed; the observers of one family are gathered before they are sent.

use super::{Reading, Writer};
use crate::statsd::clock::Clock;
use crate::statsd::family::{Family, Kind};
use crate::statsd::labels;
use crate::statsd::metrics::SelfFamily;
use crate::statsd::observer::{NativeView, ZERO_THRESHOLD};
use crate::statsd::registry::View;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

/// Writes protobuf messages.
pub(super) struct ProtobufWriter {
    clock: Clock,
    /// Length of the counters or gauges planned for the next family.
    planned: usize,
    /// Metrics of the present family, if it is one of observers.
    body: Vec<u8>,
    /// Fields of the present family that come before its metrics.
    head: Vec<u8>,
    metric: Vec<u8>,
    inner: Vec<u8>,
}

impl ProtobufWriter {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            planned: 0,
            body: Vec::new(),
            head: Vec::new(),
            metric: Vec::new(),
            inner: Vec::new(),
        }
    }

    fn begin(&mut self, name: &str, help: &str, kind: Kind) {
        self.head.clear();
        bytes(&mut self.head, 1, name.as_bytes());
        bytes(&mut self.head, 2, help.as_bytes());
        let number = match kind {
            Kind::Counter => 0,
            Kind::Gauge | Kind::Set => 1,
            Kind::Summary => 2,
            Kind::Histogram => 4,
        };
        unsigned(&mut self.head, 3, number);
    }

    /// Encodes one metric, whose value field `number` is in `inner`, into `metric`.
    fn wrap(&mut self, labels: &[u8], number: u64) {
        self.metric.clear();
        let mut pair = Vec::new();
        for (name, value) in labels::iter(labels) {
            pair.clear();
            bytes(&mut pair, 1, name);
            bytes(&mut pair, 2, &labels::plain(value));
            bytes(&mut self.metric, 1, &pair);
        }
        bytes(&mut self.metric, number, &self.inner);
    }

    fn encode_scalar(&mut self, kind: Kind, labels: &[u8], value: f64, created: u32) {
        self.inner.clear();
        double(&mut self.inner, 1, value);
        match kind {
            Kind::Counter => {
                if created > 0 {
                    timestamp(&mut self.inner, 3, &self.clock, created);
                }
                self.wrap(labels, 3);
            }
            _ => self.wrap(labels, 2),
        }
    }
}

impl Writer for ProtobufWriter {
    const PLANS: bool = true;

    fn plan(&mut self, family: &Family, labels: &[u8], value: f64, created: u32) {
        self.encode_scalar(family.kind, labels, value, created);
        self.planned += field_length(4, self.metric.len());
    }

    fn family(&mut self, view: &View, family: &Family, out: &mut Vec<u8>) {
        let help = view.helps.get(family.help as usize).map_or("", |help| help);
        self.begin(&family.name, help, family.kind);
        let planned = std::mem::take(&mut self.planned);
        if matches!(family.kind, Kind::Counter | Kind::Gauge) {
            varint(out, (self.head.len() + planned) as u64);
            out.append(&mut self.head);
        }
    }

    fn scalar(
        &mut self,
        family: &Family,
        labels: &[u8],
        value: f64,
        created: u32,
        out: &mut Vec<u8>,
    ) {
        self.encode_scalar(family.kind, labels, value, created);
        bytes(out, 4, &self.metric);
    }

    fn observer(
        &mut self,
        _family: &Family,
        labels: &[u8],
        reading: &Reading,
        (quantiles, counts): (&[f64], &[u64]),
        created: u32,
        _out: &mut Vec<u8>,
    ) {
        self.inner.clear();
        let number = match reading {
            Reading::Value(value) => {
                double(&mut self.inner, 1, *value);
                2
            }
            Reading::Summary { spec, count, sum } => {
                unsigned(&mut self.inner, 1, *count);
                double(&mut self.inner, 2, *sum);
                for ((quantile, _), value) in spec.quantiles().zip(quantiles) {
                    self.metric.clear();
                    double(&mut self.metric, 1, quantile);
                    double(&mut self.metric, 2, *value);
                    bytes(&mut self.inner, 3, &self.metric);
                }
                timestamp(&mut self.inner, 4, &self.clock, created);
                4
            }
            Reading::Histogram { spec, count, sum, native } => {
                unsigned(&mut self.inner, 1, *count);
                double(&mut self.inner, 2, *sum);
                for ((bound, _), cumulative) in spec.bounds().zip(counts) {
                    self.metric.clear();
                    unsigned(&mut self.metric, 1, *cumulative);
                    double(&mut self.metric, 2, bound);
                    bytes(&mut self.inner, 3, &self.metric);
                }
                if let Some(native) = native {
                    encode_native(&mut self.inner, native);
                }
                timestamp(&mut self.inner, 15, &self.clock, created);
                7
            }
        };
        self.wrap(labels, number);
        bytes(&mut self.body, 4, &self.metric);
    }

    fn own(&mut self, _view: &View, family: &SelfFamily, _out: &mut Vec<u8>) {
        self.begin(family.name, family.help, family.kind);
        for (labels, value) in &family.samples {
            self.encode_scalar(family.kind, labels, *value, 0);
            bytes(&mut self.body, 4, &self.metric);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        // Counters and gauges have been written already and left nothing here.
        if !self.head.is_empty() {
            varint(out, (self.head.len() + self.body.len()) as u64);
            out.append(&mut self.head);
            out.append(&mut self.body);
        }
    }
}

fn encode_native(out: &mut Vec<u8>, native: &NativeView) {
    signed(out, 5, i64::from(native.schema));
    double(out, 6, ZERO_THRESHOLD);
    unsigned(out, 7, native.zero);
    encode_buckets(out, 9, &native.negative);
    encode_buckets(out, 12, &native.positive);
}

/// Gaps of up to this many empty buckets are written as zeros, which is shorter than another span.
const FILLED_GAP: i32 = 2;

/// Spans as field `number`, deltas as the next one.
fn encode_buckets(out: &mut Vec<u8>, number: u64, buckets: &[(i32, u64)]) {
    let mut spans: Vec<(i32, u32)> = Vec::new();
    let mut deltas: Vec<i64> = Vec::with_capacity(buckets.len());
    let mut previous = 0i64;
    let mut next = 0i32;
    for &(index, count) in buckets {
        let gap = index - next;
        match spans.last_mut() {
            Some(span) if gap <= FILLED_GAP => {
                for _ in 0..gap {
                    deltas.push(-previous);
                    previous = 0;
                }
                span.1 += gap as u32 + 1;
            }
            _ => spans.push((gap, 1)),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        deltas.push(count - previous);
        previous = count;
        next = index + 1;
    }
    let mut span = Vec::new();
    for (offset, length) in spans {
        span.clear();
        signed(&mut span, 1, i64::from(offset));
        unsigned(&mut span, 2, u64::from(length));
        bytes(out, number, &span);
    }
    for delta in deltas {
        signed(out, number + 1, delta);
    }
}

fn timestamp(out: &mut Vec<u8>, number: u64, clock: &Clock, tick: u32) {
    let time = clock.wall(tick);
    let mut message = Vec::with_capacity(16);
    unsigned(&mut message, 1, time.as_secs());
    unsigned(&mut message, 2, u64::from(time.subsec_nanos()));
    bytes(out, number, &message);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Bytes that field `number` takes with content of `length`.
fn field_length(number: u64, length: usize) -> usize {
    varint_length(number << 3) + varint_length(length as u64) + length
}

fn unsigned(out: &mut Vec<u8>, number: u64, value: u64) {
    varint(out, number << 3 | VARINT);
    varint(out, value);
}

fn signed(out: &mut Vec<u8>, number: u64, value: i64) {
    unsigned(out, number, ((value << 1) ^ (value >> 63)) as u64);
}

fn double(out: &mut Vec<u8>, number: u64, value: f64) {
    varint(out, number << 3 | FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, number: u64, content: &[u8]) {
    varint(out, number << 3 | BYTES);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_are_as_long_as_measured() {
        for value in
            (0..64).map(|shift| 1u64 << shift).flat_map(|power| [power - 1, power, power + 1])
        {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(out.len(), varint_length(value), "{value}");
        }
    }

    #[test]
    fn small_gaps_are_filled_and_large_ones_start_a_span() {
        let mut out = Vec::new();
        encode_buckets(&mut out, 12, &[(-3, 2), (-1, 5), (0, 5), (4, 1)]);
        let mut want = Vec::new();
        for (offset, length) in [(-3, 4), (3, 1)] {
            let mut span = Vec::new();
            signed(&mut span, 1, offset);
            unsigned(&mut span, 2, length);
            bytes(&mut want, 12, &span);
        }
        for delta in [2, -2, 5, 0, -4] {
            signed(&mut want, 13, delta);
        }
        assert_eq!(out, want);
    }
}
