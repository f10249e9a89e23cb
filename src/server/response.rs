//! Responses shared by all listeners.

use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, StatusCode};
use tokio::task::JoinError;

use super::body::Body;
use crate::util::percent;
use crate::util::serial_blocking::SerialBlocking;

/// A response with this server's body type.
pub type Response = hyper::Response<Body>;

/// Returns a `text/plain` response.
pub fn text(status: u16, text: impl Into<String>) -> Response {
    with_type(status, "text/plain; charset=utf-8", Body::whole(text.into()))
}

/// Returns an HTML page.
pub fn html(page: impl Into<String>) -> Response {
    with_type(200, "text/html; charset=UTF-8", Body::whole(page.into()))
}

/// Returns a body of the given media type.
pub fn with_type(status: u16, content_type: &'static str, body: Body) -> Response {
    header(new(status, body), CONTENT_TYPE, HeaderValue::from_static(content_type))
}

/// Returns a JSON document.
pub fn json(status: u16, text: String) -> Response {
    nosniff(with_type(status, "application/json", Body::whole(text)))
}

/// Returns 503 with the reasons for not being ready.
pub fn waiting_for(what: &[String]) -> Response {
    text(503, format!("waiting for:\n{}\n", what.join("\n")))
}

/// Returns an empty response with a status.
pub fn empty(status: u16) -> Response {
    new(status, Body::empty())
}

/// Returns the response of Go's `http.NotFound`.
pub fn not_found() -> Response {
    error(404, "404 page not found\n")
}

/// Returns an error text with content sniffing disabled, like Go's `http.Error`.
pub fn error(status: u16, message: impl Into<String>) -> Response {
    nosniff(text(status, message))
}

/// Returns what `make` returns on the blocking pool, or 500 if it panics.
pub(super) async fn blocking(
    worker: SerialBlocking,
    make: impl FnOnce() -> Response + Send + 'static,
) -> Response {
    worker.run(make).await.unwrap_or_else(not_produced)
}

/// Returns 500 for a response whose production has panicked.
pub(super) fn not_produced(error: JoinError) -> Response {
    tracing::error!(%error, "A response could not be produced");
    text(500, "Internal Server Error")
}

/// Returns an error after which the connection is closed, like Go's server does for invalid
/// requests.
pub fn closing(status: u16, message: &'static str) -> Response {
    header(text(status, message), CONNECTION, HeaderValue::from_static("close"))
}

/// Disables content sniffing.
pub fn nosniff(response: Response) -> Response {
    header(response, X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}

/// Redirects (307) to a path of this server; `GET` and `HEAD` get a page with the link.
pub fn redirect(method: &Method, target: &str) -> Response {
    let page = format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", escape_html(target));
    let response = match *method {
        Method::GET => with_type(307, "text/html; charset=utf-8", Body::whole(page)),
        Method::HEAD => with_type(307, "text/html; charset=utf-8", Body::empty()),
        _ => empty(307),
    };
    match HeaderValue::from_str(target) {
        Ok(target) => header(response, LOCATION, target),
        Err(_) => text(400, "400 Bad Request\n"),
    }
}

fn new(status: u16, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Adds a header.
pub fn header(mut response: Response, name: HeaderName, value: HeaderValue) -> Response {
    response.headers_mut().insert(name, value);
    response
}

/// Escapes text for an HTML element or a quoted attribute.
pub fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&#34;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Encodes a decoded path for a `Location` header.
pub fn escape_path(path: &str) -> String {
    percent::encode(path, b"-_.~$&+,/:;=@!()*")
}
