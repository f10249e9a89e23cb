//! The number of metrics that the process reports about itself: one for each type and name with each set of label names, however
//! often its series end and return.

use std::collections::{BTreeMap, BTreeSet};

use super::History;
use crate::exposition::tests::samples::Samples;

/// The beginning of the series whose sum is that number.
const FAMILY: &str = "statsd_exporter_metrics_total{";

/// The names, each with its type and label names, that scrapes have shown.
pub(super) type Seen = BTreeSet<(String, String, Vec<String>)>;

impl History {
    /// Compares the number with the metrics that scrapes have shown so far.
    pub(super) fn check_metric_count(
        &mut self,
        text: &[u8],
        samples: &Samples,
    ) -> Result<(), String> {
        // Without a scrape after each line there may have been others.
        if !self.scrapes_each || self.pods.is_some() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(text);
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let types: BTreeMap<&str, &str> = types.filter_map(|line| line.split_once(' ')).collect();
        for (name, labels) in samples.keys() {
            let ends = ["_sum", "_count", "_bucket"].iter();
            let base = ends.filter_map(|end| name.strip_suffix(end));
            let observer = base.clone().find(|base| {
                types.get(base).is_some_and(|of| matches!(*of, "summary" | "histogram"))
            });
            let names = labels.keys().filter(|name| !matches!(&***name, "le" | "quantile"));
            let metric = observer.unwrap_or(name);
            let of = types.get(metric).copied().unwrap_or_default().to_owned();
            self.metrics_seen.insert((metric.to_owned(), of, names.cloned().collect()));
        }
        let own: Vec<u8> = self.offline.self_metrics().flatten().collect();
        let own = String::from_utf8_lossy(&own);
        let counts = own.lines().filter(|line| line.starts_with(FAMILY));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok());
        let (count, seen) = (counts.sum::<usize>(), self.metrics_seen.len());
        match count == seen {
            true => Ok(()),
            false => {
                Err(format!("{count} metrics are counted, not {seen}: {:?}", self.metrics_seen))
            }
        }
    }
}
