//! Buffers the values of one family between the pass that measures and the pass that writes.
//!
//! A message begins with its length, which depends on the values, so they must not change between measuring
//! and writing. The encoding is compact: a few bytes for a counter with an integral value, nine bytes for any
//! other value, about one byte per bucket of a histogram. Chunks are freed as they are read.

use std::collections::VecDeque;
use std::sync::Arc;

use super::writer::{Distribution, ObserverSample, Reading, ScalarSample};
use crate::exposition::protobuf::{read_varint, unzigzag, varint, zigzag};
use crate::exposition::typed::{NativeBucket, NativeHistogram};
use crate::statsd::series::observer::{HistogramSpec, SummarySpec};

/// The size in bytes after which a chunk is full.
const CHUNK: usize = 32 * 1024;

/// The types of a record.
mod tag {
    pub(super) const ABSENT: u8 = 0;
    pub(super) const WHOLE: u8 = 1;
    pub(super) const NUMBER: u8 = 2;
    pub(super) const SUMMARY: u8 = 3;
    pub(super) const HISTOGRAM: u8 = 4;
    pub(super) const NATIVE_HISTOGRAM: u8 = 5;
}

/// A queue of encoded values.
#[derive(Debug, Default)]
pub(super) struct ValueBuffer {
    /// The chunk being written, until it is the one being read.
    last: Vec<u8>,
    full: VecDeque<Vec<u8>>,
    /// The chunk being read from `position` on.
    first: Vec<u8>,
    position: usize,
    /// Ticks are stored as differences.
    written_tick: u32,
    read_tick: u32,
    /// The specs of the buffered series, run-length encoded.
    summary_specs: Specs<SummarySpec>,
    histogram_specs: Specs<HistogramSpec>,
}

/// Specs in order, run-length encoded.
#[derive(Debug)]
struct Specs<T>(VecDeque<(Arc<T>, u32)>);

impl<T> Default for Specs<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Specs<T> {
    fn keep(&mut self, spec: &Arc<T>) {
        match self.0.back_mut() {
            Some((last, run)) if Arc::ptr_eq(last, spec) && *run < u32::MAX => *run += 1,
            _ => self.0.push_back((Arc::clone(spec), 1)),
        }
    }

    fn next(&mut self) -> Option<Arc<T>> {
        let (spec, run) = self.0.front_mut()?;
        *run -= 1;
        let spec = Arc::clone(spec);
        if *run == 0 {
            self.0.pop_front();
        }
        Some(spec)
    }
}

impl ValueBuffer {
    /// Removes all values.
    pub(super) fn clear(&mut self) {
        // Reuses the buffer of a small family for the next one.
        let spare = if self.last.capacity() > 0 { &mut self.last } else { &mut self.first };
        let mut last = std::mem::take(spare);
        last.clear();
        *self = Self { last, ..Self::default() };
    }

    fn begin(&mut self) -> &mut Vec<u8> {
        if self.last.len() >= CHUNK {
            let next = Vec::with_capacity(self.last.capacity());
            self.full.push_back(std::mem::replace(&mut self.last, next));
        }
        &mut self.last
    }

    fn push_tick(&mut self, tick: u32) {
        let step = i64::from(tick) - i64::from(self.written_tick);
        varint(&mut self.last, zigzag(step));
        self.written_tick = tick;
    }

    /// Appends a counter or gauge; `None` if it has expired.
    pub(super) fn push_scalar(&mut self, read: Option<ScalarSample>) {
        let out = self.begin();
        let Some(ScalarSample { value, created }) = read else {
            return out.push(tag::ABSENT);
        };
        put_value(out, value);
        self.push_tick(created);
    }

    /// Appends any other series; `None` if it has expired.
    pub(super) fn push_observer(
        &mut self,
        read: Option<&ObserverSample>,
        distribution: &Distribution,
    ) {
        let out = self.begin();
        let Some(ObserverSample { reading, created }) = read else {
            return out.push(tag::ABSENT);
        };
        match reading {
            Reading::Value(value) => put_value(out, *value),
            Reading::Summary { spec, count, sum } => {
                out.push(tag::SUMMARY);
                varint(out, *count);
                put_double(out, *sum);
                for value in &distribution.quantiles {
                    put_double(out, *value);
                }
                self.summary_specs.keep(spec);
            }
            Reading::Histogram { spec, count, sum, native } => {
                let kind = native.as_ref().map_or(tag::HISTOGRAM, |_| tag::NATIVE_HISTOGRAM);
                out.push(kind);
                varint(out, *count);
                put_double(out, *sum);
                let mut before = 0;
                for &cumulative in &distribution.counts {
                    varint(out, cumulative - before);
                    before = cumulative;
                }
                if let Some(native) = native {
                    put_native(out, native);
                }
                self.histogram_specs.keep(spec);
            }
        }
        self.push_tick(*created);
    }

    /// Returns the bytes from the next record on.
    fn rest(&mut self) -> &[u8] {
        if self.position >= self.first.len() {
            self.first = match self.full.pop_front() {
                Some(chunk) => chunk,
                None => std::mem::take(&mut self.last),
            };
            self.position = 0;
        }
        self.first.get(self.position..).unwrap_or_default()
    }

    /// Decodes with `read`, which returns the value and the bytes after it.
    fn take<T>(&mut self, read: impl FnOnce(&[u8]) -> Option<(T, &[u8])>) -> Option<T> {
        let rest = self.rest();
        let length = rest.len();
        let (found, after) = read(rest)?;
        let used = length - after.len();
        self.position += used;
        Some(found)
    }

    fn tick(&mut self) -> Option<u32> {
        let step = unzigzag(self.take(read_varint)?);
        self.read_tick = u32::try_from(i64::from(self.read_tick) + step).ok()?;
        Some(self.read_tick)
    }

    fn tag(&mut self) -> Option<u8> {
        self.take(|rest| rest.split_first().map(|(tag, rest)| (*tag, rest)))
    }

    fn double(&mut self) -> Option<f64> {
        self.take(get_double)
    }

    fn value(&mut self, tag: u8) -> Option<f64> {
        match tag {
            tag::WHOLE => self.take(read_varint).map(|value| value as f64),
            tag::NUMBER => self.double(),
            _ => None,
        }
    }

    /// Reads the next counter or gauge with its tick of creation; `None` if it had expired.
    pub(super) fn pop_scalar(&mut self) -> Option<ScalarSample> {
        let tag = self.tag()?;
        let value = self.value(tag)?;
        Some(ScalarSample { value, created: self.tick()? })
    }

    /// Reads the next other series; `None` if it had expired.
    pub(super) fn pop_observer(
        &mut self,
        distribution: &mut Distribution,
    ) -> Option<ObserverSample> {
        distribution.quantiles.clear();
        distribution.counts.clear();
        let tag = self.tag()?;
        let reading = match tag {
            tag::SUMMARY => {
                let (count, sum) = (self.take(read_varint)?, self.double()?);
                let spec = self.summary_specs.next()?;
                for _ in spec.quantiles() {
                    distribution.quantiles.push(self.double()?);
                }
                Reading::Summary { spec, count, sum }
            }
            tag::HISTOGRAM | tag::NATIVE_HISTOGRAM => {
                let (count, sum) = (self.take(read_varint)?, self.double()?);
                let spec = self.histogram_specs.next()?;
                let mut cumulative = 0u64;
                for _ in spec.bounds() {
                    cumulative = cumulative.saturating_add(self.take(read_varint)?);
                    distribution.counts.push(cumulative);
                }
                let native = match tag {
                    tag::NATIVE_HISTOGRAM => Some(self.take(get_native)?),
                    _ => None,
                };
                Reading::Histogram { spec, count, sum, native }
            }
            tag => Reading::Value(self.value(tag)?),
        };
        Some(ObserverSample { reading, created: self.tick()? })
    }
}

fn put_value(out: &mut Vec<u8>, value: f64) {
    let whole = value as u64;
    if whole < 1 << 53 && (whole as f64).to_bits() == value.to_bits() {
        out.push(tag::WHOLE);
        varint(out, whole);
    } else {
        out.push(tag::NUMBER);
        put_double(out, value);
    }
}

fn put_double(out: &mut Vec<u8>, value: f64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn get_double(rest: &[u8]) -> Option<(f64, &[u8])> {
    let (bytes, rest) = rest.split_first_chunk()?;
    Some((f64::from_le_bytes(*bytes), rest))
}

fn put_native(out: &mut Vec<u8>, native: &NativeHistogram) {
    varint(out, zigzag(i64::from(native.schema)));
    varint(out, native.zero);
    for buckets in [&native.positive, &native.negative] {
        varint(out, buckets.len() as u64);
        let mut before = 0;
        for &NativeBucket { index, count } in buckets {
            varint(out, zigzag(i64::from(index) - before));
            varint(out, count);
            before = i64::from(index);
        }
    }
}

fn get_native(rest: &[u8]) -> Option<(NativeHistogram, &[u8])> {
    let (schema, rest) = read_varint(rest)?;
    let (zero, mut rest) = read_varint(rest)?;
    let mut sides = [Vec::new(), Vec::new()];
    for buckets in &mut sides {
        let (length, mut after) = read_varint(rest)?;
        let mut before = 0i64;
        for _ in 0..length {
            let (step, next) = read_varint(after)?;
            let (count, next) = read_varint(next)?;
            before += unzigzag(step);
            let index = i32::try_from(before).ok()?;
            buckets.push(NativeBucket { index, count });
            after = next;
        }
        rest = after;
    }
    let [positive, negative] = sides;
    let schema = i32::try_from(unzigzag(schema)).ok()?;
    Some((NativeHistogram { schema, zero, positive, negative }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapper::SummaryOptions;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Record {
        Absent,
        Scalar(f64, u32),
        Summary(u64, f64, u32),
        Histogram(Vec<u32>, f64, u32, Option<NativeHistogram>),
    }

    fn native() -> impl Strategy<Value = NativeHistogram> {
        let side = || prop::collection::btree_map(any::<i32>(), any::<u64>(), 0..200);
        (-4..=8i32, any::<u64>(), side(), side()).prop_map(|(schema, zero, positive, negative)| {
            let [positive, negative] = [positive, negative].map(|side| {
                side.into_iter().map(|(index, count)| NativeBucket { index, count }).collect()
            });
            NativeHistogram { schema, zero, positive, negative }
        })
    }

    fn record() -> impl Strategy<Value = Record> {
        let value = || prop_oneof![any::<f64>(), (0..1u64 << 54).prop_map(|value| value as f64)];
        prop_oneof![
            Just(Record::Absent),
            (value(), any::<u32>()).prop_map(|(value, tick)| Record::Scalar(value, tick)),
            (any::<u64>(), value(), any::<u32>())
                .prop_map(|(count, sum, tick)| Record::Summary(count, sum, tick)),
            (
                prop::collection::vec(any::<u32>(), 3),
                value(),
                any::<u32>(),
                prop::option::of(native())
            )
                .prop_map(|(counts, sum, tick, native)| Record::Histogram(
                    counts, sum, tick, native
                )),
        ]
    }

    fn cumulative(counts: &[u32]) -> Vec<u64> {
        let mut sum = 0;
        counts
            .iter()
            .map(|&count| {
                sum += u64::from(count);
                sum
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn values_round_trip(all in prop::collection::vec(record(), 0..400)) {
            let summary = Arc::new(SummarySpec::new(&SummaryOptions::default()));
            let histogram = Arc::new(HistogramSpec::new(&[1.0, 2.0, 3.0], 0.0, 0));
            let quantiles: Vec<f64> = summary.quantiles().map(|(quantile, _)| -quantile).collect();
            let mut buffer = ValueBuffer::default();
            for round in 0..2 {
                for record in &all {
                    match record.clone() {
                        Record::Absent => buffer.push_scalar(None),
                        Record::Scalar(value, created) => {
                            buffer.push_scalar(Some(ScalarSample { value, created }));
                        }
                        Record::Summary(count, sum, tick) => {
                            let reading = Reading::Summary { spec: Arc::clone(&summary), count, sum };
                            let distribution = Distribution { quantiles: quantiles.clone(), counts: Vec::new() };
                            buffer.push_observer(Some(&ObserverSample { reading, created: tick }), &distribution);
                        }
                        Record::Histogram(counts, sum, tick, native) => {
                            let spec = Arc::clone(&histogram);
                            let reading = Reading::Histogram { spec, count: 7, sum, native };
                            let distribution = Distribution { quantiles: Vec::new(), counts: cumulative(&counts) };
                            buffer.push_observer(Some(&ObserverSample { reading, created: tick }), &distribution);
                        }
                    }
                }
                for record in &all {
                    let mut distribution = Distribution::default();
                    match record {
                        Record::Absent => prop_assert!(buffer.pop_scalar().is_none()),
                        Record::Scalar(value, tick) => {
                            let ScalarSample { value: back, created: back_tick } = buffer.pop_scalar().expect("a scalar");
                            prop_assert_eq!((back.to_bits(), back_tick), (value.to_bits(), *tick));
                        }
                        Record::Summary(count, sum, tick) => {
                            let Some(ObserverSample { reading: Reading::Summary { count: back, sum: back_sum, .. }, created: back_tick }) =
                                buffer.pop_observer(&mut distribution)
                            else {
                                return Err(TestCaseError::fail("no summary"));
                            };
                            prop_assert_eq!((back, back_sum.to_bits(), back_tick), (*count, sum.to_bits(), *tick));
                            prop_assert_eq!(&distribution.quantiles, &quantiles);
                        }
                        Record::Histogram(counts, sum, tick, native) => {
                            let Some(ObserverSample { reading: Reading::Histogram { sum: back, native: back_native, .. }, created: back_tick }) =
                                buffer.pop_observer(&mut distribution)
                            else {
                                return Err(TestCaseError::fail("no histogram"));
                            };
                            prop_assert_eq!((back.to_bits(), back_tick), (sum.to_bits(), *tick));
                            prop_assert_eq!(&back_native, native);
                            prop_assert_eq!(&distribution.counts, &cumulative(counts));
                        }
                    }
                }
                prop_assert!(buffer.pop_scalar().is_none(), "round {}", round);
                buffer.clear();
            }
        }
    }
}
