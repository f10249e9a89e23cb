//! A kind of objects, as a cluster serves it.

/// A kind that a cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Definition {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural, lower-case.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Definition {
    /// The name in the catalog, as kube-state-metrics has it.
    #[must_use]
    pub fn resource_name(&self) -> String {
        format!("{}/{}, Resource={}", self.group, self.version, self.plural)
    }
}
