//! Text 0.0.4 and OpenMetrics text.

use super::{Reading, Writer, names};
use crate::exposition::{Format, escape, float};
use crate::statsd::family::{Family, Kind};
use crate::statsd::metrics::SelfFamily;
use crate::statsd::registry::View;

/// Writes either text format.
pub(super) struct TextWriter {
    format: Format,
    /// The present family cannot appear in this format.
    hidden: bool,
    /// The help text written last, by its number and escaped: most families have the same.
    help: Option<(u32, Vec<u8>)>,
}

impl TextWriter {
    pub(super) fn new(format: Format) -> Self {
        Self { format, hidden: false, help: None }
    }

    fn escaped(&self, help: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(help.len());
        match self.format {
            Format::Text => escape::help(&mut out, help),
            // OpenMetrics escapes quotes in help texts as in label values.
            Format::OpenMetrics => escape::label_value(&mut out, help),
        }
        out
    }

    /// Appends the text of a `le` or `quantile`; OpenMetrics wants whole numbers with a point.
    fn bound(&self, out: &mut Vec<u8>, text: &[u8]) {
        out.extend_from_slice(text);
        let is_whole = || text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
        if self.format == Format::OpenMetrics && is_whole() {
            out.extend_from_slice(b".0");
        }
    }

    /// Whether a sum may be written: OpenMetrics allows neither NaN nor negative ones.
    fn shows_sum(&self, sum: f64) -> bool {
        self.format == Format::Text || sum >= 0.0
    }
}

/// The head of a family; `help` is escaped.
fn announce(out: &mut Vec<u8>, name: &str, kind: &str, help: &[u8]) {
    out.extend_from_slice(b"# HELP ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(help);
    out.extend_from_slice(b"\n# TYPE ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
    out.extend_from_slice(kind.as_bytes());
    out.push(b'\n');
}

/// `name{labels`, with `more` as an additional last label still to be closed by the caller.
#[inline]
fn begin(out: &mut Vec<u8>, name: &str, suffix: &str, labels: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(suffix.as_bytes());
    if !labels.is_empty() {
        out.push(b'{');
        out.extend_from_slice(labels);
    }
}

#[inline]
fn close(out: &mut Vec<u8>, labels: &[u8]) {
    out.extend_from_slice(if labels.is_empty() { b" " } else { b"} " });
}

fn last_label(out: &mut Vec<u8>, labels: &[u8], name: &str) {
    out.push(if labels.is_empty() { b'{' } else { b',' });
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
}

fn sample(out: &mut Vec<u8>, name: &str, suffix: &str, labels: &[u8], value: f64) {
    begin(out, name, suffix, labels);
    close(out, labels);
    float::write(out, value);
    out.push(b'\n');
}

impl Writer for TextWriter {
    fn family(&mut self, view: &View, family: &Family, out: &mut Vec<u8>) {
        let (name, kind) = match self.format {
            Format::Text => (&*family.name, kind_word(family.kind)),
            Format::OpenMetrics => match names::of_family(&view.pages, family) {
                Some(name) => (name.family, name.kind),
                None => {
                    self.hidden = true;
                    return;
                }
            },
        };
        self.hidden = false;
        match &self.help {
            Some((number, help)) if *number == family.help => announce(out, name, kind, help),
            _ => {
                let help = view.helps.get(family.help as usize).map_or("", |help| help);
                let help = self.escaped(help);
                announce(out, name, kind, &help);
                self.help = Some((family.help, help));
            }
        }
    }

    #[inline]
    fn scalar(
        &mut self,
        family: &Family,
        labels: &[u8],
        value: f64,
        _created: u32,
        out: &mut Vec<u8>,
    ) {
        if !self.hidden {
            sample(out, &family.name, "", labels, value);
        }
    }

    fn observer(
        &mut self,
        family: &Family,
        labels: &[u8],
        reading: &Reading,
        (quantiles, counts): (&[f64], &[u64]),
        _created: u32,
        out: &mut Vec<u8>,
    ) {
        if self.hidden {
            return;
        }
        let name = &*family.name;
        let (count, sum) = match reading {
            Reading::Value(value) => return sample(out, name, "", labels, *value),
            Reading::Summary { spec, count, sum } => {
                for ((_, label), value) in spec.quantiles().zip(quantiles) {
                    begin(out, name, "", labels);
                    last_label(out, labels, "quantile");
                    self.bound(out, label);
                    out.extend_from_slice(b"\"} ");
                    float::write(out, *value);
                    out.push(b'\n');
                }
                (*count, *sum)
            }
            Reading::Histogram { spec, count, sum, .. } => {
                let bounds = spec.bounds().zip(counts);
                let last: (&[u8], u64) = (b"+Inf", *count);
                for (label, number) in
                    bounds.map(|((_, label), &number)| (label, number)).chain([last])
                {
                    begin(out, name, "_bucket", labels);
                    last_label(out, labels, "le");
                    self.bound(out, label);
                    out.extend_from_slice(b"\"} ");
                    float::write(out, number as f64);
                    out.push(b'\n');
                }
                (*count, *sum)
            }
        };
        if self.shows_sum(sum) {
            sample(out, name, "_sum", labels, sum);
        }
        sample(out, name, "_count", labels, count as f64);
    }

    fn own(&mut self, view: &View, family: &SelfFamily, out: &mut Vec<u8>) {
        let (name, kind) = match self.format {
            Format::Text => (family.name, kind_word(family.kind)),
            Format::OpenMetrics => {
                let name = names::of_own(&view.pages, family);
                (name.family, name.kind)
            }
        };
        announce(out, name, kind, &self.escaped(family.help));
        for (labels, value) in &family.samples {
            sample(out, family.name, "", labels, *value);
        }
    }

    fn end(&mut self, _out: &mut Vec<u8>) {}
}

const fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::Gauge | Kind::Set => "gauge",
        Kind::Summary => "summary",
        Kind::Histogram => "histogram",
    }
}
