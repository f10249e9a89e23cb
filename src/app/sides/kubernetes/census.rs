//! The series of Kubernetes objects as the reports about series see them.

use std::sync::Arc;

use crate::cache::{Catalog, Family, MetricKind, Reader, Texts};
use crate::exposition::budget::Budget;
use crate::exposition::family::Kind;
use crate::growth::MINUTES;
use crate::kube::PipelineHandle;
use crate::telemetry::KubeMetrics;
use crate::telemetry::countable::{Beyond, Countable, LeftOut, Series, Snapshot, Visitor};

/// The series that are in the cache, whenever somebody asks.
pub(super) struct KubeSeries {
    pub(super) catalog: Catalog,
    pub(super) handle: PipelineHandle,
    pub(super) metrics: KubeMetrics,
    pub(super) budget: Arc<Budget>,
}

impl Countable for KubeSeries {
    fn snapshot(&self) -> Box<dyn Snapshot> {
        let left_out = self.handle.left_out().into_iter();
        let left_out =
            left_out.map(|(resource, namespace, objects)| LeftOut { resource, namespace, objects });
        let over = self.metrics.all_over_budget().into_iter();
        let beyond = over.map(|([action, label, limit, metric, resource], times)| Beyond {
            // What is about all families of a kind bears its name.
            metric: if metric.is_empty() { resource.into() } else { metric.into() },
            label: label.into(),
            limit: limit.into_string().into(),
            action: action.into_string().into(),
            times,
        });
        Box::new(Census {
            texts: self.catalog.texts(),
            growth: self.catalog.growth(),
            left_out: left_out.collect(),
            beyond: beyond.collect(),
            budget: Arc::clone(&self.budget),
        })
    }
}

/// Those of one moment.
struct Census {
    texts: Texts,
    growth: [u64; MINUTES],
    left_out: Vec<LeftOut>,
    beyond: Vec<Beyond>,
    budget: Arc<Budget>,
}

/// Hands on what is read.
struct Through<'v>(&'v mut dyn Visitor);

impl Reader for Through<'_> {
    fn family(&mut self, family: &Family, bytes: u64) {
        let kind = match family.kind {
            MetricKind::Counter | MetricKind::Total => Kind::Counter,
            _ => Kind::Gauge,
        };
        self.0.family(&family.name, kind, bytes);
    }

    fn series(&mut self, labels: &[u8]) {
        self.0.series(&Series { labels, samples: 1, bytes: 0, created: None });
    }
}

impl Snapshot for Census {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.texts.read(&mut Through(visitor));
    }

    fn growth(&self) -> [u64; MINUTES] {
        self.growth
    }

    fn budget(&self) -> &Budget {
        &self.budget
    }

    fn beyond(&self) -> Vec<Beyond> {
        self.beyond.clone()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.left_out.clone()
    }
}
