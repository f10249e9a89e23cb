//! A test double of the Kubernetes API with a synthetic cluster, for demonstrations, benchmarks and tests.
//!
//! It is an HTTP/1.1 server on loopback. It answers LIST (paged, with the API's rules for resource versions and 410
//! for expired ones), WATCH and WatchList (initial events, bookmarks, timeouts) in protobuf and JSON for every
//! resource of [`APIS`]; the bytes were compared with kube-apiserver. The cluster has a given number of pods and, in
//! realistic proportions, their related objects; the same seed yields the same cluster and the same changes. It is
//! generated, or repeats a [`Recording`] of a real API server, in protobuf only. Objects are stored as a few numbers and
//! encoded when they are read: 100,000 pods take about 20 MB.
//!
//! It serves every client on loopback without authentication, and it is read-only. It does not depend on kstatd,
//! which is tested with it.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod api;
mod body;
mod churn;
mod encode;
mod envelope;
mod http;
mod kinds;
mod layout;
mod query;
mod random;
mod recording;
mod replay;
mod rollouts;
mod source;
mod world;

#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use api::{APIS, Api};
pub use recording::{MalformedRecording, Recording};

use churn::Churn;
use encode::Encoding;
use layout::Layout;
use replay::Replay;
use rollouts::Rollouts;
use source::Source;
use world::World;

/// The options of a double.
#[derive(Clone, Debug)]
pub struct Options {
    /// Port on 127.0.0.1, 0 for any free one.
    pub port: u16,
    /// Number of pods.
    pub pods: u32,
    /// Changes per second, each of which is one watch event.
    pub events_per_second: f64,
    /// The seed of all random decisions.
    pub seed: u64,
    /// Unix time of the initial state; all objects are older.
    pub epoch: i64,
    /// True if watches may request initial events. Otherwise such requests fail with 422, as in API servers before
    /// 1.27.
    pub watch_list: bool,
    /// Interval between the bookmarks of a watch.
    pub bookmark_interval: Duration,
    /// Number of changes of each resource that a watch can start from.
    pub history: usize,
    /// A recording to repeat instead of the synthetic cluster.
    pub recording: Option<Arc<Recording>>,
    /// True if pods of the synthetic cluster have addresses in 127.0.0.0/8, from which a test can send.
    pub local_pods: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            pods: 100,
            events_per_second: 0.0,
            seed: 1,
            epoch: 1_767_225_600,
            watch_list: true,
            bookmark_interval: Duration::from_secs(60),
            history: 2_000,
            recording: None,
            local_pods: false,
        }
    }
}

/// Returns the objects of one resource after a number of changes of the cluster, as in a list: protobuf messages
/// without their envelope, or JSON. For benchmarks that need objects without a server.
#[must_use]
pub fn objects(options: &Options, resource: &str, json: bool, changes: u32) -> Vec<Vec<u8>> {
    let world = Arc::new(World::new(source(options), options.history));
    if let Some(mut step) = changes_of(&world) {
        (0..changes).for_each(|_| step());
    }
    let encoding = if json { Encoding::Json } else { Encoding::Protobuf };
    let Some(collection) = world.named(resource) else {
        return Vec::new();
    };
    let encode = |item| {
        let mut out = Vec::new();
        collection.encode(&world.source, &item, encoding, false, &mut out);
        out
    };
    collection.items().into_iter().map(encode).collect()
}

/// Returns the objects of the first watch events of a cluster, each with its resource, as protobuf messages. For
/// benchmarks of what an event costs at least.
#[must_use]
pub fn events(options: &Options, changes: u32) -> Vec<(&'static str, Vec<u8>)> {
    let world = Arc::new(World::new(source(options), changes as usize));
    let start = world.version();
    if let Some(mut step) = changes_of(&world) {
        (0..changes).for_each(|_| step());
    }
    let mut events = Vec::new();
    for collection in world.collections() {
        for change in collection.changes_after(start, usize::MAX).unwrap_or_default() {
            let mut out = Vec::new();
            collection.encode(&world.source, &change.item, Encoding::Protobuf, false, &mut out);
            events.push((change.version, collection.api.name, out));
        }
    }
    events.sort_unstable_by_key(|(version, ..)| *version);
    events.into_iter().map(|(_, resource, object)| (resource, object)).collect()
}

fn source(options: &Options) -> Source {
    if let Some(recording) = &options.recording {
        let recording = Arc::clone(recording);
        let replay = Replay::new(recording, options.pods, options.seed, options.epoch);
        return Source::Recorded(Box::new(replay));
    }
    let mut layout = Layout::new(options.pods, options.seed, options.epoch);
    layout.local_pods = options.local_pods;
    Source::Synthetic(Box::new(layout))
}

/// Returns a function that makes the next change; `None` if there is nothing to change.
fn changes_of(world: &Arc<World>) -> Option<Box<dyn FnMut() + Send>> {
    if let Some(mut churn) = Churn::new(world) {
        return Some(Box::new(move || churn.step()));
    }
    let mut rollouts = Rollouts::new(world)?;
    Some(Box::new(move || rollouts.step()))
}

/// A running double. Dropping it closes every connection.
pub struct Double {
    address: SocketAddr,
    world: Arc<World>,
    pace: watch::Sender<f64>,
    service: Arc<http::Service>,
    serving: JoinSet<()>,
    _churn: JoinSet<()>,
}

impl Double {
    /// Creates the cluster and serves it from tasks of the current runtime.
    ///
    /// # Errors
    ///
    /// The port cannot be bound.
    pub async fn start(options: &Options) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
        let address = listener.local_addr()?;
        let world = Arc::new(World::new(source(options), options.history));
        let (pace, paces) = watch::channel(options.events_per_second);
        let (mut serving, mut churning) = (JoinSet::new(), JoinSet::new());
        let service = http::Service {
            world: Arc::clone(&world),
            watch_list: options.watch_list,
            bookmark_interval: options.bookmark_interval,
            refused: Mutex::default(),
        };
        let service = Arc::new(service);
        serving.spawn(http::serve(listener, Arc::clone(&service)));
        if let Some(step) = changes_of(&world) {
            churning.spawn(churn::run(step, paces));
        }
        Ok(Self { address, world, pace, service, serving, _churn: churning })
    }

    /// Returns the address of the listener.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of objects of all resources.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.world.objects()
    }

    /// Returns the number of objects of one resource, 0 for unknown ones.
    #[must_use]
    pub fn objects_of(&self, resource: &str) -> usize {
        self.world.named(resource).map_or(0, |collection| collection.items().len())
    }

    /// Returns the number of objects sent in lists and as initial events since the start.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.world.delivered()
    }

    /// Returns the number of changes since the start.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.world.changes()
    }

    /// Sets the rate of changes; 0 stops them.
    pub fn set_events_per_second(&self, rate: f64) {
        self.pace.send_replace(rate);
    }

    /// Refuses lists and watches of a resource, or of one in a namespace (`NAMESPACE/RESOURCE`), with this status from now
    /// on, or serves them again with `None`. Open watches continue.
    pub fn refuse(&self, resource: &str, code: Option<u16>) {
        let mut refused = self.service.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match code {
            Some(code) => refused.insert(resource.to_owned(), code),
            None => refused.remove(resource),
        };
    }

    /// Expires every continue token and every version: continued lists and watches that start from them are answered
    /// with 410.
    pub fn forget_history(&self) {
        self.world.forget();
    }

    /// Closes every connection and waits until the port is free.
    pub async fn stop(mut self) {
        self.close().await;
    }

    /// The same until it is reopened, like a restart of a server. The cluster keeps changing meanwhile.
    pub async fn close(&mut self) {
        self.serving.shutdown().await;
    }

    /// Serves again on the same port.
    ///
    /// # Errors
    ///
    /// The port is in use.
    pub async fn open(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.serving.spawn(http::serve(listener, Arc::clone(&self.service)));
        Ok(())
    }
}
