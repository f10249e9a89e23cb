//! Random histories of a StatefulSet that is scaled while its watch is interrupted in many ways. A seed determines everything, in
//! simulated time. The shard must be that of the last number of replicas, some time after the last change and fault.
//!
//! `KSTATD_HISTORIES=100 cargo test --lib autosharding::history` runs 100 histories, `KSTATD_SEED=n` sets the first seed, and
//! `KSTATD_FIRST=1` ends them at the first violation.

use std::fmt::Write as _;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::super::super::autosharding::{PodName, StatefulSetWatcher};
use super::super::super::client::connection::{Connecting, Network};
use super::super::history::body::{ChannelBody, ChunkSender, build_response, complete_response};
use super::super::history::setup::in_simulated_time;
use super::super::{Client, ClientOptions};
use super::connect;
use crate::tests::seeds::run_all;
use crate::tests::{env_number, time_bound};

const JSON: &str = "application/json";
/// The length of a history in seconds.
const LENGTH: u64 = 1_800;

/// The StatefulSet at one version.
#[derive(Clone, Copy)]
struct Set {
    version: u64,
    replicas: u32,
}

impl Set {
    fn json(self) -> String {
        let Self { version, replicas } = self;
        format!(
            r#"{{"metadata":{{"name":"set","resourceVersion":"{version}"}},"spec":{{"replicas":{replicas}}},"status":{{"readyReplicas":{replicas}}}}}"#
        )
    }
}

/// A server with one StatefulSet.
struct Server {
    set: watch::Sender<Set>,
    /// Requests fail, and watches end, at times.
    is_faulty: watch::Sender<bool>,
    rng: Mutex<Rng>,
}

struct Wire(Arc<Server>);

impl Network for Wire {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> Connecting<'a> {
        let server = Arc::clone(&self.0);
        connect(move |request| ready(server.answer(&request)))
    }
}

/// The ways in which a watch ends.
#[derive(Clone, Copy)]
enum End {
    Regular,
    Reset,
    Expired,
    /// Nothing is sent any more.
    Frozen,
}

impl Server {
    fn random(&self, below: u64) -> u64 {
        self.rng.lock().expect("no panic").u64(..below)
    }

    fn answer(self: &Arc<Self>, request: &Request<Incoming>) -> Response<ChannelBody> {
        let query = request.uri().query().unwrap_or_default();
        let value = |name: &str| {
            let values = query.split('&').filter_map(|pair| pair.split_once('='));
            values.filter(|(key, _)| *key == name).find_map(|(_, value)| value.parse::<u64>().ok())
        };
        let set = *self.set.borrow();
        let body = match request.uri().path() {
            "/api/v1/namespaces/space/pods/set-0" => {
                let owner = r#"{"apiVersion":"apps/v1","kind":"StatefulSet","name":"set","uid":"a","controller":true}"#;
                format!(r#"{{"metadata":{{"name":"set-0","ownerReferences":[{owner}]}}}}"#)
            }
            "/apis/apps/v1/namespaces/space/statefulsets/set" => set.json(),
            _ if *self.is_faulty.borrow() && self.random(3) == 0 => {
                let code = [403, 429, 500, 503][self.random(4) as usize];
                return complete_response(code, JSON, b"{\"kind\":\"Status\"}".to_vec());
            }
            _ if query.contains("watch=true") => {
                let (chunks, receiver) = mpsc::unbounded_channel();
                let time = Duration::from_secs(value("timeoutSeconds").expect("a timeout"));
                let version = value("resourceVersion").expect("a version");
                tokio::spawn(Arc::clone(self).watch(chunks, version, time));
                return build_response(200, JSON, false, receiver);
            }
            _ => {
                let (version, set) = (set.version, set.json());
                format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{set}]}}"#)
            }
        };
        complete_response(200, JSON, body.into())
    }

    /// Sends all changes after a version.
    async fn watch(self: Arc<Self>, chunks: ChunkSender, mut version: u64, time: Duration) {
        let (mut set, mut is_faulty) = (self.set.subscribe(), self.is_faulty.subscribe());
        let regular = Instant::now() + time;
        let mut end = (regular, End::Regular);
        loop {
            if *is_faulty.borrow_and_update() {
                let early = Instant::now() + Duration::from_millis(self.random(30_000));
                let ends = [End::Regular, End::Reset, End::Expired, End::Frozen];
                let early = (early, ends[self.random(4) as usize]);
                end = if early.0 < end.0 { early } else { end };
            }
            let now = *set.borrow_and_update();
            if now.version > version {
                version = now.version;
                let event = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", now.json());
                if chunks.send(Ok(event.into())).is_err() {
                    return;
                }
            }
            tokio::select! {
                biased;
                () = sleep_until(end.0) => break,
                changed = set.changed() => changed.expect("a server"),
                changed = is_faulty.changed() => changed.expect("a server"),
            }
        }
        match end.1 {
            End::Regular => {}
            End::Reset => drop(chunks.send(Err("reset"))),
            End::Expired => {
                let status = r#"{"kind":"Status","code":410,"message":"expired","reason":"Expired","status":"Failure"}"#;
                let event = format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n");
                drop(chunks.send(Ok(Bytes::from(event))));
            }
            End::Frozen => chunks.closed().await,
        }
    }
}

/// Runs a history. Returns the number of times that the shard had to be that of the StatefulSet.
///
/// # Errors
/// Describes a shard that is wrong.
fn run(seed: u64) -> Result<u32, String> {
    in_simulated_time(seed, async {
        let mut rng = Rng::with_seed(seed);
        let set = Set { version: 1, replicas: rng.u32(1..5) };
        let server = Arc::new(Server {
            set: watch::Sender::new(set),
            is_faulty: watch::Sender::new(false),
            rng: Mutex::new(rng.fork()),
        });
        let options = ClientOptions {
            apiserver: Some("http://server".to_owned()),
            user_agent: "test/1".to_owned(),
            ..ClientOptions::default()
        };
        let client = Client::over(&options, Arc::new(Wire(Arc::clone(&server)))).expect("a client");
        let pod = PodName { namespace: "space".to_owned(), name: "set-0".to_owned() };
        let watcher = StatefulSetWatcher::new(Arc::new(ArcSwap::from_pointee(client)), pod).await;
        let watcher = Arc::new(watcher.expect("a shard"));
        let task = tokio::spawn(Arc::clone(&watcher).run());
        let (begin, mut disturbed) = (Instant::now(), Instant::now());
        let late = time_bound("another number of replicas is noticed after an interruption");
        let mut checks = 0;
        let mut result = Ok(());
        while begin.elapsed() < Duration::from_secs(LENGTH) && result.is_ok() {
            let is_long = rng.u32(0..4) == 0;
            sleep(Duration::from_millis(rng.u64(1..if is_long { 300_000 } else { 8_000 }))).await;
            let (wanted, shown) = (server.set.borrow().replicas, watcher.detected.borrow().shard);
            let is_faulty = *server.is_faulty.borrow();
            if !is_faulty && disturbed.elapsed() > late {
                checks += 1;
                if shown.total != i64::from(wanted) {
                    let (at, since) = (begin.elapsed(), disturbed.elapsed());
                    let why = format!("{shown:?} of {wanted} replicas since {since:?}");
                    result = Err(format!("after {at:?}: {why}"));
                }
            }
            match rng.u32(0..4) {
                0 => {
                    server.is_faulty.send_replace(!is_faulty);
                    disturbed = Instant::now();
                }
                1 | 2 => {
                    let replicas = rng.u32(1..5);
                    server.set.send_modify(|set| *set = Set { version: set.version + 1, replicas });
                    disturbed = Instant::now();
                }
                _ => {}
            }
        }
        task.abort();
        result.map(|()| checks)
    })
}

/// In any history the shard follows the StatefulSet.
#[test]
fn random_histories() {
    let (first, count) = (env_number("KSTATD_SEED").unwrap_or(1), env_number("KSTATD_HISTORIES"));
    let (mut wrong, mut checks) = (String::new(), 0);
    for (seed, result) in run_all(first..first + count.unwrap_or(50), run, Result::is_err) {
        match result {
            Ok(number) => checks += number,
            Err(why) => drop(writeln!(wrong, "KSTATD_SEED={seed}: {why}")),
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(checks > 0, "the shard was never compared");
}
