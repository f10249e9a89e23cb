//! The series of Kubernetes objects for cardinality reports.

use std::sync::Arc;

use crate::cache::{Catalog, SnapshotText};
use crate::exposition::budget::Budget;
use crate::exposition::series_visitor::SeriesVisitor;
use crate::kube::PipelineHandle;
use crate::telemetry::KubeMetrics;
use crate::telemetry::countable::{Countable, ExceededBudget, OmittedObjects, Snapshot};
use crate::util::per_minute::MINUTES;

/// Access to the cached series.
pub(super) struct KubeSeries {
    pub(super) catalog: Catalog,
    pub(super) handle: PipelineHandle,
    pub(super) metrics: KubeMetrics,
    pub(super) budget: Arc<Budget>,
}

impl Countable for KubeSeries {
    fn snapshot(&self) -> Box<dyn Snapshot> {
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
        Box::new(SeriesSnapshot {
            texts: self.catalog.texts(),
            growth: self.catalog.growth(),
            left_out: left_out.collect(),
            beyond: beyond.collect(),
            budget: Arc::clone(&self.budget),
        })
    }
}

/// A snapshot of the series.
struct SeriesSnapshot {
    texts: SnapshotText,
    growth: [u64; MINUTES],
    left_out: Vec<OmittedObjects>,
    beyond: Vec<ExceededBudget>,
    budget: Arc<Budget>,
}

impl Snapshot for SeriesSnapshot {
    fn visit(&self, visitor: &mut dyn SeriesVisitor) {
        self.texts.visit(visitor);
    }

    fn growth(&self) -> [u64; MINUTES] {
        self.growth
    }

    fn budget(&self) -> &Budget {
        &self.budget
    }

    fn beyond(&self) -> Vec<ExceededBudget> {
        self.beyond.clone()
    }

    fn left_out(&self) -> Vec<OmittedObjects> {
        self.left_out.clone()
    }
}
