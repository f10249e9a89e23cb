//! The effect of given rules: series before and after, by metric.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::iter;

use super::count::{METRICS, Metric, Number, SeriesCounts, Session};
use crate::status::Writer;
use crate::tools::Result;

/// The maximum number of metrics listed by name.
const SHOWN: usize = 100;

/// Reports the series with and without the rules.
///
/// # Errors
/// When the input cannot be read, or the rules are invalid.
pub(crate) fn run(session: &mut Session, rules: &str) -> Result<String> {
    let (mut before, mut after) = (session.before()?, session.after(rules)?);
    let (before, _) = session.count(&mut before)?;
    let (after, _) = session.count(&mut after)?;
    Ok(table(&before, &after))
}

fn series(ledger: &SeriesCounts, metric: &str) -> Number {
    ledger.metrics.get(metric).map(Metric::series).unwrap_or_default()
}

fn table(before: &SeriesCounts, after: &SeriesCounts) -> String {
    let names: BTreeSet<&String> = before.metrics.keys().chain(after.metrics.keys()).collect();
    let mut rows: Vec<(&str, Number, Number)> = names
        .into_iter()
        .map(|name| (name.as_str(), series(before, name), series(after, name)))
        .collect();
    let all = rows.len();
    rows.retain(|(_, before, after)| before != after);
    let (changed, same) = (rows.len(), all - rows.len());
    rows.sort_by_key(|(_, before, after)| std::cmp::Reverse(before.value.abs_diff(after.value)));
    rows.truncate(SHOWN);
    let row = |name: &str, before: Number, after: Number| {
        vec![name.to_owned(), before.to_string(), after.to_string()]
    };
    let all_series = row("all series", before.series(), after.series());
    let cells = rows.iter().map(|(name, before, after)| row(name, *before, *after));
    let mut table = Writer::default();
    table.table(0, &["METRIC", ">BEFORE", ">AFTER"], iter::once(all_series).chain(cells));
    let mut out = table.text();
    if changed > rows.len() {
        let _ = writeln!(out, "and {} more metrics that change", changed - rows.len());
    }
    if same > 0 {
        let _ = writeln!(out, "unchanged metrics: {same}");
    }
    for (ledger, when) in [(before, "before"), (after, "after")] {
        let rest = ledger.series_of_rest();
        if rest.value > 0 {
            let _ = writeln!(
                out,
                "{when}, {} belong to metrics beyond the first {METRICS}, which are not listed separately",
                rest.of("series")
            );
        }
    }
    if after.refused > before.refused {
        let _ = writeln!(
            out,
            "warning: {} more samples would be rejected because their metric has another type or cannot have one of their labels",
            after.refused - before.refused
        );
    }
    out
}
