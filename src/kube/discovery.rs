//! Discovers the custom resources of a cluster by watching its CustomResourceDefinitions.
//!
//! The definitions are a resource without families in the same pipeline as all others, so they are listed and watched
//! in the same way. Subscribers are notified when the served kinds change.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use super::api_resource::ApiResource;
use super::config::WatchedResource;
use super::observed::ObservedObject;
use super::observer::{NoFamilies, ObjectObserver, ObserverFactory};
use crate::resources::custom::{Definition, Resolved};
use crate::resources::kinds::condition::Condition;
use crate::resources::{Api, DecodeError, ObjectBytes, Representation};
use crate::telemetry::KubeMetrics;
use crate::telemetry::kube::DefinitionEvents;
use crate::util::lock::Lock;
use crate::wire::view::{Str, decode, view};

view! {
    /// The decoded fields of a CustomResourceDefinition.
    pub struct CustomResourceDefinition<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: Spec<'a> = 2 "spec",
        status: Status<'a> = 3 "status",
    }

    /// The decoded fields of its metadata.
    pub struct Metadata<'a> {
        uid: Str<'a> = 5 "uid",
    }

    /// The decoded fields of its spec.
    pub struct Spec<'a> {
        group: Str<'a> = 1 "group",
        names: Names<'a> = 3 "names",
        scope: Str<'a> = 4 "scope",
        versions: Vec<Version<'a>> = 7 "versions",
    }

    /// The names of the kind.
    pub struct Names<'a> {
        plural: Str<'a> = 1 "plural",
        kind: Str<'a> = 4 "kind",
        list_kind: Str<'a> = 5 "listKind",
    }

    /// A version of the kind.
    pub struct Version<'a> {
        name: Str<'a> = 1 "name",
        served: Option<bool> = 2 "served",
    }

    /// The decoded fields of its status.
    pub struct Status<'a> {
        conditions: Vec<Condition<'a>> = 1 "conditions",
    }
}

impl CustomResourceDefinition<'_> {
    /// Returns the kinds that the API server serves for this definition. It does so until the definition is gone: one that is being
    /// deleted waits for its objects, which may take long.
    fn definitions(&self) -> Vec<Definition> {
        let mut conditions = self.status.conditions.iter();
        // A definition with conditions is not served unless it is established.
        let is_established = |condition: &Condition<'_>| {
            &*condition.kind == "Established" && &*condition.status == "True"
        };
        let is_served = self.status.conditions.is_empty() || conditions.any(is_established);
        if !is_served {
            return Vec::new();
        }
        let versions = self.spec.versions.iter();
        let served = versions.filter(|version| version.served.unwrap_or(true));
        let definition = |version: &Version<'_>| Definition {
            group: self.spec.group.to_string(),
            version: version.name.to_string(),
            kind: self.spec.names.kind.to_string(),
            list_kind: self.spec.names.list_kind.to_string(),
            plural: self.spec.names.plural.to_string(),
            namespaced: &*self.spec.scope != "Cluster",
        };
        served.map(definition).collect()
    }
}

/// Returns the kinds that a CustomResourceDefinition manifest serves.
///
/// # Errors
/// Returns an error if the object is not a CustomResourceDefinition.
pub fn definitions(object: ObjectBytes<'_>) -> Result<Vec<Definition>, DecodeError> {
    decode::<CustomResourceDefinition<'_>>(object).map(|definition| definition.definitions())
}

/// The defined kinds by UID of the definition.
type DefinitionsByUid = BTreeMap<Vec<u8>, Vec<Definition>>;

/// The definitions of a cluster.
pub struct Discovery {
    current: Lock<DefinitionsByUid>,
    changes: watch::Sender<u64>,
    metrics: KubeMetrics,
}

impl Discovery {
    /// Returns an empty set of definitions.
    #[must_use]
    pub fn new(metrics: &KubeMetrics) -> Arc<Self> {
        let (current, changes) = (Lock::default(), watch::Sender::new(0));
        Arc::new(Self { current, changes, metrics: metrics.clone() })
    }

    /// Returns the resource that the pipeline has to watch.
    #[must_use]
    pub fn watched(self: &Arc<Self>) -> WatchedResource {
        let (group, kind) = ("apiextensions.k8s.io", "CustomResourceDefinition");
        let api = Api::cluster_wide(group, "v1", kind, "customresourcedefinitions");
        let api = ApiResource::built_in(&api);
        let renderer = Arc::new(NoFamilies::new("customresourcedefinitions.apiextensions.k8s.io"));
        WatchedResource { api, renderer, observers: vec![Arc::clone(self) as _] }
    }

    /// Returns the served kinds, sorted.
    #[must_use]
    pub fn served(&self) -> Vec<Definition> {
        let mut served: Vec<_> = self.current.lock().values().flatten().cloned().collect();
        served.sort_unstable();
        served
    }

    /// Returns a receiver that is notified when the served kinds may have changed.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns the number of changes of the served kinds so far.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Changes the definitions, counts the events, and notifies subscribers if the served kinds have changed. `change` returns the
    /// events, and whether they have.
    fn change(&self, change: impl FnOnce(&mut DefinitionsByUid) -> (DefinitionEvents, bool)) {
        let mut current = self.current.lock();
        let (events, has_changed) = change(&mut current);
        let known = current.len();
        drop(current);
        self.metrics.definitions(events, known);
        if has_changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

impl WatchedResource {
    /// Returns a custom resource with its renderer.
    #[must_use]
    pub fn custom(resolved: Resolved) -> Self {
        let Definition { group, version, kind, list_kind, plural, namespaced } =
            resolved.definition;
        let label = "*unstructured.Unstructured".to_owned();
        // The API server supports custom resources in JSON only.
        let protobuf = false;
        let api =
            ApiResource { group, version, plural, kind, list_kind, namespaced, protobuf, label };
        Self { api, renderer: resolved.renderer, observers: Vec::new() }
    }
}

impl ObserverFactory for Discovery {
    fn representation(&self) -> Representation {
        Representation::Object
    }

    fn observe(self: Arc<Self>) -> Arc<dyn ObjectObserver> {
        Arc::new(DefinitionObserver { discovery: self, collected: Lock::default() })
    }
}

/// The observer of one list/watch. A reload may list the definitions again while the former list/watch goes on.
struct DefinitionObserver {
    discovery: Arc<Discovery>,
    /// The definitions that the list in progress has shown.
    collected: Lock<Option<DefinitionsByUid>>,
}

impl ObjectObserver for DefinitionObserver {
    fn begin_list(&self) {
        self.collected.lock().get_or_insert_default();
    }

    fn end_list(&self, is_state: bool) {
        let Some(collected) = self.collected.lock().take().filter(|_| is_state) else { return };
        self.discovery.change(|current| {
            let old = std::mem::replace(current, collected);
            let new = &*current;
            let count = |wanted: &dyn Fn(&Vec<u8>) -> bool, of: &DefinitionsByUid| {
                of.keys().filter(|uid| wanted(uid)).count() as u64
            };
            let is_other =
                |uid: &Vec<u8>| old.get(uid).is_some_and(|old| new.get(uid) != Some(old));
            let events = DefinitionEvents {
                added: count(&|uid| !old.contains_key(uid), new),
                updated: count(&is_other, new),
                deleted: count(&|uid| !new.contains_key(uid), &old),
            };
            (events, events != DefinitionEvents::default())
        });
    }

    fn put(&self, object: &ObservedObject<'_>, fresh: bool) {
        let Ok(definition) = decode::<CustomResourceDefinition<'_>>(object.bytes) else { return };
        let (uid, definitions) = (definition.metadata.uid.as_bytes(), definition.definitions());
        if let Some(collected) = self.collected.lock().as_mut().filter(|_| fresh) {
            collected.insert(uid.to_vec(), definitions);
            return;
        }
        self.discovery.change(|current| {
            // Most changes are of the status or of annotations.
            let old = current.insert(uid.to_vec(), definitions.clone());
            let is_new = u64::from(old.is_none());
            let events = DefinitionEvents { added: is_new, updated: 1 - is_new, deleted: 0 };
            (events, old.unwrap_or_default() != definitions)
        });
    }

    fn delete(&self, uid: &[u8], fresh: bool) {
        if let Some(collected) = self.collected.lock().as_mut().filter(|_| fresh) {
            collected.remove(uid);
            return;
        }
        self.discovery.change(|current| {
            let removed = current.remove(uid);
            let deleted = u64::from(removed.is_some());
            let has_served = removed.is_some_and(|definitions| !definitions.is_empty());
            (DefinitionEvents { deleted, ..DefinitionEvents::default() }, has_served)
        });
    }

    /// Keeps the definitions: their objects may be listed and current although the definitions may not. Those of a definition that
    /// is gone are not found.
    fn purge(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, served: bool, established: &str) -> String {
        format!(
            r#"{{"metadata":{{"uid":"{name}","resourceVersion":"1"}},"spec":{{"group":"e.io","scope":"Namespaced",
            "names":{{"plural":"{name}","kind":"K","listKind":"Ks"}},"versions":[{{"name":"v1","served":{served}}},{{"name":"v2"}}]}},
            "status":{{"conditions":[{{"type":"Established","status":"{established}"}}]}}}}"#
        )
    }

    #[test]
    fn definitions_are_added_updated_and_removed() {
        let discovery = Discovery::new(&KubeMetrics::default());
        let observer = Arc::clone(&discovery).observe();
        let plurals = || -> Vec<String> {
            let served = discovery.served().into_iter();
            served.map(|one| format!("{}/{}", one.plural, one.version)).collect()
        };
        let put = |name: &str, served, established: &str, fresh| {
            let text = definition(name, served, established);
            observer.put(&ObservedObject::new(ObjectBytes::Json(text.as_bytes())), fresh);
        };
        let mut changes = discovery.changes();
        observer.begin_list();
        put("a", true, "True", true);
        put("b", false, "True", true);
        assert!(plurals().is_empty());
        observer.end_list(true);
        assert_eq!(plurals(), ["a/v1", "a/v2", "b/v2"]);
        assert!(discovery.served().iter().all(|one| one.list_kind == "Ks"));
        assert!(changes.has_changed().expect("open"));
        changes.mark_unchanged();
        put("b", true, "False", false);
        assert_eq!(plurals(), ["a/v1", "a/v2"]);
        changes.mark_unchanged();
        put("b", true, "False", false);
        assert!(!changes.has_changed().expect("open"), "the served kinds are the same");
        put("b", true, "True", false);
        assert!(changes.has_changed().expect("open"));
        let deleted = definition("a", true, "True")
            .replace(r#""uid""#, r#""deletionTimestamp":"2026-11-29T10:00:00Z","uid""#);
        observer.put(&ObservedObject::new(ObjectBytes::Json(deleted.as_bytes())), false);
        assert_eq!(plurals(), ["a/v1", "b/v1", "a/v2", "b/v2"], "it waits for its objects");
        observer.delete(b"a", false);
        assert_eq!(plurals(), ["b/v1", "b/v2"]);
        observer.begin_list();
        put("c", true, "True", true);
        observer.end_list(false);
        assert_eq!(plurals(), ["b/v1", "b/v2"]);
        // The definitions may no longer be listed, but their objects may.
        observer.purge();
        assert_eq!(plurals(), ["b/v1", "b/v2"]);
    }

    /// A reload replaces a list/watch whose own lists fail meanwhile.
    #[test]
    fn a_failed_list_drops_nothing_that_another_one_collects() {
        let discovery = Discovery::new(&KubeMetrics::default());
        let [old, new] = [(); 2].map(|()| Arc::clone(&discovery).observe());
        let put = |name: &str| {
            let text = definition(name, true, "True");
            new.put(&ObservedObject::new(ObjectBytes::Json(text.as_bytes())), true);
        };
        new.begin_list();
        put("a");
        old.begin_list();
        old.end_list(false);
        put("b");
        assert!(discovery.served().is_empty(), "the list goes on");
        new.end_list(true);
        let plurals: Vec<String> = discovery.served().into_iter().map(|one| one.plural).collect();
        assert_eq!(plurals, ["a", "b", "a", "b"]);
    }
}
