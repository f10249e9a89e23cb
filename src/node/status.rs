//! The node section of the status page.

use std::sync::Arc;

use super::families::{full, ratio};
use super::host::Host;
use super::kubelet::PollMetrics;
use super::record::{Record, Scope};
use super::store::Store;
use crate::exposition::labels;
use crate::status::{Facts, Fullest, LARGEST, Node, Reporter};

/// The source of the node section.
pub(crate) struct NodeReporter {
    pub(crate) store: Arc<Store>,
    pub(crate) polls: PollMetrics,
    pub(crate) host: Arc<Host>,
}

impl Reporter for NodeReporter {
    fn report(&self, facts: &mut Facts) {
        let snapshot = self.store.snapshot();
        let pods = snapshot.of(Scope::Pod);
        let mut order: Vec<&Record> = pods.iter().collect();
        let ratio = |record: &Record| ratio(record, facts.at);
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
                until_full: full(record, facts.at),
            }
        });
        let (summary, failure) = self.polls.status();
        facts.node = Some(Node {
            summary: (summary > 0.0).then_some(summary),
            failure,
            pods: pods.len() as u64,
            used_bytes: pods.iter().map(|record| record.used).sum(),
            fullest: fullest.collect(),
            gaps: self.host.last().gaps.clone(),
        });
    }
}
