//! Kubernetes Events: the occurrences that the API counts, by the workload of the object that they are about.
//!
//! An event often arrives before the object that it is about. Its occurrences then wait until the workload of that object
//! is known, but not longer than [`MAX_WAIT`].

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use super::objects::{Objects, Past, ScopeId};
use super::totals::{Totals, WorkloadOwner};
use crate::kube::observed::Metadata;
use crate::kube::shard::Ownership;
use crate::kube::workloads::objects::{LINKS, OTHERS, Workload};
use crate::resources::scalars::Time;
use crate::util::shrink::Shrink as _;
use crate::wire::view::{Str, view};

/// The longest time to wait for the workload of an object.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(10);

/// The largest number of events that wait.
const MAX_WAITING: usize = if cfg!(test) { 200 } else { 10_000 };

/// The time for which the counts of deleted events are kept. Their number is large, and they are deleted an hour after
/// their last occurrence.
pub(super) const RECORD_RETENTION: Duration = Duration::from_secs(300);

/// The seconds by which the first occurrence of a new event may precede its creation, because different clocks tell these times.
const CREATION_SKEW: i64 = 10;

/// Returns whether the workloads of objects of a kind are known from their own list/watches.
fn is_resolved(kind: &str) -> bool {
    kind == "Pod" || LINKS.iter().chain(&OTHERS).any(|(_, known)| *known == kind)
}

view! {
    /// The fields of an Event of `v1` that the ledger reads. It also shows those of `events.k8s.io`.
    pub struct Event<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        involved: Involved<'a> = 2 "involvedObject",
        reason: Str<'a> = 3 "reason",
        first_timestamp: Option<Time> = 6 "firstTimestamp",
        count: i32 = 8 "count",
        event_type: Str<'a> = 9 "type",
        event_time: Option<Time> = 10 "eventTime",
        series: Option<Series<'a>> = 11 "series",
    }

    /// The object that an event is about.
    pub struct Involved<'a> {
        kind: Str<'a> = 1 "kind",
        name: Str<'a> = 3 "name",
        uid: Str<'a> = 4 "uid",
    }

    /// The repetitions of an event.
    pub struct Series<'a> {
        count: i32 = 1 "count",
    }
}

impl Event<'_> {
    /// Returns true if this event continues one that is gone, with its count. Kubelet and controllers create an event again that has
    /// expired or was deleted. One that could not be created for long, and has occurred again meanwhile, looks the same.
    fn is_continued(&self) -> bool {
        let first = [self.first_timestamp, self.event_time].into_iter().flatten();
        let first = first.filter_map(Time::set).map(Time::unix).min();
        first.is_some_and(|first| first < self.metadata.creation_timestamp.unix() - CREATION_SKEW)
    }
}

/// The part of an event that has been counted.
#[derive(Debug, Default)]
pub(super) struct EventRecord {
    occurrences: u32,
}

impl Past for EventRecord {
    type Totals = Totals;
}

/// New occurrences of an event.
struct Occurrences {
    namespace: Box<str>,
    kind: Box<str>,
    name: Box<str>,
    uid: Box<[u8]>,
    reason: Box<str>,
    event_type: Box<str>,
    count: u32,
    /// The time at which they stop waiting for the workload of the object.
    until: Instant,
}

/// The events of a cluster.
#[derive(Default)]
pub(super) struct KubeEvents {
    pub(super) records: Objects<EventRecord>,
    /// The occurrences that wait, by the UID of the object that they are about, earliest first.
    waiting: HashMap<Box<[u8]>, VecDeque<Occurrences>>,
    /// The number of occurrences in `waiting`.
    waiting_count: usize,
    /// The deadline and the UID of each of them, earliest first. Entries stay when their occurrences are resolved.
    queue: VecDeque<(Instant, Box<[u8]>)>,
}

impl KubeEvents {
    /// Takes a new or changed event. `workload` is that of the object it is about, if known, and `former` that of an
    /// object that is gone.
    pub(super) fn put(
        &mut self,
        scope: ScopeId,
        event: &Event<'_>,
        (workload, former): (Option<Workload>, Option<&WorkloadOwner>),
        totals: &mut Totals,
        now: Instant,
    ) {
        let repeated = event.series.as_ref().map_or(0, |series| series.count);
        let total = u32::try_from(event.count.max(repeated)).unwrap_or_default().max(1);
        let (is_news, record) = self.records.put(scope, &event.metadata, true, totals, now);
        // An older state may be shown again.
        let count = match record.occurrences {
            0 if event.is_continued() => 1,
            before => total.saturating_sub(before),
        };
        record.occurrences = record.occurrences.max(total);
        if count == 0 || !is_news {
            return;
        }
        let Event { metadata, involved, reason, event_type, .. } = event;
        let occurrences = Occurrences {
            namespace: (*metadata.namespace).into(),
            kind: (*involved.kind).into(),
            name: (*involved.name).into(),
            uid: involved.uid.as_bytes().into(),
            reason: (**reason).into(),
            event_type: (**event_type).into(),
            count,
            until: now + MAX_WAIT,
        };
        if let Some(workload) = &workload {
            occurrences.count(Some(workload), totals, now);
        } else if let Some(owner) = former {
            occurrences.add(owner, totals, now);
        } else if is_resolved(&involved.kind) && self.waiting_count < MAX_WAITING {
            if self.queue.len() > 2 * MAX_WAITING {
                // Removes the entries of occurrences that have been resolved.
                let first = |uid: &[u8]| self.waiting.get(uid).and_then(VecDeque::front);
                self.queue.retain(|(until, uid)| first(uid).is_some_and(|one| one.until <= *until));
            }
            self.waiting_count += 1;
            self.queue.push_back((occurrences.until, occurrences.uid.clone()));
            self.waiting.entry(occurrences.uid.clone()).or_default().push_back(occurrences);
        } else {
            occurrences.count(None, totals, now);
        }
    }

    /// Counts the occurrences that wait for the workload of an object.
    pub(super) fn resolve(
        &mut self,
        uid: &[u8],
        workload: &Workload,
        totals: &mut Totals,
        now: Instant,
    ) {
        if let Some(waiting) = self.waiting.remove(uid) {
            self.waiting_count -= waiting.len();
            waiting.iter().for_each(|event| event.count(Some(workload), totals, now));
        }
    }

    /// Returns the time at which the next occurrences stop waiting.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.queue.front().map(|(until, _)| *until)
    }

    /// Counts the occurrences that have waited for long, without a workload.
    pub(super) fn end_waits(&mut self, totals: &mut Totals, now: Instant) {
        while let Some((_, uid)) = self.queue.pop_front_if(|(until, _)| *until <= now) {
            let Some(waiting) = self.waiting.get_mut(&uid) else { continue };
            while let Some(event) = waiting.pop_front_if(|event| event.until <= now) {
                self.waiting_count -= 1;
                event.count(None, totals, now);
            }
            if waiting.is_empty() {
                self.waiting.remove(&uid);
            }
        }
        self.waiting.shrink();
        self.queue.shrink();
    }
}

impl Occurrences {
    /// Counts the occurrences for a workload in their own namespace, or for none.
    fn count(&self, workload: Option<&Workload>, totals: &mut Totals, now: Instant) {
        let of_namespace = workload.filter(|workload| *workload.id.namespace == *self.namespace);
        if let Some(workload) = of_namespace {
            self.add(&totals.owner(workload), totals, now);
            return;
        }
        // A custom workload is known by its pods.
        let labels = [&*self.namespace, &*self.name, &*self.kind.to_lowercase()];
        if let Some(owner) = totals.known(labels, &self.uid) {
            self.add(&owner, totals, now);
        } else if matches!(totals.shard.ownership(&self.uid), Ownership::Kept | Ownership::Gained) {
            self.add(&totals.without_workload(&self.namespace), totals, now);
        }
    }

    fn add(&self, owner: &WorkloadOwner, totals: &mut Totals, now: Instant) {
        let values = [&*self.kind, &*self.reason, &*self.event_type];
        totals.add_event(owner, &values, u64::from(self.count), now);
    }
}
