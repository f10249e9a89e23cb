//! Finds the other replicas and polls them.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::answer::{self, Answer, PollQuery};
use super::election::BOUND;
use super::state::{PAUSE, Peer, Standby};
use crate::kube::Client;
use crate::statsd::mirror::{after_lines, count_lines, split_lines};
use crate::util::name_lookup::NameLookup;

/// The time that is added to the age of this process in a first poll.
const MARGIN: Duration = Duration::from_millis(5);

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

/// The longest time after the start for which lines of other replicas wait for the first lists, so that their senders are known. The
/// other replica keeps them meanwhile, as far as they fit into its memory.
const POD_WAIT: Duration = Duration::from_secs(10);

/// The pause between two polls meanwhile.
const POD_PAUSE: Duration = Duration::from_millis(100);

/// The size in bytes of the lines that are applied at once, which takes about a millisecond.
const APPLIED_AT_ONCE: usize = 64 << 10;

/// The maximum size of an answer: all kept lines and a head.
const MAX_ANSWER: usize = 9 << 20;

/// Looks up the addresses periodically and polls each of them.
pub(super) async fn poll_all(standby: &Standby, names: Vec<String>) {
    let addresses = watch::Sender::new(BTreeSet::new());
    let polls = poll_each(standby, addresses.subscribe());
    tokio::join!(look_up_all(standby, names, addresses), polls);
}

/// Looks up the addresses periodically.
async fn look_up_all(
    standby: &Standby,
    names: Vec<String>,
    addresses: watch::Sender<BTreeSet<SocketAddr>>,
) {
    let mut found: BTreeMap<&String, BTreeSet<SocketAddr>> = BTreeMap::new();
    let lookups: Vec<_> = names.iter().map(|name| (name, NameLookup::new(name.clone()))).collect();
    loop {
        let mut unresolved = BTreeMap::new();
        for (name, lookup) in &lookups {
            // A name that cannot be resolved for a while keeps its addresses.
            match look_up(standby, name, lookup).await {
                Ok(addresses) => drop(found.insert(*name, addresses)),
                Err(error) => drop(unresolved.insert((*name).clone(), error)),
            }
        }
        let all: BTreeSet<SocketAddr> = found.values().flatten().copied().collect();
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
        addresses.send_replace(all);
        standby.0.has_news.notify_one();
        sleep(MIN_LOOKUP_INTERVAL).await;
        if is_complete {
            let rest = LOOKUP_INTERVAL - MIN_LOOKUP_INTERVAL;
            let _ = timeout(rest, standby.0.has_stranger.notified()).await;
        }
    }
}

/// Polls each of the current addresses.
async fn poll_each(standby: &Standby, mut addresses: watch::Receiver<BTreeSet<SocketAddr>>) {
    let mut polls: BTreeMap<SocketAddr, Pin<Box<dyn Future<Output = Infallible> + Send + '_>>> =
        BTreeMap::new();
    loop {
        let all = addresses.borrow_and_update().clone();
        polls.retain(|address, _| all.contains(address));
        for address in all {
            polls.entry(address).or_insert_with(|| Box::pin(poll(standby, address)));
        }
        tokio::select! {
            biased;
            changed = addresses.changed() => if changed.is_err() { return },
            // No poll ends, but joining none would.
            _ = join_all(polls.values_mut()), if !polls.is_empty() => {}
        }
    }
}

/// Returns the addresses of a name. IPv4 is preferred, as in Go's resolver: a replica has one address of a family.
#[cfg_attr(not(test), expect(unused_variables))]
async fn look_up(
    standby: &Standby,
    name: &str,
    lookup: &NameLookup,
) -> Result<BTreeSet<SocketAddr>, String> {
    #[cfg(test)]
    if let Some(network) = &standby.0.network
        && let Some(found) = network.addresses(name)
    {
        return found;
    }
    let found = timeout(BOUND, lookup.addresses()).await;
    let found = found.map_err(|_| "the name server does not answer".to_owned())?;
    let found = found.map_err(|error| error.to_string())?;
    let has_ipv4 = found.iter().any(SocketAddr::is_ipv4);
    Ok(found.into_iter().filter(|address| address.is_ipv4() == has_ipv4).collect())
}

/// Polls one address until it is dropped.
async fn poll(standby: &Standby, address: SocketAddr) -> Infallible {
    let senders = standby.0.lines.as_ref().is_some_and(|pipeline| pipeline.resolves_senders());
    let from = standby.lock().election.own.id;
    let mut next_poll = PollQuery { from, senders, ..PollQuery::default() };
    let mut first_poll = FirstPoll::default();
    loop {
        let sent = Instant::now();
        let age = sent.saturating_duration_since(standby.0.started) + first_poll.margin;
        next_poll.age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        // A scrape may have renewed it.
        let peer_client = |peer: &Peer| peer.client.clone();
        let mut client = standby.lock().peers.get(&address).and_then(peer_client);
        let answer = timeout(BOUND, ask_again(standby, address, &mut client, &next_poll)).await;
        first_poll.took = sent.elapsed();
        // If this process was stopped meanwhile, the other one may have answered before it took over, or have tried to.
        let was_stopped = standby.lock().election.was_stopped_since(sent, Instant::now());
        let pause = match answer.unwrap_or_else(|_| Err(format!("no answer within {BOUND:?}"))) {
            _ if was_stopped => {
                // The next answer is needed at once, also if nothing has changed there: until then neither replica may expose.
                next_poll.version = 0;
                PAUSE
            }
            Ok(body) => {
                set_client(standby, address, client);
                match receive(standby, address, &body, &mut next_poll, &mut first_poll).await {
                    Ok(pause) => pause,
                    Err(error) => fail(standby, address, error),
                }
            }
            Err(error) => {
                set_client(standby, address, None);
                fail(standby, address, error)
            }
        };
        sleep(pause).await;
    }
}

impl Standby {
    /// Asks the replicas that expose whether they still run, before this one answers a scrape with nothing; if none
    /// exposes, all others. One that does not answer in time counts as gone: a duplicate is better than a gap.
    ///
    /// The scrape came at `since`. Concurrent scrapes, and the sources of one, share a question that was sent after they came.
    pub(super) async fn confirm(&self, since: Instant) {
        let mut confirmed = self.0.confirmed.lock().await;
        if self.is_active() || confirmed.is_some_and(|confirmed| confirmed >= since) {
            return;
        }
        let began = Instant::now();
        let (own, asked) = {
            let state = self.lock();
            let is_any_active = state.others().any(|(_, peer)| peer.is_active());
            // If nobody exposes, this one may wait for another one that no longer answers.
            let is_asked = |peer: &Peer| {
                if is_any_active { peer.is_active() } else { peer.replica.is_some() }
            };
            let asked = state.others().filter(|(_, peer)| is_asked(peer));
            let asked: Vec<_> =
                asked.map(|(address, peer)| (*address, peer.client.clone())).collect();
            (state.election.own.id, asked)
        };
        // Like a first poll, it is answered at once and without lines.
        let poll = PollQuery { from: own, ..PollQuery::default() };
        let ask_one = async |(address, mut client): (SocketAddr, Option<Client>)| {
            let answer = ask_again(self, address, &mut client, &poll);
            let failure = match timeout(CONFIRMATION, answer).await {
                Ok(Ok(body)) => {
                    set_client(self, address, client);
                    answer::parse(&body).err()
                }
                Ok(Err(error)) => Some(error),
                Err(_) => Some(format!("no answer within {CONFIRMATION:?} during a scrape")),
            };
            if let Some(error) = failure {
                fail(self, address, error);
            }
        };
        join_all(asked.into_iter().map(ask_one)).await;
        // Set only now: if the client disconnects while the others are asked, this future is dropped, and nothing is confirmed.
        *confirmed = Some(began);
        // A poll may have failed a moment ago, too.
        self.change(|_| ());
    }
}

/// Sets the client for the requests to an address.
fn set_client(standby: &Standby, address: SocketAddr, client: Option<Client>) {
    if let Some(peer) = standby.lock().peers.get_mut(&address) {
        peer.client = client;
    }
}

/// Sends a poll as [`ask`] does; if that fails with a known client and there is TLS, again with a new client. A client shows and
/// expects the certificate of the time when it was made, also over the connections that it opens later.
async fn ask_again(
    standby: &Standby,
    address: SocketAddr,
    client: &mut Option<Client>,
    poll: &PollQuery,
) -> Result<bytes::Bytes, String> {
    let is_new = client.is_none();
    let answer = ask(standby, address, client, poll).await;
    if answer.is_ok() || is_new || standby.0.identity.load().is_none() {
        return answer;
    }
    *client = None;
    ask(standby, address, client, poll).await
}

/// Sends a poll and returns the body of the answer.
async fn ask(
    standby: &Standby,
    address: SocketAddr,
    client: &mut Option<Client>,
    poll: &PollQuery,
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
            let new = new.map_err(|error| error.to_string())?;
            #[cfg(test)]
            let new = match &standby.0.network {
                Some(network) => new.with_network(std::sync::Arc::clone(network)),
                None => new,
            };
            client.insert(new)
        }
    };
    client.fetch_bytes(&poll.target(), MAX_ANSWER).await.map_err(|error| error.to_string())
}

/// The times of the first poll of a replica.
///
/// The other side gives the lines since the start of this process, which it knows by [`PollQuery::age`]. If the poll took
/// longer than the margin that was added to it, lines that came meanwhile would be missing.
pub(super) struct FirstPoll {
    margin: Duration,
    /// The time from the latest poll to its answer.
    took: Duration,
    /// The shortest time that a poll took, of those that took longer than the margin.
    fastest: Option<Duration>,
}

impl Default for FirstPoll {
    fn default() -> Self {
        Self { margin: MARGIN, took: Duration::ZERO, fastest: None }
    }
}

impl FirstPoll {
    /// Returns whether the answer to a first poll is complete. Otherwise it is to be repeated, with a larger margin if
    /// that was not due to a disturbance of the network.
    fn is_in_time(&mut self) -> bool {
        let took = self.took;
        if took <= self.margin {
            return true;
        }
        let fastest = self.fastest.map_or(took, |fastest| fastest.min(took));
        self.margin = if self.fastest.is_none() { MARGIN } else { (2 * fastest).min(BOUND) };
        self.fastest = Some(fastest);
        false
    }
}

/// Takes an answer. Returns the pause before the next poll.
pub(super) async fn receive(
    standby: &Standby,
    address: SocketAddr,
    body: &bytes::Bytes,
    poll: &mut PollQuery,
    first_poll: &mut FirstPoll,
) -> Result<Duration, String> {
    let (Answer { replica, version, first, next, start, has_senders, .. }, text) =
        answer::parse(body)?;
    let is_own = replica.id == poll.from;
    let (id, is_leaving) = (replica.id, replica.leaving);
    // A first poll is answered without lines. Those since the start of this process are asked for next: until then nobody
    // else has applied what the other one received.
    let is_first = id != poll.to && next == first;
    let is_repeated;
    {
        let mut state = standby.lock();
        let group = &state.election.own.group;
        // A reload of the shard reaches one replica earlier than the other.
        let is_known = |peer: &Peer| peer.replica.as_ref().is_some_and(|known| known.id == id);
        if *group != replica.group && !state.peers.get(&address).is_some_and(is_known) {
            return Err(format!("it is shard {}, this is shard {group}", replica.group));
        }
        if state.positions.len() >= answer::MAX_REPLICAS {
            state.positions.clear();
        }
        let is_known = state.positions.contains_key(&id);
        is_repeated = is_first && !is_own && !is_known && next > 0 && !first_poll.is_in_time();
        if !is_own && !is_repeated && (next > 0 || is_known) {
            let begin = if id == poll.to { poll.next } else { start.unwrap_or(first) };
            let position = state.positions.entry(id).or_insert(begin);
            if !is_first {
                standby.0.lost.inc_by(first.saturating_sub(*position));
                *position = first.max(*position);
            }
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
    if is_repeated {
        return Ok(PAUSE);
    }
    if is_own {
        (poll.to, poll.version, poll.next) = (id, version, next);
        return Ok(OWN_PAUSE);
    }
    if standby.awaits_pods() && !is_leaving {
        // A first poll is answered without lines.
        poll.to = 0;
        return Ok(POD_PAUSE);
    }
    let mut lines = Lines { first, text };
    while let Some((part, count)) = standby.claim(id, &mut lines) {
        if let Some(pipeline) = &standby.0.lines {
            pipeline.apply_mirrored(part, has_senders);
            standby.0.received.inc_by(count);
        }
        // Other tasks of this thread run before the next part.
        tokio::task::yield_now().await;
    }
    let wanted = standby.lock().positions.get(&id).copied().unwrap_or(next);
    (poll.to, poll.version, poll.next) = (id, version, wanted);
    Ok(PAUSE)
}

/// Consecutive lines, each followed by a line feed.
struct Lines<'a> {
    /// The number of the first one.
    first: u64,
    text: &'a [u8],
}

impl Standby {
    /// Returns true if lines would get no labels of their senders, and this replica does not expose.
    fn awaits_pods(&self) -> bool {
        let has_labels = self.0.lines.as_ref().is_some_and(|pipeline| pipeline.resolves_senders());
        let is_new = has_labels && self.0.started.elapsed() < POD_WAIT;
        is_new && {
            let own = &self.lock().election.own;
            !own.synced && own.active_since.is_none()
        }
    }

    /// Takes the next lines of a replica that have not been applied, in [`APPLIED_AT_ONCE`] bytes or one line, and notes that
    /// they are: the lines of a replica that is reached at two addresses are applied once. Returns them and their number.
    fn claim<'a>(&self, id: u64, lines: &mut Lines<'a>) -> Option<(&'a [u8], u64)> {
        let mut state = self.lock();
        let position = state.positions.get_mut(&id)?;
        let rest = after_lines(lines.text, position.saturating_sub(lines.first));
        let (part, rest) = split_lines(rest, APPLIED_AT_ONCE);
        if part.is_empty() {
            return None;
        }
        let count = count_lines(part);
        *position = lines.first.max(*position) + count;
        *lines = Lines { first: *position, text: rest };
        Some((part, count))
    }
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
