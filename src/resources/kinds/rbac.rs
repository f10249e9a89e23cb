//! Types shared by role bindings and cluster role bindings.

use crate::resources::series::Series;
use crate::wire::view::{Str, view};

view! {
    /// `roleRef`.
    pub struct RoleRef<'a> {
        kind: Str<'a> = 2 "kind",
        name: Str<'a> = 3 "name",
    }
}

impl RoleRef<'_> {
    /// Writes the series of a binding's `_info` family.
    pub fn info(&self, series: &mut Series<'_>) {
        series.with(&[("roleref_kind", &self.kind), ("roleref_name", &self.name)], 1.0);
    }
}
