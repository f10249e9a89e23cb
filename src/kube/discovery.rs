//! Which custom resources a cluster serves: its CustomResourceDefinitions, followed like any other kind.
//!
//! The definitions are a resource without families in the same pipeline as all others, so that they are listed and
//! watched with the same care. What they define is kept here; whoever wants to follow it is told of changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::config::Watched;
use super::target::Target;
use crate::cache::{Rendered, Schema};
use crate::resources::custom::{Definition, Resolved};
use crate::resources::{DecodeError, Follower, ObjectBytes, Renderer};
use crate::telemetry::KubeMetrics;
use crate::wire::view::{Str, decode, view};

view! {
    /// What is read of a CustomResourceDefinition.
    pub struct CustomResourceDefinition<'a> {
        metadata: Metadata<'a> = 1 "metadata",
        spec: Spec<'a> = 2 "spec",
        status: Status<'a> = 3 "status",
    }

    /// Of its metadata.
    pub struct Metadata<'a> {
        uid: Str<'a> = 5 "uid",
        resource_version: Str<'a> = 6 "resourceVersion",
        deletion_timestamp: Option<crate::wire::view::Present> = 9 "deletionTimestamp",
    }

    /// Of its spec.
    pub struct Spec<'a> {
        group: Str<'a> = 1 "group",
        names: Names<'a> = 3 "names",
        scope: Str<'a> = 4 "scope",
        versions: Vec<Version<'a>> = 7 "versions",
    }

    /// How the kind is called.
    pub struct Names<'a> {
        plural: Str<'a> = 1 "plural",
        kind: Str<'a> = 4 "kind",
    }

    /// A version.
    pub struct Version<'a> {
        name: Str<'a> = 1 "name",
        served: Option<bool> = 2 "served",
    }

    /// Of its status.
    pub struct Status<'a> {
        conditions: Vec<Condition<'a>> = 1 "conditions",
    }

    /// A condition.
    pub struct Condition<'a> {
        kind: Str<'a> = 1 "type",
        status: Str<'a> = 2 "status",
    }
}

impl CustomResourceDefinition<'_> {
    /// The kinds that can be asked for.
    fn definitions(&self) -> Vec<Definition> {
        let mut conditions = self.status.conditions.iter();
        // One that has conditions and is not established, or is on its way out, is not served.
        let is_established = |condition: &Condition<'_>| {
            &*condition.kind == "Established" && &*condition.status == "True"
        };
        let is_served = self.status.conditions.is_empty() || conditions.any(is_established);
        if !is_served || self.metadata.deletion_timestamp.is_some() {
            return Vec::new();
        }
        let versions = self.spec.versions.iter();
        let served = versions.filter(|version| version.served.unwrap_or(true));
        let definition = |version: &Version<'_>| Definition {
            group: self.spec.group.to_string(),
            version: version.name.to_string(),
            kind: self.spec.names.kind.to_string(),
            plural: self.spec.names.plural.to_string(),
            namespaced: &*self.spec.scope != "Cluster",
        };
        served.map(definition).collect()
    }
}

/// The kinds that a manifest of a CustomResourceDefinition serves.
///
/// # Errors
/// It is none.
pub fn definitions(object: ObjectBytes<'_>) -> Result<Vec<Definition>, DecodeError> {
    decode::<CustomResourceDefinition<'_>>(object).map(|definition| definition.definitions())
}

/// What is defined, by the definition's uid.
type Defined = BTreeMap<Vec<u8>, Vec<Definition>>;

#[derive(Debug, Default)]
struct State {
    current: Defined,
    collected: Option<Defined>,
}

/// The definitions of a cluster; every clone is the same.
#[derive(Clone)]
pub struct Discovery(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    metrics: KubeMetrics,
    schema: Arc<Schema>,
}

impl Discovery {
    /// Nothing known yet.
    #[must_use]
    pub fn new(metrics: &KubeMetrics) -> Self {
        let resource = "customresourcedefinitions.apiextensions.k8s.io".to_owned();
        let schema = Arc::new(Schema { resource, families: Vec::new() });
        Self(Arc::new(Inner {
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            metrics: metrics.clone(),
            schema,
        }))
    }

    /// What the pipeline has to follow for it.
    #[must_use]
    pub fn watched(&self) -> Watched {
        let target = Target {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            namespaced: false,
            protobuf: true,
            label: "*v1.CustomResourceDefinition".to_owned(),
        };
        Watched { target, renderer: Arc::clone(&self.0) as Arc<dyn Renderer> }
    }

    /// The kinds that are served, in a fixed order.
    #[must_use]
    pub fn served(&self) -> Vec<Definition> {
        let mut served: Vec<_> = self.0.state().current.values().flatten().cloned().collect();
        served.sort_unstable();
        served
    }

    /// Changes whenever what is served may have.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }
}

impl Watched {
    /// A custom resource.
    #[must_use]
    pub fn custom(resolved: Resolved) -> Self {
        let Definition { group, version, kind, plural, namespaced } = resolved.definition;
        let label = "*unstructured.Unstructured".to_owned();
        // The server has custom resources in JSON only.
        let protobuf = false;
        let target = Target { group, version, plural, kind, namespaced, protobuf, label };
        Self { target, renderer: resolved.renderer }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `events` and tells of a change, if there was any.
    fn changed(&self, events: [u64; 3], known: usize) {
        self.metrics.definitions(events, known);
        if events != [0; 3] {
            self.changes.send_modify(|changes| *changes += 1);
        }
    }
}

impl Renderer for Inner {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    fn follower(&self) -> Option<&dyn Follower> {
        Some(self)
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let definition: CustomResourceDefinition<'_> = decode(object)?;
        out.uid.extend_from_slice(definition.metadata.uid.as_bytes());
        out.resource_version.push_str(&definition.metadata.resource_version);
        Ok(())
    }
}

impl Follower for Inner {
    fn collect(&self) {
        self.state().collected.get_or_insert_default();
    }

    fn settle(&self, is_state: bool) {
        let mut state = self.state();
        let Some(collected) = state.collected.take().filter(|_| is_state) else { return };
        let old = std::mem::replace(&mut state.current, collected);
        let new = &state.current;
        let count = |wanted: &dyn Fn(&Vec<u8>) -> bool, of: &Defined| {
            of.keys().filter(|uid| wanted(uid)).count() as u64
        };
        let events = [
            count(&|uid| !old.contains_key(uid), new),
            count(&|uid| old.get(uid).is_some_and(|old| new.get(uid) != Some(old)), new),
            count(&|uid| !new.contains_key(uid), &old),
        ];
        let known = new.len();
        drop(state);
        self.changed(events, known);
    }

    fn put(&self, uid: &[u8], object: ObjectBytes<'_>, fresh: bool) {
        // It has been read once already.
        let Ok(definitions) = definitions(object) else { return };
        let mut state = self.state();
        if let Some(collected) = state.collected.as_mut().filter(|_| fresh) {
            collected.insert(uid.to_vec(), definitions);
            return;
        }
        let old = state.current.insert(uid.to_vec(), definitions);
        let known = state.current.len();
        drop(state);
        self.changed(if old.is_none() { [1, 0, 0] } else { [0, 1, 0] }, known);
    }

    fn delete(&self, uid: &[u8], fresh: bool) {
        let mut state = self.state();
        if let Some(collected) = state.collected.as_mut().filter(|_| fresh) {
            collected.remove(uid);
            return;
        }
        let old = state.current.remove(uid);
        let known = state.current.len();
        drop(state);
        self.changed([0, 0, u64::from(old.is_some())], known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(name: &str, served: bool, established: &str) -> String {
        format!(
            r#"{{"metadata":{{"uid":"{name}","resourceVersion":"1"}},"spec":{{"group":"e.io","scope":"Namespaced",
            "names":{{"plural":"{name}","kind":"K"}},"versions":[{{"name":"v1","served":{served}}},{{"name":"v2"}}]}},
            "status":{{"conditions":[{{"type":"Established","status":"{established}"}}]}}}}"#
        )
    }

    #[test]
    fn definitions_come_change_and_go() {
        let discovery = Discovery::new(&KubeMetrics::default());
        let follower = discovery.0.follower().expect("itself");
        let plurals = || -> Vec<String> {
            let served = discovery.served().into_iter();
            served.map(|one| format!("{}/{}", one.plural, one.version)).collect()
        };
        let put = |name: &str, served, established: &str, fresh| {
            let text = definition(name, served, established);
            follower.put(name.as_bytes(), ObjectBytes::Json(text.as_bytes()), fresh);
        };
        let mut changes = discovery.changes();
        follower.collect();
        put("a", true, "True", true);
        put("b", false, "True", true);
        assert!(plurals().is_empty());
        follower.settle(true);
        assert_eq!(plurals(), ["a/v1", "a/v2", "b/v2"]);
        assert!(changes.has_changed().expect("open"));
        changes.mark_unchanged();
        put("b", true, "False", false);
        assert_eq!(plurals(), ["a/v1", "a/v2"]);
        put("b", true, "True", false);
        follower.delete(b"a", false);
        assert_eq!(plurals(), ["b/v1", "b/v2"]);
        follower.collect();
        put("c", true, "True", true);
        follower.settle(false);
        assert_eq!(plurals(), ["b/v1", "b/v2"]);
    }
}
