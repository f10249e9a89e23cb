//! `/api/v1/explain/object?resource=pods&namespace=NS&name=NAME`: explains why an object has its series, or none, as text
//! or with `format=json` as JSON.
//!
//! Each question costs at most two requests for the metadata of one object, and questions are answered one at a time.

use std::sync::Arc;

use super::explain::{explained, refuse, wants_json};
use super::query::{self, QueryError};
use super::response::Response;
use super::router::{Call, Methods, Router};
use crate::status::{Board, ObjectName};

/// The path, which follows the prefix of other reports.
pub(crate) const OBJECT_PATH: &str = "/api/v1/explain/object";

/// The maximum length of each name in bytes; Kubernetes allows 253.
const MAX_NAME: usize = 300;

/// Returns the route, below a prefix or at the root.
pub(crate) fn routes(board: &Arc<Board>, below: &str) -> Router {
    let board = Arc::clone(board);
    let path = format!("{below}{OBJECT_PATH}");
    Router::default().at_async(&path, Methods::Read, move |call| answer(Arc::clone(&board), call))
}

async fn answer(board: Arc<Board>, call: Call) -> Response {
    let is_json = match wants_json(call.query()) {
        Ok(is_json) => is_json,
        Err(error) => return refuse(400, error, false),
    };
    let object = match object(call.query()) {
        Ok(object) => object,
        Err(error) => return refuse(400, error, is_json),
    };
    let Some(explanation) = board.explain_object(object).await else {
        return refuse(404, "this process does not watch Kubernetes objects", is_json);
    };
    explained(&explanation, explanation.text(), is_json)
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
        true => Err(QueryError::NoObject),
        false => Ok(object),
    }
}
