//! Status conditions: `type`, `status` and reason.

use crate::resources::scalars::Time;
use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a condition that metrics read; all kinds have them under the same tags.
    pub struct Condition<'a> {
        kind: Str<'a> = 1 "type",
        status: Str<'a> = 2 "status",
    }

    /// A condition of a pod, job or node. Other kinds have some of these fields under other tags.
    pub struct DetailedCondition<'a> {
        kind: Str<'a> = 1 "type",
        status: Str<'a> = 2 "status",
        last_transition_time: Time = 4 "lastTransitionTime",
        reason: Str<'a> = 5 "reason",
    }
}

/// Returns the conditions of a type.
pub fn of_type<'v, 'a>(
    conditions: &'v [DetailedCondition<'a>],
    kind: &'static str,
) -> impl Iterator<Item = &'v DetailedCondition<'a>> {
    conditions.iter().filter(move |condition| &*condition.kind == kind)
}

/// Writes three series for each condition of a type: `condition` is one of `true`, `false` and `unknown`.
pub fn status(conditions: &[DetailedCondition<'_>], kind: &'static str, series: &mut Series<'_>) {
    for condition in of_type(conditions, kind) {
        series.condition(&[], "condition", &condition.status);
    }
}

/// Writes three series for each condition: `condition` is its type, `status` one of `true`, `false` and `unknown`.
pub fn all(conditions: &[Condition<'_>], series: &mut Series<'_>) {
    for condition in conditions {
        series.condition(&[("condition", &condition.kind)], "status", &condition.status);
    }
}
