//! The HTTP server: connections, routes, and responses other than lists and watches.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::body::{self, List, ResponseBody, Scope};
use super::encode::Encoding;
use super::envelope::Failure;
use super::query::{ListOptions, Path, Selector, negotiate};
use super::world::World;

/// Frames of a watch that are queued for the connection.
const QUEUE: usize = 4;

/// The state that requests are answered from.
pub struct Service {
    /// The cluster.
    pub world: Arc<World>,
    /// True if `sendInitialEvents` is supported.
    pub watch_list: bool,
    /// Interval between the bookmarks of a watch.
    pub bookmark_interval: Duration,
    /// Resources that may not be listed or watched, with the status of the refusal.
    pub refused: Mutex<BTreeMap<String, u16>>,
}

/// Accepts connections until it is dropped, which closes them.
pub async fn serve(listener: TcpListener, service: Arc<Service>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&service)));
                }
                // Out of descriptors, or the peer has disconnected: wait instead of a busy loop.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, service: Arc<Service>) {
    // Small events must not wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let handler = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.answer(request).await) }
    });
    // A broken connection is not an error of the server.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), handler)
        .await;
}

impl Service {
    async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let encoding = negotiate(accept);
        let path = request.uri().path();
        if request.method() != Method::GET {
            let message = "the double is read-only: only GET is allowed".to_owned();
            let failure =
                Failure { code: 405, reason: "MethodNotAllowed", message, ..Failure::default() };
            return failed(&failure, encoding.unwrap_or(Encoding::Json));
        }
        match path {
            "/version" => return whole(StatusCode::OK, "application/json", VERSION),
            "/livez" | "/readyz" | "/healthz" => {
                return whole(StatusCode::OK, "text/plain; charset=utf-8", "ok");
            }
            _ => {}
        }
        let Some(encoding) = encoding else {
            return failed(&Failure::not_acceptable(), Encoding::Json);
        };
        let query = request.uri().query().unwrap_or_default();
        match self.collection(path, query, encoding).await {
            Ok(response) => response,
            Err(failure) => failed(&failure, encoding),
        }
    }

    fn refusal(&self, path: &Path<'_>) -> Option<u16> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let of_namespace = || {
            let key = format!("{}/{}", path.namespace?, path.resource);
            refused.get(&key)
        };
        refused.get(path.resource).or_else(of_namespace).copied()
    }

    async fn collection(
        &self,
        path: &str,
        query: &str,
        encoding: Encoding,
    ) -> Result<Response<ResponseBody>, Failure> {
        let path = Path::parse(path).ok_or_else(Failure::not_found)?;
        let collection = self
            .world
            .collection(path.group, path.version, path.resource)
            .filter(|collection| path.namespace.is_none() || collection.api.namespaced)
            .ok_or_else(Failure::not_found)?;
        if let Some(code) = self.refusal(&path) {
            return Err(Failure::refused(code, path.resource));
        }
        if !self.world.source.has_encoding(encoding) && !collection.items().is_empty() {
            return Err(Failure::not_acceptable());
        }
        let options = ListOptions::parse(query)?;
        if options.initial_events && !self.watch_list {
            let message = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch \
                           unless the WatchList feature gate is enabled";
            return Err(Failure::invalid(message));
        }
        let selector =
            Selector::new(path.namespace, (&options.fields, &options.labels), path.resource)?;
        let (world, collection) = (Arc::clone(&self.world), Arc::clone(collection));
        let scope = Scope { world, collection, selector, encoding };
        if options.watch {
            let (sender, frames) = mpsc::channel(QUEUE);
            tokio::spawn(body::watch(scope, options, self.bookmark_interval, sender));
            let kind = match encoding {
                Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
                Encoding::Json => "application/json",
            };
            return Ok(respond(StatusCode::OK, kind, ResponseBody::Watch(frames)));
        }
        // Determining the length of a long list takes time.
        let list = tokio::task::spawn_blocking(move || List::new(scope, &options));
        let list = list.await.map_err(|error| Failure {
            code: 500,
            reason: "InternalError",
            message: error.to_string(),
            ..Failure::default()
        })??;
        Ok(respond(StatusCode::OK, media_type(encoding), ResponseBody::List(Box::new(list))))
    }
}

/// The reported version: the release that the double was compared with.
const VERSION: &str = concat!(
    r#"{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"","gitTreeState":"","#,
    r#""buildDate":"1970-01-01T00:00:00Z","goVersion":"","compiler":"","platform":"linux/amd64"}"#,
);

fn media_type(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
        Encoding::Json => "application/json",
    }
}

fn respond(status: StatusCode, kind: &'static str, answer: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(answer);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<ResponseBody> {
    respond(status, kind, ResponseBody::Whole(Some(body.into())))
}

fn failed(failure: &Failure, encoding: Encoding) -> Response<ResponseBody> {
    let status = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = whole(status, media_type(encoding), failure.body(encoding));
    if let Some(seconds) = failure.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
