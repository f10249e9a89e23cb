//! The answer to a poll of another replica.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::election::Replica;
use super::state::Standby;
use crate::server::body::Body;
use crate::server::connection::Peer as Connection;
use crate::server::query;
use crate::server::response::{self, Response};
use crate::server::router::{Call, Methods, Router, Unprotected};
use crate::statsd::mirror::{Mirror, count_lines};

/// The path of polls on the telemetry listener, which does not depend on the name of the program.
pub(crate) const PATH: &str = "/kstatd/standby";

/// The version of the protocol. Later versions that are compatible only add fields.
pub(super) const PROTOCOL: u32 = 1;

/// The longest time that a poll waits for news.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// The maximum number of processes whose positions are remembered, against strangers and against replicas that are
/// started very often.
pub(super) const MAX_REPLICAS: usize = 256;

/// The maximum size in bytes of the lines of an answer, unless a single line is longer.
const MAX_LINES: usize = 1 << 20;

/// The same for a client that is not at the address of a replica, while [`LARGE_ANSWERS`] others have not been read.
const FEW_LINES: usize = 64 << 10;

/// The maximum number of answers with many lines for such clients: each is held until its client has read it.
pub(super) const LARGE_ANSWERS: usize = 8;

/// The first line of an answer, as JSON. StatsD lines follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer {
    pub(super) protocol: u32,
    pub(super) replica: Replica,
    /// The number of this state, for the next poll.
    pub(super) version: u64,
    /// The number of the first line that follows.
    pub(super) first: u64,
    /// The number after the last line that follows, for the next poll.
    pub(super) next: u64,
    /// In the answer to a first poll, the number of the first line since the start of the replica that polls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<u64>,
    /// True if each line has its sender.
    #[serde(default)]
    pub(super) has_senders: bool,
}

/// The parameters of a poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PollQuery {
    /// The replica that polls.
    pub(super) from: u64,
    /// The process that `version` and `next` are about: they mean nothing to another one at the same address.
    pub(super) to: u64,
    /// The known version of its state.
    pub(super) version: u64,
    /// The number of the next line.
    pub(super) next: u64,
    /// True if lines are wanted with their senders.
    pub(super) senders: bool,
    /// The time since the start of the replica that polls, in milliseconds. Replicas compare times of different hosts only as
    /// durations, because their clocks may differ.
    pub(super) age: u64,
}

impl PollQuery {
    /// Returns path and query.
    pub(super) fn target(&self) -> String {
        let Self { from, to, version, next, senders, age } = self;
        let senders = if *senders { "&senders=1" } else { "" };
        format!("{PATH}?from={from}&to={to}&version={version}&next={next}&age={age}{senders}")
    }

    /// Reads the query. What is missing or invalid is 0.
    fn parse(text: &str) -> Self {
        let number = |name| query::first(text, name).and_then(|n| n.parse().ok()).unwrap_or(0);
        let (from, to) = (number("from"), number("to"));
        let senders = number("senders") == 1;
        let (version, next, age) = (number("version"), number("next"), number("age"));
        Self { from, to, version, next, senders, age }
    }
}

/// Adds the route of polls.
pub(super) fn route(standby: Standby, router: Router) -> Router {
    router
        .for_replicas(PATH)
        .at_async(PATH, Methods::Any, move |call| answer(standby.clone(), call))
}

/// Waits for news, then answers.
pub(super) async fn answer(standby: Standby, call: Call) -> Response {
    let poll = PollQuery::parse(call.query());
    let shared = &standby.0;
    let mut versions = shared.version.subscribe();
    let connection = call.head.extensions.get::<Connection>();
    let is_verified = connection.is_some_and(|connection| connection.is_verified);
    let client = connection.and_then(Connection::address).map(|client| client.to_canonical());
    let is_admitted = is_verified || call.head.extensions.get::<Unprotected>().is_some();
    let mirror = shared.lines.as_ref().and_then(|lines| lines.mirror());
    let mirror = mirror.filter(|_| is_admitted);
    let (is_known, is_replica) = {
        let mut state = standby.lock();
        let is_about_this = poll.to == state.election.own.id;
        let is_peer = state.others().any(|(peer, _)| client == Some(peer.ip().to_canonical()));
        let is_replica = is_verified || is_peer;
        if is_about_this && is_replica && poll.from != 0 {
            if state.asked.len() >= MAX_REPLICAS {
                state.asked.clear();
            }
            state.asked.insert(poll.from, poll.next);
        }
        let is_from = |replica: &Replica| replica.id == poll.from;
        if !state.peers.values().any(|peer| peer.replica.as_ref().is_some_and(is_from)) {
            shared.has_stranger.notify_one();
        }
        (is_about_this, is_replica)
    };
    let from = is_known.then_some(poll.next);
    if is_known {
        let mut lines = mirror.map(Mirror::next);
        let has_lines = lines.as_mut().map(|lines| lines.wait_for(|next| *next > poll.next));
        let has_changed = versions.wait_for(|version| *version != poll.version);
        let news = async {
            tokio::select! {
                biased;
                _ = has_changed => {}
                Some(_) = OptionFuture::from(has_lines) => {}
            }
        };
        let _ = timeout(MAX_WAIT, news).await;
    }
    let (replica, version) = {
        let state = standby.lock();
        (state.reported(), *shared.version.borrow())
    };
    let has_senders = mirror.is_some_and(|mirror| mirror.has_senders && poll.senders);
    // A replica needs no permit, whatever others read.
    let permits = Arc::clone(&shared.large_answers);
    let permit = if is_replica { None } else { permits.try_acquire_owned().ok() };
    let limit = if is_replica || permit.is_some() { MAX_LINES } else { FEW_LINES };
    let lines = mirror.map(|mirror| mirror.read(from, poll.senders, limit));
    let (first, next, text) =
        lines.map_or((0, 0, Vec::new()), |lines| (lines.first, lines.next, lines.text));
    let age = Duration::from_millis(poll.age);
    let start = mirror.filter(|_| !is_known).map(|mirror| mirror.first_within(age));
    let head = Answer { protocol: PROTOCOL, replica, version, first, next, start, has_senders };
    let mut body = serde_json::to_vec(&head).unwrap_or_default();
    body.push(b'\n');
    body.extend_from_slice(&text);
    let permit = permit.filter(|_| body.len() > FEW_LINES);
    response::with_type(200, "application/octet-stream", Body::whole(body).hold(permit))
}

/// Splits an answer into its head and the lines that follow.
///
/// # Errors
///
/// It is not an answer that this version understands.
pub(super) fn parse(body: &[u8]) -> Result<(Answer, &[u8]), String> {
    let end = memchr::memchr(b'\n', body).ok_or("the answer is incomplete")?;
    let (head, text) = body.split_at(end + 1);
    let Ok(Protocol { protocol }) = serde_json::from_slice(head) else {
        return Err("the answer is not that of a replica".to_owned());
    };
    if protocol != PROTOCOL {
        return Err(format!("it speaks version {protocol} of the protocol"));
    }
    let answer: Answer = serde_json::from_slice(head)
        .map_err(|error| format!("the answer cannot be read: {error}"))?;
    let count = count_lines(text);
    if !text.is_empty() && !text.ends_with(b"\n")
        || answer.next.checked_sub(answer.first) != Some(count)
    {
        return Err("the answer has another number of lines than it says".to_owned());
    }
    Ok((answer, text))
}

/// The version of an answer of any version.
#[derive(Deserialize)]
struct Protocol {
    protocol: u32,
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http_body_util::BodyExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::app::standby::state::{Peer, Shared};
    use crate::statsd::{Clock, Pipeline, PipelineConfig};

    #[test]
    fn answers() {
        let replica = r#"{"id":7,"group":"0/1","started":1,"active_since":null,"synced":true,"leaving":false,"later":1}"#;
        let body = |protocol, first, next, text: &str| {
            format!(
                "{{\"protocol\":{protocol},\"replica\":{replica},\"version\":2,\"first\":{first},\"next\":{next}}}\n{text}"
            )
        };
        let body_of = body(1, 3, 5, "a:1|c\nb:1|c\n");
        let (answer, text) = parse(body_of.as_bytes()).expect("an answer");
        assert_eq!((answer.replica.id, answer.version, answer.next), (7, 2, 5));
        assert_eq!(text, b"a:1|c\nb:1|c\n");
        for (text, complaint) in [
            (String::new(), "incomplete"),
            ("<html>\n".to_owned(), "not that of a replica"),
            ("{\"protocol\":2}\n".to_owned(), "version 2"),
            ("{\"protocol\":1}\n".to_owned(), "missing field"),
            (body(1, 3, 5, "a:1|c\n"), "another number"),
            (body(1, 5, 3, ""), "another number"),
            (body(1, 3, 4, "a:1|c\nb"), "another number"),
        ] {
            let error = parse(text.as_bytes()).expect_err(&text).to_string();
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }

    /// Clients that do not read hold little memory together, and replicas get their lines all the same.
    #[tokio::test]
    async fn few_strangers_hold_many_lines() {
        let config =
            PipelineConfig { clock: Clock::manual(), mirrored: true, ..PipelineConfig::default() };
        let pipeline = Arc::new(Pipeline::start(config).expect("a pipeline without listeners"));
        for _ in 0..30 {
            pipeline.receive(&b"requests:1|c|#service:checkout\n".repeat(2_000));
        }
        let day = Duration::from_secs(86_400);
        let standby = Standby(Arc::new(Shared::new(
            "0/1".to_owned(),
            day,
            None,
            Some(Arc::clone(&pipeline)),
        )));
        let to = standby.lock().election.own.id;
        // Like the usual listener, of both address families.
        let any =
            ["[::]:0", "127.0.0.1:0"].map(|any| any.parse::<SocketAddr>().expect("an address"));
        let listener = TcpListener::bind(&any[..]).await.expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let _client = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
        let stream = Arc::new(listener.accept().await.expect("a connection").0);
        let ask = async |next| {
            let poll = PollQuery { to, next, ..PollQuery::default() };
            let mut request = hyper::Request::new(());
            *request.uri_mut() = poll.target().parse().expect("a URI");
            let (mut head, ()) = request.into_parts();
            head.extensions.insert(Unprotected);
            head.extensions.insert(Connection::of(&stream, false));
            answer(standby.clone(), Call { head, path: PATH.to_owned() }).await
        };
        let read = async |answer: Response| {
            let body = answer.into_body().collect().await.expect("never fails").to_bytes();
            let (head, text) = parse(&body).expect("an answer");
            (head.next, text.len())
        };
        let mut unread = Vec::new();
        for _ in 0..LARGE_ANSWERS {
            unread.push(ask(0).await);
        }
        // Others get all lines, in more answers.
        let (mut next, mut answers) = (0, 0);
        while next < 60_000 {
            let (after, bytes) = read(ask(next).await).await;
            assert!(after > next && bytes <= FEW_LINES, "{bytes} bytes");
            (next, answers) = (after, answers + 1);
        }
        assert!(answers > 10, "{answers}");
        let replica = ([127, 0, 0, 1], 80).into();
        standby.lock().peers.insert(replica, Peer::unasked());
        assert!(read(ask(0).await).await.1 > MAX_LINES - 100);
        standby.lock().peers.clear();
        assert!(read(unread.swap_remove(0)).await.1 > MAX_LINES - 100);
        assert!(read(ask(0).await).await.1 > MAX_LINES - 100);
    }

    #[test]
    fn polls() {
        for senders in [true, false] {
            let poll = PollQuery { from: u64::MAX, to: 2, version: 3, next: 4, senders, age: 5 };
            let target = poll.target();
            let (path, query) = target.split_once('?').expect("a query");
            assert_eq!((path, PollQuery::parse(query)), (PATH, poll));
        }
        assert_eq!(
            PollQuery::parse("from=-1&to=x&next=99999999999999999999"),
            PollQuery::default()
        );
    }
}
