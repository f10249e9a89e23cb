//! Where the objects of a cluster come from: the synthetic layout, or a recording.

use super::encode::{Encoding, Message};
use super::kinds::{self, Kind, Name};
use super::layout::{Item, Layout};
use super::replay::Replay;

/// The source of all objects.
pub enum Source {
    /// The synthetic cluster.
    Synthetic(Box<Layout>),
    /// A recorded one, repeated.
    Recorded(Box<Replay>),
}

impl Source {
    /// Returns the layout of a synthetic cluster.
    pub fn layout(&self) -> Option<&Layout> {
        match self {
            Self::Synthetic(layout) => Some(layout),
            Self::Recorded(_) => None,
        }
    }

    /// Returns the replayed cluster, if this is one.
    pub fn replay(&self) -> Option<&Replay> {
        match self {
            Self::Recorded(replay) => Some(replay),
            Self::Synthetic(_) => None,
        }
    }

    /// Returns the initial objects of a resource, whose kind is synthetic if there is one.
    pub fn items(&self, resource: &str, kind: Option<&Kind>) -> Vec<Item> {
        match self {
            Self::Synthetic(layout) => kind.map(|kind| (kind.items)(layout)).unwrap_or_default(),
            Self::Recorded(replay) => replay.items(resource),
        }
    }

    /// Returns whether objects can be encoded in this way. Recordings are protobuf.
    pub fn has_encoding(&self, encoding: Encoding) -> bool {
        matches!(self, Self::Synthetic(_)) || encoding == Encoding::Protobuf
    }

    /// Returns namespace and name of an object.
    pub fn name<'a>(&'a self, kind: Option<&Kind>, item: &Item) -> Name<'a> {
        match self {
            Self::Synthetic(layout) => kind
                .map_or(Name { namespace: None, name: String::new() }, |kind| {
                    (kind.name)(layout, item)
                }),
            Self::Recorded(replay) => {
                let (namespace, name) = replay.name(item);
                Name { namespace, name }
            }
        }
    }

    /// Returns the node that a pod is bound to, empty before that.
    pub fn node_name(&self, item: &Item) -> String {
        match self {
            Self::Synthetic(layout) => kinds::node_name(layout, item),
            Self::Recorded(replay) => replay.node_name(item),
        }
    }

    /// Returns the phase of a pod.
    pub fn phase(&self, item: &Item) -> &str {
        match self {
            Self::Synthetic(_) => kinds::phase(item),
            Self::Recorded(replay) => replay.phase(item),
        }
    }

    /// Returns the label `app` of a pod.
    pub fn app(&self, item: &Item) -> String {
        match self {
            Self::Synthetic(layout) => layout.workload(item.workload).name.clone(),
            Self::Recorded(replay) => replay.app(item),
        }
    }

    /// Appends an object. With `type_meta`, JSON has `kind` and `apiVersion`.
    pub fn encode(
        &self,
        kind: Option<&Kind>,
        item: &Item,
        encoding: Encoding,
        type_meta: Option<(&str, &str)>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Synthetic(layout) => {
                if let Some(kind) = kind {
                    Message::object(out, encoding, type_meta, |m| (kind.write)(layout, item, m));
                }
            }
            Self::Recorded(replay) => replay.write(item, out),
        }
    }
}
