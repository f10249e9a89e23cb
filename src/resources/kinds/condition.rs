//! Status conditions: `type`, `status` and reason.

use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// The fields of a condition that metrics read; all kinds have them under the same tags.
    pub struct Condition<'a> {
        kind: Str<'a> = 1 "type",
        status: Str<'a> = 2 "status",
    }
}

/// Writes three series for each condition: `condition` is its type, `status` one of `true`, `false` and `unknown`.
pub fn all(conditions: &[Condition<'_>], series: &mut Series<'_>) {
    for condition in conditions {
        series.condition(&[("condition", &condition.kind)], "status", &condition.status);
    }
}
