//! The OpenMetrics type and name of each family.
//!
//! OpenMetrics reserves further names for a typed family: a counter `x` owns `x_total` and `x_created`, a
//! summary `x_sum`, `x_count` and `x_created`, a histogram also `x_bucket`. StatsD names rarely have such
//! suffixes, and the name of a series must not depend on the format. A family whose type would claim the name
//! of another family, or whose values violate the type, is therefore exposed as `unknown`, with the same
//! samples and names:
//!
//! - A family is a counter only if its name ends in `_total` and the reserved names are free.
//! - An observer is split into one `unknown` family per sample name if its sum may decrease (after a negative
//!   value or NaN, or with buckets below 0) or if its `_created` name is taken.

use crate::exposition::family::{Family as OwnFamily, Kind as Type};
use crate::statsd::metrics::is_own_name;
use crate::statsd::series::family::{Family, Kind};
use crate::statsd::series::registry::View;

/// The name and type of a family in OpenMetrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenMetricsName<'a> {
    /// The name in `# TYPE` and `# HELP`. Samples keep the name of the family.
    pub(super) family: &'a str,
    pub(super) kind: &'static str,
}

/// The OpenMetrics type without any guarantees.
pub(super) const UNKNOWN: &str = "unknown";

/// Returns true if the exposition contains a family of this name: a user's, our own or another side's.
fn is_taken(view: &View, near: usize, name: &str) -> bool {
    view.pages.family_near(name, near).is_some() || is_own_name(name) || (view.reserved)(name)
}

/// Returns true if an observer of the snapshot owns `name`.
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

/// Returns true if an observer, whose series begin on page `near`, can have its own type.
pub(super) fn is_typed(view: &View, near: usize, family: &Family) -> bool {
    !family.may_decrease() && !is_taken(view, near, &format!("{}_created", family.name))
}

/// Returns the name of a counter or gauge of the user, whose series begin on page `near`.
pub(super) fn of_scalar<'a>(view: &View, near: usize, family: &'a Family) -> OpenMetricsName<'a> {
    let name = &*family.name;
    match family.kind {
        Kind::Counter => counter(view, near, name, family.has_nan()),
        _ => OpenMetricsName { family: name, kind: "gauge" },
    }
}

/// Returns the name of one of our own families.
pub(super) fn of_own(view: &View, family: &OwnFamily) -> OpenMetricsName<'static> {
    match family.kind {
        Type::Counter => counter(view, view.pages.page_of(family.name), family.name, false),
        _ => OpenMetricsName { family: family.name, kind: "gauge" },
    }
}
