//! Which OpenMetrics type and name a family can have without clashing with another one.
//!
//! OpenMetrics reserves names around a typed family: a counter `x` owns `x_total` and `x_created`, a summary `x_sum`,
//! `x_count` and `x_created`, a histogram `x_bucket` besides. StatsD counters mostly have no suffix. Renaming them would
//! make a series change its name with the format it is scraped in, so a counter is a counter only if its name ends in
//! `_total` and nothing around it is taken; otherwise it is of type `unknown`, under its own name.

use crate::statsd::family::{Family, Kind};
use crate::statsd::metrics::{SelfFamily, is_own_name};
use crate::statsd::tree::Snapshot;

/// How a family appears in OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenMetricsName<'a> {
    /// Name in `# TYPE` and `# HELP`; samples keep the name of the family.
    pub(super) family: &'a str,
    pub(super) kind: &'static str,
}

fn is_taken(pages: &Snapshot, name: &str) -> bool {
    pages.family(name).is_some() || is_own_name(name)
}

/// Whether `name` is one that an observer of the snapshot owns.
fn is_derived(pages: &Snapshot, name: &str, suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| {
        name.strip_suffix(suffix)
            .and_then(|base| pages.family(base))
            .is_some_and(|family| family.kind.is_observer())
    })
}

fn counter<'a>(pages: &Snapshot, name: &'a str, has_nan: bool) -> OpenMetricsName<'a> {
    let base = name.strip_suffix("_total").filter(|base| {
        !base.is_empty()
            && !has_nan
            && !base.ends_with("_created")
            && !is_taken(pages, base)
            && !is_taken(pages, &format!("{base}_created"))
            && !is_derived(pages, base, &["_sum", "_count", "_bucket"])
    });
    match base {
        Some(base) => OpenMetricsName { family: base, kind: "counter" },
        None => OpenMetricsName { family: name, kind: "unknown" },
    }
}

/// The name of a user's family; `None` if it cannot appear, because an observer owns its name.
pub(super) fn of_family<'a>(pages: &Snapshot, family: &'a Family) -> Option<OpenMetricsName<'a>> {
    let name = &*family.name;
    if is_derived(pages, name, &["_created"]) {
        return None;
    }
    let kind = match family.kind {
        Kind::Counter => return Some(counter(pages, name, family.has_nan())),
        Kind::Gauge | Kind::Set => "gauge",
        Kind::Summary => "summary",
        Kind::Histogram => "histogram",
    };
    Some(OpenMetricsName { family: name, kind })
}

/// The name of one of our own families.
pub(super) fn of_own(pages: &Snapshot, family: &SelfFamily) -> OpenMetricsName<'static> {
    match family.kind {
        Kind::Counter => counter(pages, family.name, false),
        _ => OpenMetricsName { family: family.name, kind: "gauge" },
    }
}
