//! `/api/v1/explain?line=`: explains a StatsD line, as text or with `format=json` as JSON. `sender=` is the address that it
//! comes from.
//!
//! The line is not ingested and changes nothing. The cost is bounded by its length and the number
//! of rules, and one line is explained at a time.
//!
//! `/api/v1/explain/object?resource=pods&namespace=NS&name=NAME`: explains why an object has its series, or none, as text
//! or with `format=json` as JSON.
//!
//! Each question costs at most four requests for the metadata of one object. Questions are answered one at a time, and in the
//! long run two a second.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::query::{self, QueryError};
use super::report_queue::ReportQueue;
use super::response::{self, Response, json, nosniff};
use super::router::{Call, Methods, Router};
use crate::status::{Board, LineQuestion, ObjectName};

/// The path.
pub(crate) const PATH: &str = "/api/v1/explain";

/// The maximum length of a line in bytes, which fits into a request even if every byte is escaped.
pub(crate) const MAX_LINE: usize = 16 << 10;

/// Returns the route.
pub(crate) fn routes(board: &Arc<Board>) -> Router {
    route(PATH, board, answer)
}

/// Returns a route of explanations. `answer` returns the response, or the reason for refusing the request.
fn route<F: Future<Output = Result<Response, Refusal>> + Send + 'static>(
    path: &str,
    board: &Arc<Board>,
    answer: fn(Arc<Board>, Call, bool) -> F,
) -> Router {
    let (board, queue) = (Arc::clone(board), ReportQueue::new());
    Router::default().at_async(path, Methods::Read, move |call| {
        let board = Arc::clone(&board);
        queue.clone().answer(call, move |call| async move {
            let is_json = match wants_json(call.query()) {
                Ok(is_json) => is_json,
                Err(error) => return refuse(400, error, false),
            };
            let answered = answer(board, call, is_json).await;
            answered.unwrap_or_else(|Refusal(status, reason)| refuse(status, reason, is_json))
        })
    })
}

/// A status and the reason for refusing a request.
struct Refusal(u16, String);

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Self {
        Self(400, error.to_string())
    }
}

async fn answer(board: Arc<Board>, call: Call, is_json: bool) -> Result<Response, Refusal> {
    let line = line(call.query(), "line")?;
    let line = line.ok_or_else(|| QueryError::from("line= must be a StatsD line"))?;
    let all = query::first(call.query(), "all").is_some();
    let sender = query::first(call.query(), "sender").filter(|address| !address.is_empty());
    let sender = sender.map(|address| match address.parse::<IpAddr>() {
        Ok(address) => Ok(address.to_canonical()),
        Err(_) => Err(QueryError::value("sender", &address, "an IP address")),
    });
    let question = LineQuestion { line, all, sender: sender.transpose()? };
    let Some(explanation) = board.explain(question).await else {
        return Err(Refusal(404, "this process does not receive StatsD lines".to_owned()));
    };
    Ok(explained(&explanation, explanation.text(), is_json))
}

/// Returns whether the answer is JSON instead of text.
///
/// # Errors
///
/// A message for the client when the format is unknown.
fn wants_json(query: &str) -> Result<bool, QueryError> {
    match query::first(query, "format").as_deref() {
        None | Some("" | "text") => Ok(false),
        Some("json") => Ok(true),
        Some(other) => Err(QueryError::value("format", other, "text or json")),
    }
}

/// Returns the response with an explanation, which as JSON also has the text.
fn explained(explanation: &impl Serialize, text: String, is_json: bool) -> Response {
    if !is_json {
        return nosniff(response::text(200, text));
    }
    let mut data = serde_json::to_value(explanation).unwrap_or_default();
    if let Some(data) = data.as_object_mut() {
        data.insert("text".to_owned(), text.into());
    }
    json(200, serde_json::json!({"status": "success", "data": data}).to_string())
}

/// Returns the line in a parameter, without its line feed.
///
/// # Errors
/// A message for the client.
pub(crate) fn line(query: &str, parameter: &str) -> Result<Option<Vec<u8>>, QueryError> {
    let Some(mut line) = query::first_bytes(query, parameter) else { return Ok(None) };
    if line.ends_with(b"\n") {
        line.pop();
    }
    if line.len() > MAX_LINE {
        return Err(format!("lines of more than {MAX_LINE} bytes cannot be explained").into());
    }
    if line.contains(&b'\n') {
        return Err("one line is explained at a time".into());
    }
    Ok(Some(line).filter(|line| !line.is_empty()))
}

pub(super) fn refuse(status: u16, error: impl Display, is_json: bool) -> Response {
    if !is_json {
        return response::error(status, format!("{error}\n"));
    }
    // As in Prometheus' API.
    let kind = if status == 404 { "not_found" } else { "bad_data" };
    let refusal =
        serde_json::json!({"status": "error", "errorType": kind, "error": error.to_string()});
    json(status, refusal.to_string())
}

/// The path, which follows the prefix of other reports.
pub(crate) const OBJECT_PATH: &str = "/api/v1/explain/object";

/// The maximum length of each name in bytes; Kubernetes allows 253.
const MAX_NAME: usize = 300;

/// Returns the route, below a prefix or at the root.
pub(crate) fn object_routes(board: &Arc<Board>, below: &str) -> Router {
    route(&format!("{below}{OBJECT_PATH}"), board, answer_object)
}

async fn answer_object(board: Arc<Board>, call: Call, is_json: bool) -> Result<Response, Refusal> {
    let Some(explanation) = board.explain_object(object(call.query())?).await else {
        return Err(Refusal(404, "this process does not watch Kubernetes objects".to_owned()));
    };
    Ok(explained(&explanation, explanation.text(), is_json))
}

/// Reads the object's name from a query.
///
/// # Errors
/// A message for the client.
fn object(query: &str) -> Result<ObjectName, QueryError> {
    let part = |name: &str, wanted: &str| {
        let value = query::first(query, name).unwrap_or_default();
        // Such names cannot exist, and would change the path of a request.
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        let is_valid =
            value.len() <= MAX_NAME && value.chars().all(is_name) && !value.contains("..");
        if is_valid { Ok(value) } else { Err(QueryError::value(name, &value, wanted)) }
    };
    let object = ObjectName {
        resource: part("resource", "a plural name such as pods")?,
        namespace: part("namespace", "the name of a namespace")?,
        name: part("name", "the name of an object")?,
    };
    match object.resource.is_empty() || object.name.is_empty() {
        true => {
            Err("resource= and name= must be given, and namespace= unless the kind has none".into())
        }
        false => Ok(object),
    }
}
