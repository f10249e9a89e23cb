//! The delimited protobuf exposition as lines, one for each metric, without help texts and times of creation.

use std::fmt::Write as _;

use anyhow::Result;
use prost::Message;

#[path = "../../../support/metrics_messages.rs"]
mod metrics_messages;
use metrics_messages::MetricFamily;

/// Returns the metrics of the families for which `wanted` is true.
///
/// # Errors
///
/// The body is malformed.
pub fn lines(mut body: &[u8], wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut out = Vec::new();
    while !body.is_empty() {
        let family = MetricFamily::decode_length_delimited(&mut body)?;
        let name = family.name.unwrap_or_default();
        if !wanted(&name) {
            continue;
        }
        for mut metric in family.metrics {
            let mut line = format!("protobuf {name} type {}", family.kind.unwrap_or_default());
            for label in &metric.labels {
                let [name, value] =
                    [&label.name, &label.value].map(|text| text.as_deref().unwrap_or_default());
                let _ = write!(line, " {name}={value:?}");
            }
            for (name, single) in [("gauge", &metric.gauge), ("counter", &metric.counter)] {
                if let Some(single) = single {
                    let _ = write!(line, " {name} {:?}", single.value);
                }
            }
            if let Some(summary) = &mut metric.summary {
                summary.created = None;
                // Which of two equal zeros is a quantile depends on the order of arrival in the original.
                let summary = format!("{summary:?}").replace("-0.0)", "0.0)");
                let _ = write!(line, " {summary}");
            }
            if let Some(histogram) = &mut metric.histogram {
                histogram.created = None;
                let _ = write!(line, " {histogram:?}");
            }
            out.push(line);
        }
    }
    Ok(out)
}
