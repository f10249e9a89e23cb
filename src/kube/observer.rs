//! Observers of a resource's objects, which receive each object in addition to its rendering.
//!
//! A [`WatchedResource`](super::WatchedResource) has any number of [`ObserverFactory`]s; without one, nothing here costs
//! anything. Each list/watch has an [`ObjectObserver`] from each of them, which keeps whatever previous state it needs.

use std::sync::Arc;

use super::frame::IdentifiedObject;
use super::observed::ObservedObject;
use crate::cache::{Rendered, Schema};
use crate::resources::{DecodeError, ObjectBytes, Renderer, Representation};
use crate::wire::view::decode;

/// Creates an observer for each list/watch of a resource.
pub trait ObserverFactory: Send + Sync {
    /// Returns the parts of an object that the observers read.
    fn representation(&self) -> Representation;

    /// Returns the observer of a new list/watch.
    fn observe(self: Arc<Self>) -> Arc<dyn ObjectObserver>;
}

/// The series of the objects of one list/watch.
pub trait ObjectSeries: Send + Sync {
    /// Returns the namespace of the list/watch; empty for all namespaces.
    fn namespace(&self) -> &str;

    /// Replaces the labels that [`ObjectObserver::identify`] has written for an object, if it has series.
    fn relabel(&self, uid: &[u8], namespace: &str, labels: &[u8]);
}

/// An observer of the objects of one list/watch, including those of other shards and those without series because of a
/// limit. `fresh` objects belong to a list that is still in progress.
pub trait ObjectObserver: Send + Sync {
    /// Called when a list begins or continues.
    fn begin_list(&self);

    /// Called when a list ends: with `true` its objects replace the previous ones, with `false` they are discarded.
    fn end_list(&self, commit: bool);

    /// Called for a new or changed object after it was rendered.
    fn put(&self, object: &ObservedObject<'_>, fresh: bool);

    /// Called when an object is deleted.
    fn delete(&self, uid: &[u8], fresh: bool);

    /// Called before the first list with the series of the objects.
    fn attach(&self, _series: Arc<dyn ObjectSeries>) {}

    /// Called for an object that is rendered: writes labels that follow its identity labels on each of its series.
    fn identify(&self, _object: &ObservedObject<'_>, _identity: &mut Vec<u8>) {}

    /// Called when an object cannot be rendered any more, so that it has no series. It still exists.
    fn malformed(&self, uid: &[u8], fresh: bool) {
        self.delete(uid, fresh);
    }

    /// Called when a pod loses its series because it has completed. It still exists.
    fn hide(&self, _uid: &[u8]) {}

    /// Called when the objects are dropped because the server has refused to list them for long. They may still exist.
    fn purge(&self) {
        self.begin_list();
        self.end_list(true);
    }

    /// Called when the list/watch is served. One with the same objects may be served until it is [closed](Self::close).
    fn show(&self) {}

    /// Called when the list/watch is no longer served, because it was replaced or removed. One that was never served ends
    /// without this call.
    fn close(&self) {}
}

/// The renderer of a resource that is watched for its observers only.
pub struct NoFamilies(Arc<Schema>);

impl NoFamilies {
    /// Returns a renderer of the resource with this name in the catalog.
    #[must_use]
    pub fn new(resource: &str) -> Self {
        Self(Arc::new(Schema { resource: resource.to_owned(), families: Vec::new() }))
    }
}

impl Renderer for NoFamilies {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.0)
    }

    fn representation(&self) -> Representation {
        Representation::Metadata
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let IdentifiedObject { metadata, .. } = decode(object)?;
        out.uid.extend_from_slice(metadata.uid.as_bytes());
        out.resource_version.push_str(&metadata.resource_version);
        out.namespace.extend_from_slice(metadata.namespace.as_bytes());
        Ok(())
    }
}
