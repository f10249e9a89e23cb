//! `/api/v1/status/tsdb` and `/api/v1/status/cardinality`: which metrics and labels bring the series.
//!
//! A report goes through all series, beside the workers, one report at a time.

use std::sync::Arc;

use super::query;
use super::response::{self, Response, json};
use super::router::{Call, Methods, Router};
use crate::aside::Aside;
use crate::telemetry::cardinality::{self, DEFAULT_LIMIT, MAX_LIMIT};
use crate::telemetry::census::{Order, Question};
use crate::telemetry::countable::{Countable, Snapshot};

/// Where Prometheus has the report about its series.
pub(crate) const TSDB_PATH: &str = "/api/v1/status/tsdb";

/// Where more is said than Prometheus' report has a place for.
pub(crate) const CARDINALITY_PATH: &str = "/api/v1/status/cardinality";

/// Makes an answer of the series of all sides, with lists of so many entries.
type Report = fn(&[Box<dyn Snapshot>], &Question) -> serde_json::Value;

/// What stands before both paths under the name of an original that has other things there.
pub(crate) const BESIDE: &str = "/kstatd";

/// The routes of the reports about these sides, below a path or at the root.
pub(crate) fn routes(sides: &[Arc<dyn Countable>], below: &str) -> Router {
    let aside = Aside::default();
    let handler = |report: Report| {
        let (sides, aside) = (sides.to_vec(), aside.clone());
        move |call: Call| answer(call, sides.clone(), aside.clone(), report)
    };
    let [tsdb, all] = [TSDB_PATH, CARDINALITY_PATH].map(|path| format!("{below}{path}"));
    Router::default().at_async(&tsdb, Methods::Any, handler(cardinality::tsdb)).at_async(
        &all,
        Methods::Any,
        handler(cardinality::cardinality),
    )
}

async fn answer(
    call: Call,
    sides: Vec<Arc<dyn Countable>>,
    aside: Aside,
    report: Report,
) -> Response {
    let question = match question(call.query()) {
        Ok(question) => question,
        Err(error) => return bad_data(&error),
    };
    let made = aside.run(move || {
        let sides: Vec<_> = sides.iter().map(|side| side.snapshot()).collect();
        report(&sides, &question).to_string()
    });
    match made.await {
        Ok(text) => json(200, text),
        Err(error) => {
            tracing::error!(%error, "a report about the series failed");
            response::text(500, "Internal Server Error")
        }
    }
}

/// What is asked for: entries of each list by `limit=`, the greatest metrics by `sort=`, one alone by `metric=`.
fn question(query: &str) -> Result<Question, String> {
    let order = match query::first(query, "sort") {
        None => Order::default(),
        Some(word) => Order::read(&word).ok_or("sort must be series, growth or bytes")?,
    };
    let metric = query::first(query, "metric").filter(|metric| !metric.is_empty());
    Ok(Question { order, metric, ..Question::of(limit(query)?) })
}

/// Entries of each list, by `limit=`.
fn limit(query: &str) -> Result<usize, String> {
    match query::first(query, "limit") {
        None => Ok(DEFAULT_LIMIT),
        Some(text) => match text.parse::<usize>() {
            Ok(limit) if limit > 0 => Ok(limit.min(MAX_LIMIT)),
            _ => Err("limit must be a positive number".to_owned()),
        },
    }
}

/// A refusal as Prometheus' API gives it.
fn bad_data(error: &str) -> Response {
    let refusal = serde_json::json!({"status": "error", "errorType": "bad_data", "error": error});
    json(400, refusal.to_string())
}
