//! The definition of a kind that a cluster serves.

/// A kind that a cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Definition {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Kind, such as `CronTab`.
    pub kind: String,
    /// The kind of its lists; empty for the usual one, such as `CronTabList`.
    pub list_kind: String,
    /// Plural name in lower case, such as `crontabs`.
    pub plural: String,
    /// True if objects are namespaced.
    pub namespaced: bool,
}

impl Definition {
    /// Returns the resource name in the catalog, in kube-state-metrics' format.
    pub fn resource_name(&self) -> String {
        format!("{}/{}, Resource={}", self.group, self.version, self.plural)
    }

    /// Returns whether both have the same group, version and plural, and so the same [name](Self::resource_name).
    pub fn is_same_resource(&self, other: &Self) -> bool {
        (&self.group, &self.version, &self.plural) == (&other.group, &other.version, &other.plural)
    }

    /// Returns the resource name in kstatd's own metrics, such as `widgets.v1.example.io`.
    pub fn dotted_name(&self) -> String {
        let Self { group, version, plural, .. } = self;
        if group.is_empty() {
            format!("{plural}.{version}")
        } else {
            format!("{plural}.{version}.{group}")
        }
    }
}
