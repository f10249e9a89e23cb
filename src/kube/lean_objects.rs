//! Pods and StatefulSets with only the fields that sharding reads.
//!
//! The types of k8s-openapi bring the decoder of a whole pod specification, which is 1.5 MB of machine code
//! (docs/dependencies.md). `kube::core::Object` is kube's own means against that.

use ::kube::Api;
use ::kube::core::{ApiResource, NotUsed, Object};
use k8s_openapi::api::{apps, core};
use serde::{Deserialize, Serialize};

use super::client::Client;

/// A pod: its owners and its address.
pub(super) type Pod = Object<Option<NotUsed>, PodStatus>;

/// A StatefulSet: the number of pods it asks for, and of those that are ready.
pub(super) type StatefulSet = Object<Option<StatefulSetSpec>, StatefulSetStatus>;

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodStatus {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatefulSetSpec {
    pub(super) replicas: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatefulSetStatus {
    pub(super) ready_replicas: Option<i32>,
}

/// The pods of a namespace.
pub(super) fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    let resource = ApiResource::erase::<core::v1::Pod>(&());
    Api::namespaced_with(client.api(), namespace, &resource)
}

/// The StatefulSets of a namespace.
pub(super) fn stateful_sets(client: &Client, namespace: &str) -> Api<StatefulSet> {
    let resource = ApiResource::erase::<apps::v1::StatefulSet>(&());
    Api::namespaced_with(client.api(), namespace, &resource)
}
