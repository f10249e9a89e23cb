//! The node section of the status page.

use super::families::full;
use super::host::Host;
use super::kubelet::PollMetrics;
use super::record::{Record, Scope};
use super::store::Store;
use crate::exposition::labels;
use crate::status::{Fullest, LARGEST, Node};

/// Returns the node section at `now` (Unix seconds).
pub(crate) fn report(store: &Store, polls: &PollMetrics, host: &Host, now: f64) -> Node {
    let snapshot = store.snapshot();
    let pods = snapshot.of(Scope::Pod);
    let mut order: Vec<&Record> = pods.iter().collect();
    let ratio = |record: &Record| record.limit.map(|limit| record.used / limit);
    let key = |record: &Record| (ratio(record).unwrap_or(-1.0), record.used);
    order.sort_by(|a, b| {
        let ((a, a_used), (b, b_used)) = (key(a), key(b));
        b.total_cmp(&a).then(b_used.total_cmp(&a_used))
    });
    let fullest = order.into_iter().take(LARGEST).map(|record| {
        let values = labels::iter(&record.labels).map(|(_, value)| labels::plain(value));
        let values: Vec<String> =
            values.map(|value| String::from_utf8_lossy(&value).into_owned()).collect();
        Fullest {
            pod: values.join("/"),
            used_bytes: record.used,
            limit_ratio: ratio(record),
            until_full: full(record, now),
        }
    });
    let (summary, failure) = polls.status();
    Node {
        summary: (summary > 0.0).then_some(summary),
        failure,
        pods: pods.len() as u64,
        used_bytes: pods.iter().map(|record| record.used).sum(),
        fullest: fullest.collect(),
        gaps: host.gaps(),
    }
}
