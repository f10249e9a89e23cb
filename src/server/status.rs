//! The status page: the facts in the form that is asked for.
//!
//! `?format=json` and `?format=text` are for programs and terminals; `?refresh=1` lets a browser ask again;
//! `?labels=1` looks at all series, however many there are, and `?labels=0` at none;
//! `?explain=LINE` tells what would become of a StatsD line.

use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY};

use super::body::Body;
use super::explain;
use super::query;
use super::response::{self, Response, nosniff};
use super::router::{Call, Methods, Router};
use crate::status::{self, Board, COUNTED, Place};

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
    router.at_async(path, Methods::Read, move |call| answer(Arc::clone(&board), place, call))
}

async fn answer(board: Arc<Board>, place: Place, call: Call) -> Response {
    let parameter = |name| query::first(call.query(), name);
    let line = match explain::line(call.query(), "explain") {
        Ok(line) => line,
        Err(error) => return response::error(400, format!("{error}\n")),
    };
    let mut facts = board.facts();
    let is_small = || facts.statsd.as_ref().is_some_and(|statsd| statsd.series <= COUNTED);
    let counts = match parameter("labels").as_deref() {
        None | Some("") => is_small(),
        Some(word) => word != "0",
    };
    if counts {
        facts.cardinality = board.cardinality().await;
    }
    if let Some(line) = line {
        facts.explanation = board.explain(line, false).await;
    }
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
