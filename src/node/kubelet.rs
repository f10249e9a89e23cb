//! The kubelet's own summary, asked for now and then.
//!
//! Each poll has a deadline and the body a bound; what has come until one of them ends it counts, and so does the part of a
//! body that is cut. After a failure it is asked again after a pause that grows; polls of many nodes are apart, by chance.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::watch;
use tokio::time::timeout;

use super::pieces::Pieces;
use super::store::{Store, now};
use super::{pods, summary};
use crate::telemetry::Recorder;
use crate::telemetry::metric::{Counter, Gauge, Labelled, Row};

/// An answer, whoever gives it.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, String>>;

/// What comes of asking.
pub(crate) type Asking<'a> = Pin<Box<dyn Future<Output = Result<Answer, String>> + Send + 'a>>;

/// A server that can be asked.
pub(crate) trait Ask: Send + Sync {
    /// Asks for a path, for JSON.
    fn ask<'a>(&'a self, path: &'a str) -> Asking<'a>;
}

/// The longest body that is read, in bytes: what answers may be anything.
const MAX_BODY: usize = 128 << 20;

/// The first pause after a failure, which doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// After how long pods are asked for again though none is new: containers have other numbers once they were restarted.
const AGAIN: Duration = Duration::from_secs(600);

/// How a server is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rhythm {
    /// Between two polls, about.
    pub(crate) interval: Duration,
    /// How long one may take.
    pub(crate) deadline: Duration,
}

/// Where the pods of the node are asked for.
pub(crate) struct Pods {
    pub(crate) server: Arc<dyn Ask>,
    /// Whether it is the API server, which has the pods of other nodes too.
    pub(crate) is_api_server: bool,
}

/// How it went.
#[derive(Clone)]
pub(crate) struct Polls {
    polls: Labelled<Counter, 2>,
    bytes: Labelled<Counter, 1>,
    /// Unix seconds of the last summary that was whole.
    whole: Gauge,
    /// What is wrong now.
    trouble: Arc<Mutex<Option<String>>>,
}

impl Default for Polls {
    fn default() -> Self {
        let polls = Labelled::new(["outcome", "server"]);
        let (whole, trouble) = (Gauge::default(), Arc::default());
        Self { polls, bytes: Labelled::new(["server"]), whole, trouble }
    }
}

impl Polls {
    /// Unix seconds of the last summary that was whole, 0 for none, and what is wrong now.
    pub(crate) fn standing(&self) -> (f64, Option<String>) {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        (self.whole.get(), trouble.clone())
    }

    fn note(&self, trouble: Option<&Trouble>) {
        let mut noted = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *noted = trouble.map(|(_, why)| why.clone());
    }

    /// Registers them.
    pub(crate) fn register(&self, recorder: &mut Recorder) {
        recorder.rows([
            Row::gauge(
                "kstatd_node_last_summary_timestamp_seconds",
                "When the kubelet's summary was last complete, seconds since the Unix epoch; 0 for never.",
                self.whole.clone(),
            ),
            Row::counter(
                "kstatd_node_polls_total",
                "Requests for the kubelet's summary and for the pods of the node, by what came of them.",
                self.polls.clone(),
            ),
            Row::counter(
                "kstatd_node_received_bytes_total",
                "Bytes of their answers.",
                self.bytes.clone(),
            ),
        ]);
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Ok,
    /// Some of it came.
    Partial,
    /// 401 or 403.
    Refused,
    Failed,
    /// It took too long, and nothing of it had come.
    TooLate,
    Malformed,
}

impl Outcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::TooLate => "timeout",
            Self::Malformed => "malformed",
        }
    }
}

/// A request that is not all right, and why.
type Trouble = (Outcome, String);

/// Asks for a path and takes its objects; how many came.
async fn objects(
    server: &dyn Ask,
    path: &str,
    wanted: &'static [(&'static str, bool)],
    deadline: Duration,
    bytes: &Counter,
    mut with: impl FnMut(&'static str, &[u8]) -> Result<(), String>,
) -> Result<(), Trouble> {
    let mut taken = 0_u64;
    let reading = async {
        let answer = server.ask(path).await.map_err(|error| (Outcome::Failed, error))?;
        let status = answer.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err((Outcome::Refused, status.to_string()));
        }
        if status != StatusCode::OK {
            return Err((Outcome::Failed, status.to_string()));
        }
        let (mut body, mut pieces, mut length) = (answer.into_body(), Pieces::new(wanted), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| (Outcome::Failed, error))?;
            let Ok(data) = frame.into_data() else { continue };
            bytes.inc_by(data.len() as u64);
            length += data.len();
            if length > MAX_BODY {
                return Err((Outcome::Malformed, format!("it is longer than {MAX_BODY} bytes")));
            }
            let counted = pieces.feed(&data, |name, object| {
                with(name, object)?;
                taken += 1;
                Ok(())
            });
            counted.map_err(|error| (Outcome::Malformed, error))?;
        }
        match pieces.ended() {
            true => Ok(()),
            false => Err((Outcome::Failed, "it ends in its midst".to_owned())),
        }
    };
    let read = timeout(deadline, reading).await;
    let late = || (Outcome::TooLate, format!("not all of it came within {deadline:?}"));
    match read.unwrap_or_else(|_| Err(late())) {
        Err((Outcome::Failed | Outcome::TooLate, why)) if taken > 0 => Err((Outcome::Partial, why)),
        read => read,
    }
}

/// Polls as long as it is not dropped. Whether a summary was ever whole is told by `first`.
pub(crate) async fn poll(
    store: Arc<Store>,
    kubelet: Arc<dyn Ask>,
    pods: Option<Pods>,
    rhythm: Rhythm,
    polls: Polls,
    first: watch::Sender<bool>,
) {
    let mut failures = 0_u32;
    let mut last: Option<Trouble> = None;
    let mut asked: Option<Instant> = None;
    loop {
        let summary = poll_summary(&store, &*kubelet, rhythm.deadline, &polls).await;
        let mut trouble = summary.as_ref().err().cloned();
        if summary.is_ok() {
            polls.whole.set(now());
        }
        if let Some(pods) = &pods
            && (store.has_strangers() || asked.is_none_or(|at| at.elapsed() > AGAIN))
        {
            match poll_pods(&store, pods, rhythm.deadline, &polls).await {
                Ok(()) => asked = Some(Instant::now()),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        store.settle();
        if summary.is_ok() {
            first.send_replace(true);
        }
        polls.note(trouble.as_ref());
        complain(last.as_ref(), trouble.as_ref());
        let pause = match &trouble {
            None => {
                failures = 0;
                rhythm.interval
            }
            Some(_) => {
                failures = failures.saturating_add(1);
                FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(rhythm.interval)
            }
        };
        last = trouble;
        tokio::time::sleep(pause.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    }
}

/// Says in the log what is another trouble than before, and that it is over.
fn complain(before: Option<&Trouble>, now: Option<&Trouble>) {
    match (before, now) {
        (Some((was, _)), Some((is, why))) if was == is => {
            tracing::debug!(error = why, "the summary of the node is still not complete");
        }
        (_, Some((outcome, why))) => {
            let outcome = outcome.word();
            tracing::warn!(
                outcome,
                error = why,
                "what this node's pods hold is not known completely"
            );
        }
        (Some(_), None) => tracing::info!("what this node's pods hold is known again"),
        (None, None) => {}
    }
}

async fn poll_summary(
    store: &Store,
    kubelet: &dyn Ask,
    deadline: Duration,
    polls: &Polls,
) -> Result<(), Trouble> {
    const SERVER: &str = "kubelet";
    let mut seen = BTreeSet::new();
    let bytes = polls.bytes.with([SERVER]);
    let enter = |name, object: &[u8]| {
        if name == "node" {
            store.enter_node(summary::node(object)?);
        } else {
            let pod = summary::pod(object, now())?;
            seen.insert(pod.uid.clone());
            store.enter_pod(pod);
        }
        Ok(())
    };
    let read = objects(kubelet, "/stats/summary", summary::WANTED, deadline, &bytes, enter).await;
    if read.is_ok() {
        store.keep(&seen);
    }
    counted(read, "its summary", SERVER, polls)
}

async fn poll_pods(
    store: &Store,
    pods: &Pods,
    deadline: Duration,
    polls: &Polls,
) -> Result<(), Trouble> {
    let (server, path) = if pods.is_api_server {
        let node = store.node();
        if node.is_empty() {
            // Without a name it would be every pod of the cluster.
            return Ok(());
        }
        // From its cache: what is a little old does no harm, and the list costs it next to nothing.
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&resourceVersion=0");
        ("apiserver", path)
    } else {
        ("kubelet-pods", "/pods".to_owned())
    };
    let mut known = Vec::new();
    let bytes = polls.bytes.with([server]);
    let enter = |_, object: &[u8]| {
        known.push(pods::pod(object)?);
        Ok(())
    };
    let read = objects(&*pods.server, &path, pods::WANTED, deadline, &bytes, enter).await;
    if read.is_ok() {
        store.enter_known(known);
    }
    counted(read, "the pods of the node", server, polls)
}

fn counted(
    read: Result<(), Trouble>,
    what: &str,
    server: &str,
    polls: &Polls,
) -> Result<(), Trouble> {
    let outcome = read.as_ref().map_or_else(|(outcome, _)| *outcome, |()| Outcome::Ok);
    polls.polls.with([outcome.word(), server]).inc();
    read.map_err(|(outcome, why)| (outcome, format!("{server}, {what}: {why}")))
}
