//! Bodies of lists and watches, encoded while they are sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::encode::{Encoding, varint_len};
use super::envelope::{self, Failure, ListMeta};
use super::layout::Item;
use super::query::{ListOptions, Selector, VersionMatch};
use super::world::{Change, ChangeKind, Collection, World, api_version};

/// Bytes collected before they are passed to the connection.
const FRAME: usize = 64 * 1024;
/// Changes taken from the log at once.
const BATCH: usize = 256;

/// A response body.
pub enum ResponseBody {
    /// Available bytes.
    Whole(Option<Bytes>),
    /// A list.
    List(Box<List>),
    /// A watch; a task sends its frames.
    Watch(mpsc::Receiver<Bytes>),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::List(list) => Poll::Ready(list.next_frame()),
            Self::Watch(frames) => frames.poll_recv(context),
        };
        data.map(|data| data.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The collection and selection of a request.
pub struct Scope {
    /// The cluster.
    pub world: Arc<World>,
    /// The resource.
    pub collection: Arc<Collection>,
    /// The selected objects.
    pub selector: Selector,
    /// The encoding.
    pub encoding: Encoding,
}

/// A list that is being sent.
pub struct List {
    scope: Scope,
    items: std::vec::IntoIter<Item>,
    head: Option<Vec<u8>>,
    tail: Option<&'static [u8]>,
    object: Vec<u8>,
    first: bool,
}

impl List {
    /// Finds the objects for `options`. With protobuf this encodes every object once to determine the length prefix,
    /// which takes microseconds for each.
    ///
    /// # Errors
    ///
    /// The token is malformed, or the version has expired or does not exist yet.
    pub fn new(scope: Scope, options: &ListOptions) -> Result<Self, Failure> {
        let (world, collection) = (&scope.world, &scope.collection);
        let source = &world.source;
        // A shared snapshot may be older than the world, but nothing in it has changed since.
        let present = world.version();
        let (snapshot, after) = match &options.next {
            Some(token) => {
                let (version, key) = token
                    .split_once('.')
                    .and_then(|(version, key)| Some((version.parse::<u64>().ok()?, key)))
                    .ok_or_else(|| {
                        Failure::bad_request(format!("invalid continue token: {token:?}"))
                    })?;
                let snapshot = match version {
                    0 => world.snapshot(collection),
                    _ => collection.snapshot_at(version).ok_or_else(|| Failure {
                        next: format!("0.{key}"),
                        ..Failure::expired(
                            "the continue parameter is too old to display a consistent list; \
                             start again without it, or use the token of this answer for an \
                             inconsistent rest"
                                .to_owned(),
                        )
                    })?,
                };
                (snapshot, Some(key))
            }
            None => (snapshot_for(world, collection, options)?, None),
        };
        let start = after.map_or(0, |key| {
            snapshot.items.partition_point(|item| collection.key(source, item).as_str() <= key)
        });
        let mut rest = snapshot
            .items
            .iter()
            .skip(start)
            .filter(|item| scope.selector.takes(source, collection, item));
        // The watch cache, which answers version 0, ignores the limit.
        let limit = match (options.limit, options.version, after) {
            (0, _, _) | (_, Some(0), None) => usize::MAX,
            (limit, _, _) => limit,
        };
        let items: Vec<Item> = rest.by_ref().take(limit).copied().collect();
        let left = if items.len() < limit { 0 } else { rest.count() };
        let next = match (left, items.last()) {
            (1.., Some(last)) => {
                format!("{}.{}", snapshot.version, collection.key(source, last))
            }
            _ => String::new(),
        };
        let counted = left > 0 && scope.selector.only_namespace();
        let pinned = options.next.is_some() || options.version.is_some_and(|version| version > 0);
        let version = if pinned { snapshot.version } else { snapshot.version.max(present) };
        let meta = ListMeta { version, next: &next, remaining: counted.then_some(left) };
        let mut object = Vec::new();
        let mut len = 0;
        if scope.encoding == Encoding::Protobuf {
            for item in &items {
                object.clear();
                collection.encode(source, item, scope.encoding, false, &mut object);
                len += 1 + varint_len(object.len()) + object.len();
            }
        }
        let kind = format!("{}List", collection.api.kind);
        let ends = envelope::list(scope.encoding, &api_version(collection.api), &kind, &meta, len);
        Ok(Self {
            scope,
            items: items.into_iter(),
            head: Some(ends.head),
            tail: Some(ends.tail),
            object,
            first: true,
        })
    }

    fn next_frame(&mut self) -> Option<Bytes> {
        let tail = self.tail?;
        let mut out = self.head.take().unwrap_or_default();
        out.reserve(FRAME + FRAME / 4);
        while out.len() < FRAME {
            let Some(item) = self.items.next() else {
                self.tail = None;
                out.extend_from_slice(tail);
                break;
            };
            let Scope { world, collection, encoding, .. } = &self.scope;
            self.object.clear();
            collection.encode(&world.source, &item, *encoding, false, &mut self.object);
            envelope::before_item(&mut out, *encoding, self.first, self.object.len());
            out.extend_from_slice(&self.object);
            self.first = false;
            world.count_delivered(1);
        }
        Some(Bytes::from(out))
    }
}

fn snapshot_for(
    world: &World,
    collection: &Collection,
    options: &ListOptions,
) -> Result<Arc<super::world::Snapshot>, Failure> {
    let Some(version) = options.version.filter(|version| *version > 0) else {
        return Ok(world.snapshot(collection));
    };
    let current = world.version();
    if version > current {
        return Err(Failure::too_large_version(version, current));
    }
    let exact = match options.version_match {
        Some(VersionMatch::Exact) => true,
        Some(VersionMatch::NotOlderThan) => false,
        // Without a match rule, a page is read exactly at the version, a whole list at the version or later.
        None => options.limit > 0,
    };
    if !exact {
        return Ok(world.snapshot(collection));
    }
    let snapshot = world.snapshot(collection);
    if snapshot.version == version {
        return Ok(snapshot);
    }
    collection.snapshot_at(version).ok_or_else(|| {
        Failure::expired("The resourceVersion for the provided list is too old.".to_owned())
    })
}

/// Default duration of a watch in seconds: the minimum of the API server.
const DEFAULT_TIMEOUT: u64 = 1800;

/// Sends the events of a watch until it times out or the client disconnects.
pub async fn watch(
    scope: Scope,
    options: ListOptions,
    bookmark_interval: Duration,
    frames: mpsc::Sender<Bytes>,
) {
    // A disconnected client, which `send` and `closed` report, is an ordinary end.
    let _ = Watch { scope, options, frames }.run(bookmark_interval).await;
}

struct Watch {
    scope: Scope,
    options: ListOptions,
    frames: mpsc::Sender<Bytes>,
}

/// The client has disconnected.
struct Gone;

impl Watch {
    async fn run(&self, bookmark_interval: Duration) -> Result<(), Gone> {
        let Scope { world, collection, encoding, .. } = &self.scope;
        let seconds = self.options.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut next_bookmark = Instant::now() + bookmark_interval;
        let mut changed = collection.subscribe();
        let mut position = match self.options.version {
            Some(version) if version > 0 && !self.options.initial_events => version,
            asked => {
                let current = world.version();
                let asked = asked.unwrap_or(0);
                if asked > current {
                    let failure = Failure::too_large_version(asked, current);
                    return self.send(failure.event(*encoding)).await;
                }
                self.initial_events().await?
            }
        };
        loop {
            changed.borrow_and_update();
            // Read before the log: every version up to this one is in the log by then.
            let version = world.version();
            let Some(changes) = collection.changes_after(position, BATCH) else {
                let message = format!("too old resource version: {position} ({version})");
                return self.send(Failure::expired(message).event(*encoding)).await;
            };
            if let Some(last) = changes.last() {
                position = last.version;
                self.send_changes(&changes).await?;
                continue;
            }
            let wake = if self.options.bookmarks { end.min(next_bookmark) } else { end };
            tokio::select! {
                _ = changed.changed() => {}
                () = self.frames.closed() => return Err(Gone),
                () = sleep_until(wake) => {
                    if Instant::now() >= end {
                        return Ok(());
                    }
                    next_bookmark = Instant::now() + bookmark_interval;
                    position = position.max(version);
                    self.bookmark(position, false).await?;
                }
            }
        }
    }

    async fn send(&self, frame: impl Into<Bytes>) -> Result<(), Gone> {
        self.frames.send(frame.into()).await.map_err(|_| Gone)
    }

    async fn bookmark(&self, version: u64, initial: bool) -> Result<(), Gone> {
        let Scope { collection, encoding, .. } = &self.scope;
        let mut out = Vec::new();
        let api = collection.api;
        envelope::bookmark(&mut out, *encoding, &api_version(api), api.kind, version, initial);
        self.send(out).await
    }

    /// Sends every object as an ADDED event and returns their version.
    async fn initial_events(&self) -> Result<u64, Gone> {
        let Scope { world, collection, selector, encoding } = &self.scope;
        let source = &world.source;
        let snapshot = world.snapshot(collection);
        let mut out = Vec::with_capacity(FRAME + FRAME / 4);
        for item in &snapshot.items {
            if !selector.takes(source, collection, item) {
                continue;
            }
            collection.event(source, ChangeKind::Added.name(), item, *encoding, &mut out);
            world.count_delivered(1);
            if out.len() >= FRAME {
                let frame = std::mem::replace(&mut out, Vec::with_capacity(FRAME + FRAME / 4));
                self.send(frame).await?;
            }
        }
        if !out.is_empty() {
            self.send(out).await?;
        }
        if self.options.initial_events && self.options.bookmarks {
            self.bookmark(snapshot.version, true).await?;
        }
        Ok(snapshot.version)
    }

    async fn send_changes(&self, changes: &[Arc<Change>]) -> Result<(), Gone> {
        let Scope { world, collection, selector, encoding } = &self.scope;
        let source = &world.source;
        if let ([change], true) = (changes, selector.is_empty()) {
            return self.send(collection.frame(source, change, *encoding)).await;
        }
        let mut out = Vec::new();
        for change in changes {
            if selector.is_empty() {
                out.extend_from_slice(&collection.frame(source, change, *encoding));
            } else if let Some(kind) = self.seen_through_selector(change) {
                collection.event(source, kind.name(), &change.item, *encoding, &mut out);
            }
            if out.len() >= FRAME {
                self.send(std::mem::take(&mut out)).await?;
            }
        }
        if out.is_empty() { Ok(()) } else { self.send(out).await }
    }

    /// Returns the change as a watcher with a selector sees it: an object that enters the selection was added, one
    /// that leaves it was deleted.
    fn seen_through_selector(&self, change: &Change) -> Option<ChangeKind> {
        let Scope { world, collection, selector, .. } = &self.scope;
        let takes = |item: &Item| selector.takes(&world.source, collection, item);
        let before = change.before.as_ref().is_some_and(takes);
        let after = change.kind != ChangeKind::Deleted && takes(&change.item);
        match (before, after) {
            (true, true) => Some(ChangeKind::Modified),
            (false, true) => Some(ChangeKind::Added),
            (true, false) => Some(ChangeKind::Deleted),
            (false, false) => None,
        }
    }
}
