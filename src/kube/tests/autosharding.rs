//! Tests of the watch for the number of replicas, in simulated time.

mod history;

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::watch;
use tokio::time::timeout;

use super::super::autosharding::{PodName, StatefulSetWatcher};
use super::super::client::connection::{Connecting, Network, Stream};
use super::{Client, ClientOptions};

/// A server with a StatefulSet of one pod.
struct Server {
    /// The number of watches so far.
    watches: watch::Sender<u32>,
    /// The response to each watch; without one there is none.
    events: Option<Bytes>,
}

struct Wire(Arc<Server>);

impl Network for Wire {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> Connecting<'a> {
        let server = Arc::clone(&self.0);
        connect(move |request| {
            let server = Arc::clone(&server);
            async move { server.answer(&request).await }
        })
    }
}

/// Opens a connection to a server that answers requests in this way.
fn connect<F, B>(answer: impl Fn(Request<Incoming>) -> F + Send + 'static) -> Connecting<'static>
where
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    tokio::spawn(http.serve_connection(TokioIo::new(theirs), service));
    Box::pin(ready(Ok(Box::new(ours) as Box<dyn Stream>)))
}

impl Server {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let query = request.uri().query().unwrap_or_default();
        let body = if query.contains("watch=true") {
            self.watches.send_modify(|number| *number += 1);
            match &self.events {
                Some(events) => events.clone(),
                None => pending().await,
            }
        } else {
            let set = r#"{"metadata":{"name":"set"},"spec":{"replicas":1}}"#;
            match request.uri().path() {
                "/api/v1/namespaces/space/pods/set-0" => {
                    let owner = r#"{"apiVersion":"apps/v1","kind":"StatefulSet","name":"set","uid":"a","controller":true}"#;
                    format!(r#"{{"metadata":{{"name":"set-0","ownerReferences":[{owner}]}}}}"#)
                }
                "/apis/apps/v1/namespaces/space/statefulsets/set" => set.to_owned(),
                _ => format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{set}]}}"#),
            }
            .into()
        };
        Response::new(body.into())
    }
}

async fn start(events: Option<Bytes>) -> (Arc<Server>, Arc<StatefulSetWatcher>) {
    let server = Arc::new(Server { watches: watch::Sender::default(), events });
    let options = ClientOptions {
        apiserver: Some("http://server".to_owned()),
        user_agent: "test/1".to_owned(),
        ..ClientOptions::default()
    };
    let client = Client::over(&options, Arc::new(Wire(Arc::clone(&server)))).expect("a client");
    let pod = PodName { namespace: "space".to_owned(), name: "set-0".to_owned() };
    let watcher = StatefulSetWatcher::new(Arc::new(ArcSwap::from_pointee(client)), pod).await;
    (server, Arc::new(watcher.expect("a shard")))
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_does_not_answer_is_abandoned_soon() {
    let (server, watcher) = start(None).await;
    let mut watches = server.watches.subscribe();
    let another = async {
        tokio::select! {
            () = watcher.run() => {}
            another = watches.wait_for(|number| *number > 1) => drop(another.expect("a number")),
        }
    };
    timeout(Duration::from_secs(20), another).await.expect("another watch");
}

/// A rollout of many pods may change the StatefulSet often.
#[tokio::test(start_paused = true)]
async fn a_watch_may_be_of_any_size() {
    let event = |replicas: u32| {
        let padding = "x".repeat(64 * 1024);
        let metadata = format!(r#"{{"name":"set","annotations":{{"a":"{padding}"}}}}"#);
        let object = format!(r#"{{"metadata":{metadata},"spec":{{"replicas":{replicas}}}}}"#);
        format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}\n")
    };
    let events: String = (2..=100).map(event).collect();
    let (_, watcher) = start(Some(events.into())).await;
    let mut detected = watcher.detected.subscribe();
    let last = async {
        tokio::select! {
            () = watcher.run() => {}
            last = detected.wait_for(|detected| detected.shard.total == 100) => {
                drop(last.expect("a shard"));
            }
        }
    };
    timeout(Duration::from_secs(120), last).await.expect("the last event");
}
