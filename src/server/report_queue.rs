//! Limits the reports in memory. One is held as a whole until its client has read it, and with thousands of list/watches or series has
//! megabytes.

use std::sync::Arc;

use super::connection::Peer;
use super::fair_queue::{FairQueue, Permit};
use super::response::{self, Response};
use super::router::Call;
use crate::util::serial_blocking::SerialBlocking;

/// The maximum number of large reports in one queue, and of those for one client.
const REPORTS: (usize, usize) = (8, 2);
/// The number of reports of less than a megabyte that may take the place of a large one. Prometheus needs own metrics, which are rarely large, and
/// may share its address with clients that read slowly: behind a proxy all do.
const SMALL: usize = 4;

/// The queue of the requests for a report.
#[derive(Clone, Debug)]
pub(super) struct ReportQueue(Arc<FairQueue>);

impl ReportQueue {
    /// Returns a queue for reports of one kind.
    pub(super) fn new() -> Self {
        Self(Arc::new(FairQueue::new(REPORTS.0 * SMALL, REPORTS.1 * SMALL)))
    }

    /// Answers a request in its turn, with a report that may be large: 503 if too many are waiting.
    pub(super) async fn answer<F: Future<Output = Response>>(
        self,
        call: Call,
        make: impl FnOnce(Call) -> F,
    ) -> Response {
        self.answer_of_size(usize::MAX, call, make).await
    }

    /// The same with a report of about `bytes`.
    pub(super) async fn answer_of_size<F: Future<Output = Response>>(
        self,
        bytes: usize,
        call: Call,
        make: impl FnOnce(Call) -> F,
    ) -> Response {
        let permits = (bytes >> 20).clamp(1, SMALL) as u32;
        match self.turn(call.head.extensions.get::<Peer>().cloned(), permits).await {
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
    async fn turn(&self, peer: Option<Peer>, permits: u32) -> Result<Permit, Response> {
        match self.0.acquire(peer.as_ref().and_then(Peer::address), permits).await {
            // Those of clients that have left meanwhile are not made.
            Some(_) if peer.is_some_and(|peer| peer.has_left()) => {
                Err(response::closing(503, "Client disconnected\n"))
            }
            Some(permit) => Ok(permit),
            None => Err(response::text(503, "Too many reports at once\n")),
        }
    }
}
