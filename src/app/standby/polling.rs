//! Finds the other replicas and polls them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::answer::{self, Answer, AnswerError, Poll};
use super::election::BOUND;
use super::state::{PAUSE, Peer, Standby};
use crate::kube::Client;

/// The pause after a poll that failed.
const RETRY: Duration = Duration::from_millis(250);

/// The longest wait for an active replica during a scrape of a standby.
const CONFIRMATION: Duration = Duration::from_millis(500);

/// The pause before an address of this process is polled again: it may have become that of another replica.
const OWN_PAUSE: Duration = Duration::from_secs(5);

/// The interval between two look-ups of names.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest interval between two look-ups of names, after a failure or a poll of an unknown replica.
const MIN_LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum size of an answer: all kept lines and a head.
const MAX_ANSWER: usize = 9 << 20;

/// Looks up the addresses periodically and polls each of them.
pub(super) async fn poll_all(standby: Standby, names: Vec<String>) {
    let mut polls = JoinSet::new();
    let mut tasks: BTreeMap<SocketAddr, AbortHandle> = BTreeMap::new();
    let mut found: BTreeMap<&String, BTreeSet<SocketAddr>> = BTreeMap::new();
    loop {
        let mut unresolved = BTreeMap::new();
        for name in &names {
            // A name that cannot be resolved for a while keeps its addresses.
            match lookup(name).await {
                Ok(addresses) => drop(found.insert(name, addresses)),
                Err(error) => drop(unresolved.insert(name.clone(), error)),
            }
        }
        let all: BTreeSet<SocketAddr> = found.values().flatten().copied().collect();
        tasks.retain(|address, task| {
            let is_kept = all.contains(address);
            if !is_kept {
                task.abort();
            }
            is_kept
        });
        let is_complete = unresolved.is_empty() && !all.is_empty();
        {
            let mut state = standby.lock();
            state.peers.retain(|address, _| all.contains(address));
            for address in &all {
                state.peers.entry(*address).or_insert_with(Peer::unasked);
            }
            if state.unresolved.as_ref() != Some(&unresolved) {
                for (name, error) in &unresolved {
                    tracing::warn!(name, error, "Cannot look up a replica, retrying");
                }
            }
            state.unresolved = Some(unresolved);
        }
        for address in all {
            tasks.entry(address).or_insert_with(|| polls.spawn(poll(standby.clone(), address)));
        }
        standby.0.has_news.notify_one();
        sleep(MIN_LOOKUP_INTERVAL).await;
        if is_complete {
            let rest = LOOKUP_INTERVAL - MIN_LOOKUP_INTERVAL;
            let _ = timeout(rest, standby.0.has_stranger.notified()).await;
        }
        while polls.try_join_next().is_some() {}
    }
}

/// Returns the addresses of a name. IPv4 is preferred, as in Go's resolver: a replica has one address of a family.
async fn lookup(name: &str) -> Result<BTreeSet<SocketAddr>, String> {
    let found = timeout(BOUND, tokio::net::lookup_host(name)).await;
    let found = found.map_err(|_| "the name server does not answer".to_owned())?;
    let found: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.collect();
    let has_ipv4 = found.iter().any(SocketAddr::is_ipv4);
    Ok(found.into_iter().filter(|address| address.is_ipv4() == has_ipv4).collect())
}

/// Polls one address until it is aborted.
async fn poll(standby: Standby, address: SocketAddr) {
    let mut client = None;
    let senders = standby.0.lines.as_ref().is_some_and(|pipeline| pipeline.resolves_senders());
    let from = standby.lock().election.own.id;
    let mut next_poll = Poll { from, senders, ..Poll::default() };
    loop {
        let sent = Instant::now();
        let age = sent.saturating_duration_since(standby.0.started).as_millis();
        next_poll.age = u64::try_from(age).unwrap_or(u64::MAX);
        let answer = timeout(BOUND, ask(&standby, address, &mut client, &next_poll)).await;
        // If this process was stopped meanwhile, the other one may have answered before it took over, or have tried to.
        let was_stopped = standby.lock().election.was_stopped_since(sent, Instant::now());
        let pause = match answer.unwrap_or_else(|_| Err(format!("no answer within {BOUND:?}"))) {
            _ if was_stopped => PAUSE,
            Ok(body) => match receive(&standby, address, &body, &mut next_poll).await {
                Ok(pause) => {
                    if let Some(peer) = standby.lock().peers.get_mut(&address) {
                        peer.client.clone_from(&client);
                    }
                    pause
                }
                Err(error) => fail(&standby, address, error.to_string()),
            },
            Err(error) => {
                client = None;
                fail(&standby, address, error)
            }
        };
        sleep(pause).await;
    }
}

impl Standby {
    /// Asks the replicas that expose whether they still run, before this one answers a scrape with nothing. One that does
    /// not answer in time counts as gone: a duplicate is better than a gap.
    pub(super) async fn confirm(&self) {
        let since = Instant::now();
        // Concurrent scrapes share a question that was sent after they came.
        let mut asked = self.0.confirmed.lock().await;
        if self.is_active() || asked.is_some_and(|asked| asked >= since) {
            return;
        }
        *asked = Some(Instant::now());
        let (own, active) = {
            let state = self.lock();
            let active = state.others().filter(|(_, peer)| peer.is_active());
            let active: Vec<_> =
                active.map(|(address, peer)| (*address, peer.client.clone())).collect();
            (state.election.own.id, active)
        };
        // Like a first poll, it is answered at once and without lines.
        let poll = Poll { from: own, ..Poll::default() };
        for (address, mut client) in active {
            let answer = timeout(CONFIRMATION, ask(self, address, &mut client, &poll)).await;
            let failure = match answer {
                Ok(Ok(body)) => answer::parse(&body).err().map(|error| error.to_string()),
                Ok(Err(error)) => Some(error),
                Err(_) => Some(format!("no answer within {CONFIRMATION:?} during a scrape")),
            };
            if let Some(error) = failure {
                fail(self, address, error);
                self.change(|_| ());
            }
        }
    }
}

/// Sends a poll and returns the body of the answer.
async fn ask(
    standby: &Standby,
    address: SocketAddr,
    client: &mut Option<Client>,
    poll: &Poll,
) -> Result<bytes::Bytes, String> {
    let client = match client {
        Some(client) => client,
        None => {
            let identity = match standby.0.identity.load_full() {
                Some(identity) => {
                    Some(identity().await.ok_or("the own certificate cannot be used")?)
                }
                None => None,
            };
            let new = Client::of_peer(address, identity.as_ref());
            client.insert(new.map_err(|error| error.to_string())?)
        }
    };
    client.fetch_bytes(&poll.target(), MAX_ANSWER).await.map_err(|error| error.to_string())
}

/// Takes an answer. Returns the pause before the next poll.
pub(super) async fn receive(
    standby: &Standby,
    address: SocketAddr,
    body: &bytes::Bytes,
    poll: &mut Poll,
) -> Result<Duration, AnswerError> {
    let (Answer { replica, version, first, next, start, has_senders, .. }, text) =
        answer::parse(body)?;
    let is_own = replica.id == poll.from;
    let id = replica.id;
    // A first poll is answered without lines. Those since the start of this process are asked for next: until then nobody
    // else has applied what the other one received.
    let is_first = id != poll.to && next == first;
    // The lines of a replica that is reached at two addresses are applied once.
    let (mut skipped, mut wanted) = (0, next);
    {
        let mut state = standby.lock();
        let group = &state.election.own.group;
        if *group != replica.group {
            return Err(AnswerError::OtherShard(replica.group, group.clone()));
        }
        if state.positions.len() >= answer::MAX_REPLICAS {
            state.positions.clear();
        }
        if !is_own && (next > 0 || state.positions.contains_key(&id)) {
            let begin = if id == poll.to { poll.next } else { start.unwrap_or(first) };
            let position = state.positions.entry(id).or_insert(begin);
            if !is_first {
                skipped = position.saturating_sub(first).min(next - first);
                standby.0.lost.fetch_add(first.saturating_sub(*position), Ordering::Relaxed);
                *position = next.max(*position);
            }
            wanted = *position;
        }
        let Some(peer) = state.peers.get_mut(&address) else { return Ok(OWN_PAUSE) };
        if peer.replica.is_none() && !is_own {
            peer.since = SystemTime::now();
            tracing::info!(peer = %address, "Another replica answers");
        }
        let has_news = !peer.is_asked || peer.replica.as_ref() != Some(&replica);
        (peer.replica, peer.error) = (Some(replica), None);
        (peer.is_asked, peer.is_own) = (true, is_own);
        if has_news {
            standby.0.has_news.notify_one();
        }
    }
    (poll.to, poll.version, poll.next) = (id, version, wanted);
    if is_own {
        return Ok(OWN_PAUSE);
    }
    if text.is_empty() {
        return Ok(PAUSE);
    }
    if let Some(pipeline) = &standby.0.lines {
        let (pipeline, start) = (Arc::clone(pipeline), body.len() - text.len());
        let text = body.slice(start..);
        let applied = next - first - skipped;
        let apply = move || pipeline.apply_mirrored(without_lines(&text, skipped), has_senders);
        match tokio::task::spawn_blocking(apply).await {
            Ok(()) => standby.0.received.fetch_add(applied, Ordering::Relaxed),
            Err(_) => standby.0.lost.fetch_add(applied, Ordering::Relaxed),
        };
    }
    Ok(PAUSE)
}

/// Returns the text after its first `count` lines.
fn without_lines(text: &[u8], count: u64) -> &[u8] {
    let Some(last) = usize::try_from(count).ok().and_then(|count| count.checked_sub(1)) else {
        return text;
    };
    let end = memchr::memchr_iter(b'\n', text).nth(last).map_or(text.len(), |end| end + 1);
    text.get(end..).unwrap_or_default()
}

/// Records that a replica does not answer. Returns the pause before the next poll.
pub(super) fn fail(standby: &Standby, address: SocketAddr, error: String) -> Duration {
    let mut state = standby.lock();
    let Some(peer) = state.peers.get_mut(&address) else { return RETRY };
    if peer.replica.take().is_some() || !peer.is_asked {
        peer.since = SystemTime::now();
        standby.0.has_news.notify_one();
        tracing::warn!(peer = %address, error, "Another replica does not answer");
    }
    (peer.error, peer.is_asked, peer.is_own) = (Some(error), true, false);
    RETRY
}
