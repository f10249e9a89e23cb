//! Parses the pods of this node from the API, one object at a time: limits, requests, owners,
//! container IDs and volumes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::json_splitter::Member;
use crate::resources::values::quantity::Quantity;

/// The member of a list response to extract.
pub(super) const WANTED: &[Member] = &[Member { name: "items", is_list: true }];

/// The resource name of limits and requests.
const STORAGE: &str = "ephemeral-storage";

/// The annotation of a mirror pod that contains the UID of the kubelet's static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
    #[serde(default)]
    controller: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
    #[serde(default)]
    volumes: Vec<Volume>,
    #[serde(default)]
    overhead: Amounts,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    resources: Resources,
    #[serde(default)]
    volume_mounts: Vec<VolumeMount>,
    #[serde(default)]
    restart_policy: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    limits: Amounts,
    requests: Amounts,
}

/// Quantities by resource name. They may be strings or numbers.
#[derive(Default, Deserialize)]
struct Amounts(BTreeMap<String, serde_json::Value>);

impl Amounts {
    fn storage(&self) -> Option<f64> {
        let text = match self.0.get(STORAGE)? {
            serde_json::Value::String(text) => Cow::from(text),
            other => Cow::from(other.to_string()),
        };
        Some(Quantity::parse(&text)?.converted())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeMount {
    name: String,
    #[serde(default)]
    mount_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    empty_dir: Option<EmptyDir>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EmptyDir {
    medium: String,
    size_limit: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
    ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    #[serde(default, rename = "containerID")]
    container_id: String,
}

/// A pod's attributes from the API.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PodSpec {
    /// Namespace and name of a mirror pod; `None` for other pods.
    pub(super) mirror: Option<(String, String)>,
    /// Kind and name of the owner; empty if there is none.
    pub(super) owner: (String, String),
    pub(super) limit: Option<f64>,
    pub(super) request: Option<f64>,
    /// The limit and request of each container.
    pub(super) containers: BTreeMap<String, (Option<f64>, Option<f64>)>,
    /// `emptyDir` volumes on disk, with their size limits.
    pub(super) volumes: BTreeMap<String, Option<f64>>,
    /// Container, volume and mount path of each such volume.
    pub(super) mounts: Vec<(String, String, String)>,
    /// Container names by container ID.
    pub(super) running: BTreeMap<String, String>,
}

impl PodSpec {
    /// Returns whether these are the attributes of the pod with this namespace and name, if the UID is the same. Any user
    /// can set the annotation of mirror pods, but a mirror pod has the name of its static pod.
    pub(super) fn fits(&self, namespace: &str, name: &str) -> bool {
        self.mirror.as_ref().is_none_or(|mirror| (&*mirror.0, &*mirror.1) == (namespace, name))
    }
}

/// Parses a pod and returns its UID, as the kubelet reports it, and its attributes.
///
/// # Errors
///
/// When the object is not a valid pod.
pub(super) fn pod(object: &[u8]) -> serde_json::Result<(String, PodSpec)> {
    let object: Object = serde_json::from_slice(object)?;
    let Object { mut metadata, spec, status } = object;
    let owners = metadata.owner_references;
    let owner = owners.into_iter().find(|owner| owner.controller);
    let mut known = PodSpec {
        owner: owner.map(|owner| (owner.kind, owner.name)).unwrap_or_default(),
        limit: together(&spec, |resources| resources.limits.storage()),
        request: together(&spec, |resources| resources.requests.storage()),
        ..PodSpec::default()
    };
    for volume in spec.volumes {
        if let Some(EmptyDir { medium, size_limit }) = volume.empty_dir
            && medium.is_empty()
        {
            let limit = size_limit
                .and_then(|limit| Amounts([(STORAGE.to_owned(), limit)].into()).storage());
            known.volumes.insert(volume.name, limit);
        }
    }
    for container in spec.containers.into_iter().chain(spec.init_containers) {
        let Container { name, resources, volume_mounts, .. } = container;
        let mounts = volume_mounts.into_iter().filter(|of| known.volumes.contains_key(&of.name));
        known.mounts.extend(mounts.map(|of| (name.clone(), of.name, of.mount_path)));
        known.containers.insert(name, (resources.limits.storage(), resources.requests.storage()));
    }
    let Status { container_statuses, init_container_statuses, ephemeral_container_statuses } =
        status;
    let statuses = container_statuses.into_iter().chain(init_container_statuses);
    for ContainerStatus { name, container_id } in statuses.chain(ephemeral_container_statuses) {
        if let Some((_, id)) = container_id.split_once("://") {
            known.running.insert(id.to_owned(), name);
        }
    }
    let Some(uid) = metadata.annotations.remove(MIRROR) else { return Ok((metadata.uid, known)) };
    known.mirror = Some((metadata.namespace, metadata.name));
    Ok((uid, known))
}

/// Returns the effective amount of a pod, computed like the kubelet does for eviction: the sum over
/// the containers that run concurrently, or the largest init container if that is more, plus the
/// pod overhead. `None` if no container specifies one.
fn together(spec: &Spec, of: impl Fn(&Resources) -> Option<f64>) -> Option<f64> {
    let stays = |container: &&Container| container.restart_policy == "Always";
    let (mut beside, mut before, mut any) = (0.0, 0.0_f64, false);
    for container in &spec.init_containers {
        let Some(amount) = of(&container.resources) else { continue };
        any = true;
        if stays(&container) {
            beside += amount;
            before = before.max(beside);
        } else {
            before = before.max(beside + amount);
        }
    }
    let amounts: Vec<f64> =
        spec.containers.iter().filter_map(|container| of(&container.resources)).collect();
    any |= !amounts.is_empty();
    beside += amounts.iter().sum::<f64>();
    any.then(|| beside.max(before) + spec.overhead.storage().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_pod_are_those_of_containers_that_run_at_a_time() {
        let object = br#"{"metadata":{"uid":"u","annotations":{"kubernetes.io/config.mirror":"m"},
            "ownerReferences":[{"kind":"X","name":"x"},{"kind":"ReplicaSet","name":"r","controller":true}]},
            "spec":{"containers":[
              {"name":"a","resources":{"limits":{"ephemeral-storage":"1Ki","cpu":1},"requests":{"ephemeral-storage":"2"}},
               "volumeMounts":[{"name":"e","mountPath":"/e"},{"name":"m","mountPath":"/m"}]},
              {"name":"b","resources":{"limits":{"ephemeral-storage":1000}}},{"name":"c"}],
             "initContainers":[
              {"name":"s","restartPolicy":"Always","resources":{"limits":{"ephemeral-storage":"100"}}},
              {"name":"i","resources":{"limits":{"ephemeral-storage":"3k"}}}],
             "volumes":[{"name":"e","emptyDir":{"sizeLimit":"5Mi"}},{"name":"m","emptyDir":{"medium":"Memory"}},
              {"name":"h","hostPath":{"path":"/"}},{"name":"f","emptyDir":{}}]},
            "status":{"containerStatuses":[{"name":"a","containerID":"containerd://1a"},{"name":"b","containerID":""}]}}"#;
        let (uid, known) = pod(object).expect("a pod");
        assert_eq!(uid, "m");
        assert_eq!(known.owner, ("ReplicaSet".to_owned(), "r".to_owned()));
        assert_eq!((known.limit, known.request), (Some(3100.0), Some(2.0)));
        assert_eq!(known.containers["a"], (Some(1024.0), Some(2.0)));
        assert_eq!(known.containers["c"], (None, None));
        let volumes: Vec<_> = known.volumes.iter().map(|(name, of)| (name.as_str(), *of)).collect();
        assert_eq!(volumes, [("e", Some(5_242_880.0)), ("f", None)]);
        assert_eq!(known.mounts, [("a".to_owned(), "e".to_owned(), "/e".to_owned())]);
        assert_eq!(known.running, BTreeMap::from([("1a".to_owned(), "a".to_owned())]));
        assert!(pod(b"{}").is_err());
    }
}
