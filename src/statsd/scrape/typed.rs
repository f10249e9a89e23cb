//! Passes families and series to the encoder of a format that is not text.

use super::writer::{Distribution, Reading, ScalarSample, Series, Writer};
use crate::exposition::family::{Family as OwnFamily, Series as OwnSeries};
use crate::exposition::typed::{
    FamilyEncoder, FamilyHead, Quantile, Sample, SampleValue, TypedBody,
};
use crate::statsd::clock::Epoch;
use crate::statsd::scrape::Scrape;
use crate::statsd::series::family::Family;
use crate::statsd::series::registry::View;

/// Writes to an encoder. If that needs several passes, later ones use the values of the first.
struct TypedWriter<'a> {
    encoder: &'a mut dyn FamilyEncoder,
    epoch: Epoch,
}

impl TypedBody for Scrape {
    fn step(&mut self, encoder: &mut dyn FamilyEncoder, out: &mut Vec<u8>) -> bool {
        let epoch = self.epoch;
        self.piece(&mut TypedWriter { encoder, epoch }, out)
    }
}

impl TypedWriter<'_> {
    fn sample(&mut self, labels: &[u8], value: SampleValue<'_>, created: u32, out: &mut Vec<u8>) {
        let created = (created > 0).then(|| self.epoch.wall(created));
        self.encoder.sample(&Sample { labels: [labels, b""], value, created }, out);
    }
}

impl Writer for TypedWriter<'_> {
    const REUSES_VALUES: bool = true;

    fn passes(&mut self, _view: &View, _near: usize, _family: &Family) -> u8 {
        self.encoder.passes()
    }

    fn begin(&mut self, view: &View, family: &Family, pass: u8) {
        let help = view.helps.get(family.help as usize).map_or("", |help| help);
        let head = FamilyHead { name: &family.name, help, kind: family.kind.exposed_kind() };
        self.encoder.begin(&head, pass);
    }

    fn scalar(&mut self, _: &Family, labels: &[u8], read: ScalarSample, out: &mut Vec<u8>) {
        self.sample(labels, SampleValue::Number(read.value), read.created, out);
    }

    fn observer(&mut self, _family: &Family, series: &Series<'_>, out: &mut Vec<u8>) {
        let &Series { labels, reading, distribution: Distribution { quantiles, counts }, created } =
            series;
        match reading {
            Reading::Value(value) => self.sample(labels, SampleValue::Number(*value), 0, out),
            Reading::Summary { spec, count, sum } => {
                let both = spec.quantiles().zip(quantiles);
                let quantiles: Vec<Quantile> =
                    both.map(|((quantile, _), &value)| Quantile { quantile, value }).collect();
                let (count, sum, quantiles) = (*count, *sum, &*quantiles);
                self.sample(labels, SampleValue::Summary { count, sum, quantiles }, created, out);
            }
            Reading::Histogram { spec, count, sum, native } => {
                let (count, sum, native) = (*count, *sum, native.as_ref());
                let bounds = spec.upper_bounds();
                let value = SampleValue::Histogram { count, sum, bounds, counts, native };
                self.sample(labels, value, created, out);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.encoder.end(out);
    }

    fn own_passes(&self) -> u8 {
        self.encoder.passes()
    }

    fn begin_own(&mut self, _view: &View, family: &OwnFamily, pass: u8, _out: &mut Vec<u8>) {
        self.encoder.begin(&family.head(), pass);
    }

    fn own(&mut self, _family: &OwnFamily, series: &OwnSeries, out: &mut Vec<u8>) {
        series.encode(None, self.encoder, out);
    }
}
