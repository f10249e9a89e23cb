//! `kstatd rbac`: generates the RBAC manifests that a configuration needs.
//!
//! It works offline: from the watched resources to a ClusterRole and Roles with their bindings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::cli::config;
use crate::cli::kube_args::KubeArgs;
use crate::cli::native::ServiceAccount;
use crate::resources::Resource;
use crate::resources::custom::{Config, Definition};

/// The default name of the roles.
const NAME: &str = "kstatd";

/// The inputs of the manifests.
#[derive(Default)]
pub struct Needs<'n> {
    /// The built-in resources.
    pub resources: Vec<&'static dyn Resource>,
    /// True if Kubernetes Events are counted.
    pub kube_events: bool,
    /// The custom resource configuration.
    pub custom: Option<&'n Config>,
    /// The known custom resource definitions; of other custom resources only the group is known.
    pub definitions: &'n [Definition],
    /// The namespaces to watch; empty for all.
    pub namespaces: Vec<String>,
    /// True if requests are authenticated by the API server.
    pub auth_filter: bool,
    /// The namespace of a pod that determines its own shard.
    pub sharded_in: Option<&'n str>,
    /// The service account to bind; `None` creates no bindings.
    pub account: Option<&'n ServiceAccount>,
    /// Name of the roles and of their bindings; `kstatd` by default.
    pub name: Option<&'n str>,
}

impl<'n> Needs<'n> {
    /// Returns the needs of a process with the flags `kube`, which watches `resources` and those of `custom`.
    pub fn of(
        kube: &'n KubeArgs,
        resources: Vec<&'static dyn Resource>,
        custom: Option<&'n Config>,
        definitions: &'n [Definition],
    ) -> Self {
        let sharded = !kube.pod.is_empty() && !kube.pod_namespace.is_empty();
        Self {
            resources,
            kube_events: config::counts_kube_events(kube),
            custom,
            definitions,
            namespaces: config::namespaces(kube),
            auth_filter: kube.auth_filter,
            sharded_in: sharded.then_some(kube.pod_namespace.as_str()),
            ..Self::default()
        }
    }
}

/// Resources by API group.
type Resources = BTreeMap<String, BTreeSet<String>>;

/// A role, cluster-wide if it has no namespace.
pub(crate) struct Role<'n> {
    /// The name.
    pub(crate) name: String,
    /// The namespace.
    pub(crate) namespace: Option<&'n str>,
    /// The rules.
    pub(crate) rules: Vec<Rule>,
}

/// A rule of a role.
pub(crate) struct Rule {
    /// The API group.
    pub(crate) group: String,
    /// The plural names.
    pub(crate) resources: BTreeSet<String>,
    /// The verbs.
    pub(crate) verbs: &'static [&'static str],
}

const LIST_WATCH: &[&str] = &["list", "watch"];

impl Rule {
    fn new(group: &str, resource: &str, verbs: &'static [&'static str]) -> Self {
        Self { group: group.to_owned(), resources: BTreeSet::from([resource.to_owned()]), verbs }
    }

    fn text(&self) -> String {
        let group = if self.group.is_empty() { "\"\"" } else { &self.group };
        let mut text = format!("- apiGroups: [{group}]\n  resources:\n");
        for resource in &self.resources {
            let quoted = if resource == "*" { "\"*\"" } else { resource };
            let _ = writeln!(text, "  - {quoted}");
        }
        let _ = writeln!(text, "  verbs: [{}]", self.verbs.join(", "));
        text
    }
}

/// Returns the roles that a configuration needs.
pub(crate) fn roles<'n>(needs: &'n Needs<'_>) -> Vec<Role<'n>> {
    let (mut cluster, mut namespaced) = (Resources::new(), Resources::new());
    let mut add = |in_namespaces: bool, group: &str, resource: &str| {
        let rules = if in_namespaces { &mut namespaced } else { &mut cluster };
        rules.entry(group.to_owned()).or_default().insert(resource.to_owned());
    };
    for resource in &needs.resources {
        let api = resource.api();
        add(api.namespaced, api.group, api.name);
    }
    if needs.kube_events {
        add(true, "", "events");
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
    if needs.namespaces.is_empty() {
        for (group, resources) in std::mem::take(&mut namespaced) {
            cluster.entry(group).or_default().extend(resources);
        }
    }
    let name = needs.name.unwrap_or(NAME);
    let mut rules = list_and_watch(cluster);
    if needs.auth_filter {
        rules.push(Rule::new("authentication.k8s.io", "tokenreviews", &["create"]));
        rules.push(Rule::new("authorization.k8s.io", "subjectaccessreviews", &["create"]));
    }
    let mut roles = vec![Role { name: name.to_owned(), namespace: None, rules }];
    roles.extend(needs.namespaces.iter().map(|namespace| Role {
        name: name.to_owned(),
        namespace: Some(namespace),
        rules: list_and_watch(namespaced.clone()),
    }));
    roles.extend(needs.sharded_in.map(|namespace| Role {
        name: format!("{name}-sharding"),
        namespace: Some(namespace),
        rules: vec![
            Rule::new("", "pods", &["get"]),
            Rule::new("apps", "statefulsets", &["get", "list", "watch"]),
        ],
    }));
    roles.retain(|role| !role.rules.is_empty());
    roles
}

/// Generates the manifests.
pub fn manifests(needs: &Needs<'_>) -> String {
    let mut documents = Vec::new();
    for Role { name, namespace, rules } in roles(needs) {
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        let place = (name.as_str(), namespace);
        let rules: String = rules.iter().map(Rule::text).collect();
        documents.push(format!("{}rules:\n{rules}", head(kind, place)));
        documents.extend(needs.account.map(|account| binding(kind, place, account)));
    }
    documents.join("---\n")
}

/// Returns the first lines of a manifest, up to and including its metadata.
fn head(kind: &str, (name, namespace): (&str, Option<&str>)) -> String {
    let namespace = namespace.map(|it| format!("  namespace: {it:?}\n")).unwrap_or_default();
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}\n{namespace}"
    )
}

/// Returns the binding of a role to a service account.
fn binding(kind: &str, place: (&str, Option<&str>), account: &ServiceAccount) -> String {
    let ServiceAccount { namespace, name: account } = account;
    let name = place.0;
    format!(
        "{}roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\n\
         subjects:\n- kind: ServiceAccount\n  name: {account:?}\n  namespace: {namespace:?}\n",
        head(&format!("{kind}Binding"), place)
    )
}

fn list_and_watch(resources: Resources) -> Vec<Rule> {
    let rule = |(group, resources)| Rule { group, resources, verbs: LIST_WATCH };
    resources.into_iter().map(rule).collect()
}

/// Returns the rule that one list/watch needs.
pub fn rule_to_list_and_watch(group: &str, resource: &str) -> String {
    Rule::new(group, resource, LIST_WATCH).text()
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
    fn the_deployed_role_matches_the_defaults() {
        let deployed = include_str!("../../deploy/base/cluster-role.yaml");
        let rules: String = deployed
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(manifests(&Needs { resources: defaults(), ..Needs::default() }), rules);
    }

    #[test]
    fn each_role_is_bound() {
        let account = |namespace: &str, name: &str| ServiceAccount {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let bound = manifests(&Needs {
            resources: defaults(),
            account: Some(&account("kstatd", "kstatd")),
            ..Needs::default()
        });
        let (_, binding) = bound.split_once("---\n").expect("two documents");
        let deployed = include_str!("../../deploy/base/cluster-role-binding.yaml");
        assert_eq!(binding.replace('"', ""), deployed);
        let text = manifests(&Needs {
            resources: vec![resources::find("pods").expect("known")],
            namespaces: vec!["x".to_owned(), "y".to_owned()],
            sharded_in: Some("z"),
            account: Some(&account("monitoring", "me")),
            ..Needs::default()
        });
        let documents: Vec<&str> = text.split("---\n").collect();
        assert_eq!(documents.len(), 6, "{text}");
        let names = ["kstatd", "kstatd", "kstatd-sharding"];
        for ((pair, namespace), name) in documents.chunks(2).zip(["x", "y", "z"]).zip(names) {
            assert!(pair[0].contains("kind: Role\n"), "{text}");
            let place = format!("  name: {name}\n  namespace: {namespace:?}\n");
            assert!(pair[0].contains(&place) && pair[1].contains(&place), "{text}");
            assert!(pair[1].contains("kind: RoleBinding\n"), "{text}");
            assert!(
                pair[1].contains(&format!("  kind: Role\n  name: {name}\nsubjects:\n")),
                "{text}"
            );
            assert!(
                pair[1].ends_with(
                    "- kind: ServiceAccount\n  name: \"me\"\n  namespace: \"monitoring\"\n"
                ),
                "{text}"
            );
        }
    }

    #[test]
    fn namespaces_and_custom_resources() {
        let config = load("spec: {resources: [{groupVersionKind: {group: a.io, kind: K}}, {groupVersionKind: {group: b.io}}]}").config;
        let definitions = [Definition {
            group: "a.io".into(),
            version: "v1".into(),
            kind: "K".into(),
            list_kind: String::new(),
            plural: "ks".into(),
            namespaced: true,
        }];
        let text = manifests(&Needs {
            resources: vec![
                resources::find("pods").expect("known"),
                resources::find("nodes").expect("known"),
            ],
            kube_events: true,
            custom: Some(&config),
            definitions: &definitions,
            namespaces: vec!["x".to_owned(), "y".to_owned()],
            auth_filter: true,
            sharded_in: Some("z"),
            account: None,
            name: None,
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
        assert!(!documents[0].contains("  - pods") && !documents[0].contains("  - events"));
        for (document, namespace) in documents[1..3].iter().zip(["x", "y"]) {
            assert!(document.contains(&format!("  namespace: {namespace:?}\n")), "{document}");
            assert!(document.contains("  - events\n  - pods\n"), "{document}");
            assert!(document.contains("- apiGroups: [a.io]\n  resources:\n  - ks\n"), "{document}");
            assert!(
                document.contains("- apiGroups: [b.io]\n  resources:\n  - \"*\"\n"),
                "{document}"
            );
        }
        assert!(documents[3].contains("  verbs: [get, list, watch]\n"));
    }
}
