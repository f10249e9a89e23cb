//! Limits the reports in memory. One is held as a whole until its client has read it, and with thousands of list/watches or series has
//! megabytes.

use std::sync::Arc;

use super::connection::Peer;
use super::fair_queue::{FairQueue, Permit};
use super::response::{self, Response};
use super::router::Call;
use crate::util::serial_blocking::SerialBlocking;

/// The maximum number of reports in one queue, and of those for one client.
const REPORTS: (usize, usize) = (8, 2);
/// The same for own metrics, which Prometheus needs. It may share its address with clients that read slowly: behind a proxy all do.
const OWN_METRICS: (usize, usize) = (32, 8);

/// The queue of the requests for a report.
#[derive(Clone, Debug)]
pub(super) struct ReportQueue(Arc<FairQueue>);

impl ReportQueue {
    /// Returns a queue for reports of one kind.
    pub(super) fn new() -> Self {
        Self(Arc::new(FairQueue::new(REPORTS.0, REPORTS.1)))
    }

    /// Returns a queue for own metrics.
    pub(super) fn of_own_metrics() -> Self {
        Self(Arc::new(FairQueue::new(OWN_METRICS.0, OWN_METRICS.1)))
    }

    /// Answers a request in its turn: 503 if too many are waiting.
    pub(super) async fn answer<F: Future<Output = Response>>(
        self,
        call: Call,
        make: impl FnOnce(Call) -> F,
    ) -> Response {
        match self.turn(call.head.extensions.get::<Peer>().cloned()).await {
            Ok(permit) => make(call).await.map(|body| body.hold(permit)),
            Err(refusal) => refusal,
        }
    }

    /// [Answers](Self::answer) a request with what `make` returns on the blocking pool.
    pub(super) async fn answer_blocking(
        self,
        call: Call,
        worker: SerialBlocking,
        make: impl FnOnce() -> Response + Send + 'static,
    ) -> Response {
        self.answer(call, |_| response::blocking(worker, make)).await
    }

    /// Waits for the turn of a client.
    async fn turn(&self, peer: Option<Peer>) -> Result<Permit, Response> {
        match self.0.acquire(peer.as_ref().and_then(Peer::address)).await {
            // Those of clients that have left meanwhile are not made.
            Some(_) if peer.is_some_and(|peer| peer.has_left()) => {
                Err(response::closing(503, "Client disconnected\n"))
            }
            Some(permit) => Ok(permit),
            None => Err(response::text(503, "Too many reports at once\n")),
        }
    }
}
