//! `kstatd rbac`: the rights that a configuration needs, as manifests.
//!
//! What is followed flows in, ClusterRole and Roles flow out; nothing is asked of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::resources::Resource;
use crate::resources::custom::{Config, Definition};

/// What the name of every role is.
const NAME: &str = "kstatd";

/// What is needed.
#[derive(Default)]
pub struct Needs<'n> {
    /// Built-in resources.
    pub resources: Vec<&'static dyn Resource>,
    /// The configuration of custom resources.
    pub custom: Option<&'n Config>,
    /// What is known of custom resources; of others only the group is.
    pub definitions: &'n [Definition],
    /// Namespaces to watch, empty for all.
    pub namespaces: &'n [String],
    /// Whether requests are authenticated through the API server.
    pub auth_filter: bool,
    /// The namespace of a pod that finds its shard itself.
    pub sharded_in: Option<&'n str>,
}

/// Resources by their groups.
type Rules = BTreeMap<String, BTreeSet<String>>;

/// The manifests.
#[must_use]
pub fn manifests(needs: &Needs<'_>) -> String {
    let (mut cluster, mut namespaced) = (Rules::new(), Rules::new());
    let mut add = |in_namespaces: bool, group: &str, resource: &str| {
        let rules = if in_namespaces { &mut namespaced } else { &mut cluster };
        rules.entry(group.to_owned()).or_default().insert(resource.to_owned());
    };
    for resource in &needs.resources {
        let api = resource.api();
        add(api.namespaced, api.group, api.name);
    }
    if let Some(custom) = needs.custom {
        add(false, "apiextensions.k8s.io", "customresourcedefinitions");
        for entry in custom.entries.iter().filter(|entry| entry.has_group()) {
            let known: Vec<&Definition> =
                needs.definitions.iter().filter(|definition| entry.is_for(definition)).collect();
            for definition in &known {
                add(definition.namespaced, &definition.group, &definition.plural);
            }
            if known.is_empty() {
                add(true, &entry.group, "*");
            }
        }
    }
    let mut documents = Vec::new();
    if needs.namespaces.is_empty() {
        for (group, resources) in std::mem::take(&mut namespaced) {
            cluster.entry(group).or_default().extend(resources);
        }
    }
    let mut rules = list_and_watch(&cluster);
    if needs.auth_filter {
        for (group, resource) in [
            ("authentication.k8s.io", "tokenreviews"),
            ("authorization.k8s.io", "subjectaccessreviews"),
        ] {
            rules.push_str(&rule(group, &BTreeSet::from([resource.to_owned()]), "create"));
        }
    }
    if !rules.is_empty() {
        documents.push(role("ClusterRole", None, &rules));
    }
    for namespace in needs.namespaces.iter().filter(|_| !namespaced.is_empty()) {
        documents.push(role("Role", Some((NAME, namespace)), &list_and_watch(&namespaced)));
    }
    if let Some(namespace) = needs.sharded_in {
        let one = |name: &str| BTreeSet::from([name.to_owned()]);
        let rules =
            rule("", &one("pods"), "get") + &rule("apps", &one("statefulsets"), "get, list, watch");
        documents.push(role("Role", Some(("kstatd-sharding", namespace)), &rules));
    }
    documents.join("---\n")
}

fn role(kind: &str, place: Option<(&str, &str)>, rules: &str) -> String {
    let (name, namespace) = match place {
        Some((name, namespace)) => (name, format!("  namespace: {namespace:?}\n")),
        None => (NAME, String::new()),
    };
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{namespace}rules:\n{rules}"
    )
}

fn list_and_watch(rules: &Rules) -> String {
    rules.iter().map(|(group, resources)| rule(group, resources, "list, watch")).collect()
}

/// The rule that one list/watch needs.
#[must_use]
pub fn to_follow(group: &str, resource: &str) -> String {
    rule(group, &BTreeSet::from([resource.to_owned()]), "list, watch")
}

fn rule(group: &str, resources: &BTreeSet<String>, verbs: &str) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    let mut text = format!("- apiGroups: [{group}]\n  resources:\n");
    for resource in resources {
        let quoted = if resource == "*" { "\"*\"" } else { resource };
        let _ = writeln!(text, "  - {quoted}");
    }
    let _ = writeln!(text, "  verbs: [{verbs}]");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;
    use crate::resources::custom::load;

    fn defaults() -> Vec<&'static dyn Resource> {
        let all = resources::registry().iter().copied();
        all.filter(|resource| resource.api().default_enabled).collect()
    }

    #[test]
    fn the_role_that_is_deployed_is_what_the_defaults_need() {
        let deployed = include_str!("../../deploy/base/cluster-role.yaml");
        let rules: String = deployed
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(manifests(&Needs { resources: defaults(), ..Needs::default() }), rules);
    }

    #[test]
    fn namespaces_and_custom_resources() {
        let config = load("spec: {resources: [{groupVersionKind: {group: a.io, kind: K}}, {groupVersionKind: {group: b.io}}]}").config;
        let definitions = [Definition {
            group: "a.io".into(),
            version: "v1".into(),
            kind: "K".into(),
            plural: "ks".into(),
            namespaced: true,
        }];
        let namespaces = ["x".to_owned(), "y".to_owned()];
        let text = manifests(&Needs {
            resources: vec![
                resources::find("pods").expect("known"),
                resources::find("nodes").expect("known"),
            ],
            custom: Some(&config),
            definitions: &definitions,
            namespaces: &namespaces,
            auth_filter: true,
            sharded_in: Some("z"),
        });
        let documents: Vec<&str> = text.split("---\n").collect();
        assert_eq!(documents.len(), 4, "{text}");
        for part in [
            "  - nodes\n",
            "  - customresourcedefinitions\n",
            "  - tokenreviews\n  verbs: [create]\n",
        ] {
            assert!(documents[0].contains(part), "{part} in {}", documents[0]);
        }
        assert!(!documents[0].contains("  - pods"));
        for (document, namespace) in documents[1..3].iter().zip(["x", "y"]) {
            assert!(document.contains(&format!("  namespace: {namespace:?}\n")), "{document}");
            assert!(document.contains("- apiGroups: [a.io]\n  resources:\n  - ks\n"), "{document}");
            assert!(
                document.contains("- apiGroups: [b.io]\n  resources:\n  - \"*\"\n"),
                "{document}"
            );
        }
        assert!(documents[3].contains("  verbs: [get, list, watch]\n"));
    }
}
