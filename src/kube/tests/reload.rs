//! Tests of configuration changes at run time against the scripted server: kinds are exchanged one by one, each when
//! complete. Also tests panics of list/watches.

mod retry_after;
mod scopes;

use std::collections::BTreeMap;

use super::*;
use crate::kube::follow::progress::Phase;
use crate::kube::shard::Stage;
use crate::kube::tests::stub::{BodyWriter, StubRequest};

/// Requests that wait for a response, by path without query.
#[derive(Default)]
struct RequestQueue(BTreeMap<String, Vec<StubRequest>>);

impl RequestQueue {
    /// Returns the next request for `plural` and keeps other requests for later.
    async fn next_for(&mut self, stub: &mut StubServer, plural: &str) -> StubRequest {
        let path = format!("/api/v1/{plural}");
        loop {
            if let Some(request) = self.0.get_mut(&path).and_then(Vec::pop) {
                return request;
            }
            let request = stub.next_request().await;
            let (path, _) = request.path.split_once('?').expect("a query");
            self.0.entry(path.to_owned()).or_default().push(request);
        }
    }
}

/// Responds to a streaming list with these objects, all of version 1.
fn stream_list(request: StubRequest, names: &[&str]) -> BodyWriter {
    let body = request.start_watch();
    names.iter().for_each(|name| body.send(event("ADDED", &pod(name, "1"))));
    body.send(bookmark("5", true));
    body
}

fn with_resources(resources: &[&str]) -> PipelineConfig {
    let watched = resources.iter().map(|plural| watched(plural, true)).collect();
    PipelineConfig { resources: watched, ..config() }
}

/// Returns the series of all kinds without braces.
fn exposed_lines(fixture: &Fixture) -> Vec<String> {
    let body: Vec<u8> =
        fixture.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    let text = String::from_utf8(body).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<String> =
        lines.map(|line| line.replace("{name=\"", " ").replace("\"}", "")).collect();
    lines.sort();
    lines
}

async fn wait_for_lines(fixture: &Fixture, expected: &[&str]) {
    eventually(|| exposed_lines(fixture) == expected, || format!("{:?}", exposed_lines(fixture)))
        .await;
}

/// Changes the configuration with the same client.
fn reconfigure(fixture: &Fixture, client: &Arc<Client>, config: &PipelineConfig) -> u64 {
    fixture.pipeline.reconfigure(client, config)
}

/// Returns a synced pipeline of these kinds, each with one object, and its client.
async fn synced_resources(
    resources: &[&str],
) -> (Fixture, Arc<Client>, RequestQueue, Vec<BodyWriter>) {
    synced(&with_resources(resources)).await
}

/// Returns a synced pipeline with this configuration, each kind with one object, and its client.
async fn synced(config: &PipelineConfig) -> (Fixture, Arc<Client>, RequestQueue, Vec<BodyWriter>) {
    let (mut fixture, client) = Fixture::with_client(config).await;
    let (mut requests, mut bodies) = (RequestQueue::default(), Vec::new());
    for watched in &config.resources {
        let request = requests.next_for(&mut fixture.stub, &watched.api.plural).await;
        bodies.push(stream_list(request, &["old"]));
    }
    fixture.ready().await;
    (fixture, client, requests, bodies)
}

async fn wait_until_applied(fixture: &Fixture, number: u64) {
    let mut handle = fixture.pipeline.handle();
    let wait = async {
        while !handle.is_applied(number) {
            handle.changed().await;
        }
    };
    let pending = || format!("{:?}", fixture.handle.pending());
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{}", pending()));
}

#[tokio::test]
async fn unchanged_kinds_are_not_relisted() {
    let (mut fixture, client, _, bodies) = synced_resources(&["a", "b"]).await;
    for number in 2..5 {
        assert_eq!(reconfigure(&fixture, &client, &with_resources(&["a", "b"])), number);
        wait_until_applied(&fixture, number).await;
    }
    bodies[1].send(event("ADDED", &pod("new", "6")));
    wait_for_lines(&fixture, &["a old 1", "b new 6", "b old 1"]).await;
    assert!(fixture.stub.is_idle());
}

#[tokio::test]
async fn batching_does_not_delay_a_change() {
    let timing = Timing { gather: BEYOND_DEADLINE, ..config().timing };
    let batching = PipelineConfig { timing, ..with_resources(&["a"]) };
    let (mut fixture, client, mut requests, mut bodies) = synced(&batching).await;
    for name in ["b", "c", "d"] {
        // The thread pauses after this event.
        bodies.last().expect("a watch").send(event("ADDED", &pod("late", "6")));
        let selected = PipelineConfig { selector: format!("x={name}"), ..batching.clone() };
        let number = reconfigure(&fixture, &client, &selected);
        bodies.push(stream_list(requests.next_for(&mut fixture.stub, "a").await, &[name]));
        wait_until_applied(&fixture, number).await;
        wait_for_lines(&fixture, &[&format!("a {name} 1")]).await;
    }
}

#[tokio::test]
async fn changed_kinds_are_exchanged_one_by_one_when_complete() {
    let (mut fixture, client, mut requests, bodies) = synced_resources(&["a", "b"]).await;
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..with_resources(&["a", "b"]) };
    let number = reconfigure(&fixture, &client, &selected);
    let request = requests.next_for(&mut fixture.stub, "a").await;
    assert!(request.path.contains("fieldSelector=x%3Dy"), "{}", request.path);
    // Kinds are listed one at a time.
    assert!(fixture.stub.is_idle());
    let new = request.start_watch();
    new.send(event("ADDED", &pod("new", "7")));
    fixture
        .wait_for_metric("kstatd_kubernetes_events_total{resource=\"*v1.a\",type=\"added\"} 2")
        .await;
    assert!(!fixture.handle.is_applied(number) && fixture.handle.is_ready());
    // In the meantime the old state is kept up to date.
    bodies[0].send(event("MODIFIED", &pod("old", "8")));
    wait_for_lines(&fixture, &["a old 8", "b old 1"]).await;
    new.send(bookmark("9", true));
    wait_for_lines(&fixture, &["a new 7", "b old 1"]).await;
    bodies[0].closed().await;
    assert!(!fixture.handle.is_applied(number));
    let request = requests.next_for(&mut fixture.stub, "b").await;
    let _b = stream_list(request, &["new"]);
    wait_until_applied(&fixture, number).await;
    wait_for_lines(&fixture, &["a new 7", "b new 1"]).await;
    bodies[1].closed().await;
    new.send(event("DELETED", &pod("new", "10")));
    wait_for_lines(&fixture, &["b new 1"]).await;
}

/// A list that is older than what the old list/watch shows by then is served when its watch has caught up. Label selectors
/// that are equal, and one that is removed, do not hide the versions that the new list/watch has to reach.
#[tokio::test]
async fn list_that_is_behind_replaces_nothing() {
    for [before, after] in [["", ""], ["x=y", "x=y"], ["x=y", ""]] {
        let selected = |labels: &str| {
            let label_selectors = [("a".to_owned(), labels.to_owned())].into();
            PipelineConfig { label_selectors, ..with_resources(&["a"]) }
        };
        let (mut fixture, client, mut requests, bodies) = synced(&selected(before)).await;
        let mut other = selected(after);
        other.timing.list_idle += Duration::from_secs(1);
        let number = reconfigure(&fixture, &client, &other);
        let request = requests.next_for(&mut fixture.stub, "a").await;
        assert_eq!(request.path.contains("labelSelector"), !after.is_empty(), "{}", request.path);
        bodies[0].send(event("MODIFIED", &pod("old", "8")));
        wait_for_lines(&fixture, &["a old 8"]).await;
        let new = stream_list(request, &["old"]);
        new.send(event("ADDED", &pod("other", "6")));
        fixture
            .wait_for_metric("kstatd_kubernetes_events_total{resource=\"*v1.a\",type=\"added\"} 3")
            .await;
        assert_eq!(exposed_lines(&fixture), ["a old 8"], "{before:?} to {after:?}");
        assert!(!fixture.handle.is_applied(number));
        new.send(event("MODIFIED", &pod("old", "8")));
        wait_until_applied(&fixture, number).await;
        wait_for_lines(&fixture, &["a old 8", "a other 6"]).await;
        bodies[0].closed().await;
    }
}

#[tokio::test]
async fn failing_kind_keeps_its_state_and_does_not_block_others() {
    for code in [403, 500] {
        let (mut fixture, client, mut requests, bodies) = synced_resources(&["a", "b"]).await;
        let selected = PipelineConfig { selector: "x=y".to_owned(), ..with_resources(&["a", "b"]) };
        let number = reconfigure(&fixture, &client, &selected);
        let mut b = None;
        for _ in 0..100 {
            let request = fixture.stub.next_request().await;
            if request.path.starts_with("/api/v1/b?") {
                b = Some(stream_list(request, &["new"]));
                break;
            }
            request.refuse(code);
        }
        assert!(b.is_some(), "b is not listed while a is refused");
        // While the server keeps refusing, a keeps its old state and is watched.
        loop {
            bodies[0].send(event("MODIFIED", &pod("old", "8")));
            fixture.stub.next_request().await.refuse(code);
            if exposed_lines(&fixture) == ["a old 8", "b new 1"] {
                break;
            }
        }
        assert!(!fixture.handle.is_applied(number));
        assert_eq!(*fixture.handle.pending(), ["a"]);
        // Pods in a resharding wait for kinds that fail temporarily, but not for forbidden ones.
        let allowed = || fixture.handle.is_applied_where_allowed(number);
        if code == 403 {
            eventually(allowed, || "a is not excepted".to_owned()).await;
        } else {
            assert!(!allowed());
        }
        let request = loop {
            let request = requests.next_for(&mut fixture.stub, "a").await;
            if request.path.contains("sendInitialEvents") {
                break request;
            }
            request.refuse(code);
        };
        let _a = stream_list(request, &["new"]);
        wait_until_applied(&fixture, number).await;
        wait_for_lines(&fixture, &["a new 1", "b new 1"]).await;
    }
}

#[tokio::test]
async fn latest_change_wins() {
    let (mut fixture, client, mut requests, bodies) = synced_resources(&["a"]).await;
    let selected =
        |text: &str| PipelineConfig { selector: text.to_owned(), ..with_resources(&["a"]) };
    reconfigure(&fixture, &client, &selected("x=1"));
    let first = requests.next_for(&mut fixture.stub, "a").await.start_watch();
    first.send(event("ADDED", &pod("first", "1")));
    let number = reconfigure(&fixture, &client, &selected("x=2"));
    let request = requests.next_for(&mut fixture.stub, "a").await;
    assert!(request.path.contains("x%3D2"), "{}", request.path);
    first.closed().await;
    let second = request.start_watch();
    second.send(event("ADDED", &pod("second", "1")));
    assert_eq!(exposed_lines(&fixture), ["a old 1"]);
    // The original configuration needs no list.
    let back = reconfigure(&fixture, &client, &with_resources(&["a"]));
    second.closed().await;
    wait_until_applied(&fixture, back).await;
    assert!(back > number && fixture.stub.is_idle());
    bodies[0].send(event("MODIFIED", &pod("old", "8")));
    wait_for_lines(&fixture, &["a old 8"]).await;
}

#[tokio::test]
async fn kinds_are_added_when_complete_and_removed_immediately() {
    let (mut fixture, client, mut requests, _bodies) = synced_resources(&["a", "b"]).await;
    let number = reconfigure(&fixture, &client, &with_resources(&["b", "c"]));
    // c is not listed yet, but b is, so a can be removed.
    wait_for_lines(&fixture, &["b old 1"]).await;
    let request = requests.next_for(&mut fixture.stub, "c").await;
    assert!(!fixture.handle.is_applied(number));
    let c = stream_list(request, &["new"]);
    wait_until_applied(&fixture, number).await;
    wait_for_lines(&fixture, &["b old 1", "c new 1"]).await;
    // No old kind remains: they are removed with the first new kind.
    let number = reconfigure(&fixture, &client, &with_resources(&["d", "e"]));
    let request = requests.next_for(&mut fixture.stub, "d").await;
    let d = request.start_watch();
    d.send(event("ADDED", &pod("new", "1")));
    fixture
        .wait_for_metric("kstatd_kubernetes_events_total{resource=\"*v1.d\",type=\"added\"} 1")
        .await;
    assert_eq!(exposed_lines(&fixture), ["b old 1", "c new 1"]);
    d.send(bookmark("5", true));
    wait_for_lines(&fixture, &["d new 1"]).await;
    c.closed().await;
    assert!(!fixture.handle.is_applied(number));
    let _e = stream_list(requests.next_for(&mut fixture.stub, "e").await, &["new"]);
    wait_until_applied(&fixture, number).await;
    assert_eq!(exposed_lines(&fixture), ["d new 1", "e new 1"]);
}

#[tokio::test]
async fn denied_new_kind_counts_as_applied() {
    let (mut fixture, client, _, _bodies) = synced_resources(&["a"]).await;
    let number = reconfigure(&fixture, &client, &with_resources(&["a", "c"]));
    fixture.stub.expect_streaming_list().await.refuse(404);
    fixture.stub.next_request().await.refuse(404);
    wait_until_applied(&fixture, number).await;
    assert_eq!(exposed_lines(&fixture), ["a old 1"]);
    let _c = stream_list(fixture.stub.expect_streaming_list().await, &["late"]);
    wait_for_lines(&fixture, &["a old 1", "c late 1"]).await;
}

#[tokio::test]
async fn new_server_takes_over_kind_by_kind() {
    let (fixture, _, _, bodies) = synced_resources(&["a", "b"]).await;
    let mut other = StubServer::start().await;
    let client = Arc::new(connect(&other).await);
    let number = reconfigure(&fixture, &client, &with_resources(&["a", "b"]));
    let request = other.next_request().await;
    assert_eq!(exposed_lines(&fixture), ["a old 1", "b old 1"]);
    let _a = stream_list(request, &["there"]);
    wait_for_lines(&fixture, &["a there 1", "b old 1"]).await;
    let _b = stream_list(other.next_request().await, &["there"]);
    wait_until_applied(&fixture, number).await;
    wait_for_lines(&fixture, &["a there 1", "b there 1"]).await;
    bodies[0].closed().await;
    bodies[1].closed().await;
}

/// Another server may have lower resource versions. That is no restore from a backup, also after an interruption.
#[tokio::test]
async fn versions_of_another_server_are_not_compared() {
    let (fixture, _, _, bodies) = synced_resources(&["a"]).await;
    bodies[0].send(event("ADDED", &pod("new", "100")));
    wait_for_lines(&fixture, &["a new 100", "a old 1"]).await;
    let mut other = StubServer::start().await;
    let client = Arc::new(connect(&other).await);
    let number = reconfigure(&fixture, &client, &with_resources(&["a"]));
    let body = stream_list(other.next_request().await, &["there"]);
    wait_until_applied(&fixture, number).await;
    drop(body);
    other.expect_watch("5").await.refuse(503);
    let check = other.next_request().await;
    assert!(check.path.ends_with("?limit=1"), "{}", check.path);
    check.respond(200, PROTOBUF, list("6", "", &[pod("there", "1")]));
    other.expect_watch("5").await;
}

#[tokio::test]
async fn change_before_the_first_lists_replaces_everything() {
    let (mut fixture, client) = Fixture::with_client(&with_resources(&["a", "b"])).await;
    let mut requests = RequestQueue::default();
    let first = [
        requests.next_for(&mut fixture.stub, "a").await,
        requests.next_for(&mut fixture.stub, "b").await,
    ];
    assert!(!fixture.handle.is_ready() && !fixture.handle.is_applied(1));
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..with_resources(&["a", "b"]) };
    let number = reconfigure(&fixture, &client, &selected);
    // Both are listed at once.
    let new = [
        requests.next_for(&mut fixture.stub, "a").await,
        requests.next_for(&mut fixture.stub, "b").await,
    ];
    assert!(new.iter().all(|request| request.path.contains("x%3Dy")));
    let _bodies = new.map(|request| stream_list(request, &["new"]));
    wait_until_applied(&fixture, number).await;
    fixture.ready().await;
    assert_eq!(exposed_lines(&fixture), ["a new 1", "b new 1"]);
    drop(first);
}

/// A configuration may have changed because a CRD was added. Kinds that fail for another reason stay in backoff.
#[tokio::test]
async fn a_change_retries_missing_kinds_alone() {
    let backoff = BackoffConfig {
        initial: BEYOND_DEADLINE,
        cap: BEYOND_DEADLINE,
        denied_cap: BEYOND_DEADLINE,
        absent_cap: BEYOND_DEADLINE,
        ..config().timing.backoff
    };
    let timing = Timing { backoff, ..config().timing };
    let config =
        PipelineConfig { timing, ..with_resources(&["broken", "denied", "missing", "works"]) };
    let (mut fixture, client) = Fixture::with_client(&config).await;
    let mut requests = RequestQueue::default();
    let _works = stream_list(requests.next_for(&mut fixture.stub, "works").await, &["a"]);
    wait_for_lines(&fixture, &["works a 1"]).await;
    for (plural, codes) in
        [("broken", &[503][..]), ("denied", &[403, 403]), ("missing", &[404, 404])]
    {
        for code in codes {
            requests.next_for(&mut fixture.stub, plural).await.refuse(*code);
        }
    }
    let waiting = || {
        let status = fixture.handle.status();
        status.iter().filter(|status| status.phase == Phase::Waiting).count()
    };
    eventually(|| waiting() == 3, || format!("{} kinds wait", waiting())).await;
    assert!(fixture.stub.is_idle());
    reconfigure(&fixture, &client, &config);
    requests.next_for(&mut fixture.stub, "missing").await.refuse(404);
    eventually(|| waiting() == 3, || format!("{} kinds wait", waiting())).await;
    assert!(fixture.stub.is_idle() && requests.0.values().all(Vec::is_empty));
}

/// Returns a configuration in which a kind sends one request each time that it is listed.
fn with_one_request(resources: &[&str]) -> PipelineConfig {
    let backoff = BackoffConfig {
        initial: BEYOND_DEADLINE,
        cap: BEYOND_DEADLINE,
        denied_cap: BEYOND_DEADLINE,
        ..config().timing.backoff
    };
    let timing = Timing { backoff, ..config().timing };
    PipelineConfig { timing, ..with_resources(resources) }
}

/// A kind in backoff lets the others be listed, instead of after 20 s.
#[tokio::test]
async fn a_kind_in_backoff_yields_at_once() {
    let config = with_one_request(&["a", "b"]);
    let (mut fixture, client, mut requests, _bodies) = synced(&config).await;
    let start = Instant::now();
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..config };
    reconfigure(&fixture, &client, &selected);
    requests.next_for(&mut fixture.stub, "a").await.refuse(503);
    let _b = stream_list(requests.next_for(&mut fixture.stub, "b").await, &["new"]);
    wait_for_lines(&fixture, &["a old 1", "b new 1"]).await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test]
async fn panicked_list_watch_is_restarted_and_its_state_stays() {
    let (mut fixture, _, mut requests, bodies) = synced_resources(&["a", "b"]).await;
    for times in 1..=3 {
        // Rendered into output that no store accepts.
        bodies[0].send(event("ADDED", &pod("torn", "6")));
        fixture
            .wait_for_metric(&format!(
                "kstatd_kubernetes_restarts_total{{resource=\"*v1.a\"}} {times}"
            ))
            .await;
        let request = requests.next_for(&mut fixture.stub, "a").await;
        assert_eq!(exposed_lines(&fixture), ["a old 1", "b old 1"]);
        let body = request.start_watch();
        body.send(event("ADDED", &pod("old", "1")));
        if times < 3 {
            body.send(event("ADDED", &pod("torn", "6")));
            continue;
        }
        body.send(event("ADDED", &pod("new", "7")));
        body.send(bookmark("9", true));
        wait_for_lines(&fixture, &["a new 7", "a old 1", "b old 1"]).await;
        body.send(event("DELETED", &pod("old", "10")));
        wait_for_lines(&fixture, &["a new 7", "b old 1"]).await;
    }
    assert!(fixture.handle.is_ready() && fixture.handle.is_applied(1));
}

/// In a resharding, gained objects are followed unseen and then exposed all at once, and lost objects are dropped all
/// at once. Neither step needs a request, and changes of the objects in the meantime are not lost.
#[tokio::test]
async fn resharding_steps_are_atomic() {
    use crate::kube::shard::{Shard, Stage};
    let names: Vec<String> = (0..40).map(|number| format!("pod{number}")).collect();
    let part_of = |shard: Shard| -> Vec<&str> {
        names.iter().map(String::as_str).filter(|name| shard.keeps(name.as_bytes())).collect()
    };
    let shown = |names: &[&str], version: &str| {
        let mut lines: Vec<String> =
            names.iter().map(|name| format!("a {name} {version}")).collect();
        lines.sort();
        lines
    };
    // Each shard has objects that the other does not have.
    let [old, new] = [Shard::new(1, 2), Shard::new(2, 3)];
    let [had, has] = [part_of(old), part_of(new)];
    let both: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| had.contains(name) || has.contains(name))
        .collect();
    assert!(both.len() > had.len() && both.len() > has.len() && both.len() < names.len());
    let change_of = |from: Shard, to: Shard, stage| PipelineConfig {
        shard: to.replacing(from).at(stage),
        ..with_resources(&["a"])
    };
    // From nothing to a shard, to another shard, and back to nothing.
    let unassigned = Shard::new(5, 3);
    for (from, to, before, after) in [
        (unassigned, old, &Vec::new(), &had),
        (old, new, &had, &has),
        (new, unassigned, &has, &Vec::new()),
    ] {
        let union: Vec<&str> = match (before.is_empty(), after.is_empty()) {
            (false, false) => both.clone(),
            _ => before.iter().chain(after).copied().collect(),
        };
        let (mut fixture, client, mut requests, _bodies) = synced_resources(&["a"]).await;
        let (mut number, mut version) = (1, 6);
        // The initial object belongs to no shard.
        let start = PipelineConfig { shard: from, ..with_resources(&["a"]) };
        number += 1;
        assert_eq!(reconfigure(&fixture, &client, &start), number);
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let _old = stream_list(requests.next_for(&mut fixture.stub, "a").await, &all);
        wait_until_applied(&fixture, number).await;
        assert_eq!(exposed_lines(&fixture), shown(before, "1"));
        let mut body = None;
        for (stage, expected) in
            [(Stage::Preparing, before), (Stage::Overlap, &union), (Stage::Done, after)]
        {
            number += 1;
            assert_eq!(reconfigure(&fixture, &client, &change_of(from, to, stage)), number);
            if stage == Stage::Preparing {
                // An object deleted before the end of the list is never exposed.
                let request = requests.next_for(&mut fixture.stub, "a").await;
                let writer = request.start_watch();
                for name in &all {
                    writer.send(event("ADDED", &pod(name, "1")));
                }
                writer.send(bookmark("5", true));
                body = Some(writer);
            }
            wait_until_applied(&fixture, number).await;
            let latest = if version == 6 { "1".to_owned() } else { (version - 1).to_string() };
            assert_eq!(exposed_lines(&fixture), shown(expected, &latest), "{stage:?}");
            assert!(fixture.stub.is_idle());
            let body = body.as_ref().expect("a watch");
            for name in &all {
                body.send(event("DELETED", &pod(name, &version.to_string())));
                body.send(event("ADDED", &pod(name, &version.to_string())));
            }
            body.send(event("DELETED", &pod("other", "1000")));
            body.send(bookmark(&version.to_string(), false));
            let expected = shown(expected, &version.to_string());
            fixture
                .wait_for_metric(&format!(
                    "kstatd_kubernetes_events_total{{resource=\"*v1.a\",type=\"bookmark\"}} {}",
                    // The bookmarks at the end of the three lists, and one for each stage so far.
                    3 + version - 5
                ))
                .await;
            assert_eq!(exposed_lines(&fixture), expected, "{stage:?}");
            version += 1;
        }
        // A relist has the same result.
        body.expect("a watch").send(error(410, "Expired"));
        let _new = stream_list(requests.next_for(&mut fixture.stub, "a").await, &all);
        let expected = shown(after, "1");
        eventually(
            || exposed_lines(&fixture) == expected,
            || format!("{:?}", exposed_lines(&fixture)),
        )
        .await;
    }
}

/// The number of replicas changes, changes back, and changes again, before anything could be listed for the change back. Changes
/// of the gained objects have been missed meanwhile, so they are listed again before they are exposed.
#[tokio::test]
async fn a_shard_change_that_is_repeated_is_listed_again() {
    let (names, old, new) = scopes::overlapping_shards();
    let shown = |version: &str, keeps: &dyn Fn(&[u8]) -> bool| {
        let kept = names.iter().filter(|name| keeps(name.as_bytes()));
        let mut lines: Vec<String> = kept.map(|name| format!("a {name} {version}")).collect();
        lines.sort();
        lines
    };
    let in_shard = |shard| PipelineConfig { shard, ..with_resources(&["a"]) };
    let (mut fixture, client, mut requests, _bodies) = synced_resources(&["a"]).await;
    let listed: Vec<&str> = names.iter().map(String::as_str).collect();
    let [forth, back] = [new.replacing(old), new.replacing(old).retargeted(old)];
    assert_eq!(forth, back.retargeted(new));
    let mut bodies = Vec::new();
    for shard in [old, forth] {
        let number = reconfigure(&fixture, &client, &in_shard(shard));
        bodies.push(stream_list(requests.next_for(&mut fixture.stub, "a").await, &listed));
        wait_until_applied(&fixture, number).await;
    }
    reconfigure(&fixture, &client, &in_shard(back));
    let _unanswered = requests.next_for(&mut fixture.stub, "a").await;
    // Those that are not in the old shard come first, so that all are received when the others are exposed.
    let (own, others): (Vec<&str>, Vec<&str>) =
        listed.iter().copied().partition(|name| old.keeps(name.as_bytes()));
    let changed = others.iter().chain(&own).map(|name| event("MODIFIED", &pod(name, "6")));
    bodies[1].send(changed.collect::<Vec<_>>().concat());
    let before = shown("6", &|uid: &[u8]| old.keeps(uid));
    wait_for_lines(&fixture, &before.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let number = reconfigure(&fixture, &client, &in_shard(forth));
    let again = requests.next_for(&mut fixture.stub, "a").await.start_watch();
    listed.iter().for_each(|name| again.send(event("ADDED", &pod(name, "6"))));
    again.send(bookmark("7", true));
    wait_until_applied(&fixture, number).await;
    assert_eq!(exposed_lines(&fixture), before);
    let number = reconfigure(&fixture, &client, &in_shard(forth.at(Stage::Overlap)));
    wait_until_applied(&fixture, number).await;
    let both = shown("6", &|uid: &[u8]| old.keeps(uid) || new.keeps(uid));
    assert_eq!(exposed_lines(&fixture), both);
}

/// A queued kind exposes what the latest stage says, not what was current when it was queued.
#[tokio::test]
async fn resharding_continues_while_kinds_are_queued() {
    let names = ["a", "b"];
    let (mut fixture, client, mut requests, _bodies) = synced_resources(&names).await;
    let unassigned = Shard::new(5, 3);
    let mut bodies = Vec::new();
    let number = reconfigure(
        &fixture,
        &client,
        &PipelineConfig { shard: unassigned, ..with_resources(&names) },
    );
    for name in names {
        bodies.push(stream_list(requests.next_for(&mut fixture.stub, name).await, &["x"]));
    }
    wait_until_applied(&fixture, number).await;
    assert!(exposed_lines(&fixture).is_empty());
    let at = |stage| PipelineConfig {
        shard: Shard::ALL.replacing(unassigned).at(stage),
        ..with_resources(&names)
    };
    reconfigure(&fixture, &client, &at(Stage::Preparing));
    let first = requests.next_for(&mut fixture.stub, "a").await;
    let number = reconfigure(&fixture, &client, &at(Stage::Done));
    bodies.push(stream_list(first, &["x"]));
    bodies.push(stream_list(requests.next_for(&mut fixture.stub, "b").await, &["x"]));
    wait_until_applied(&fixture, number).await;
    assert_eq!(exposed_lines(&fixture), ["a x 1", "b x 1"]);
}

/// Returns a configuration in which no kind is retried by backoff alone.
fn without_retries(resources: &[&str]) -> PipelineConfig {
    let mut config = with_resources(resources);
    config.timing.backoff = BackoffConfig {
        initial: BEYOND_DEADLINE,
        absent_cap: BEYOND_DEADLINE,
        ..config.timing.backoff
    };
    config
}

/// A kind that the server does not have is not requested until something indicates that it may exist. Over plain HTTP
/// each watch has its own connection, so a new connection indicates nothing.
#[tokio::test]
async fn missing_kind_is_retried_after_a_change() {
    let config = without_retries(&["a", "b"]);
    let (mut fixture, client) = Fixture::with_client(&config).await;
    let mut requests = RequestQueue::default();
    for _ in ["as a watch", "as a list"] {
        requests.next_for(&mut fixture.stub, "b").await.refuse(404);
    }
    let body = stream_list(requests.next_for(&mut fixture.stub, "a").await, &["old"]);
    fixture.ready().await;
    drop(body);
    let body = fixture.stub.expect_watch("5").await.start_watch();
    body.send(event("ADDED", &pod("new", "6")));
    wait_for_lines(&fixture, &["a new 6", "a old 1"]).await;
    body.abort();
    let body = fixture.stub.expect_watch("6").await.start_watch();
    body.send(event("DELETED", &pod("new", "7")));
    wait_for_lines(&fixture, &["a old 1"]).await;
    assert!(fixture.stub.is_idle());
    reconfigure(&fixture, &client, &config);
    let _other = stream_list(requests.next_for(&mut fixture.stub, "b").await, &["come"]);
    wait_for_lines(&fixture, &["a old 1", "b come 1"]).await;
    drop(body);
}

/// A proxy that cannot reach the server may answer 404 to everything, without a sign of when it recovers. Kinds with
/// exposed objects, and all kinds at once, are therefore not treated as missing.
#[tokio::test]
async fn exposed_kinds_are_never_treated_as_missing() {
    let config = without_retries(&["a", "b"]);
    let (mut fixture, _) = Fixture::with_client(&config).await;
    for _ in 0..12 {
        fixture.stub.next_request().await.refuse(404);
    }
    // The first success wakes the other list/watch if that was the only failing one.
    let mut watches = BTreeMap::new();
    while watches.len() < 2 {
        let request = fixture.stub.next_request().await;
        let path = request.path.clone();
        match path.split_once("?allowWatchBookmarks=true&resourceVersionMatch") {
            Some((plural, _)) => {
                drop(watches.insert(plural.to_owned(), stream_list(request, &["old"])))
            }
            None => request.refuse(404),
        }
    }
    wait_for_lines(&fixture, &["a old 1", "b old 1"]).await;
    watches.remove("/api/v1/b").expect("a watch").abort();
    for _ in 0..6 {
        fixture.stub.next_request().await.refuse(404);
    }
}
