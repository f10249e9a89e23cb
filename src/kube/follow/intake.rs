//! From the bytes of one object to the store: shard filter, rendering, and the state being collected.
//!
//! Objects flow in one at a time and are gone when a call returns. A malformed object costs itself
//! alone: it has no series, is counted and named in the log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::machine::Collected;
use crate::cache::{Rendered, Replacement, Store};
use crate::kube::frame::Identified;
use crate::kube::shard::Shard;
use crate::kube::target::Scope;
use crate::resources::{Follower, ObjectBytes, Renderer};
use crate::telemetry::kube::ReflectorMetrics;
use crate::wire::view::decode;

/// Takes the objects of one list/watch.
pub(crate) struct Intake {
    scope: Arc<Scope>,
    renderer: Arc<dyn Renderer>,
    store: Arc<Store>,
    shard: Shard,
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
        shard: Shard,
        metrics: ReflectorMetrics,
    ) -> Self {
        let (scratch, version) = (Rendered::default(), String::new());
        Self { scope, renderer, store, shard, metrics, scratch, collected: None, version }
    }

    /// From here on, objects belong to a new state; or they go on doing so.
    pub(crate) fn collect(&mut self) {
        self.collected.get_or_insert_with(|| self.store.replace());
        self.tell(|follower, _| follower.collect());
    }

    /// What becomes of the objects collected.
    pub(crate) fn settle(&mut self, order: Collected) {
        match order {
            Collected::Keep => {}
            Collected::Commit => {
                if let Some(collected) = self.collected.take() {
                    collected.commit();
                    self.tell(|follower, _| follower.settle(true));
                }
            }
            Collected::Discard => {
                self.collected = None;
                self.tell(|follower, _| follower.settle(false));
            }
        }
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
        if self.shard != Shard::WHOLE && self.is_foreign(object) {
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
                match &mut self.collected {
                    Some(collected) => collected.push(&self.scratch),
                    None => self.store.apply(&self.scratch),
                }
                self.tell(|follower, fresh| follower.put(&self.scratch.uid, object, fresh));
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "rendering panicked".to_owned(),
        };
        self.malformed(object, &error);
    }

    /// Whether the object belongs to another shard; what has no identity is left to rendering.
    fn is_foreign(&mut self, object: ObjectBytes<'_>) -> bool {
        let Ok(view) = decode::<Identified<'_>>(object) else {
            return false;
        };
        (*view.metadata.resource_version).clone_into(&mut self.version);
        !self.shard.keeps(view.metadata.uid.as_bytes())
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
        match &mut self.collected {
            Some(collected) => collected.delete(uid),
            None => self.store.delete(uid),
        };
        self.tell(|follower, fresh| follower.delete(uid, fresh));
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
