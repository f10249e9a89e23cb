//! The status page, in the requested format.
//!
//! `?format=json` and `?format=text` are for programs and terminals; `?refresh=1` makes a browser
//! reload periodically; `?labels=1` scans all series, however many there are, and `?labels=0` none;
//! `?explain=LINE` explains a StatsD line. Any other value is an error.

use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY};

use super::body::Body;
use super::explain;
use super::query::{self, QueryError};
use super::report_queue::ReportQueue;
use super::response::{self, Response, nosniff};
use super::router::{Call, Methods, Router};
use crate::status::{self, Board, COUNTED, Facts, LineQuestion, PageContext};

/// The path under kstatd's own name.
pub(crate) const PATH: &str = "/status";

/// The path under the names of the originals, which have nothing below this prefix.
pub(crate) const PREFIXED_PATH: &str = "/kstatd/status";

/// Adds the page.
pub(crate) fn add(
    router: Router,
    board: &Arc<Board>,
    path: &'static str,
    profiles: bool,
) -> Router {
    let (board, place) = (Arc::clone(board), PageContext { path, profiles });
    let queue = ReportQueue::new();
    router.at_async(path, Methods::Read, move |call| {
        let board = Arc::clone(&board);
        queue.clone().answer(call, move |call| answer(board, place, call))
    })
}

/// The formats of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Html,
    Json,
    Text,
}

/// The parameters of a request.
struct Question {
    form: Form,
    refresh: bool,
    /// Scans all series if true, none if false; unset, only if they are few.
    labels: Option<bool>,
    explain: Option<Vec<u8>>,
}

impl Question {
    /// Parses the parameters.
    ///
    /// # Errors
    ///
    /// The first invalid parameter.
    fn read(text: &str) -> Result<Self, QueryError> {
        let form = match query::first(text, "format").as_deref() {
            None | Some("" | "html") => Form::Html,
            Some("json") => Form::Json,
            Some("text") => Form::Text,
            Some(value) => {
                return Err(QueryError::value("format", value, "html, json or text"));
            }
        };
        let refresh = query::flag(text, "refresh")?.unwrap_or(false);
        let labels = query::flag(text, "labels")?;
        Ok(Self { form, refresh, labels, explain: explain::line(text, "explain")? })
    }
}

async fn answer(board: Arc<Board>, place: PageContext, call: Call) -> Response {
    let question = match Question::read(call.query()) {
        Ok(question) => question,
        Err(error) => return response::error(400, format!("{error}\n")),
    };
    let mut facts = match board.run(Board::facts).await {
        Ok(facts) => facts,
        Err(error) => return response::not_produced(error),
    };
    let is_small = || facts.statsd.as_ref().is_some_and(|statsd| statsd.series <= COUNTED);
    if question.labels.unwrap_or_else(is_small) {
        facts.cardinality = board.cardinality().await;
    }
    if let Some(line) = question.explain {
        let line = LineQuestion { line, ..LineQuestion::default() };
        facts.explanation = board.explain(line).await;
    }
    let Question { form, refresh, .. } = question;
    let page = board.run(move |_| render(&facts, place, form, refresh)).await;
    page.unwrap_or_else(response::not_produced)
}

fn render(facts: &Facts, place: PageContext, form: Form, refresh: bool) -> Response {
    let answer = match form {
        Form::Html => {
            let page = status::page(facts, place, refresh);
            let policy = HeaderValue::from_static(status::policy());
            response::header(response::html(page), CONTENT_SECURITY_POLICY, policy)
        }
        Form::Json => match serde_json::to_vec(facts) {
            Ok(json) => response::with_type(200, "application/json", Body::whole(json)),
            Err(error) => return response::error(500, format!("{error}\n")),
        },
        Form::Text => response::text(200, status::text(facts)),
    };
    let answer = response::header(answer, CACHE_CONTROL, HeaderValue::from_static("no-store"));
    nosniff(response::header(answer, REFERRER_POLICY, HeaderValue::from_static("no-referrer")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_parameters_are_named() {
        let read = |query: &str| {
            Question::read(query).map(|question| (question.form, question.refresh, question.labels))
        };
        assert_eq!(read(""), Ok((Form::Html, false, None)));
        assert_eq!(read("format=&refresh=&labels="), Ok((Form::Html, false, None)));
        assert_eq!(read("format=json&refresh=1&labels=0"), Ok((Form::Json, true, Some(false))));
        for (query, value, wanted) in [
            ("format=nonsense", "format=\"nonsense\"", "html, json or text"),
            ("format=%ff", "format=\"\u{fffd}\"", "html, json or text"),
            ("labels=2", "labels=\"2\"", "0 or 1"),
            ("refresh=%3Cx%3E", "refresh=\"<x>\"", "0 or 1"),
        ] {
            let error = read(query).expect_err(query).to_string();
            assert!(error.contains(value) && error.contains(wanted), "{query}: {error}");
        }
    }
}
