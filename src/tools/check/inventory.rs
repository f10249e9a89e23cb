//! The objects to check, from manifests or from the API server.

use crate::cli::check::WorkloadName;
use crate::tools::manifests::Manifest;
use crate::tools::render_kube::group;

/// The group of the Prometheus operator.
pub(crate) const MONITORING: &str = "monitoring.coreos.com";

/// The group of roles and bindings.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// The objects to check.
#[derive(Default)]
pub(crate) struct Inventory {
    /// The objects, in the order of the input.
    pub(crate) objects: Vec<Manifest>,
    /// Unreadable objects, with the reason.
    pub(crate) gaps: Vec<String>,
}

/// The workloads that the user asks about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// The namespace; `None` for all.
    pub(crate) namespace: Option<String>,
    /// The workload; `None` for each recognized one.
    pub(crate) workload: Option<WorkloadName>,
}

impl Selection {
    /// Returns true if the user asks about this object, which is a workload.
    pub(crate) fn includes(&self, manifest: &Manifest) -> bool {
        let (namespace, name) = manifest.name();
        let named = self.workload.as_ref().is_none_or(|wanted| {
            name == Some(wanted.name.as_str())
                && wanted.kind.is_none_or(|kind| kind == manifest.kind)
        });
        named && is_same(self.namespace.as_deref(), namespace)
    }
}

/// Compares namespaces. A manifest without one may be applied to any.
pub(crate) fn is_same(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

impl Inventory {
    /// Returns the objects of a kind.
    pub(crate) fn of<'i>(
        &'i self,
        wanted: &'i str,
        kind: &'i str,
    ) -> impl Iterator<Item = &'i Manifest> {
        self.objects.iter().filter(move |one| one.kind == kind && group(&one.api_version) == wanted)
    }

    /// Returns the config map with this name in a namespace.
    pub(crate) fn config_map(&self, namespace: Option<&str>, name: &str) -> Option<&Manifest> {
        let mut all = self.of("", "ConfigMap");
        all.find(|one| one.name().1 == Some(name) && is_same(namespace, one.name().0))
    }

    /// Returns the custom resource definitions.
    pub(crate) fn definitions(&self) -> Vec<Manifest> {
        self.of("apiextensions.k8s.io", "CustomResourceDefinition").cloned().collect()
    }
}
