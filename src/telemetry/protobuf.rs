//! Text 0.0.4 turned into length-delimited `io.prometheus.client.MetricFamily` messages.
//!
//! Own metrics exist as text; a scraper that prefers protobuf gets the same families in it. Only the
//! text that this program writes itself passes here, so nothing is said about lines of another form:
//! they are left out.

use std::collections::BTreeMap;

use crate::exposition::protobuf::varint;

/// Field numbers of the messages, from the published schema of the Prometheus client model.
mod tag {
    pub(super) const NAME: u64 = 1;
    pub(super) const HELP: u64 = 2;
    pub(super) const TYPE: u64 = 3;
    pub(super) const METRIC: u64 = 4;
    pub(super) const LABEL: u64 = 1;
    pub(super) const GAUGE: u64 = 2;
    pub(super) const COUNTER: u64 = 3;
    pub(super) const UNTYPED: u64 = 5;
    pub(super) const HISTOGRAM: u64 = 7;
}

#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: String,
    kind: &'a str,
    samples: Vec<Sample<'a>>,
}

struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

/// Converts a whole body.
pub(super) fn from_text(body: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut family = Family::default();
    let mut finish = |family: Family<'_>| {
        if !family.samples.is_empty() {
            let message = encode(&family);
            varint(&mut out, message.len() as u64);
            out.extend(message);
        }
    };
    let mut help = None;
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let text = help.take().filter(|(of, _)| *of == name).map_or("", |(_, text)| text);
            let next = Family { name, help: unescape(text), kind, samples: Vec::new() };
            finish(std::mem::replace(&mut family, next));
        } else {
            family.samples.extend(sample(line));
        }
    }
    finish(family);
    out
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = match rest.trim() {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        text => text.parse().ok()?,
    };
    Some(Sample { name, labels, value })
}

type Labels<'a> = Vec<(&'a str, String)>;

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        labels.push((name, unescape(&after[..end])));
        rest = after[end + 1..].trim_start_matches(',');
    }
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => plain.push('\\'),
            },
            (c, false) => plain.push(c),
        }
    }
    plain
}

fn encode(family: &Family<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let kind = match family.kind {
        "counter" => 0,
        "gauge" => 1,
        "histogram" => 4,
        _ => 3,
    };
    bytes(tag::NAME, family.name.as_bytes(), &mut out);
    bytes(tag::HELP, family.help.as_bytes(), &mut out);
    number(tag::TYPE, kind, &mut out);
    if family.kind == "histogram" {
        for metric in histograms(family) {
            bytes(tag::METRIC, &metric, &mut out);
        }
        return out;
    }
    let field = match kind {
        0 => tag::COUNTER,
        1 => tag::GAUGE,
        _ => tag::UNTYPED,
    };
    for sample in &family.samples {
        let mut value = Vec::new();
        double(1, sample.value, &mut value);
        let mut metric = encode_labels(&sample.labels);
        bytes(field, &value, &mut metric);
        bytes(tag::METRIC, &metric, &mut out);
    }
    out
}

fn encode_labels(labels: &[(&str, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        bytes(1, name.as_bytes(), &mut label);
        bytes(2, value.as_bytes(), &mut label);
        bytes(tag::LABEL, &label, &mut out);
    }
    out
}

/// Buckets, sum and count of one label set are one metric.
fn histograms(family: &Family<'_>) -> Vec<Vec<u8>> {
    #[derive(Default)]
    struct Parts {
        count: u64,
        sum: f64,
        buckets: Vec<u8>,
    }
    let mut metrics: BTreeMap<Vec<u8>, Parts> = BTreeMap::new();
    for sample in &family.samples {
        let is_bound = |(name, _): &&(&str, String)| *name == "le";
        let bound = sample.labels.iter().find(is_bound).map(|(_, text)| text.as_str());
        let others: Vec<_> =
            sample.labels.iter().filter(|label| !is_bound(label)).cloned().collect();
        let parts = metrics.entry(encode_labels(&others)).or_default();
        match sample.name.strip_prefix(family.name) {
            Some("_sum") => parts.sum = sample.value,
            Some("_count") => parts.count = sample.value as u64,
            Some("_bucket") => {
                let bound = match bound {
                    Some("+Inf") | None => f64::INFINITY,
                    Some(text) => text.parse().unwrap_or(f64::NAN),
                };
                let mut bucket = Vec::new();
                number(1, sample.value as u64, &mut bucket);
                double(2, bound, &mut bucket);
                bytes(3, &bucket, &mut parts.buckets);
            }
            _ => {}
        }
    }
    let encode = |(labels, parts): (Vec<u8>, Parts)| {
        let mut histogram = Vec::new();
        number(1, parts.count, &mut histogram);
        double(2, parts.sum, &mut histogram);
        histogram.extend(parts.buckets);
        let mut metric = labels;
        bytes(tag::HISTOGRAM, &histogram, &mut metric);
        metric
    };
    metrics.into_iter().map(encode).collect()
}

fn number(field: u64, value: u64, out: &mut Vec<u8>) {
    varint(out, field << 3);
    varint(out, value);
}

fn double(field: u64, value: f64, out: &mut Vec<u8>) {
    varint(out, (field << 3) | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(field: u64, value: &[u8], out: &mut Vec<u8>) {
    varint(out, (field << 3) | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::prototext::{Layout, Texts};

    #[test]
    fn every_kind_of_family() {
        let body = "# HELP a_total Counts \\\\ and \\n.\n# TYPE a_total counter\n\
                    a_total{x=\"}\\\"\",y=\"\"} 3\n# HELP b B.\n# TYPE b gauge\nb -1.5\n\
                    # HELP h H.\n# TYPE h histogram\nh_sum{k=\"1\"} 2.5\nh_count{k=\"1\"} 2\n\
                    h_bucket{le=\"1.0\",k=\"1\"} 1\nh_bucket{le=\"+Inf\",k=\"1\"} 2\n\
                    # HELP empty E.\n# TYPE empty gauge\n";
        let text: Vec<u8> = Texts::new(std::iter::once(from_text(body).into()), Layout::Compact)
            .flatten()
            .collect();
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(
            text,
            "name:\"a_total\" help:\"Counts \\\\ and \\n.\" type:COUNTER metric:{label:{name:\"x\" \
             value:\"}\\\"\"} label:{name:\"y\" value:\"\"} counter:{value:3}}\n\
             name:\"b\" help:\"B.\" type:GAUGE metric:{gauge:{value:-1.5}}\n\
             name:\"h\" help:\"H.\" type:HISTOGRAM metric:{label:{name:\"k\" value:\"1\"} \
             histogram:{sample_count:2 sample_sum:2.5 bucket:{cumulative_count:1 upper_bound:1} \
             bucket:{cumulative_count:2 upper_bound:inf}}}\n"
        );
    }
}
