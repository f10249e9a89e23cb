//! `/api/v1/status/tsdb` and `/api/v1/status/cardinality`: reports on the number of series by
//! metric and label.
//!
//! A report scans all series on the blocking pool, one report at a time. A few reports are in memory at a time, until their
//! clients have read them.

use std::sync::Arc;

use super::explain::refuse;
use super::query::{self, QueryError};
use super::report_queue::ReportQueue;
use super::response::{Response, json};
use super::router::{Call, Methods, Router};
use crate::telemetry::cardinality::{self, DEFAULT_LIMIT, MAX_LIMIT};
use crate::telemetry::census::{Order, Question};
use crate::telemetry::countable::{Countable, Snapshot};
use crate::util::serial_blocking::SerialBlocking;

/// The path of Prometheus' report on its series.
pub(crate) const TSDB_PATH: &str = "/api/v1/status/tsdb";

/// The path of kstatd's more detailed report.
pub(crate) const CARDINALITY_PATH: &str = "/api/v1/status/cardinality";

/// Creates the JSON answer from the series of all sides.
type Report = fn(&[Snapshot], &Question) -> String;

/// The prefix of both paths under the name of an original that uses them differently.
pub(crate) const KSTATD_PREFIX: &str = "/kstatd";

/// Returns the routes of the reports, below a prefix or at the root.
pub(crate) fn routes(sides: &[Arc<dyn Countable>], below: &str) -> Router {
    let shared: Shared = (sides.to_vec(), SerialBlocking::default(), ReportQueue::new());
    let reports: [(&str, Report); 2] =
        [(TSDB_PATH, cardinality::tsdb), (CARDINALITY_PATH, cardinality::cardinality)];
    reports.into_iter().fold(Router::default(), |router, (path, report)| {
        let (path, shared) = (format!("{below}{path}"), shared.clone());
        router.at_async(&path, Methods::Any, move |call| answer(call, shared.clone(), report))
    })
}

/// What the reports share: the series, the worker that scans them, and the queue of requests.
type Shared = (Vec<Arc<dyn Countable>>, SerialBlocking, ReportQueue);

async fn answer(call: Call, (sides, worker, queue): Shared, report: Report) -> Response {
    let parse_question = match parse_question(call.query()) {
        Ok(parse_question) => parse_question,
        Err(error) => return refuse(400, error, true),
    };
    let make = move || {
        let sides: Vec<_> = sides.iter().map(|side| side.snapshot()).collect();
        json(200, report(&sides, &parse_question))
    };
    queue.answer_blocking(call, worker, make).await
}

/// Parses the parameters: `limit=` for the list length, `sort=` for the order of metrics, `metric=`
/// for a single metric.
///
/// # Errors
///
/// The first invalid parameter.
fn parse_question(query: &str) -> Result<Question, QueryError> {
    let order = match query::first(query, "sort") {
        None => Order::default(),
        Some(word) => Order::parse(&word)
            .ok_or_else(|| QueryError::value("sort", &word, "series, growth or bytes"))?,
    };
    let metric = query::first(query, "metric").filter(|metric| !metric.is_empty());
    Ok(Question { order, metric, ..Question::of(limit(query)?) })
}

/// Parses the list length in `limit=`.
fn limit(query: &str) -> Result<usize, QueryError> {
    let Some(text) = query::first(query, "limit") else { return Ok(DEFAULT_LIMIT) };
    text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)).ok_or_else(|| {
        QueryError::value("limit", &text, &format!("a whole number from 1 to {MAX_LIMIT}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_parameters_are_named() {
        for (query, limit) in [("", 10), ("limit=1", 1), ("limit=10000&sort=growth", 10_000)] {
            assert_eq!(
                parse_question(query).map(|parse_question| parse_question.limit),
                Ok(limit),
                "{query}"
            );
        }
        for (query, value, wanted) in [
            ("limit=0", "limit=\"0\"", "from 1 to 10000"),
            ("limit=10001", "limit=\"10001\"", "from 1 to 10000"),
            ("limit=-1", "limit=\"-1\"", "from 1 to 10000"),
            ("limit=", "limit=\"\"", "from 1 to 10000"),
            ("limit=%1b%ff", "limit=\"\\u{1b}\u{fffd}\"", "from 1 to 10000"),
            ("sort=x", "sort=\"x\"", "series, growth or bytes"),
        ] {
            let error = parse_question(query).expect_err(query).to_string();
            assert!(error.contains(value) && error.contains(wanted), "{query}: {error}");
        }
    }
}
