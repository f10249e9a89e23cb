//! Tests of configuration changes while the server refuses or fails some lists: all other scopes take their new state
//! immediately, and the old state of the failing scope stays exposed as long as the staleness limit allows.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::exposition::budget::{Budget, BudgetMode};

/// The responses of the server, and the requests that it received.
#[derive(Default)]
struct ServerState {
    /// The status code for requests of a namespace; an empty name for all namespaces at once.
    refusals: BTreeMap<String, u16>,
    /// The UIDs of the objects of each namespace.
    objects: BTreeMap<String, Vec<String>>,
    /// The number of streaming lists and of all requests, by namespace and kind.
    lists: BTreeMap<(String, String), usize>,
    requests: BTreeMap<(String, String), usize>,
    open: Vec<BodyWriter>,
}

#[derive(Clone, Default)]
struct NamespaceServer(Arc<Mutex<ServerState>>);

impl NamespaceServer {
    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.0.lock().expect("no panic")
    }

    fn refuse(&self, namespace: &str, code: u16) {
        self.state().refusals.insert(namespace.to_owned(), code);
    }

    fn allow(&self, namespace: &str) {
        self.state().refusals.remove(namespace);
    }

    /// Sets the UIDs of a namespace's objects. By default there is one, named like the namespace.
    fn set_objects(&self, namespace: &str, names: &[String]) {
        self.state().objects.insert(namespace.to_owned(), names.to_vec());
    }

    fn requests(&self, namespace: &str, plural: &str) -> usize {
        let key = (namespace.to_owned(), plural.to_owned());
        self.state().requests.get(&key).copied().unwrap_or_default()
    }

    fn lists(&self, namespace: &str, plural: &str) -> usize {
        let key = (namespace.to_owned(), plural.to_owned());
        self.state().lists.get(&key).copied().unwrap_or_default()
    }

    fn reset_counts(&self) {
        self.state().requests.clear();
        self.state().lists.clear();
    }

    async fn serve(self, mut stub: StubServer) {
        loop {
            let request = stub.next_request().await;
            let (path, query) = request.path.split_once('?').expect("a query");
            let path = path.strip_prefix("/api/v1/").expect("a path");
            let (namespace, plural) = path
                .strip_prefix("namespaces/")
                .and_then(|rest| rest.split_once('/'))
                .unwrap_or(("", path));
            let key = (namespace.to_owned(), plural.to_owned());
            let (streams, watches) =
                (query.contains("sendInitialEvents"), query.contains("watch=true"));
            let mut state = self.state();
            *state.requests.entry(key.clone()).or_default() += 1;
            if let Some(code) = state.refusals.get(namespace) {
                request.refuse(*code);
            } else if streams {
                let names = state.objects.get(namespace).cloned();
                let names = names.unwrap_or_else(|| vec![namespace.to_owned()]);
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                *state.lists.entry(key).or_default() += 1;
                state.open.push(stream_list(request, &names));
            } else if watches {
                state.open.push(request.start_watch());
            } else {
                request.refuse(500);
            }
        }
    }
}

/// Returns a pipeline with this configuration on `server`.
async fn synced_on(server: &NamespaceServer, config: &PipelineConfig) -> (Fixture, Arc<Client>) {
    let (mut fixture, client) = Fixture::with_client(config).await;
    let stub = std::mem::replace(&mut fixture.stub, StubServer::start().await);
    tokio::spawn(server.clone().serve(stub));
    fixture.ready().await;
    (fixture, client)
}

fn in_namespaces(namespaces: &[&str], config: &PipelineConfig) -> PipelineConfig {
    let namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
    PipelineConfig { namespaces, ..config.clone() }
}

async fn wait_until_applied_where_allowed(fixture: &Fixture, number: u64) {
    let is_applied = || fixture.handle.is_applied_where_allowed(number);
    eventually(is_applied, || format!("{:?} is not applied", fixture.handle.pending())).await;
}

#[tokio::test]
async fn failing_namespace_does_not_delay_others() {
    for code in [403, 404, 500] {
        let (server, pods) = (NamespaceServer::default(), with_resources(&["pods"]));
        let (fixture, client) = synced_on(&server, &in_namespaces(&["a"], &pods)).await;
        server.refuse("b", code);
        server.reset_counts();
        let number = reconfigure(&fixture, &client, &in_namespaces(&["a", "b", "c"], &pods));
        wait_for_lines(&fixture, &["pods a 1", "pods c 1"]).await;
        assert_eq!(server.lists("a", "pods"), 1, "{code}: listed once for the new configuration");
        if code == 500 {
            assert!(!fixture.handle.is_applied(number) && *fixture.handle.pending() == ["pods"]);
        } else {
            // None of its objects are exposed that the configuration does not ask for.
            wait_until_applied(&fixture, number).await;
        }
        // It is retried until it succeeds.
        let before = server.requests("b", "pods");
        eventually(|| server.requests("b", "pods") > before + 5, || "b is not retried".to_owned())
            .await;
        assert_eq!(exposed_lines(&fixture), ["pods a 1", "pods c 1"]);
        server.allow("b");
        wait_for_lines(&fixture, &["pods a 1", "pods b 1", "pods c 1"]).await;
        wait_until_applied(&fixture, number).await;
        assert_eq!((server.lists("a", "pods"), server.lists("c", "pods")), (1, 1), "{code}");
    }
}

/// The old state of a refused namespace stays exposed next to the new state of the others, up to the staleness limit.
#[tokio::test]
async fn denied_namespace_stays_for_the_staleness_limit() {
    for (code, limit, stays) in [
        (403, Some(Duration::ZERO), false),
        (403, None, true),
        // A server error says nothing about the objects.
        (500, Some(Duration::ZERO), true),
    ] {
        let server = NamespaceServer::default();
        let mut pods = with_resources(&["pods"]);
        pods.timing.staleness_limit = limit;
        let (fixture, client) = synced_on(&server, &in_namespaces(&["a", "b"], &pods)).await;
        wait_for_lines(&fixture, &["pods a 1", "pods b 1"]).await;
        server.refuse("b", code);
        server.set_objects("a", &["new".to_owned()]);
        let selected = PipelineConfig { selector: "x=y".to_owned(), ..pods };
        let number = reconfigure(&fixture, &client, &in_namespaces(&["a", "b"], &selected));
        if stays {
            wait_for_lines(&fixture, &["pods b 1", "pods new 1"]).await;
            let before = server.requests("b", "pods");
            let is_retried = || server.requests("b", "pods") > before + 5;
            eventually(is_retried, || "b is not retried".to_owned()).await;
            assert_eq!(exposed_lines(&fixture), ["pods b 1", "pods new 1"]);
            assert!(!fixture.handle.is_applied(number) && *fixture.handle.pending() == ["pods"]);
        } else {
            wait_for_lines(&fixture, &["pods new 1"]).await;
            wait_until_applied(&fixture, number).await;
        }
        if code == 403 {
            wait_until_applied_where_allowed(&fixture, number).await;
        }
        // Another change in the meantime has the same result.
        let again = PipelineConfig { selector: "x=z".to_owned(), ..selected };
        let number = reconfigure(&fixture, &client, &in_namespaces(&["a", "b"], &again));
        let listed = || server.lists("a", "pods") == 3;
        eventually(listed, || format!("{} lists", server.lists("a", "pods"))).await;
        wait_for_lines(&fixture, if stays { &["pods b 1", "pods new 1"] } else { &["pods new 1"] })
            .await;
        server.set_objects("b", &["back".to_owned()]);
        server.allow("b");
        wait_for_lines(&fixture, &["pods back 1", "pods new 1"]).await;
        wait_until_applied(&fixture, number).await;
        assert_eq!(server.lists("a", "pods"), 3);
    }
}

/// From all namespaces to single ones and back: no object is exposed twice, and never none where there were some.
#[tokio::test]
async fn switch_between_all_and_single_namespaces() {
    let (server, pods) = (NamespaceServer::default(), with_resources(&["pods"]));
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    server.set_objects("", &names(&["a", "b", "c"]));
    let (fixture, client) = synced_on(&server, &pods).await;
    let all = ["pods a 1", "pods b 1", "pods c 1"];
    // Nothing can be listed, so everything stays.
    for namespace in ["a", "b"] {
        server.refuse(namespace, 403);
    }
    let number = reconfigure(&fixture, &client, &in_namespaces(&["a", "b"], &pods));
    wait_until_applied_where_allowed(&fixture, number).await;
    assert!(exposed_lines(&fixture) == all && !fixture.handle.is_applied(number));
    // The old state cannot be separated by namespace, so the new state replaces all of it.
    server.allow("a");
    wait_for_lines(&fixture, &["pods a 1"]).await;
    wait_until_applied(&fixture, number).await;
    server.allow("b");
    wait_for_lines(&fixture, &["pods a 1", "pods b 1"]).await;
    server.refuse("", 403);
    let number = reconfigure(&fixture, &client, &pods);
    wait_until_applied_where_allowed(&fixture, number).await;
    assert!(exposed_lines(&fixture) == all[..2] && !fixture.handle.is_applied(number));
    server.allow("");
    wait_for_lines(&fixture, &all).await;
    wait_until_applied(&fixture, number).await;
}

/// A second change comes while the list of the first is behind what is shown, and cannot be listed: what is shown stays,
/// and nothing is shown twice.
#[tokio::test]
async fn denied_change_after_one_that_is_behind() {
    let (server, pods) = (NamespaceServer::default(), with_resources(&["pods"]));
    server.set_objects("", &["a".to_owned()]);
    let (fixture, client) = synced_on(&server, &pods).await;
    server.state().open[0].send(event("ADDED", &pod("new", "9")));
    wait_for_lines(&fixture, &["pods a 1", "pods new 9"]).await;
    let config = |budget| PipelineConfig { budget: Arc::new(budget), ..pods.clone() };
    let tracked = Budget { mode: BudgetMode::Track, ..Budget::default() };
    let number = reconfigure(&fixture, &client, &config(tracked.clone()));
    let is_listed = || fixture.handle.lists().iter().filter(|list| list.is_listed()).count() == 2;
    eventually(is_listed, || "not listed".to_owned()).await;
    // It is behind, and not only refused: another pod does not rely on its objects.
    let handle = &fixture.handle;
    assert!(!handle.is_applied(number) && !handle.is_applied_where_allowed(number));
    server.refuse("", 403);
    let limited = Budget { mode: BudgetMode::Enforce, series_per_kind: 10, ..tracked };
    let number = reconfigure(&fixture, &client, &config(limited));
    wait_until_applied_where_allowed(&fixture, number).await;
    assert!(!fixture.handle.is_applied(number));
    assert_eq!(exposed_lines(&fixture), ["pods a 1", "pods new 9"]);
    server.set_objects("", &["back".to_owned()]);
    server.allow("");
    wait_for_lines(&fixture, &["pods a 1", "pods new 9"]).await;
    eventually(|| server.lists("", "pods") == 3, || "not listed".to_owned()).await;
    let newest = server.state().open.len() - 1;
    server.state().open[newest].send(event("MODIFIED", &pod("back", "10")));
    wait_for_lines(&fixture, &["pods back 10"]).await;
    wait_until_applied(&fixture, number).await;
}

/// With many kinds each allowed scope is listed once, and each denied one is retried with its own backoff.
#[tokio::test]
async fn kinds_next_to_a_forbidden_namespace_are_listed_once() {
    let kinds: Vec<String> = (0..21).map(|number| format!("kind{number:02}")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let server = NamespaceServer::default();
    let mut config = with_resources(&kinds);
    // No kind is retried by backoff alone.
    config.timing.backoff = BackoffConfig {
        initial: BEYOND_DEADLINE,
        denied_cap: BEYOND_DEADLINE,
        ..config.timing.backoff
    };
    let (fixture, client) = synced_on(&server, &in_namespaces(&["a"], &config)).await;
    server.refuse("b", 403);
    server.reset_counts();
    let number = reconfigure(&fixture, &client, &in_namespaces(&["a", "b"], &config));
    wait_until_applied(&fixture, number).await;
    for kind in &kinds {
        assert_eq!(server.requests("a", kind), 1, "{kind}");
        // A streaming and a paged list, initially and for each kind that needed a new connection.
        let most = 2 * (1 + kinds.len());
        assert!(server.requests("b", kind) <= most, "{kind}: {}", server.requests("b", kind));
    }
    assert_eq!(exposed_lines(&fixture).len(), 21);
}

/// A resharding in the usual steps while one namespace is forbidden.
#[tokio::test]
async fn resharding_with_a_forbidden_namespace() {
    let (server, pods) = (NamespaceServer::default(), with_resources(&["pods"]));
    let (names, old, new) = overlapping_shards();
    server.set_objects("a", &names);
    server.refuse("b", 403);
    let config = |shard| PipelineConfig { shard, ..in_namespaces(&["a", "b"], &pods) };
    let (fixture, client) = synced_on(&server, &config(old)).await;
    assert_eq!(exposed_lines(&fixture), lines_of(&names, |name| old.keeps(name)));
    let step = |stage| reconfigure(&fixture, &client, &config(new.replacing(old).at(stage)));
    let number = step(Stage::Preparing);
    wait_until_applied(&fixture, number).await;
    assert_eq!(exposed_lines(&fixture), lines_of(&names, |name| old.keeps(name)));
    wait_until_applied(&fixture, step(Stage::Overlap)).await;
    assert_eq!(
        exposed_lines(&fixture),
        lines_of(&names, |name| old.keeps(name) || new.keeps(name))
    );
    wait_until_applied(&fixture, step(Stage::Done)).await;
    assert_eq!(exposed_lines(&fixture), lines_of(&names, |name| new.keeps(name)));
}

/// A synced pipeline on the old one of two shards.
struct ShardedPods {
    server: NamespaceServer,
    fixture: Fixture,
    client: Arc<Client>,
    pods: PipelineConfig,
    names: Vec<String>,
    old: Shard,
    new: Shard,
}

async fn sharded_pods() -> ShardedPods {
    let (server, pods) = (NamespaceServer::default(), with_resources(&["pods"]));
    let (names, old, new) = overlapping_shards();
    server.set_objects("", &names);
    let (fixture, client) =
        synced_on(&server, &PipelineConfig { shard: old, ..pods.clone() }).await;
    ShardedPods { server, fixture, client, pods, names, old, new }
}

/// The steps are taken even if nothing can be listed for the new shard: lost objects do not stay exposed.
#[tokio::test]
async fn lost_objects_are_dropped_if_the_new_shard_cannot_be_listed() {
    for code in [403, 500] {
        let ShardedPods { server, fixture, client, pods, names, old, new } = sharded_pods().await;
        server.refuse("", code);
        let config = |stage| PipelineConfig { shard: new.replacing(old).at(stage), ..pods.clone() };
        for stage in [Stage::Preparing, Stage::Overlap] {
            reconfigure(&fixture, &client, &config(stage));
        }
        let is_retried = || server.requests("", "pods") > 5;
        eventually(is_retried, || "it is not requested".to_owned()).await;
        assert_eq!(exposed_lines(&fixture), lines_of(&names, |name| old.keeps(name)));
        let number = reconfigure(&fixture, &client, &config(Stage::Done));
        let is_observed = || fixture.handle.has_observed(number);
        eventually(is_observed, || "not observed".to_owned()).await;
        assert_eq!(
            exposed_lines(&fixture),
            lines_of(&names, |name| old.keeps(name) && new.keeps(name))
        );
        assert!(!fixture.handle.is_applied(number));
        server.allow("");
        wait_until_applied(&fixture, number).await;
        assert_eq!(exposed_lines(&fixture), lines_of(&names, |name| new.keeps(name)));
    }
}

/// A reload while gained and lost objects are both exposed: lost objects are dropped on time, whether or not the lists
/// of the reload succeed.
#[tokio::test]
async fn reload_during_resharding_drops_lost_objects() {
    for code in [403, 500] {
        let ShardedPods { server, fixture, client, pods, names, old, new } = sharded_pods().await;
        let share = |stage| PipelineConfig { shard: new.replacing(old).at(stage), ..pods.clone() };
        for stage in [Stage::Preparing, Stage::Overlap] {
            wait_until_applied(&fixture, reconfigure(&fixture, &client, &share(stage))).await;
        }
        let both = lines_of(&names, |name| old.keeps(name) || new.keeps(name));
        assert_eq!(exposed_lines(&fixture), both);
        server.refuse("", code);
        let selected = |stage| PipelineConfig { selector: "x=y".to_owned(), ..share(stage) };
        let number = reconfigure(&fixture, &client, &selected(Stage::Overlap));
        eventually(|| fixture.handle.has_observed(number), || "not observed".to_owned()).await;
        assert_eq!(exposed_lines(&fixture), both);
        let number = reconfigure(&fixture, &client, &selected(Stage::Done));
        eventually(|| fixture.handle.has_observed(number), || "not observed".to_owned()).await;
        assert_eq!(exposed_lines(&fixture), lines_of(&names, |name| new.keeps(name)), "{code}");
        server.allow("");
        wait_until_applied(&fixture, number).await;
        assert_eq!(exposed_lines(&fixture), lines_of(&names, |name| new.keeps(name)));
    }
}

/// Returns object names and two shards. Each shard has objects that the other does not have.
pub(super) fn overlapping_shards() -> (Vec<String>, Shard, Shard) {
    let names: Vec<String> = (0..40).map(|number| format!("pod{number}")).collect();
    let (old, new) = (Shard::new(1, 2), Shard::new(2, 3));
    let kinds: BTreeSet<[bool; 2]> =
        names.iter().map(|name| [old, new].map(|shard| shard.keeps(name.as_bytes()))).collect();
    assert_eq!(kinds.len(), 4 - usize::from(!kinds.contains(&[true, true])));
    (names, old, new)
}

/// Returns the exposed lines of the objects that a shard keeps.
fn lines_of(names: &[String], keeps: impl Fn(&[u8]) -> bool) -> Vec<String> {
    let kept = names.iter().filter(|name| keeps(name.as_bytes()));
    let mut lines: Vec<String> = kept.map(|name| format!("pods {name} 1")).collect();
    lines.sort();
    lines
}
