//! The recorded data set, replayed: the objects agree with each other, initially and after rollouts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;

use k8s_pb::api::apps::v1::{Deployment, ReplicaSet};
use k8s_pb::api::core::v1::{Namespace, Node, Pod};
use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::encode::Encoding;
use super::recording::Recording;
use super::replay::Replay;
use super::rollouts::Rollouts;
use super::source::Source;
use super::world::{ChangeKind, World};

const EPOCH: i64 = 1_800_000_000;

fn file() -> Vec<u8> {
    let mut file = Vec::new();
    let compressed = include_bytes!("../recorded.gz").as_slice();
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut file).unwrap();
    file
}

fn world(pods: u32) -> Arc<World> {
    let recording = Arc::new(Recording::parse(&file()).unwrap());
    let replay = Replay::new(recording, pods, 7, EPOCH);
    Arc::new(World::new(Source::Recorded(Box::new(replay)), 1_000_000))
}

/// Returns the objects of a resource; no token may be left in them.
fn objects<T: prost::Message + Default>(world: &World, resource: &str) -> Vec<T> {
    let collection = world.named(resource).unwrap();
    let decode = |item| {
        let mut bytes = Vec::new();
        collection.encode(&world.source, &item, Encoding::Protobuf, false, &mut bytes);
        assert!(!String::from_utf8_lossy(&bytes).contains("~t"), "{resource}");
        T::decode(bytes.as_slice()).unwrap()
    };
    collection.items().into_iter().map(decode).collect()
}

fn uids<'a>(objects: impl Iterator<Item = &'a Option<ObjectMeta>>) -> BTreeSet<&'a str> {
    objects.map(|meta| meta.as_ref().unwrap().uid()).collect()
}

/// Asserts that pods, their owners, nodes and namespaces refer to each other.
fn assert_consistent(world: &World) {
    let pods: Vec<Pod> = objects(world, "pods");
    let sets: Vec<ReplicaSet> = objects(world, "replicasets");
    let deployments: Vec<Deployment> = objects(world, "deployments");
    let nodes: Vec<Node> = objects(world, "nodes");
    let namespaces: Vec<Namespace> = objects(world, "namespaces");
    let known_uids = uids(pods.iter().map(|pod| &pod.metadata));
    assert_eq!(known_uids.len(), pods.len(), "UIDs of pods are unique");
    let of_sets = uids(sets.iter().map(|set| &set.metadata));
    let of_deployments = uids(deployments.iter().map(|deployment| &deployment.metadata));
    let names = |metas: Vec<&Option<ObjectMeta>>| -> BTreeSet<String> {
        metas.into_iter().map(|meta| meta.as_ref().unwrap().name().to_owned()).collect()
    };
    let nodes = names(nodes.iter().map(|node| &node.metadata).collect());
    let namespaces = names(namespaces.iter().map(|namespace| &namespace.metadata).collect());
    for set in &sets {
        let owner = &set.metadata.as_ref().unwrap().owner_references[0];
        assert!(of_deployments.contains(owner.uid()), "{owner:?}");
    }
    for pod in &pods {
        let meta = pod.metadata.as_ref().unwrap();
        assert!(of_sets.contains(meta.owner_references[0].uid()), "{meta:?}");
        assert!(namespaces.contains(meta.namespace()), "{meta:?}");
        let node = pod.spec.as_ref().unwrap().node_name();
        assert!(node.is_empty() || nodes.contains(node), "{node}");
        let created = meta.creation_timestamp.as_ref().unwrap().seconds();
        assert!((EPOCH - 40 * 86_400..EPOCH + 86_400).contains(&created), "{created}");
    }
}

#[test]
fn any_number_of_pods_with_what_belongs_to_them() {
    for pods in [1, 2, 50] {
        let world = world(pods);
        assert_eq!(world.named("pods").unwrap().items().len(), pods as usize);
        assert_consistent(&world);
    }
    let world = world(1_000);
    assert_consistent(&world);
    let pods: Vec<Pod> = objects(&world, "pods");
    let containers = pods.iter().map(|pod| pod.spec.as_ref().unwrap().containers.len());
    let counts: BTreeSet<_> = containers.collect();
    assert_eq!(counts, (1..=12).collect());
    let sizes = pods.iter().map(|pod| {
        let annotations = &pod.metadata.as_ref().unwrap().annotations;
        annotations.values().map(String::len).sum::<usize>()
    });
    assert!(sizes.max().unwrap() > 2_000);
    assert!(pods.iter().all(|pod| pod.status.as_ref().unwrap().phase() == "Running"));
}

#[test]
fn rollouts_replace_pods_by_others_with_new_names() {
    let world = world(120);
    let mut rollouts = Rollouts::new(&world).unwrap();
    let named = |world: &World| -> BTreeSet<String> {
        let pods: Vec<Pod> = objects(world, "pods");
        pods.iter().map(|pod| pod.metadata.as_ref().unwrap().name().to_owned()).collect()
    };
    let (before, start) = (named(&world), world.version());
    for step in 1..=20_000 {
        rollouts.step();
        assert_eq!(world.changes(), step);
        if step % 4_000 == 0 {
            assert_consistent(&world);
        }
    }
    assert!(before.is_disjoint(&named(&world)), "every workload was rolled out");
    let pods = world.named("pods").unwrap();
    let mut lives: BTreeMap<String, Vec<ChangeKind>> = BTreeMap::new();
    for change in pods.changes_after(start, usize::MAX).unwrap() {
        lives.entry(pods.key(&world.source, &change.item)).or_default().push(change.kind);
    }
    // A pod is added once, and nothing happens to it after it is deleted.
    for (name, life) in &lives {
        let first = life.iter().skip(1).all(|kind| *kind != ChangeKind::Added);
        let last = life.iter().rev().skip(1).all(|kind| *kind != ChangeKind::Deleted);
        assert!(first && last, "{name}: {life:?}");
    }
    let deleted = lives.values().filter(|life| life.last() == Some(&ChangeKind::Deleted)).count();
    assert!(deleted > 500, "{deleted}");
}

#[test]
fn other_files_are_refused() {
    let file = file();
    for broken in [&file[..0], &file[..200], &file[..file.len() - 1], b"{}\n"] {
        assert!(Recording::parse(broken).is_err());
    }
}
