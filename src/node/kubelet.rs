//! Polls the kubelet's summary API.
//!
//! Each poll has a deadline and a maximum body size. Objects received before either is reached are
//! used, as are those of a truncated body. Failures back off exponentially, and jitter spreads the
//! polls of many nodes.

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

use super::json_splitter::{JsonSplitter, Member};
use super::store::{Store, now};
use super::{pods, summary};
use crate::telemetry::metric::{Counter, Gauge, Labelled, own_metrics};
use crate::util::words::words;

/// An HTTP response from any [`HttpClient`] implementation.
pub(crate) type JsonResponse = Response<UnsyncBoxBody<Bytes, FetchError>>;

/// The reason why there is no response, or only a part of one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FetchError(pub(crate) String);

/// The pending response of a request.
pub(crate) type PendingResponse<'a> =
    Pin<Box<dyn Future<Output = Result<JsonResponse, FetchError>> + Send + 'a>>;

/// An HTTP client for one server.
pub(crate) trait HttpClient: Send + Sync {
    /// Sends a GET request that accepts JSON.
    fn get<'a>(&'a self, path: &'a str) -> PendingResponse<'a>;
}

/// The maximum length of a response body, in bytes.
const MAX_BODY: usize = 128 << 20;

/// The initial backoff after a failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// The interval at which the pod list is refreshed even without new pods, because restarted
/// containers get new IDs.
const PODS_INTERVAL: Duration = Duration::from_secs(600);

/// The timing of polls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollTiming {
    /// The interval between polls, before jitter.
    pub(crate) interval: Duration,
    /// The deadline of one poll.
    pub(crate) deadline: Duration,
}

/// The source of the node's pod list.
pub(crate) struct Pods {
    pub(crate) server: Arc<dyn HttpClient>,
    /// True if the server is the API server, which also has the pods of other nodes.
    pub(crate) is_api_server: bool,
}

own_metrics! {
    /// Counters and state of the polls.
    #[derive(Clone)]
    pub(crate) struct PollMetrics {
        gauge last_complete: Gauge = "kstatd_node_last_summary_timestamp_seconds",
            "Unix time of the last complete kubelet summary; 0 if there was none.";
        counter polls: Labelled<Counter, 2> ["outcome", "server"] = "kstatd_node_polls_total",
            "Requests for the kubelet summary and the pods of the node, by outcome.";
        counter bytes: Labelled<Counter, 1> ["server"] = "kstatd_node_received_bytes_total",
            "Bytes received in responses to these requests.";
    }
    state {
        /// The current error.
        current_error: Arc<Mutex<Option<String>>>,
    }
}

impl PollMetrics {
    /// Returns the time of the last complete summary in Unix seconds (0 if there was none) and the
    /// current error.
    pub(crate) fn status(&self) -> (f64, Option<String>) {
        let current_error = self.current_error.lock().unwrap_or_else(PoisonError::into_inner);
        (self.last_complete.get(), current_error.clone())
    }

    fn set_error(&self, error: Option<&PollError>) {
        let mut current = self.current_error.lock().unwrap_or_else(PoisonError::into_inner);
        *current = error.map(|error| error.reason.clone());
    }
}

words! {
    /// The outcome of a request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Outcome {
        Ok = "ok",
        /// Part of the body was received.
        Partial = "partial",
        /// The server answered 401 or 403.
        Refused = "refused",
        Failed = "failed",
        /// The deadline passed before any object was received.
        Timeout = "timeout",
        Malformed = "malformed",
    }
}

/// A failed or incomplete request.
#[derive(Clone, Debug)]
struct PollError {
    outcome: Outcome,
    reason: String,
}

impl PollError {
    fn new(outcome: Outcome, reason: impl ToString) -> Self {
        Self { outcome, reason: reason.to_string() }
    }
}

/// Requests a path, passes on its objects and returns their number.
async fn fetch_objects(
    server: &dyn HttpClient,
    path: &str,
    wanted: &'static [Member],
    deadline: Duration,
    bytes: &Counter,
    mut with: impl FnMut(&'static str, &[u8]) -> serde_json::Result<()>,
) -> Result<(), PollError> {
    let mut taken = 0_u64;
    let reading = async {
        let answer =
            server.get(path).await.map_err(|error| PollError::new(Outcome::Failed, error))?;
        let status = answer.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(PollError::new(Outcome::Refused, status));
        }
        if status != StatusCode::OK {
            return Err(PollError::new(Outcome::Failed, status));
        }
        let (mut body, mut splitter, mut length) =
            (answer.into_body(), JsonSplitter::new(wanted), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| PollError::new(Outcome::Failed, error))?;
            let Ok(data) = frame.into_data() else { continue };
            bytes.inc_by(data.len() as u64);
            length += data.len();
            if length > MAX_BODY {
                let reason = format!("longer than {MAX_BODY} bytes");
                return Err(PollError::new(Outcome::Malformed, reason));
            }
            let counted = splitter.feed(&data, |name, object| {
                with(name, object)?;
                taken += 1;
                Ok(())
            });
            counted.map_err(|error| PollError::new(Outcome::Malformed, error))?;
        }
        match splitter.is_complete() {
            true => Ok(()),
            false => Err(PollError::new(Outcome::Failed, "truncated response")),
        }
    };
    let read = timeout(deadline, reading).await;
    let late = || PollError::new(Outcome::Timeout, format!("incomplete after {deadline:?}"));
    match read.unwrap_or_else(|_| Err(late())) {
        Err(PollError { outcome: Outcome::Failed | Outcome::Timeout, reason }) if taken > 0 => {
            Err(PollError { outcome: Outcome::Partial, reason })
        }
        read => read,
    }
}

/// Polls until dropped. `first` is notified of the first complete summary.
pub(crate) async fn poll(
    store: Arc<Store>,
    kubelet: Arc<dyn HttpClient>,
    pods: Option<Pods>,
    timing: PollTiming,
    polls: PollMetrics,
    first: watch::Sender<bool>,
) {
    let mut failures = 0_u32;
    let mut last: Option<PollError> = None;
    let mut pods_read: Option<Instant> = None;
    loop {
        let summary = poll_summary(&store, &*kubelet, timing.deadline, &polls).await;
        let mut current_error = summary.as_ref().err().cloned();
        if summary.is_ok() {
            polls.last_complete.set(now());
        }
        if let Some(pods) = &pods
            && (store.has_unknown_pods() || pods_read.is_none_or(|at| at.elapsed() > PODS_INTERVAL))
        {
            match poll_pods(&store, pods, timing.deadline, &polls).await {
                Ok(()) => pods_read = Some(Instant::now()),
                Err(error) => current_error = current_error.or(Some(error)),
            }
        }
        store.publish();
        if summary.is_ok() {
            first.send_replace(true);
        }
        polls.set_error(current_error.as_ref());
        log_change(last.as_ref(), current_error.as_ref());
        let pause = match &current_error {
            None => {
                failures = 0;
                timing.interval
            }
            Some(_) => {
                failures = failures.saturating_add(1);
                FIRST_BACKOFF.saturating_mul(1 << failures.min(16)).min(timing.interval)
            }
        };
        last = current_error;
        tokio::time::sleep(pause.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
    }
}

/// Logs a new error, and the recovery from the previous one.
fn log_change(before: Option<&PollError>, now: Option<&PollError>) {
    match (before, now) {
        (Some(before), Some(now)) if before.outcome == now.outcome => {
            tracing::debug!(error = now.reason, "The node summary is still incomplete");
        }
        (_, Some(PollError { outcome, reason })) => {
            let outcome = outcome.as_str();
            tracing::warn!(
                outcome,
                error = reason,
                "The disk usage of this node's pods is incomplete"
            );
        }
        (Some(_), None) => tracing::info!("The disk usage of this node's pods is complete again"),
        (None, None) => {}
    }
}

async fn poll_summary(
    store: &Store,
    kubelet: &dyn HttpClient,
    deadline: Duration,
    polls: &PollMetrics,
) -> Result<(), PollError> {
    const SERVER: &str = "kubelet";
    let mut seen = BTreeSet::new();
    let bytes = polls.bytes.with([SERVER]);
    let enter = |name, object: &[u8]| {
        if name == "node" {
            store.set_node(summary::node(object)?);
        } else {
            let pod = summary::pod(object, now())?;
            seen.insert(pod.uid.clone());
            store.set_pod(pod);
        }
        Ok(())
    };
    let read =
        fetch_objects(kubelet, "/stats/summary", summary::WANTED, deadline, &bytes, enter).await;
    if read.is_ok() {
        store.retain_pods(&seen);
    }
    count_outcome(read, "its summary", SERVER, polls)
}

async fn poll_pods(
    store: &Store,
    pods: &Pods,
    deadline: Duration,
    polls: &PollMetrics,
) -> Result<(), PollError> {
    let (server, path) = if pods.is_api_server {
        let node = store.node();
        if node.is_empty() {
            // Without a node name, the request would return every pod of the cluster.
            return Ok(());
        }
        // `resourceVersion=0` reads from the API server's cache: slightly stale data is fine here,
        // and costs the server little.
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&resourceVersion=0");
        ("apiserver", path)
    } else {
        ("kubelet-pods", "/pods".to_owned())
    };
    let (asked, mut known) = (now(), Vec::new());
    let bytes = polls.bytes.with([server]);
    let enter = |_, object: &[u8]| {
        known.push(pods::pod(object)?);
        Ok(())
    };
    let read = fetch_objects(&*pods.server, &path, pods::WANTED, deadline, &bytes, enter).await;
    if read.is_ok() {
        store.set_pod_specs(asked, known);
    }
    count_outcome(read, "the pods of the node", server, polls)
}

fn count_outcome(
    read: Result<(), PollError>,
    what: &str,
    server: &str,
    polls: &PollMetrics,
) -> Result<(), PollError> {
    let outcome = read.as_ref().map_or_else(|error| error.outcome, |()| Outcome::Ok);
    polls.polls.with([outcome.as_str(), server]).inc();
    read.map_err(|PollError { outcome, reason }| {
        PollError::new(outcome, format!("{server}, {what}: {reason}"))
    })
}
