//! The path of one object into the store: shard filter, object limit, rendering, budgets, observers.
//!
//! Objects are processed one at a time, and their bytes are not kept. A malformed object affects only itself: it has no
//! series, is counted and named in the log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::budget::{Allowance, CurrentObjects};
use super::completed_pods::CompletedPods;
use super::handover::{CollectedObjects, ServedObjects};
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
    pub(crate) fn each(&self, notify: impl Fn(&dyn ObjectObserver)) {
        self.all.iter().for_each(|observer| notify(&**observer));
    }
}

/// Renders the objects of one list/watch into its store.
pub(crate) struct ObjectSink {
    scope: Arc<Scope>,
    renderer: Arc<dyn Renderer>,
    served: Arc<ServedObjects>,
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
    /// The objects being collected by a list.
    collected: Option<CollectedObjects>,
    /// The resourceVersion of the last object or bookmark.
    version: String,
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
        let (scratch, version) = (Rendered::default(), String::new());
        let completed = scope.drop_completed_after.map(CompletedPods::new);
        // A list of an earlier task, which ended by a fault, is not continued.
        observers.each(|observer| observer.end_list(false));
        Self {
            scope,
            renderer,
            served,
            observers,
            share,
            allowance,
            completed,
            metrics,
            scratch,
            collected: None,
            version,
        }
    }

    /// Starts to collect a new state, unless one is being collected already.
    pub(crate) fn collect(&mut self) {
        if self.collected.is_none() {
            if let Some(share) = &self.share {
                share.begin_list();
            }
            self.with_allowance(|allowance, current, _| allowance.begin_list(current));
            self.collected = Some(self.served.collect());
            self.completed.iter_mut().for_each(CompletedPods::begin_list);
        }
        self.observers.each(|observer| observer.begin_list());
    }

    /// Calls `ask` with the allowance, if any, and the current objects.
    fn with_allowance<T>(
        &mut self,
        ask: impl FnOnce(&Allowance, &mut CurrentObjects<'_>, &mut Rendered) -> T,
    ) -> Option<T> {
        let Self { allowance, collected, served, scratch, .. } = self;
        let mut current = CurrentObjects { collected: collected.as_mut(), served };
        allowance.as_ref().map(|allowance| ask(allowance, &mut current, scratch))
    }

    /// Returns the number of objects collected so far, 0 if no list is in progress.
    pub(crate) fn collecting(&self) -> usize {
        self.collected.as_ref().map_or(0, CollectedObjects::visible)
    }

    /// Commits, discards or keeps the collected objects.
    pub(crate) fn settle(&mut self, order: Collected) {
        self.update(|sink, observers| match order {
            Collected::Keep => {}
            Collected::Commit => {
                sink.with_allowance(|allowance, current, _| allowance.end_list(current, true));
                sink.completed.iter_mut().for_each(|completed| completed.end_list(true));
                if let Some(collected) = sink.collected.take() {
                    sink.served.commit(collected);
                    observers.iter().for_each(|observer| observer.end_list(true));
                }
            }
            Collected::Discard => {
                sink.with_allowance(|allowance, current, _| allowance.end_list(current, false));
                sink.completed.iter_mut().for_each(|completed| completed.end_list(false));
                sink.collected = None;
                observers.iter().for_each(|observer| observer.end_list(false));
            }
        });
        self.drop_completed();
        self.report_size();
    }

    /// Makes a change under the lock that a scrape takes for its snapshot, if the objects have observers.
    fn update<T>(&mut self, change: impl FnOnce(&mut Self, &[Arc<dyn ObjectObserver>]) -> T) -> T {
        if self.observers.all.is_empty() {
            return change(self, &[]);
        }
        let Observers { all, updates } = self.observers.clone();
        let _update = updates.hold();
        change(self, &all)
    }

    /// Returns whether the current state is at the object limit.
    pub(crate) fn is_full(&self) -> bool {
        self.share.as_ref().is_some_and(|share| !share.has_room(self.len()))
    }

    /// Returns whether there is an object limit or a budget.
    pub(crate) fn is_limited(&self) -> bool {
        self.share.is_some() || self.allowance.is_some()
    }

    /// Returns true if observers need all objects, also those over a limit.
    pub(crate) fn is_observed(&self) -> bool {
        !self.observers.all.is_empty()
    }

    /// Returns whether there is room now for objects that were rejected. While objects are hidden for a shard change, their room
    /// is not free, and that of lost ones is not free yet.
    pub(crate) fn has_room_for_rejected(&self) -> bool {
        if self.served.hidden() > 0 {
            return false;
        }
        // Those that the shard has lost are gone without an event.
        self.report_size();
        self.share.as_ref().is_some_and(Share::has_room_for_rejected)
            || self.allowance.as_ref().is_some_and(Allowance::has_room_for_rejected)
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

    /// Returns the number of objects of the current state.
    fn len(&self) -> usize {
        let collected = self.collected.as_ref().map(CollectedObjects::len);
        collected.unwrap_or_else(|| self.served.len())
    }

    /// Reports the number of objects and series to the object limit and the budgets.
    fn report_size(&self) {
        if let Some(allowance) = &self.allowance {
            let collected = self.collected.as_ref();
            let objects = collected.map_or(0, CollectedObjects::len).max(self.served.len());
            let series = collected.map_or(0, CollectedObjects::series).max(self.served.series());
            allowance.set_size(objects as u64, series);
        }
        if let Some(share) = &self.share {
            share.set_size(self.served.len().max(self.len()));
        }
    }

    /// Returns whether the object is new and over the object limit. An object without metadata is left to rendering.
    fn is_rejected(&mut self, object: ObjectBytes<'_>) -> bool {
        if !self.is_full() {
            return false;
        }
        let Ok(view) = decode::<IdentifiedObject<'_>>(object) else {
            return false;
        };
        let uid = view.metadata.uid.as_bytes();
        let is_known = match &self.collected {
            Some(collected) => collected.contains(uid),
            None => self.served.contains(uid),
        };
        if !is_known {
            (*view.metadata.resource_version).clone_into(&mut self.version);
            self.reject(1);
        }
        !is_known
    }

    /// Notes the resourceVersion of a bookmark.
    pub(crate) fn bookmark(&mut self, version: &str) {
        version.clone_into(&mut self.version);
        self.drop_completed();
    }

    /// Removes the series of pods that have completed long ago. A list in progress comes first.
    fn drop_completed(&mut self) {
        if self.collected.is_some() {
            return;
        }
        while let Some(uid) = self.completed.as_mut().and_then(CompletedPods::next_due) {
            self.update(|sink, observers| {
                sink.remove_series(&uid);
                observers.iter().for_each(|observer| observer.hide(&uid));
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
        self.update(|sink, observers| {
            let mut observed = ObservedObject::new(object);
            if let Some(completed) = &mut sink.completed {
                observed.is_hidden = observed.pod().is_some_and(|pod| completed.observe(pod));
            }
            if observed.is_hidden {
                sink.drop_series(object);
            } else if let Err(error) = sink.render(&observed, observers) {
                return sink.malformed(object, &error, observers);
            }
            let is_fresh = sink.collected.is_some();
            observers.iter().for_each(|observer| observer.put(&observed, is_fresh));
        });
        self.drop_completed();
    }

    /// Takes an object that has no series.
    fn drop_series(&mut self, object: ObjectBytes<'_>) {
        let view: IdentifiedObject<'_> = decode(object).unwrap_or_default();
        (*view.metadata.resource_version).clone_into(&mut self.version);
        self.remove_series(view.metadata.uid.as_bytes());
    }

    /// Removes the series of an object, and its share of the budgets.
    fn remove_series(&mut self, uid: &[u8]) {
        self.with_allowance(|allowance, current, _| allowance.remove(uid, current));
        self.remove_from_state(uid);
    }

    /// Renders an object into the store, if it belongs to the shard and is within the limits.
    fn render(
        &mut self,
        observed: &ObservedObject<'_>,
        observers: &[Arc<dyn ObjectObserver>],
    ) -> Result<(), String> {
        let object = observed.bytes;
        let ownership = self.ownership(object);
        if ownership == Ownership::Foreign || self.is_rejected(object) {
            return Ok(());
        }
        // A panic caused by an unusual object must not stop the whole kind.
        let rendered =
            catch_unwind(AssertUnwindSafe(|| self.renderer.render(object, &mut self.scratch)));
        match rendered {
            Ok(Ok(())) => {
                self.version.clone_from(&self.scratch.resource_version);
                let identity = &mut self.scratch.identity;
                observers.iter().for_each(|observer| observer.identify(observed, identity));
                if let Some(family) = self.scratch.oversized {
                    self.oversized(object, family);
                }
                let admit =
                    |allowance: &Allowance, current: &mut CurrentObjects<'_>, object: &mut _| {
                        allowance.admit(object, current)
                    };
                if self.with_allowance(admit) == Some(false) {
                    let uid = std::mem::take(&mut self.scratch.uid);
                    self.remove_from_state(&uid);
                    return Ok(());
                }
                match &mut self.collected {
                    Some(collected) => collected.put(ownership, &self.scratch),
                    None => self.served.put(ownership, &self.scratch),
                }
                self.report_size();
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("rendering panicked".to_owned()),
        }
    }

    /// Returns the ownership of the object in this shard, by its UID. An object without metadata is left to rendering.
    fn ownership(&mut self, object: ObjectBytes<'_>) -> Ownership {
        let shard = self.served.shard();
        if shard == Shard::ALL {
            return Ownership::Kept;
        }
        let Ok(view) = decode::<IdentifiedObject<'_>>(object) else {
            return Ownership::Kept;
        };
        (*view.metadata.resource_version).clone_into(&mut self.version);
        shard.ownership(view.metadata.uid.as_bytes())
    }

    /// Removes a deleted object.
    pub(crate) fn remove(&mut self, object: ObjectBytes<'_>) {
        self.update(|sink, observers| match decode::<IdentifiedObject<'_>>(object) {
            Ok(view) => {
                (*view.metadata.resource_version).clone_into(&mut sink.version);
                let uid = view.metadata.uid.as_bytes();
                sink.delete(uid);
                let is_fresh = sink.collected.is_some();
                observers.iter().for_each(|observer| observer.delete(uid, is_fresh));
            }
            Err(error) => sink.malformed(object, &error.to_string(), observers),
        });
    }

    fn delete(&mut self, uid: &[u8]) {
        self.completed.iter_mut().for_each(|completed| completed.forget(uid));
        self.remove_series(uid);
    }

    /// Removes an object from the state being collected, or else from the store.
    fn remove_from_state(&mut self, uid: &[u8]) {
        match &mut self.collected {
            Some(collected) => collected.remove(uid),
            None => self.served.remove(uid),
        }
        self.report_size();
    }

    /// Logs an object with too many series in one family.
    #[cold]
    fn oversized(&mut self, object: ObjectBytes<'_>, family: usize) {
        self.metrics.oversized.inc();
        let resource = &self.scope.api.plural;
        let view: IdentifiedObject<'_> = decode(object).unwrap_or_default();
        let (namespace, name) = (&*view.metadata.namespace, &*view.metadata.name);
        let schema = self.renderer.schema();
        let family = schema.families.get(family).map(|family| &*family.name);
        tracing::warn!(%resource, namespace, name, family, "Too many series of one object, it has none of this family");
    }

    /// Removes all served objects and returns their number.
    pub(crate) fn purge(&mut self) -> usize {
        self.update(|sink, observers| {
            let objects = sink.served.clear();
            if let Some(allowance) = &sink.allowance {
                allowance.clear();
            }
            sink.report_size();
            observers.iter().for_each(|observer| observer.purge());
            objects
        })
    }

    /// Logs an object that cannot be rendered and removes it: its old series are outdated, and a relist would not
    /// contain them either.
    fn malformed(
        &mut self,
        object: ObjectBytes<'_>,
        error: &str,
        observers: &[Arc<dyn ObjectObserver>],
    ) {
        self.metrics.malformed.inc();
        let resource = &self.scope.api.plural;
        let view: IdentifiedObject<'_> = decode(object).unwrap_or_default();
        let (namespace, name) = (&*view.metadata.namespace, &*view.metadata.name);
        tracing::warn!(%resource, namespace, name, error, "Malformed object, it has no series");
        if !view.metadata.resource_version.is_empty() {
            (*view.metadata.resource_version).clone_into(&mut self.version);
        }
        if !view.metadata.uid.is_empty() {
            let uid = view.metadata.uid.as_bytes();
            self.delete(uid);
            let is_fresh = self.collected.is_some();
            observers.iter().for_each(|observer| observer.malformed(uid, is_fresh));
        }
    }
}
