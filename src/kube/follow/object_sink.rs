//! The path of one object into the store: shard filter, object limit, rendering, budgets, observers.
//!
//! Objects are processed one at a time, and their bytes are not kept. A malformed object affects only itself: it has no
//! series, is counted, and one a minute is named in the log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::budget::Allowance;
use super::completed_pods::CompletedPods;
use super::handover::{CollectedObjects, CurrentObjects, ServedObjects};
use super::machine::Collected;
use super::quota::Share;
use crate::cache::{Rendered, UpdateLock};
use crate::kube::api_resource::Scope;
use crate::kube::frame::IdentifiedObject;
use crate::kube::observed::ObservedObject;
use crate::kube::observer::ObjectObserver;
use crate::kube::shard::{Ownership, Shard};
use crate::resources::{ObjectBytes, Renderer};
use crate::telemetry::kube::ReflectorMetrics;
use crate::util::log_limit::LogLimit;
use crate::wire::view::decode;

/// The observers of one list/watch.
#[derive(Clone)]
pub(crate) struct Observers {
    all: Arc<[Arc<dyn ObjectObserver>]>,
    updates: UpdateLock,
}

impl Observers {
    pub(crate) fn new(all: Arc<[Arc<dyn ObjectObserver>]>, updates: &UpdateLock) -> Self {
        Self { all, updates: updates.clone() }
    }

    /// Calls `notify` with each observer.
    pub(crate) fn each(&self, mut notify: impl FnMut(&dyn ObjectObserver)) {
        self.all.iter().for_each(|observer| notify(&**observer));
    }
}

/// Renders the objects of one list/watch into its store.
pub(crate) struct ObjectSink {
    scope: Arc<Scope>,
    renderer: Arc<dyn Renderer>,
    objects: CurrentObjects,
    observers: Observers,
    /// Its share of the object limit, if set.
    share: Option<Share>,
    /// Its share of the series and label budgets, if set.
    allowance: Option<Allowance>,
    /// The completed pods, if these lose their series.
    completed: Option<CompletedPods>,
    metrics: ReflectorMetrics,
    /// The object being rendered; reused to save allocations.
    scratch: Rendered,
    /// The resourceVersion of the last object or bookmark.
    version: String,
    /// Limits log lines about objects that lack a family.
    oversized: LogLimit,
    /// Limits log lines about objects without series.
    malformed: LogLimit,
}

impl ObjectSink {
    pub(crate) fn new(
        scope: Arc<Scope>,
        renderer: Arc<dyn Renderer>,
        served: Arc<ServedObjects>,
        observers: Observers,
        (share, allowance): (Option<Share>, Option<Allowance>),
        metrics: ReflectorMetrics,
    ) -> Self {
        let completed = scope.drop_completed_after.map(CompletedPods::new);
        // A list of an earlier task, which ended by a fault, is not continued.
        observers.each(|observer| observer.end_list(false));
        Self {
            scope,
            renderer,
            objects: CurrentObjects::new(served),
            observers,
            share,
            allowance,
            completed,
            metrics,
            scratch: Rendered::default(),
            version: String::new(),
            oversized: LogLimit::default(),
            malformed: LogLimit::default(),
        }
    }

    /// Starts to collect a new state, unless one is being collected already.
    pub(crate) fn collect(&mut self) {
        if self.objects.collected.is_none() {
            if let Some(share) = &self.share {
                share.begin_list();
            }
            if let Some(allowance) = &self.allowance {
                allowance.begin_list(&mut self.objects);
            }
            self.objects.begin_list();
            self.completed.iter_mut().for_each(CompletedPods::begin_list);
        }
        self.observers.each(|observer| observer.begin_list());
    }

    /// Returns the number of objects collected so far, 0 if no list is in progress.
    pub(crate) fn collecting(&self) -> usize {
        self.objects.collected.as_ref().map_or(0, CollectedObjects::visible)
    }

    /// Commits, discards or keeps the collected objects.
    pub(crate) fn settle(&mut self, order: Collected) {
        if order != Collected::Keep {
            let commits = order == Collected::Commit;
            self.update(|sink| {
                sink.share.iter().for_each(Share::end_list);
                if let Some(allowance) = &sink.allowance {
                    allowance.end_list(&mut sink.objects, commits);
                }
                sink.completed.iter_mut().for_each(|completed| completed.end_list(commits));
                sink.objects.end_list(commits);
                sink.observers.each(|observer| observer.end_list(commits));
            });
        }
        self.drop_completed();
        self.report_size();
    }

    /// Makes a change under the lock that a scrape takes for its snapshot, if the objects have observers.
    fn update<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        if self.observers.all.is_empty() {
            return change(self);
        }
        let updates = self.observers.updates.clone();
        let _update = updates.hold();
        change(self)
    }

    /// Returns whether the current state is at the object limit.
    pub(crate) fn is_full(&self) -> bool {
        self.share.as_ref().is_some_and(|share| !share.has_room(self.objects.len()))
    }

    /// Returns whether there is an object limit or a budget.
    pub(crate) fn is_limited(&self) -> bool {
        self.share.is_some() || self.allowance.is_some()
    }

    /// Returns true if observers need all objects, also those over a limit.
    pub(crate) fn is_observed(&self) -> bool {
        !self.observers.all.is_empty()
    }

    /// Returns whether there is room now for objects that were rejected, which the list/watch is then to list again. While objects
    /// are hidden for a shard change, their room is not free, and that of lost ones is not free yet.
    pub(crate) fn claim_room(&self) -> bool {
        if self.objects.served.hidden() > 0 {
            return false;
        }
        // Those that the shard has lost are gone without an event.
        self.report_size();
        self.share.as_ref().is_some_and(Share::claim_room)
            || self.allowance.as_ref().is_some_and(Allowance::claim_room)
    }

    /// Counts objects rejected by the object limit, and logs them at most once a minute.
    pub(crate) fn reject(&self, objects: u64) {
        let Some(share) = &self.share else { return };
        if share.reject(objects) {
            let resource = &self.scope.api.plural;
            let limit = share.quota().limit();
            tracing::warn!(%resource, limit, "More objects than --object-limit, the others have no series");
        }
    }

    /// Returns the number of objects of the kind and the object limit, if set.
    pub(crate) fn limit_usage(&self) -> Option<(usize, usize)> {
        self.share.as_ref().map(Share::quota).map(|quota| (quota.total(), quota.limit()))
    }

    /// Reports the number of objects and series to the object limit and the budgets.
    fn report_size(&self) {
        if !self.is_limited() {
            return;
        }
        let (objects, series) = self.objects.largest();
        if let Some(allowance) = &self.allowance {
            allowance.set_size(objects as u64, series);
        }
        if let Some(share) = &self.share {
            share.set_size(objects);
        }
    }

    /// Returns the metadata of an object, whose version is noted. An object without metadata is left to rendering.
    fn identified<'o>(&mut self, object: ObjectBytes<'o>) -> Option<IdentifiedObject<'o>> {
        let view: IdentifiedObject<'_> = decode(object).ok()?;
        (*view.metadata.resource_version).clone_into(&mut self.version);
        Some(view)
    }

    /// Returns whether the object is new and over the object limit.
    fn is_rejected(&mut self, object: ObjectBytes<'_>) -> bool {
        if !self.is_full() {
            return false;
        }
        let view = self.identified(object);
        let is_new = view.is_some_and(|view| !self.objects.contains(view.metadata.uid.as_bytes()));
        if is_new {
            self.reject(1);
        }
        is_new
    }

    /// Notes the resourceVersion of a bookmark.
    pub(crate) fn bookmark(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.drop_completed();
    }

    /// Removes the series of pods that have completed long ago. A list in progress comes first.
    fn drop_completed(&mut self) {
        if self.objects.collected.is_some() {
            return;
        }
        while let Some(uid) = self.completed.as_mut().and_then(CompletedPods::next_due) {
            self.update(|sink| {
                sink.remove_series(&uid);
                sink.observers.each(|observer| observer.hide(&uid));
            });
        }
    }

    /// Resets the version before another request.
    pub(crate) fn forget_version(&mut self) {
        self.version.clear();
    }

    /// Returns the resourceVersion of the last object or bookmark, empty if there was none.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Adds or updates an object.
    pub(crate) fn put(&mut self, object: ObjectBytes<'_>) {
        self.update(|sink| {
            let mut observed = ObservedObject::new(object);
            if let Some(completed) = &mut sink.completed {
                observed.is_hidden = observed.pod().is_some_and(|pod| completed.observe(pod));
            }
            if observed.is_hidden {
                if let Some(view) = sink.identified(object) {
                    sink.remove_series(view.metadata.uid.as_bytes());
                }
            } else if let Err(error) = sink.render(&observed) {
                return sink.malformed(object, &error);
            }
            let is_fresh = sink.objects.collected.is_some();
            sink.observers.each(|observer| observer.put(&observed, is_fresh));
        });
        self.drop_completed();
    }

    /// Removes the series of an object, and its share of the budgets.
    fn remove_series(&mut self, uid: &[u8]) {
        if let Some(allowance) = &self.allowance {
            allowance.remove(uid, &mut self.objects);
        }
        self.objects.remove(uid);
        self.report_size();
    }

    /// Renders an object into the store, if it belongs to the shard and is within the limits.
    fn render(&mut self, observed: &ObservedObject<'_>) -> Result<(), String> {
        let object = observed.bytes;
        let ownership = self.ownership(object);
        if ownership == Ownership::Foreign || self.is_rejected(object) {
            return Ok(());
        }
        // A panic caused by an unusual object must not stop the whole kind.
        let rendered =
            catch_unwind(AssertUnwindSafe(|| self.renderer.render(object, &mut self.scratch)));
        match rendered {
            Ok(result) => result.map_err(|error| error.to_string())?,
            Err(_) => return Err("rendering panicked".to_owned()),
        }
        self.version.clone_from(&self.scratch.resource_version);
        self.observers.each(|observer| observer.identify(observed, &mut self.scratch.identity));
        if let Some(family) = self.scratch.oversized {
            self.oversized(object, family);
        }
        let Self { allowance, objects, scratch, .. } = self;
        if allowance.as_ref().is_none_or(|allowance| allowance.admit(scratch, objects)) {
            objects.put(ownership, scratch);
        } else {
            objects.remove(&scratch.uid);
        }
        self.report_size();
        Ok(())
    }

    /// Returns the ownership of the object in this shard, by its UID.
    fn ownership(&mut self, object: ObjectBytes<'_>) -> Ownership {
        let shard = self.objects.served.shard();
        if shard == Shard::ALL {
            return Ownership::Kept;
        }
        let view = self.identified(object);
        view.map_or(Ownership::Kept, |view| shard.ownership(view.metadata.uid.as_bytes()))
    }

    /// Removes a deleted object.
    pub(crate) fn remove(&mut self, object: ObjectBytes<'_>) {
        self.update(|sink| match decode::<IdentifiedObject<'_>>(object) {
            Ok(view) => {
                (*view.metadata.resource_version).clone_into(&mut sink.version);
                let uid = view.metadata.uid.as_bytes();
                sink.delete(uid);
                let is_fresh = sink.objects.collected.is_some();
                sink.observers.each(|observer| observer.delete(uid, is_fresh));
            }
            Err(error) => sink.malformed(object, &error.to_string()),
        });
    }

    fn delete(&mut self, uid: &[u8]) {
        self.completed.iter_mut().for_each(|completed| completed.forget(uid));
        self.remove_series(uid);
    }

    /// Logs an object with too many series in one family.
    #[cold]
    fn oversized(&mut self, object: ObjectBytes<'_>, family: usize) {
        self.metrics.oversized.inc();
        let Some(objects) = self.oversized.add(1, Instant::now()) else { return };
        let resource = &self.scope.api.plural;
        let view: IdentifiedObject<'_> = decode(object).unwrap_or_default();
        let (namespace, name) = (&*view.metadata.namespace, &*view.metadata.name);
        let schema = self.renderer.schema();
        let family = schema.families.get(family).map(|family| &*family.name);
        tracing::warn!(%resource, namespace, name, family, objects, "Too many series of one object, it has none of this family");
    }

    /// Removes all served objects and returns their number.
    pub(crate) fn purge(&mut self) -> usize {
        self.update(|sink| {
            let objects = sink.objects.served.clear();
            if let Some(allowance) = &sink.allowance {
                allowance.clear();
            }
            sink.report_size();
            sink.observers.each(|observer| observer.purge());
            objects
        })
    }

    /// Logs an object that cannot be rendered and removes it: its old series are outdated, and a relist would not
    /// contain them either.
    fn malformed(&mut self, object: ObjectBytes<'_>, error: &str) {
        self.metrics.malformed.inc();
        let resource = &self.scope.api.plural;
        let view: IdentifiedObject<'_> = decode(object).unwrap_or_default();
        let (namespace, name) = (&*view.metadata.namespace, &*view.metadata.name);
        if let Some(objects) = self.malformed.add(1, Instant::now()) {
            tracing::warn!(%resource, namespace, name, error, objects, "Malformed object, it has no series");
        }
        if !view.metadata.resource_version.is_empty() {
            (*view.metadata.resource_version).clone_into(&mut self.version);
        }
        if !view.metadata.uid.is_empty() {
            let uid = view.metadata.uid.as_bytes();
            self.delete(uid);
            let is_fresh = self.objects.collected.is_some();
            self.observers.each(|observer| observer.malformed(uid, is_fresh));
        }
    }
}
