//! From the bytes of one object to the store: shard filter, rendering, and the state being collected.
//!
//! Objects flow in one at a time and are gone when a call returns. A malformed object costs itself
//! alone: it has no series, is counted and named in the log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::budget::{Allowance, Present};
use super::handover::{Handover, Passing};
use super::machine::Collected;
use super::quota::Share;
use crate::cache::{Rendered, Replacement, Store};
use crate::kube::frame::Identified;
use crate::kube::shard::{Part, Shard};
use crate::kube::target::Scope;
use crate::resources::{Follower, Needs, ObjectBytes, Renderer};
use crate::telemetry::kube::ReflectorMetrics;
use crate::wire::view::decode;

/// Takes the objects of one list/watch.
pub(crate) struct Intake {
    scope: Arc<Scope>,
    renderer: Arc<dyn Renderer>,
    store: Arc<Store>,
    /// Which objects are taken, and which of them are shown.
    handover: Arc<Handover>,
    /// What passes of the state being collected.
    passing: Passing,
    /// What it may keep, if that is bounded.
    share: Option<Share>,
    /// How many series that may have, and with which labels, if that is.
    allowance: Option<Allowance>,
    metrics: ReflectorMetrics,
    scratch: Rendered,
    /// The state being collected, which replaces that of the store as a whole.
    collected: Option<Replacement>,
    /// The version of the last object.
    version: String,
}

impl Intake {
    pub(crate) fn new(
        scope: Arc<Scope>,
        renderer: Arc<dyn Renderer>,
        store: Arc<Store>,
        handover: Arc<Handover>,
        (share, allowance): (Option<Share>, Option<Allowance>),
        metrics: ReflectorMetrics,
    ) -> Self {
        let (scratch, version) = (Rendered::default(), String::new());
        Self {
            scope,
            renderer,
            store,
            handover,
            passing: Passing::default(),
            share,
            allowance,
            metrics,
            scratch,
            collected: None,
            version,
        }
    }

    /// What is needed of each object.
    pub(crate) fn needs(&self) -> Needs {
        self.renderer.needs()
    }

    /// From here on, objects belong to a new state; or they go on doing so.
    pub(crate) fn collect(&mut self) {
        if self.collected.is_none() {
            if let Some(share) = &self.share {
                share.begins();
            }
            self.with_allowance(|allowance, present, _| allowance.begins(present));
            self.collected = Some(self.store.replace());
        }
        self.tell(|follower, _| follower.collect());
    }

    /// Asks the allowance, if there is one, about the state that objects belong to.
    fn with_allowance<T>(
        &mut self,
        ask: impl FnOnce(&Allowance, &mut Present<'_>, &mut Rendered) -> T,
    ) -> Option<T> {
        let Self { allowance, collected, passing, store, handover, scratch, .. } = self;
        let collected = collected.as_mut();
        let mut present = Present { collected, passing, store, handover };
        allowance.as_ref().map(|allowance| ask(allowance, &mut present, scratch))
    }

    /// How many objects the new state has so far, 0 without one.
    pub(crate) fn collecting(&self) -> usize {
        self.collected.as_ref().map_or(0, Replacement::len)
    }

    /// What becomes of the objects collected.
    pub(crate) fn settle(&mut self, order: Collected) {
        match order {
            Collected::Keep => {}
            Collected::Commit => {
                self.with_allowance(|allowance, present, _| allowance.settles(present, true));
                if let Some(collected) = self.collected.take() {
                    self.handover.commit(std::mem::take(&mut self.passing), collected);
                    self.tell(|follower, _| follower.settle(true));
                }
            }
            Collected::Discard => {
                self.with_allowance(|allowance, present, _| allowance.settles(present, false));
                self.collected = None;
                self.passing = Passing::default();
                self.tell(|follower, _| follower.settle(false));
            }
        }
        self.note_size();
    }

    /// Whether the state that objects belong to now may not grow.
    pub(crate) fn is_full(&self) -> bool {
        self.share.as_ref().is_some_and(|share| !share.has_room(self.len()))
    }

    /// Whether objects were left out for which there is room by now.
    pub(crate) fn wants_list(&self) -> bool {
        self.share.as_ref().is_some_and(Share::wants_list)
            || self.allowance.as_ref().is_some_and(Allowance::wants_list)
    }

    /// So many objects have no place among those that may be kept.
    pub(crate) fn leave_out(&self, objects: u64) {
        let Some(share) = &self.share else { return };
        if share.leave_out(objects) {
            let resource = &self.scope.target.plural;
            let limit = share.limit();
            tracing::warn!(%resource, limit, "more objects than --object-limit, the others have no series");
        }
    }

    /// The bound and what the whole kind has of it, if there is one.
    pub(crate) fn bound(&self) -> Option<(usize, usize)> {
        self.share.as_ref().map(|share| (share.total(), share.limit()))
    }

    /// How many objects the state has that objects belong to now.
    fn len(&self) -> usize {
        match &self.collected {
            Some(collected) => collected.len() + self.passing.hidden(),
            None => self.store.len() + self.handover.hidden(),
        }
    }

    fn note_size(&self) {
        if let Some(allowance) = &self.allowance {
            let shown = (
                self.store.len() + self.handover.hidden(),
                self.store.series() + self.handover.hidden_series(),
            );
            let collected = self.collected.as_ref().map_or((0, 0), |collected| {
                let objects = collected.len() + self.passing.hidden();
                (objects, collected.series() + self.passing.series())
            });
            allowance.keeps(shown.0.max(collected.0) as u64, shown.1.max(collected.1));
        }
        if let Some(share) = &self.share {
            share.keeps((self.store.len() + self.handover.hidden()).max(self.len()));
        }
    }

    /// Whether the object is new and there is no room for it; what has no identity is left to rendering.
    fn is_left_out(&mut self, object: ObjectBytes<'_>) -> bool {
        if !self.is_full() {
            return false;
        }
        let Ok(view) = decode::<Identified<'_>>(object) else {
            return false;
        };
        let uid = view.metadata.uid.as_bytes();
        let is_known = match &self.collected {
            Some(collected) => collected.contains(uid) || self.passing.hides(uid),
            None => self.store.contains(uid) || self.handover.hides(uid),
        };
        if !is_known {
            (*view.metadata.resource_version).clone_into(&mut self.version);
            self.leave_out(1);
        }
        !is_known
    }

    /// Nothing has changed up to this version.
    pub(crate) fn bookmark(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }

    /// The next version is that of another request.
    pub(crate) fn forget_version(&mut self) {
        self.version.clear();
    }

    /// The version of the last object or bookmark, empty if there was none.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// An object is there, new or changed.
    pub(crate) fn put(&mut self, object: ObjectBytes<'_>) {
        let part = self.part(object);
        if part == Part::Foreign || self.is_left_out(object) {
            return;
        }
        // A family that panics on an odd object must not take the whole kind with it.
        let rendered =
            catch_unwind(AssertUnwindSafe(|| self.renderer.render(object, &mut self.scratch)));
        let error = match rendered {
            Ok(Ok(())) => {
                self.version.clone_from(&self.scratch.resource_version);
                if let Some(family) = self.scratch.oversized {
                    self.oversized(object, family);
                }
                let admits = |allowance: &Allowance, present: &mut Present<'_>, object: &mut _| {
                    allowance.admits(object, present)
                };
                if self.with_allowance(admits) == Some(false) {
                    let uid = std::mem::take(&mut self.scratch.uid);
                    return self.take_away(&uid);
                }
                match &mut self.collected {
                    Some(collected) => self.passing.collect(part, &self.scratch, collected),
                    None => self.handover.put(part, &self.scratch, &self.store),
                }
                self.note_size();
                self.tell(|follower, fresh| follower.put(&self.scratch.uid, object, fresh));
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "rendering panicked".to_owned(),
        };
        self.malformed(object, &error);
    }

    /// What the object is to this shard, of which nothing but its identity is looked at for that; what has
    /// none is left to rendering.
    fn part(&mut self, object: ObjectBytes<'_>) -> Part {
        let shard = self.handover.shard();
        if shard == Shard::WHOLE {
            return Part::Kept;
        }
        let Ok(view) = decode::<Identified<'_>>(object) else {
            return Part::Kept;
        };
        (*view.metadata.resource_version).clone_into(&mut self.version);
        shard.part(view.metadata.uid.as_bytes())
    }

    /// An object is gone.
    pub(crate) fn remove(&mut self, object: ObjectBytes<'_>) {
        match decode::<Identified<'_>>(object) {
            Ok(view) => {
                (*view.metadata.resource_version).clone_into(&mut self.version);
                self.delete(view.metadata.uid.as_bytes());
            }
            Err(error) => self.malformed(object, &error.to_string()),
        }
    }

    fn delete(&mut self, uid: &[u8]) {
        self.with_allowance(|allowance, present, _| allowance.goes(uid, present));
        self.take_away(uid);
        self.tell(|follower, fresh| follower.delete(uid, fresh));
    }

    /// Takes an object out of the state that it belongs to.
    fn take_away(&mut self, uid: &[u8]) {
        match &mut self.collected {
            Some(collected) => {
                self.passing.forget(uid);
                collected.delete(uid)
            }
            None => {
                self.handover.forget(uid);
                self.store.delete(uid)
            }
        };
        self.note_size();
    }

    /// Tells whoever follows the objects, if anybody does, and whether a new state is being collected.
    fn tell(&self, what: impl FnOnce(&dyn Follower, bool)) {
        if let Some(follower) = self.renderer.follower() {
            what(follower, self.collected.is_some());
        }
    }

    /// Names an object of which a family would have too many series.
    #[cold]
    fn oversized(&mut self, object: ObjectBytes<'_>, family: usize) {
        self.metrics.oversized.inc();
        let resource = &self.scope.target.plural;
        let view: Identified<'_> = decode(object).unwrap_or_default();
        let (namespace, name) = (&*view.metadata.namespace, &*view.metadata.name);
        let schema = self.renderer.schema();
        let family = schema.families.get(family).map(|family| &*family.name);
        tracing::warn!(%resource, namespace, name, family, "too many series of one object, it has none of this family");
    }

    /// Forgets everything that is shown; tells how many objects that was.
    pub(crate) fn purge(&mut self) -> usize {
        let objects = self.store.len();
        self.store.replace().commit();
        self.handover.clear();
        if let Some(allowance) = &self.allowance {
            allowance.clears();
        }
        self.note_size();
        self.tell(|follower, _| {
            follower.collect();
            follower.settle(true);
        });
        objects
    }

    /// Names an object that cannot be rendered. What was known of it is no longer true, so it goes, as
    /// it would with a new list.
    fn malformed(&mut self, object: ObjectBytes<'_>, error: &str) {
        self.metrics.malformed.inc();
        let resource = &self.scope.target.plural;
        let view: Identified<'_> = decode(object).unwrap_or_default();
        let (namespace, name) = (&*view.metadata.namespace, &*view.metadata.name);
        tracing::warn!(%resource, namespace, name, error, "malformed object, it has no series");
        if !view.metadata.resource_version.is_empty() {
            (*view.metadata.resource_version).clone_into(&mut self.version);
        }
        if !view.metadata.uid.is_empty() {
            self.delete(view.metadata.uid.as_bytes());
        }
    }
}
