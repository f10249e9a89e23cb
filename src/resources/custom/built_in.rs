//! Kinds that an API server has without a definition. An entry that names one adds families to the built-in ones.
//!
//! They include those of the [registry], and others that have no families of their own.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::resources::kinds::registry;

use super::config::Entry;
use super::definition::Definition;

/// Kinds of Kubernetes 1.25 to 1.35 that are not in the registry, or in another version: group, version, kind, plural,
/// and a flag for namespaced ones. Kinds that cannot be listed or watched are left out.
const OTHERS: [(&str, &str, &str, &str, bool); 21] = [
    ("", "v1", "Event", "events", true),
    ("", "v1", "PodTemplate", "podtemplates", true),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", false),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", true),
    ("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("events.k8s.io", "v1", "Event", "events", true),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", false),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        false,
    ),
    ("networking.k8s.io", "v1", "IPAddress", "ipaddresses", false),
    ("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", false),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", false),
    ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", false),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true),
    ("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", true),
    ("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", false),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", false),
    ("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", true),
    ("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", false),
];

/// All built-in kinds, in a fixed order.
static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let known = registry().iter().map(|resource| {
        let api = resource.api();
        (api.group, api.version, api.kind, api.name, api.namespaced)
    });
    let definition =
        |(group, version, kind, plural, namespaced): (&str, &str, &str, &str, bool)| {
            let [group, version, kind, plural] = [group, version, kind, plural].map(str::to_owned);
            let list_kind = String::new();
            Definition { group, version, kind, list_kind, plural, namespaced }
        };
    let mut definitions: Vec<Definition> = known.chain(OTHERS).map(definition).collect();
    definitions.sort_unstable();
    definitions
});

/// Returns all built-in kinds, in a fixed order.
pub fn definitions() -> &'static [Definition] {
    &DEFINITIONS
}

/// Adds the built-in kinds that are not `defined`. The result is everything that an API server serves.
pub fn with_built_in(mut defined: Vec<Definition>) -> Vec<Definition> {
    let is_new = |one: &&Definition| defined.iter().all(|other| !one.is_same_resource(other));
    let built_in: Vec<Definition> = definitions().iter().filter(is_new).cloned().collect();
    defined.extend(built_in);
    defined
}

/// True if the kind is built in.
pub(super) fn is_built_in(definition: &Definition) -> bool {
    definitions().iter().any(|own| own.is_same_resource(definition))
}

/// True if the entry names a built-in kind.
pub(super) fn is_named(entry: &Entry) -> bool {
    definitions().iter().any(|definition| entry.is_for(definition))
}

/// Returns the family names of all kinds of the registry.
pub(super) fn families() -> BTreeSet<&'static str> {
    let families = registry().iter().flat_map(|resource| resource.families());
    families.map(|family| family.name).collect()
}

/// Returns the built-in kinds in the group of an entry that names none of them: it probably means one of those.
pub(super) fn misnamed(entry: &Entry) -> Option<Vec<String>> {
    let kinds: Vec<String> = definitions()
        .iter()
        .filter(|definition| definition.group == entry.group)
        .map(|definition| definition.kind.clone())
        .collect();
    let is_wildcard = matches!(entry.kind.as_str(), "" | "*");
    (!kinds.is_empty() && !is_wildcard && !is_named(entry)).then_some(kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry([group, version, kind]: [&str; 3]) -> Entry {
        let [group, version, kind] = [group, version, kind].map(str::to_owned);
        Entry { group, version, kind, ..Entry::default() }
    }

    #[test]
    fn kinds_are_built_in_when_they_are_named() {
        for (gvk, plurals) in [
            (["", "v1", "Pod"], vec!["pods"]),
            (["", "*", "Pod"], vec!["pods"]),
            (["", "v2", "Pod"], vec![]),
            (["", "v1", "*"], vec![]),
            (["", "", ""], vec![]),
            (["*", "v1", "Pod"], vec![]),
            (["", "v1", "pod"], vec![]),
            (["apps", "v1", "Deployment"], vec!["deployments"]),
            (["apps", "v1", "*"], vec![]),
            (["autoscaling", "", "HorizontalPodAutoscaler"], vec!["horizontalpodautoscalers"; 2]),
            (["scheduling.k8s.io", "v1", "PriorityClass"], vec!["priorityclasses"]),
        ] {
            let entry = entry(gvk);
            let found: Vec<String> = definitions()
                .iter()
                .filter(|definition| entry.is_for(definition))
                .map(|definition| definition.plural.clone())
                .collect();
            assert_eq!(found, plurals, "{gvk:?}");
            assert_eq!(is_named(&entry), !plurals.is_empty(), "{gvk:?}");
        }
    }

    #[test]
    fn kinds_are_unique() {
        let mut names: Vec<String> = definitions().iter().map(Definition::resource_name).collect();
        assert!(definitions().iter().all(is_built_in));
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let own = Definition { kind: "Own".into(), ..definitions()[0].clone() };
        let served = with_built_in(vec![own.clone()]);
        assert_eq!((served.len(), &served[0]), (definitions().len(), &own));
    }
}
