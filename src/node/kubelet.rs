//! Polls the kubelet's summary API.
//!
//! Each poll has a deadline and a maximum body size. Objects received before either is reached are
//! used, as are those of a truncated body. Failures back off exponentially, and jitter spreads the
//! polls of many nodes.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
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
use crate::util::lock::Lock;
use crate::util::words::words;

/// The HTTP response of a server.
pub(crate) type JsonResponse = Response<UnsyncBoxBody<Bytes, FetchError>>;

/// The reason why there is no response, or only a part of one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct FetchError(pub(crate) String);

/// The pending response of a request.
pub(crate) type PendingResponse =
    Pin<Box<dyn Future<Output = Result<JsonResponse, FetchError>> + Send>>;

/// Sends a GET request for a path, which accepts JSON, to one server.
pub(crate) type HttpGet = Arc<dyn Fn(String) -> PendingResponse + Send + Sync>;

/// The maximum length of a response body, in bytes.
const MAX_BODY: usize = 128 << 20;

/// The initial backoff after a failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// The interval at which the pod list is refreshed even without new pods, because restarted
/// containers get new IDs.
const PODS_INTERVAL: Duration = Duration::from_secs(600);

/// The source of the node's pod list.
pub(crate) struct Pods {
    pub(crate) server: HttpGet,
    /// True if the server is the API server, which also has the pods of other nodes.
    pub(crate) is_api_server: bool,
}

/// Polls the summary, and the pods of the node when there are new ones.
pub(crate) struct Poller {
    pub(crate) store: Arc<Store>,
    pub(crate) kubelet: HttpGet,
    pub(crate) pods: Option<Pods>,
    /// The interval between polls, before jitter.
    pub(crate) interval: Duration,
    /// The deadline of one request.
    pub(crate) deadline: Duration,
    pub(crate) polls: PollMetrics,
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
        current_error: Arc<Lock<Option<String>>>,
    }
}

impl PollMetrics {
    /// Returns the time of the last complete summary in Unix seconds (0 if there was none) and the
    /// current error.
    pub(crate) fn status(&self) -> (f64, Option<String>) {
        (self.last_complete.get(), self.current_error.lock().clone())
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

/// A list of objects of a server.
struct Request {
    /// The name of the server in metrics.
    server: &'static str,
    what: &'static str,
    path: String,
    wanted: &'static [Member],
}

impl Request {
    /// Sends the request, passes on the objects and counts the outcome.
    async fn fetch(
        &self,
        get: &HttpGet,
        Poller { deadline, polls, .. }: &Poller,
        mut with: impl FnMut(&'static str, &[u8]) -> serde_json::Result<()>,
    ) -> Result<(), PollError> {
        let mut taken = 0_u64;
        let counted = |name, object: &[u8]| {
            with(name, object)?;
            taken += 1;
            Ok(())
        };
        let bytes = polls.bytes.with([self.server]);
        let read = timeout(*deadline, self.read(get, &bytes, counted)).await;
        let late = || PollError::new(Outcome::Timeout, format!("incomplete after {deadline:?}"));
        let mut read = read.unwrap_or_else(|_| Err(late()));
        if let Err(PollError { outcome, reason }) = &mut read {
            if taken > 0 && matches!(outcome, Outcome::Failed | Outcome::Timeout) {
                *outcome = Outcome::Partial;
            }
            *reason = format!("{}, {}: {reason}", self.server, self.what);
        }
        let outcome = read.as_ref().map_or_else(|error| error.outcome, |()| Outcome::Ok);
        polls.polls.with([outcome.as_str(), self.server]).inc();
        read
    }

    async fn read(
        &self,
        get: &HttpGet,
        bytes: &Counter,
        mut with: impl FnMut(&'static str, &[u8]) -> serde_json::Result<()>,
    ) -> Result<(), PollError> {
        let failed = |error| PollError::new(Outcome::Failed, error);
        let answer = get(self.path.clone()).await.map_err(failed)?;
        let status = answer.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(PollError::new(Outcome::Refused, status));
        }
        if status != StatusCode::OK {
            return Err(PollError::new(Outcome::Failed, status));
        }
        let (mut body, mut splitter) = (answer.into_body(), JsonSplitter::new(self.wanted));
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(failed)?.into_data() else { continue };
            bytes.inc_by(data.len() as u64);
            length += data.len();
            if length > MAX_BODY {
                let reason = format!("longer than {MAX_BODY} bytes");
                return Err(PollError::new(Outcome::Malformed, reason));
            }
            let fed = splitter.feed(&data, &mut with);
            fed.map_err(|error| PollError::new(Outcome::Malformed, error))?;
        }
        match splitter.is_complete() {
            true => Ok(()),
            false => Err(PollError::new(Outcome::Failed, "truncated response")),
        }
    }
}

impl Poller {
    /// Polls until dropped. `first` is notified of the first complete summary.
    pub(crate) async fn run(self, first: watch::Sender<bool>) {
        let mut failures = 0_u32;
        let mut last: Option<PollError> = None;
        let mut pods_read: Option<Instant> = None;
        loop {
            let summary = self.poll_summary().await;
            let mut current_error = summary.as_ref().err().cloned();
            if summary.is_ok() {
                self.polls.last_complete.set(now());
            }
            if let Some(pods) = &self.pods
                && (self.store.has_unknown_pods()
                    || pods_read.is_none_or(|at| at.elapsed() > PODS_INTERVAL))
            {
                match self.poll_pods(pods).await {
                    Ok(()) => pods_read = Some(Instant::now()),
                    Err(error) => current_error = current_error.or(Some(error)),
                }
            }
            self.store.publish();
            if summary.is_ok() {
                first.send_replace(true);
            }
            let reason = current_error.as_ref().map(|error| error.reason.clone());
            *self.polls.current_error.lock() = reason;
            log_change(last.as_ref(), current_error.as_ref());
            let pause = match &current_error {
                None => {
                    failures = 0;
                    self.interval
                }
                Some(_) => {
                    failures = failures.saturating_add(1);
                    FIRST_BACKOFF.saturating_mul(1 << failures.min(16)).min(self.interval)
                }
            };
            last = current_error;
            tokio::time::sleep(pause.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
        }
    }

    async fn poll_summary(&self) -> Result<(), PollError> {
        let request = Request {
            server: "kubelet",
            what: "its summary",
            path: "/stats/summary".to_owned(),
            wanted: summary::WANTED,
        };
        let mut seen = BTreeSet::new();
        let enter = |name, object: &[u8]| {
            if name == "node" {
                self.store.set_node(summary::node(object)?);
            } else {
                let pod = summary::pod(object, now())?;
                seen.insert(pod.uid.clone());
                self.store.set_pod(pod);
            }
            Ok(())
        };
        request.fetch(&self.kubelet, self, enter).await?;
        self.store.retain_pods(&seen);
        Ok(())
    }

    async fn poll_pods(&self, pods: &Pods) -> Result<(), PollError> {
        let (server, path) = if pods.is_api_server {
            let node = self.store.node();
            if node.is_empty() {
                // Without a node name, the request would return every pod of the cluster.
                return Ok(());
            }
            // `resourceVersion=0` reads from the API server's cache: slightly stale data is fine here,
            // and costs the server little.
            let path =
                format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&resourceVersion=0");
            ("apiserver", path)
        } else {
            ("kubelet-pods", "/pods".to_owned())
        };
        let request = Request { server, what: "the pods of the node", path, wanted: pods::WANTED };
        let (asked, mut known) = (Instant::now(), Vec::new());
        let enter = |_, object: &[u8]| {
            known.push(pods::pod(object)?);
            Ok(())
        };
        request.fetch(&pods.server, self, enter).await?;
        self.store.set_pod_specs(asked, known);
        Ok(())
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
