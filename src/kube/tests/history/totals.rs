//! The totals of namespaces, and their comparison with the pods of the same scrape.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Catalog;
use crate::kube::shard::Shard;
use crate::kube::workloads::ledger::{LedgerOptions, SharedLedger};
use crate::kube::workloads::{FAMILIES, Subject, WorkloadOptions, Workloads};
use crate::pods::PodIndex;
use crate::telemetry::KubeMetrics;

/// Returns totals over the pods of namespaces, which observe pods and need no other kind. Pods are also entered into
/// `senders`, with the workload that the names of their owners imply.
pub fn namespace_totals(
    catalog: &Catalog,
    metrics: &KubeMetrics,
    senders: Option<&Arc<PodIndex>>,
) -> Workloads {
    let families = FAMILIES.iter().filter(|family| family.subject == Subject::Namespace);
    let (families, ledger) = (families.collect(), LedgerOptions::default());
    let is_partial = senders.is_some();
    let options = WorkloadOptions { families, ledger, is_partial, ..WorkloadOptions::default() };
    let ledger = SharedLedger::new(&options.ledger, catalog, metrics);
    Workloads::new(&options, catalog, metrics, &ledger, senders, Shard::ALL)
}

/// Returns the lines of a scrape without totals, and a difference between totals and the pods of the same scrape.
pub fn without_totals(body: &str) -> (String, Option<String>) {
    let (totals, pods): (Vec<&str>, Vec<&str>) =
        body.lines().partition(|line| line.contains("kstatd_namespace_"));
    let count = |lines: &[&str], name: &str| {
        let mut sums: BTreeMap<(String, String), f64> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.starts_with(name)) {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\""))?;
                Some(rest.split_once('"')?.0.to_owned())
            };
            let (Some(namespace), Some(phase)) = (label("namespace"), label("phase")) else {
                continue;
            };
            let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok());
            *sums.entry((namespace, phase)).or_default() += value.unwrap_or(f64::NAN);
        }
        sums
    };
    let (have, want) =
        (count(&totals, "kstatd_namespace_pods{"), count(&pods, "kube_pod_status_phase{"));
    let difference = (have != want).then(|| format!("totals {have:?}, pods {want:?}"));
    (pods.join("\n"), difference)
}
