//! Which OpenMetrics type and name a family can have without clashing with another one.
//!
//! OpenMetrics reserves names around a typed family: a counter `x` owns `x_total` and `x_created`, a summary `x_sum`,
//! `x_count` and `x_created`, a histogram `x_bucket` besides. StatsD names mostly have no suffix, and a series must not
//! change its name with the format it is scraped in. So where a type would claim a name that another family has, or
//! where its rules do not allow the values, the family is of type `unknown`, with the same samples under the same names:
//!
//! - a counter is a counter only if its name ends in `_total` and nothing around it is taken;
//! - an observer whose sum may fall, because it has seen a negative value or NaN, whose buckets reach below 0, or whose
//!   `_created` is taken, is one family of type `unknown` for each name that its samples have.

use crate::exposition::family::{Family as OwnFamily, Kind as Type};
use crate::statsd::metrics::is_own_name;
use crate::statsd::series::family::{Family, Kind};
use crate::statsd::series::registry::View;

/// How a family appears in OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenMetricsName<'a> {
    /// Name in `# TYPE` and `# HELP`; samples keep the name of the family.
    pub(super) family: &'a str,
    pub(super) kind: &'static str,
}

/// The word of a family that promises nothing.
pub(super) const UNKNOWN: &str = "unknown";

/// Whether a family of this name is in the same exposition: a user's, one of our own or somebody else's.
fn is_taken(view: &View, near: usize, name: &str) -> bool {
    view.pages.family_near(name, near).is_some() || is_own_name(name) || (view.reserved)(name)
}

/// Whether `name` is one that an observer of the snapshot owns.
fn is_derived(view: &View, name: &str, suffixes: &[&str]) -> bool {
    suffixes.iter().any(|suffix| {
        name.strip_suffix(suffix)
            .and_then(|base| view.pages.family(base))
            .is_some_and(|family| family.kind.is_observer())
    })
}

fn counter<'a>(view: &View, near: usize, name: &'a str, has_nan: bool) -> OpenMetricsName<'a> {
    let base = name.strip_suffix("_total").filter(|base| {
        !base.is_empty()
            && !has_nan
            && !base.ends_with("_created")
            && !is_taken(view, near, base)
            && !is_taken(view, near, &format!("{base}_created"))
            && !is_derived(view, base, &["_sum", "_count", "_bucket"])
    });
    match base {
        Some(base) => OpenMetricsName { family: base, kind: "counter" },
        None => OpenMetricsName { family: name, kind: UNKNOWN },
    }
}

/// Whether an observer, whose series begin on page `near`, can have its own type.
pub(super) fn is_typed(view: &View, near: usize, family: &Family) -> bool {
    !family.may_fall() && !is_taken(view, near, &format!("{}_created", family.name))
}

/// The name of a user's family that is no observer and whose series begin on page `near`.
pub(super) fn of_scalar<'a>(view: &View, near: usize, family: &'a Family) -> OpenMetricsName<'a> {
    let name = &*family.name;
    match family.kind {
        Kind::Counter => counter(view, near, name, family.has_nan()),
        _ => OpenMetricsName { family: name, kind: "gauge" },
    }
}

/// The name of one of our own families.
pub(super) fn of_own(view: &View, family: &OwnFamily) -> OpenMetricsName<'static> {
    match family.kind {
        Type::Counter => counter(view, view.pages.page_of(family.name), family.name, false),
        _ => OpenMetricsName { family: family.name, kind: "gauge" },
    }
}
