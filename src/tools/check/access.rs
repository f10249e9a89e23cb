//! The rights of an exporter's service account, compared with those that its flags need.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use serde_json::Value;

use super::configuration::Settings;
use super::inventory::{Inventory, RBAC, is_same};
use super::report::{Outcome, Section};
use super::scraping::selects;
use super::workload::{Workload, items, texts};
use crate::cli::config;
use crate::cli::statsd_flags::StatsdArgs;
use crate::kube::{Account, Client};
use crate::resources::custom::with_built_in;
use crate::tools::Result;
use crate::tools::manifests::Manifest;
use crate::tools::rbac::{self, Needs};
use crate::tools::render_kube;

const PAGE: &str = "docs/runbook/KstatdKindForbidden.md";

/// The number of reviews above which the bindings are read first, with four lists, to see what needs no review.
const MOST_REVIEWS: usize = 200;

const BY_REVIEWS: &str = "reviewed by the API server";
const BY_BINDINGS: &str = "by its bindings";
const BY_BOTH: &str = "by its bindings and reviews by the API server";

/// The number of reviews that the API server is asked for at the same time.
const REVIEWS_AT_ONCE: usize = 16;

/// The reviewed rights, each with whether it is granted.
type Answers = BTreeMap<Right, bool>;

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    namespace: Option<String>,
    group: String,
    resource: String,
    /// The name of the object, if only one is needed.
    name: Option<String>,
    verb: &'static str,
}

impl Right {
    /// Returns the same right in all namespaces.
    fn everywhere(&self) -> Self {
        Self { namespace: None, ..self.clone() }
    }
}

/// Checks the rights of the service account. Asks the API server about the account if there is a client and it may ask,
/// and otherwise evaluates the bindings.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn check(
    workload: &Workload<'_>,
    settings: &Settings,
    inventory: &Inventory,
    client: Option<&Client>,
) -> Result<Section> {
    let namespace = workload.namespace().unwrap_or("default");
    let account = format!("{namespace}/{}", workload.service_account());
    let title = format!("{}: rights of the service account {account}", workload.title());
    let mut section = Section::new(title);
    let Some(rights) = needed(workload, settings, inventory) else {
        section.ok(match settings.config.node {
            None => "needs no rights",
            Some(_) => "the rights of kstatd node are not checked: docs/node.md lists them",
        });
        return Ok(section);
    };
    if settings.kube.as_ref().is_some_and(|kube| !kube.kubeconfig.is_empty()) {
        let text = "the exporter uses a kubeconfig, so the rights are those of its user";
        section.add(Outcome::Warning, text, "check them with `kubectl auth can-i`", PAGE);
        return Ok(section);
    }
    let (missing, how) = match client {
        Some(client) => missing_of(client, workload, &rights, &mut section).await?,
        None => (lacking(workload, &rights, inventory, "input", &mut section), BY_BINDINGS),
    };
    match missing {
        Ok(missing) => report(missing, rights.len(), how, &mut section),
        Err(reason) => {
            let hint =
                "add the roles and bindings to the input, or use credentials that may read them";
            section.add(Outcome::Warning, format!("not known: {reason}"), hint, PAGE);
        }
    }
    Ok(section)
}

/// Returns the rights that the account lacks, and how this is known. The inner error says why it is not.
///
/// # Errors
/// The API server does not answer.
async fn missing_of(
    client: &Client,
    workload: &Workload<'_>,
    rights: &BTreeSet<Right>,
    section: &mut Section,
) -> Result<(Result<BTreeSet<Right>>, &'static str)> {
    let ask = async |right: &Right| is_granted(client, workload, right).await;
    let mut answers = Answers::new();
    let mut reviewed = self::reviewed(rights, MOST_REVIEWS, &mut answers, ask).await;
    if let Ok(Some(missing)) = reviewed {
        return Ok((Ok(missing), BY_REVIEWS));
    }
    let mut bindings = Inventory::default();
    bindings.read_bindings(client).await?;
    // Without one of the lists, the bindings prove nothing.
    let gap = std::mem::take(&mut bindings.gaps).into_iter().next();
    let open = open(rights, &answers);
    let mut unknown = Section::new("");
    let lacking = match gap {
        None => lacking(workload, &open, &bindings, "cluster", &mut unknown),
        Some(gap) => Err(gap.into()),
    };
    if reviewed.is_ok() {
        // What the bindings do not grant, another authorizer may.
        let open = lacking.as_ref().unwrap_or(&open);
        reviewed = self::reviewed(open, usize::MAX, &mut answers, ask).await;
    }
    Ok(match (reviewed, lacking) {
        (Ok(missing), Err(_)) => (Ok(missing.unwrap_or_default()), BY_REVIEWS),
        (Ok(missing), Ok(_)) => {
            let how = if answers.is_empty() { BY_BINDINGS } else { BY_BOTH };
            (Ok(missing.unwrap_or_default()), how)
        }
        (Err(_), Ok(lacking)) => {
            section.append("", unknown);
            (Ok(self::open(&lacking, &answers)), BY_BINDINGS)
        }
        (Err(reason), Err(gap)) => (Err(format!("{reason}; {gap}").into()), BY_BINDINGS),
    })
}

/// Returns the rights that bindings do not grant. `source` is where these are from.
///
/// # Errors
/// There are no bindings.
fn lacking(
    workload: &Workload<'_>,
    rights: &BTreeSet<Right>,
    bindings: &Inventory,
    source: &str,
    section: &mut Section,
) -> Result<BTreeSet<Right>> {
    let kinds = ["ClusterRoleBinding", "RoleBinding"];
    if kinds.iter().all(|kind| bindings.of(RBAC, kind).next().is_none()) {
        return Err(format!("the {source} has no bindings").into());
    }
    let granted = Granted::of(workload, bindings);
    for role in &granted.unknown {
        let text = format!("the role {role} is not in the {source}");
        section.add(Outcome::Warning, text, format!("add it to the {source}"), PAGE);
    }
    Ok(rights.iter().filter(|right| !granted.has(right)).cloned().collect())
}

/// Adds one line for each resource with missing verbs.
fn report(missing: BTreeSet<Right>, total: usize, how: &str, section: &mut Section) {
    if missing.is_empty() {
        section.ok(format!("has all {total} rights that these flags need ({how})"));
    }
    let mut verbs = BTreeMap::<_, Vec<&str>>::new();
    for right in missing {
        verbs.entry((right.namespace, right.group, right.resource)).or_default().push(right.verb);
    }
    for ((namespace, group, resource), verbs) in verbs {
        let verbs = verbs.join(", ");
        let place = namespace.map_or(String::new(), |it| format!(" in the namespace {it}"));
        let dot = if group.is_empty() { "" } else { "." };
        if resource == "*" {
            let text = format!(
                "custom resources of {group}: {verbs}{place} is not granted, or the resource is not known"
            );
            let hint = "add their custom resource definitions to the input";
            section.add(Outcome::Warning, text, hint, PAGE);
            continue;
        }
        let text = format!("may not {verbs} {resource}{dot}{group}{place} ({how})");
        let hint = format!(
            "add to its role: {{apiGroups: [\"{group}\"], resources: [{resource}], verbs: [{verbs}]}}"
        );
        section.add(Outcome::Failed, text, hint, PAGE);
    }
}

/// Returns the rights that the flags need, or `None` without a Kubernetes side.
fn needed(
    workload: &Workload<'_>,
    settings: &Settings,
    inventory: &Inventory,
) -> Option<BTreeSet<Right>> {
    let kube = settings.kube.as_ref()?;
    let mut definitions = render_kube::definitions(&inventory.definitions()).unwrap_or_default();
    if !kube.duplicate_series {
        definitions = with_built_in(definitions);
    }
    let senders = settings.statsd.as_ref().is_some_and(StatsdArgs::recognises_senders);
    let resources = config::watched(kube, settings.config.name, senders).unwrap_or_default();
    let needs = Needs::of(kube, resources, settings.custom.as_ref(), &definitions);
    let mut rights = BTreeSet::new();
    for role in &rbac::roles(&needs) {
        for rule in &role.rules {
            for resource in &rule.resources {
                let is_own = role.name.ends_with("-sharding") && resource == "statefulsets";
                let name = workload.manifest.name().1.filter(|_| is_own).map(str::to_owned);
                rights.extend(rule.verbs.iter().map(|verb| Right {
                    namespace: role.namespace.map(str::to_owned),
                    group: rule.group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb,
                }));
            }
        }
    }
    Some(rights)
}

/// Returns the service account as the API server knows it.
fn account(workload: &Workload<'_>) -> Account {
    let namespace = workload.namespace().unwrap_or("default");
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let name = format!("system:serviceaccount:{namespace}:{}", workload.service_account());
    Account { user: Some(name), groups: Some(groups), ..Account::default() }
}

/// Asks the API server whether the account has a right.
///
/// # Errors
/// The API server does not answer, or refuses to tell.
async fn is_granted(client: &Client, workload: &Workload<'_>, right: &Right) -> Result<bool> {
    let Right { namespace, group, resource, name, verb } = right.clone();
    let review = ResourceAttributes {
        namespace,
        verb: Some(verb.to_owned()),
        group: Some(group),
        resource: Some(resource),
        name,
        ..ResourceAttributes::default()
    };
    Ok(client.review_resource(&account(workload), review).await?.allowed)
}

/// Returns the rights that the account lacks, or `None` if this would take more than `most` questions beyond one for each
/// right in all namespaces. Asks about none that has an answer.
///
/// # Errors
/// That of a question.
async fn reviewed(
    rights: &BTreeSet<Right>,
    most: usize,
    answers: &mut Answers,
    ask: impl AsyncFn(&Right) -> Result<bool>,
) -> Result<Option<BTreeSet<Right>>> {
    let mut places = BTreeMap::<_, usize>::new();
    for right in rights.iter().filter(|right| right.namespace.is_some()) {
        *places.entry(right.everywhere()).or_default() += 1;
    }
    places.retain(|_, namespaces| *namespaces > 1);
    ask_all(places.into_keys().collect(), answers, &ask).await?;
    let open = self::open(rights, answers);
    if open.len() > most {
        return Ok(None);
    }
    ask_all(open.clone(), answers, &ask).await?;
    Ok(Some(self::open(&open, answers)))
}

/// Asks about the rights without an answer.
async fn ask_all(
    mut rights: BTreeSet<Right>,
    answers: &mut Answers,
    ask: &impl AsyncFn(&Right) -> Result<bool>,
) -> Result<()> {
    rights.retain(|right| !answers.contains_key(right));
    let asking = rights.into_iter().map(async |right| (ask(&right).await, right));
    let mut asking = stream::iter(asking).buffer_unordered(REVIEWS_AT_ONCE);
    while let Some((answer, right)) = asking.next().await {
        answers.insert(right, answer?);
    }
    Ok(())
}

/// Returns the rights that no answer grants. What is granted in all namespaces is granted in each.
fn open(rights: &BTreeSet<Right>, answers: &Answers) -> BTreeSet<Right> {
    let is_granted = |right: &Right| answers.get(right) == Some(&true);
    let open = rights.iter().filter(|right| !is_granted(right) && !is_granted(&right.everywhere()));
    open.cloned().collect()
}

/// The rules that bindings grant to a service account.
#[derive(Default)]
struct Granted<'i> {
    /// Each rule with its namespace; `None` for all.
    rules: Vec<(Option<&'i str>, &'i Value)>,
    /// Bound roles that are not in the input, or of which no part is.
    unknown: BTreeSet<String>,
}

impl<'i> Granted<'i> {
    /// Returns what the bindings of the input grant.
    fn of(workload: &Workload<'_>, bindings: &'i Inventory) -> Self {
        let mut granted = Self::default();
        let all = bindings.of(RBAC, "ClusterRoleBinding").chain(bindings.of(RBAC, "RoleBinding"));
        for binding in all.filter(|binding| is_bound(workload, binding)) {
            let namespace = binding.name().0;
            let reference = &binding.object["roleRef"];
            let [kind, name] =
                ["kind", "name"].map(|field| reference[field].as_str().unwrap_or_default());
            let place = if kind == "Role" { namespace } else { None };
            let mut roles = bindings.of(RBAC, kind);
            let role =
                roles.find(|role| role.name().1 == Some(name) && is_same(place, role.name().0));
            let Some(role) = role else {
                granted.unknown.insert(name.to_owned());
                continue;
            };
            let scope =
                if binding.kind == "RoleBinding" { Some(namespace.unwrap_or("")) } else { None };
            let is_aggregated = role.object.get("aggregationRule").is_some();
            let parts = if is_aggregated { aggregated(role, bindings) } else { vec![role] };
            if parts.is_empty() {
                granted.unknown.insert(name.to_owned());
            }
            for role in parts {
                granted.rules.extend(items(&role.object["rules"]).map(|rule| (scope, rule)));
            }
        }
        granted
    }

    fn has(&self, right: &Right) -> bool {
        let lists = |rule: &Value, field: &str, wanted: &str| {
            texts(&rule[field]).iter().any(|one| one == "*" || one == wanted)
        };
        self.rules.iter().any(|(scope, rule)| {
            // A binding without a namespace may be applied to any.
            let covers = match (scope, &right.namespace) {
                (None, _) => true,
                (Some(scope), Some(namespace)) => scope.is_empty() || scope == namespace,
                (Some(_), None) => false,
            };
            covers
                && (texts(&rule["resourceNames"]).is_empty()
                    || right.name.as_deref().is_some_and(|name| lists(rule, "resourceNames", name)))
                && lists(rule, "apiGroups", &right.group)
                && lists(rule, "verbs", right.verb)
                && lists(rule, "resources", &right.resource)
        })
    }
}

/// Returns the ClusterRoles whose rules a controller adds to those of a role.
fn aggregated<'i>(role: &Manifest, bindings: &'i Inventory) -> Vec<&'i Manifest> {
    let selectors: Vec<&Value> =
        items(&role.object["aggregationRule"]["clusterRoleSelectors"]).collect();
    let is_part = |part: &&Manifest| {
        let labels = &part.object["metadata"]["labels"];
        part.name() != role.name() && selectors.iter().any(|selector| selects(selector, labels))
    };
    bindings.of(RBAC, "ClusterRole").filter(is_part).collect()
}

/// Returns true if a binding names the service account or one of its groups.
fn is_bound(workload: &Workload<'_>, binding: &Manifest) -> bool {
    let account = account(workload);
    items(&binding.object["subjects"]).any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("ServiceAccount") => {
                let place = subject["namespace"].as_str().or(binding.name().0);
                name == workload.service_account() && is_same(workload.namespace(), place)
            }
            Some("Group") => account.groups.iter().flatten().any(|group| group == name),
            Some("User") => account.user.as_deref() == Some(name),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The right to list each of 40 kinds in each of 50 namespaces.
    fn rights() -> BTreeSet<Right> {
        let right = |kind: usize, namespace: Option<usize>| Right {
            namespace: namespace.map(|number| format!("n{number}")),
            group: "apps".to_owned(),
            resource: format!("kind{kind}"),
            name: None,
            verb: "list",
        };
        (0..40).flat_map(|kind| (0..50).map(move |place| right(kind, Some(place)))).collect()
    }

    /// The number of questions is about the number of kinds, not of namespaces.
    #[tokio::test]
    async fn few_questions_are_asked_about_many_namespaces() {
        let all = rights();
        let asked = Cell::new(0);
        let everywhere = async |right: &Right| {
            asked.set(asked.get() + 1);
            Ok(right.namespace.is_none())
        };
        let missing = reviewed(&all, MOST_REVIEWS, &mut Answers::new(), everywhere).await;
        assert_eq!((missing.expect("answers"), asked.take()), (Some(BTreeSet::new()), 40));
        let one_missing = async |right: &Right| {
            asked.set(asked.get() + 1);
            Ok(right.resource != "kind7" || right.namespace.as_deref() == Some("n3"))
        };
        let missing = reviewed(&all, MOST_REVIEWS, &mut Answers::new(), one_missing).await;
        let missing = missing.expect("answers").expect("few questions");
        assert_eq!((missing.len(), asked.take()), (49, 40 + 50));
        assert!(missing.iter().all(|right| right.resource == "kind7"));
        let in_each = async |right: &Right| {
            asked.set(asked.get() + 1);
            Ok(right.namespace.is_some())
        };
        let mut answers = Answers::new();
        let missing = reviewed(&all, MOST_REVIEWS, &mut answers, in_each).await;
        assert_eq!((missing.expect("answers"), asked.take()), (None, 40), "the bindings tell");
        let missing = reviewed(&all, usize::MAX, &mut answers, in_each).await;
        assert_eq!((missing.expect("answers"), asked.take()), (Some(BTreeSet::new()), 2000));
    }

    #[tokio::test]
    async fn some_questions_are_asked_at_once() {
        let (asking, most) = (Cell::new(0), Cell::new(0));
        let ask = async |_: &Right| {
            asking.set(asking.get() + 1);
            most.set(asking.get().max(most.get()));
            tokio::task::yield_now().await;
            asking.set(asking.get() - 1);
            Ok(false)
        };
        reviewed(&rights(), usize::MAX, &mut Answers::new(), ask).await.expect("answers");
        assert_eq!((asking.get(), most.get()), (0, REVIEWS_AT_ONCE));
    }
}
