//! What the status page tells of the Kubernetes side.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;

use crate::kube::{self, Client, ListWatch, Phase, PipelineHandle};
use crate::status::{Facts, Failure, Health, Kind, Kubernetes, Reporter, Sample};
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::Reason;
use crate::tools::rbac;

/// After so many seconds without a word something is wrong, whatever the list/watch says: a watch lasts 40 s at most, and
/// a dead one is found 20 s later.
const SILENCE: f64 = 120.0;

/// Seconds in which a new list takes the place of a version that has expired.
const PASSING: f64 = 60.0;

/// The size of the text is looked at in one sample of so many: it means a look at each page that has changed.
const SIZE_EVERY: u64 = 4;

/// Tells of a running side.
pub(super) struct KubeReport {
    handle: PipelineHandle,
    client: Arc<ArcSwap<Client>>,
    metrics: KubeMetrics,
    /// Samples so far.
    samples: AtomicU64,
    /// Series at the last look.
    series: AtomicU64,
}

fn unix(time: Option<SystemTime>) -> Option<f64> {
    let since = time?.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_millis() as f64 / 1000.0)
}

impl KubeReport {
    pub(super) fn new(
        handle: PipelineHandle,
        client: Arc<ArcSwap<Client>>,
        metrics: KubeMetrics,
    ) -> Self {
        let (samples, series) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { handle, client, metrics, samples, series }
    }

    fn series(&self) -> u64 {
        if self.samples.fetch_add(1, Ordering::Relaxed).is_multiple_of(SIZE_EVERY) {
            let facts = self.handle.facts();
            let shown = facts.lists.iter().filter(|list| list.shown);
            self.series.store(shown.map(|list| list.size.series).sum(), Ordering::Relaxed);
        }
        self.series.load(Ordering::Relaxed)
    }
}

impl Reporter for KubeReport {
    fn report(&self, facts: &mut Facts) {
        let known = self.handle.facts();
        let now = facts.at;
        facts.kubernetes = Some(Kubernetes {
            server: self.client.load().url().to_string(),
            shard: self.metrics.shard_of().filter(|(_, total)| *total > 1),
            ready: known.ready,
            pending: known.pending.to_vec(),
            missing_namespaces: known.missing_namespaces,
            kinds: known.lists.iter().map(|list| kind(list, now)).collect(),
        });
    }

    fn sample(&self, sample: &mut Sample) {
        let now = unix(Some(SystemTime::now())).unwrap_or_default();
        let mut oldest: Option<f64> = None;
        for pulse in self.handle.pulses() {
            sample.total("events", "", pulse.events as f64);
            sample.total("events", &pulse.kind, pulse.events as f64);
            if pulse.shown {
                sample.level("objects", "", pulse.objects as f64);
                let age = unix(pulse.current).map(|current| (now - current).max(0.0));
                oldest = age.map(|age| oldest.unwrap_or(age).max(age)).or(oldest);
            }
        }
        if let Some(oldest) = oldest {
            sample.level("age", "", oldest);
        }
        sample.level("series", "", self.series() as f64);
    }
}

/// A version that has expired means a new list, no more, unless that lasts.
fn is_passing(failure: &kube::Failure, now: f64) -> bool {
    let since = unix(Some(failure.since)).unwrap_or(now);
    failure.reason == Some(Reason::Expired) && now - since < PASSING
}

fn kind(list: &ListWatch, now: f64) -> Kind {
    let status = &list.status;
    let heard = unix(status.heard);
    let failure = status.failure.as_ref().filter(|failure| !is_passing(failure, now));
    let failure = failure.map(|failure| Failure {
        since: unix(Some(failure.since)).unwrap_or(now),
        reason: failure.reason.map(Reason::label),
        of_the_server: failure.reason.is_some_and(Reason::is_of_the_server),
        message: failure.message.clone(),
    });
    let forbidden = status.failure.as_ref().is_some_and(|f| f.reason == Some(Reason::Forbidden));
    Kind {
        health: match (&failure, heard) {
            (Some(_), _) => Health::Failing,
            (None, _) if !status.is_complete() => Health::Starting,
            (None, Some(heard)) if now - heard > SILENCE => Health::Stale,
            (None, _) => Health::Ok,
        },
        resource: list.target.name(),
        namespace: status.namespace.clone(),
        phase: match status.phase {
            Phase::Listing => "listing",
            Phase::Watching => "watching",
            Phase::Waiting => "waiting",
        },
        shown: list.shown,
        given_up: status.given_up,
        objects: status.objects as u64,
        coming: if status.phase == Phase::Listing { status.coming as u64 } else { 0 },
        series: Some(list.size.series),
        bytes: Some(list.size.bytes),
        left_out: list.left_out,
        listed: unix(status.listed),
        heard,
        current: unix(status.current()),
        events_per_second: None,
        errors: list.errors.iter().map(|errors| errors.count).sum(),
        failure,
        missing_rule: forbidden.then(|| rbac::to_follow(&list.target.group, &list.target.plural)),
    }
}
