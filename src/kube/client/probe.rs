//! Probes of silent connections.
//!
//! A dead HTTP/2 connection looks like an idle one. A proxy in between may answer PINGs although the server behind
//! has failed, so a probe is a short request that the server itself has to answer. Data on a watch is as good as a
//! response, so a connection is only probed if it has open requests and has been silent.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::{Body, Place, Probe};
use super::inner::Inner;

/// The silence after which a connection is probed.
pub(crate) const SILENCE: Duration = Duration::from_secs(36);
/// The timeout of a probe.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// The path that a probe requests. Every account may read it, and a refusal also counts as a response.
const PATH: &str = "/version";
/// The largest response that is read, in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// Spawns a task that probes the HTTP/2 connection with this number until the connection ends or the client is
/// dropped.
pub(super) fn spawn(client: &Arc<Inner>, number: u64) {
    tokio::spawn(run(Arc::downgrade(client), number));
}

async fn run(client: Weak<Inner>, number: u64) {
    let mut next = Instant::now() + SILENCE;
    loop {
        sleep_until(next).await;
        let Some(client) = client.upgrade() else { return };
        let Some(mut link) = client.connections.link(number) else { return };
        let sent = Instant::now();
        next = sent + SILENCE;
        let is_answered = match link.probe(SILENCE) {
            Probe::At(due) => {
                next = due;
                continue;
            }
            Probe::Now(place) => client.is_answered(place).await,
            Probe::Impossible => {
                sleep(ANSWER).await;
                false
            }
        };
        if !is_answered {
            let reason = format!("a probe was not answered within {} s", ANSWER.as_secs());
            link.close_if_silent_since(sent, reason);
        }
    }
}

impl Inner {
    /// Sends a probe and returns whether the server responds in time. An error also counts as a response.
    async fn is_answered(&self, place: Place) -> bool {
        let Ok(uri) = self.uri(PATH) else { return true };
        let request = Request::get(uri).header(ACCEPT, "application/json").body(Bytes::new());
        let Ok(mut request) = request else { return true };
        // Without credentials the server refuses the request, which also counts.
        if let Ok(Ok(current)) = timeout(ANSWER, self.identity.current()).await {
            request.headers_mut().extend(HeaderMap::clone(&current.headers));
        }
        let answer = async {
            if let Ok(response) = place.send(request).await {
                let body = Body::streamed(response.into_body());
                let _ = Limited::new(body, MAX_RESPONSE).collect().await;
            }
        };
        timeout(ANSWER, answer).await.is_ok()
    }
}
