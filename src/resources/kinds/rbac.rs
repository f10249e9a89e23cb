//! Types shared by role bindings and cluster role bindings.

use crate::wire::view::{Str, view};

view! {
    /// `roleRef`.
    pub struct RoleRef<'a> {
        kind: Str<'a> = 2 "kind",
        name: Str<'a> = 3 "name",
    }
}
