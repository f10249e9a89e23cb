//! The status page: the facts in the form that is asked for.
//!
//! `?format=json` and `?format=text` are for programs and terminals; `?refresh=1` lets a browser ask again.

use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY};

use super::body::Body;
use super::query;
use super::response::{self, Response, nosniff};
use super::router::{Call, Methods, Router};
use crate::status::{self, Board, Place};

/// Where kstatd has it under its own name.
pub(crate) const PATH: &str = "/status";

/// Where it is under the names of the originals, which have nothing below this.
pub(crate) const PATH_BESIDE: &str = "/kstatd/status";

/// Adds the page.
pub(crate) fn add(
    router: Router,
    board: &Arc<Board>,
    path: &'static str,
    profiles: bool,
) -> Router {
    let (board, place) = (Arc::clone(board), Place { path, profiles });
    router.at(path, Methods::Read, move |call| answer(&board, place, call))
}

fn answer(board: &Board, place: Place, call: &Call) -> Response {
    let parameter = |name| query::first(call.query(), name);
    let facts = board.facts();
    let answer = match parameter("format").as_deref() {
        None | Some("" | "html") => {
            let page = status::page(&facts, place, parameter("refresh").is_some());
            let policy = HeaderValue::from_static(status::policy());
            response::header(response::html(page), CONTENT_SECURITY_POLICY, policy)
        }
        Some("json") => match serde_json::to_vec(&facts) {
            Ok(json) => response::with_type(200, "application/json", Body::whole(json)),
            Err(error) => return response::error(500, format!("{error}\n")),
        },
        Some("text") => response::text(200, status::text(&facts)),
        Some(_) => return response::error(400, "format must be html, json or text\n"),
    };
    let answer = response::header(answer, CACHE_CONTROL, HeaderValue::from_static("no-store"));
    nosniff(response::header(answer, REFERRER_POLICY, HeaderValue::from_static("no-referrer")))
}
