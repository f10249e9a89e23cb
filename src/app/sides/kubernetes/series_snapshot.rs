//! The series of Kubernetes objects for cardinality reports.

use std::sync::Arc;

use crate::cache::Catalog;
use crate::exposition::budget::Budget;
use crate::kube::PipelineHandle;
use crate::telemetry::KubeMetrics;
use crate::telemetry::countable::{Countable, ExceededBudget, OmittedObjects, Snapshot};

/// Access to the cached series.
pub(super) struct KubeSeries {
    pub(super) catalog: Catalog,
    pub(super) handle: PipelineHandle,
    pub(super) metrics: KubeMetrics,
    pub(super) budget: Arc<Budget>,
}

impl Countable for KubeSeries {
    fn snapshot(&self) -> Snapshot {
        let left_out = self.handle.rejected().into_iter();
        let left_out = left_out.map(|rejected| OmittedObjects {
            resource: rejected.resource,
            namespace: rejected.namespace,
            objects: rejected.count,
        });
        let over = self.metrics.all_over_budget().into_iter();
        let beyond = over.map(|([action, label, limit, metric, resource], times)| ExceededBudget {
            // Limits that apply to all families of a resource are reported under its name.
            metric: if metric.is_empty() { resource.into() } else { metric.into() },
            label: label.into(),
            limit: limit.into_string().into(),
            action: action.into_string().into(),
            times,
        });
        let texts = self.catalog.texts();
        Snapshot {
            visit: Box::new(move |visitor| texts.visit(visitor)),
            growth: self.catalog.growth(),
            budget: Budget::clone(&self.budget),
            beyond: beyond.collect(),
            senders: Vec::new(),
            left_out: left_out.collect(),
        }
    }
}
