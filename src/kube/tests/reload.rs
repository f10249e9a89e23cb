//! A configuration that changes while it runs, against the scripted server: kind by kind, each when it is
//! complete, and faults of our own.

use std::collections::BTreeMap;

use super::*;
use crate::kube::shard::Stage;
use crate::kube::tests::stub::{Call, Writer};

/// Requests that wait for their answers, by path up to the query.
#[derive(Default)]
struct Calls(BTreeMap<String, Vec<Call>>);

impl Calls {
    /// The next request for `plural`, whatever comes before it.
    async fn of(&mut self, stub: &mut Stub, plural: &str) -> Call {
        let path = format!("/api/v1/{plural}");
        loop {
            if let Some(call) = self.0.get_mut(&path).and_then(Vec::pop) {
                return call;
            }
            let call = stub.next().await;
            let (path, _) = call.path.split_once('?').expect("a query");
            self.0.entry(path.to_owned()).or_default().push(call);
        }
    }
}

/// Answers a streaming list with these objects, all of version 1.
fn answer(call: Call, names: &[&str]) -> Writer {
    let body = call.protobuf();
    names.iter().for_each(|name| body.send(event("ADDED", &pod(name, "1"))));
    body.send(bookmark("5", true));
    body
}

fn of(resources: &[&str]) -> PipelineConfig {
    let watched = resources.iter().map(|plural| watched(plural, true)).collect();
    PipelineConfig { resources: watched, ..config() }
}

/// The series of every kind, without braces.
fn lines(bench: &Bench) -> Vec<String> {
    let body: Vec<u8> =
        bench.catalog.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    let text = String::from_utf8(body).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut lines: Vec<String> =
        lines.map(|line| line.replace("{name=\"", " ").replace("\"}", "")).collect();
    lines.sort();
    lines
}

async fn shows(bench: &Bench, expected: &[&str]) {
    eventually(|| lines(bench) == expected, || format!("{:?}", lines(bench))).await;
}

/// Changes the configuration on the same client.
fn change(bench: &Bench, client: &Arc<Client>, config: &PipelineConfig) -> u64 {
    bench.pipeline.change(client, config)
}

/// A bench of these kinds, each with one object, and its client.
async fn running(resources: &[&str]) -> (Bench, Arc<Client>, Calls, Vec<Writer>) {
    following(&of(resources)).await
}

/// A bench that has begun to follow this configuration, and its client.
async fn begun(config: &PipelineConfig) -> (Bench, Arc<Client>) {
    let stub = Stub::start().await;
    let client = Arc::new(client(&stub).await);
    let (catalog, metrics) = (Catalog::new(), KubeMetrics::default());
    let pipeline = Pipeline::follow(&client, config, &catalog, &metrics).expect("a thread");
    let handle = pipeline.handle();
    (Bench { stub, pipeline, handle, catalog, metrics }, client)
}

/// A bench of the kinds of this configuration, each with one object, and its client.
async fn following(config: &PipelineConfig) -> (Bench, Arc<Client>, Calls, Vec<Writer>) {
    let (mut bench, client) = begun(config).await;
    let (mut calls, mut bodies) = (Calls::default(), Vec::new());
    for watched in &config.resources {
        let call = calls.of(&mut bench.stub, &watched.target.plural).await;
        bodies.push(answer(call, &["old"]));
    }
    bench.ready().await;
    (bench, client, calls, bodies)
}

async fn client(stub: &Stub) -> Client {
    let options = ClientOptions {
        apiserver: Some(stub.url.clone()),
        user_agent: "kstatd/test".to_owned(),
        ..ClientOptions::default()
    };
    Client::new(&options).await.expect("a client")
}

async fn in_force(bench: &Bench, number: u64) {
    let mut handle = bench.pipeline.handle();
    let wait = async {
        while !handle.is_in_force(number) {
            handle.changed().await;
        }
    };
    let pending = || format!("{:?}", bench.handle.pending());
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("{}", pending()));
}

#[tokio::test]
async fn what_has_not_changed_goes_on_untouched() {
    let (mut bench, client, _, bodies) = running(&["a", "b"]).await;
    for number in 2..5 {
        assert_eq!(change(&bench, &client, &of(&["a", "b"])), number);
        in_force(&bench, number).await;
    }
    bodies[1].send(event("ADDED", &pod("new", "6")));
    shows(&bench, &["a old 1", "b new 6", "b old 1"]).await;
    assert!(bench.stub.is_quiet());
}

#[tokio::test]
async fn a_rest_does_not_delay_a_change() {
    let timing = Timing { gather: LONG, ..config().timing };
    let resting = PipelineConfig { timing, ..of(&["a"]) };
    let (mut bench, client, mut calls, mut bodies) = following(&resting).await;
    for name in ["b", "c", "d"] {
        // The thread rests when it has taken this.
        bodies.last().expect("a watch").send(event("ADDED", &pod("late", "6")));
        let selected = PipelineConfig { selector: format!("x={name}"), ..resting.clone() };
        let number = change(&bench, &client, &selected);
        bodies.push(answer(calls.of(&mut bench.stub, "a").await, &[name]));
        in_force(&bench, number).await;
        shows(&bench, &[&format!("a {name} 1")]).await;
    }
}

#[tokio::test]
async fn changed_kinds_are_swapped_one_by_one_when_complete() {
    let (mut bench, client, mut calls, bodies) = running(&["a", "b"]).await;
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..of(&["a", "b"]) };
    let number = change(&bench, &client, &selected);
    let call = calls.of(&mut bench.stub, "a").await;
    assert!(call.path.contains("fieldSelector=x%3Dy"), "{}", call.path);
    // One at a time.
    assert!(bench.stub.is_quiet());
    let new = call.protobuf();
    new.send(event("ADDED", &pod("new", "7")));
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.a\",type=\"added\"} 2").await;
    assert!(!bench.handle.is_in_force(number) && bench.handle.is_ready());
    // Meanwhile the old state is kept up to date.
    bodies[0].send(event("MODIFIED", &pod("old", "8")));
    shows(&bench, &["a old 8", "b old 1"]).await;
    new.send(bookmark("9", true));
    shows(&bench, &["a new 7", "b old 1"]).await;
    bodies[0].gone().await;
    assert!(!bench.handle.is_in_force(number));
    let call = calls.of(&mut bench.stub, "b").await;
    let _b = answer(call, &["new"]);
    in_force(&bench, number).await;
    shows(&bench, &["a new 7", "b new 1"]).await;
    bodies[1].gone().await;
    new.send(event("DELETED", &pod("new", "10")));
    shows(&bench, &["b new 1"]).await;
}

#[tokio::test]
async fn a_kind_that_cannot_be_listed_keeps_what_it_has_and_holds_up_nobody() {
    for code in [403, 500] {
        let (mut bench, client, mut calls, bodies) = running(&["a", "b"]).await;
        let selected = PipelineConfig { selector: "x=y".to_owned(), ..of(&["a", "b"]) };
        let number = change(&bench, &client, &selected);
        let mut b = None;
        for _ in 0..100 {
            let call = bench.stub.next().await;
            if call.path.starts_with("/api/v1/b?") {
                b = Some(answer(call, &["new"]));
                break;
            }
            call.refuse(code);
        }
        assert!(b.is_some(), "b has no turn while a is refused");
        // Refusals go on: a stays what it was, and is followed.
        loop {
            bodies[0].send(event("MODIFIED", &pod("old", "8")));
            bench.stub.next().await.refuse(code);
            if lines(&bench) == ["a old 8", "b new 1"] {
                break;
            }
        }
        assert!(!bench.handle.is_in_force(number));
        assert_eq!(*bench.handle.pending(), ["a"]);
        // Who waits for others waits for what cannot be had now, and not for what is forbidden.
        let allowed = || bench.handle.is_in_force_where_allowed(number);
        if code == 403 {
            eventually(allowed, || "a is waited for".to_owned()).await;
        } else {
            assert!(!allowed());
        }
        let call = loop {
            let call = calls.of(&mut bench.stub, "a").await;
            if call.path.contains("sendInitialEvents") {
                break call;
            }
            call.refuse(code);
        };
        let _a = answer(call, &["new"]);
        in_force(&bench, number).await;
        shows(&bench, &["a new 1", "b new 1"]).await;
    }
}

#[tokio::test]
async fn the_newest_change_wins() {
    let (mut bench, client, mut calls, bodies) = running(&["a"]).await;
    let selected = |text: &str| PipelineConfig { selector: text.to_owned(), ..of(&["a"]) };
    change(&bench, &client, &selected("x=1"));
    let first = calls.of(&mut bench.stub, "a").await.protobuf();
    first.send(event("ADDED", &pod("first", "1")));
    let number = change(&bench, &client, &selected("x=2"));
    let call = calls.of(&mut bench.stub, "a").await;
    assert!(call.path.contains("x%3D2"), "{}", call.path);
    first.gone().await;
    let second = call.protobuf();
    second.send(event("ADDED", &pod("second", "1")));
    assert_eq!(lines(&bench), ["a old 1"]);
    // Back to what there is: nothing has to be listed.
    let back = change(&bench, &client, &of(&["a"]));
    second.gone().await;
    in_force(&bench, back).await;
    assert!(back > number && bench.stub.is_quiet());
    bodies[0].send(event("MODIFIED", &pod("old", "8")));
    shows(&bench, &["a old 8"]).await;
}

#[tokio::test]
async fn kinds_come_when_complete_and_go_at_once_but_never_all() {
    let (mut bench, client, mut calls, _bodies) = running(&["a", "b"]).await;
    let number = change(&bench, &client, &of(&["b", "c"]));
    // c is not there yet, b is: a can go.
    shows(&bench, &["b old 1"]).await;
    let call = calls.of(&mut bench.stub, "c").await;
    assert!(!bench.handle.is_in_force(number));
    let c = answer(call, &["new"]);
    in_force(&bench, number).await;
    shows(&bench, &["b old 1", "c new 1"]).await;
    // Nothing of the old stays: it goes with the first that comes.
    let number = change(&bench, &client, &of(&["d", "e"]));
    let call = calls.of(&mut bench.stub, "d").await;
    let d = call.protobuf();
    d.send(event("ADDED", &pod("new", "1")));
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.d\",type=\"added\"} 1").await;
    assert_eq!(lines(&bench), ["b old 1", "c new 1"]);
    d.send(bookmark("5", true));
    shows(&bench, &["d new 1"]).await;
    c.gone().await;
    assert!(!bench.handle.is_in_force(number));
    let _e = answer(calls.of(&mut bench.stub, "e").await, &["new"]);
    in_force(&bench, number).await;
    assert_eq!(lines(&bench), ["d new 1", "e new 1"]);
}

#[tokio::test]
async fn a_new_kind_that_the_server_refuses_is_in_force_without_series() {
    let (mut bench, client, _, _bodies) = running(&["a"]).await;
    let number = change(&bench, &client, &of(&["a", "c"]));
    bench.stub.streaming().await.refuse(404);
    bench.stub.next().await.refuse(404);
    in_force(&bench, number).await;
    assert_eq!(lines(&bench), ["a old 1"]);
    let _c = answer(bench.stub.streaming().await, &["late"]);
    shows(&bench, &["a old 1", "c late 1"]).await;
}

#[tokio::test]
async fn another_server_takes_over_kind_by_kind() {
    let (bench, _, _, bodies) = running(&["a", "b"]).await;
    let mut other = Stub::start().await;
    let client = Arc::new(client(&other).await);
    let number = change(&bench, &client, &of(&["a", "b"]));
    let call = other.next().await;
    assert_eq!(lines(&bench), ["a old 1", "b old 1"]);
    let _a = answer(call, &["there"]);
    shows(&bench, &["a there 1", "b old 1"]).await;
    let _b = answer(other.next().await, &["there"]);
    in_force(&bench, number).await;
    shows(&bench, &["a there 1", "b there 1"]).await;
    bodies[0].gone().await;
    bodies[1].gone().await;
}

#[tokio::test]
async fn before_the_first_lists_nothing_has_to_be_kept() {
    let (mut bench, client) = begun(&of(&["a", "b"])).await;
    let mut calls = Calls::default();
    let first = [calls.of(&mut bench.stub, "a").await, calls.of(&mut bench.stub, "b").await];
    assert!(!bench.handle.is_ready() && !bench.handle.is_in_force(1));
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..of(&["a", "b"]) };
    let number = change(&bench, &client, &selected);
    // Both at once.
    let new = [calls.of(&mut bench.stub, "a").await, calls.of(&mut bench.stub, "b").await];
    assert!(new.iter().all(|call| call.path.contains("x%3Dy")));
    let _bodies = new.map(|call| answer(call, &["new"]));
    in_force(&bench, number).await;
    bench.ready().await;
    assert_eq!(lines(&bench), ["a new 1", "b new 1"]);
    drop(first);
}

#[tokio::test]
async fn a_list_watch_that_panics_is_started_again_and_its_state_stays() {
    let (mut bench, _, mut calls, bodies) = running(&["a", "b"]).await;
    for times in 1..=3 {
        // Rendered into something that no store can hold.
        bodies[0].send(event("ADDED", &pod("torn", "6")));
        bench
            .counts(&format!("kstatd_kubernetes_restarts_total{{resource=\"*v1.a\"}} {times}"))
            .await;
        let call = calls.of(&mut bench.stub, "a").await;
        assert_eq!(lines(&bench), ["a old 1", "b old 1"]);
        let body = call.protobuf();
        body.send(event("ADDED", &pod("old", "1")));
        if times < 3 {
            body.send(event("ADDED", &pod("torn", "6")));
            continue;
        }
        body.send(event("ADDED", &pod("new", "7")));
        body.send(bookmark("9", true));
        shows(&bench, &["a new 7", "a old 1", "b old 1"]).await;
        body.send(event("DELETED", &pod("old", "10")));
        shows(&bench, &["a new 7", "b old 1"]).await;
    }
    assert!(bench.handle.is_ready() && bench.handle.is_in_force(1));
}

/// While a share changes, what is gained is followed unseen and shown at one moment, and what is lost goes at
/// one moment, both without a request; whatever happens to the objects meanwhile.
#[tokio::test]
async fn a_share_changes_in_single_moments() {
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
    // Some of both, which no pod has whose number stays.
    let [old, new] = [Shard::new(1, 2), Shard::new(2, 3)];
    let [had, has] = [part_of(old), part_of(new)];
    let both: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| had.contains(name) || has.contains(name))
        .collect();
    assert!(both.len() > had.len() && both.len() > has.len() && both.len() < names.len());
    let change_of = |from: Shard, to: Shard, stage| PipelineConfig {
        shard: to.instead_of(from).at(stage),
        ..of(&["a"])
    };
    // From nothing to all of it, to a part, to another part.
    let nobody = Shard::new(5, 3);
    for (from, to, before, after) in
        [(nobody, old, &Vec::new(), &had), (old, new, &had, &has), (new, nobody, &has, &Vec::new())]
    {
        let union: Vec<&str> = match (before.is_empty(), after.is_empty()) {
            (false, false) => both.clone(),
            _ => before.iter().chain(after).copied().collect(),
        };
        let (mut bench, client, mut calls, _bodies) = running(&["a"]).await;
        let (mut number, mut version) = (1, 6);
        // The object of the beginning belongs to nobody.
        let start = PipelineConfig { shard: from, ..of(&["a"]) };
        number += 1;
        assert_eq!(change(&bench, &client, &start), number);
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let _old = answer(calls.of(&mut bench.stub, "a").await, &all);
        in_force(&bench, number).await;
        assert_eq!(lines(&bench), shown(before, "1"));
        let mut body = None;
        for (stage, expected) in
            [(Stage::Prepared, before), (Stage::Both, &union), (Stage::Done, after)]
        {
            number += 1;
            assert_eq!(change(&bench, &client, &change_of(from, to, stage)), number);
            if stage == Stage::Prepared {
                // One that is gone before the end of the list is never seen.
                let call = calls.of(&mut bench.stub, "a").await;
                let writer = call.protobuf();
                for name in &all {
                    writer.send(event("ADDED", &pod(name, "1")));
                }
                writer.send(bookmark("5", true));
                body = Some(writer);
            }
            in_force(&bench, number).await;
            let latest = if version == 6 { "1".to_owned() } else { (version - 1).to_string() };
            assert_eq!(lines(&bench), shown(expected, &latest), "{stage:?}");
            assert!(bench.stub.is_quiet());
            let body = body.as_ref().expect("a watch");
            for name in &all {
                body.send(event("DELETED", &pod(name, &version.to_string())));
                body.send(event("ADDED", &pod(name, &version.to_string())));
            }
            body.send(event("DELETED", &pod("other", "1000")));
            body.send(bookmark(&version.to_string(), false));
            let expected = shown(expected, &version.to_string());
            bench
                .counts(&format!(
                    "kstatd_kubernetes_events_total{{resource=\"*v1.a\",type=\"bookmark\"}} {}",
                    // Those that end the three lists, and one for each stage until now.
                    3 + version - 5
                ))
                .await;
            assert_eq!(lines(&bench), expected, "{stage:?}");
            version += 1;
        }
        // A new list in the middle of nothing has the same outcome.
        body.expect("a watch").send(error(410, "Expired"));
        let _new = answer(calls.of(&mut bench.stub, "a").await, &all);
        let expected = shown(after, "1");
        eventually(|| lines(&bench) == expected, || format!("{:?}", lines(&bench))).await;
    }
}

/// A kind that waits for its turn shows what is to be shown when it comes, not what was to be shown when it was queued.
#[tokio::test]
async fn a_share_that_goes_on_while_kinds_wait_for_their_turn() {
    let names = ["a", "b"];
    let (mut bench, client, mut calls, _bodies) = running(&names).await;
    let nobody = Shard::new(5, 3);
    let mut bodies = Vec::new();
    let number = change(&bench, &client, &PipelineConfig { shard: nobody, ..of(&names) });
    for name in names {
        bodies.push(answer(calls.of(&mut bench.stub, name).await, &["x"]));
    }
    in_force(&bench, number).await;
    assert!(lines(&bench).is_empty());
    let at =
        |stage| PipelineConfig { shard: Shard::WHOLE.instead_of(nobody).at(stage), ..of(&names) };
    change(&bench, &client, &at(Stage::Prepared));
    let first = calls.of(&mut bench.stub, "a").await;
    let number = change(&bench, &client, &at(Stage::Done));
    bodies.push(answer(first, &["x"]));
    bodies.push(answer(calls.of(&mut bench.stub, "b").await, &["x"]));
    in_force(&bench, number).await;
    assert_eq!(lines(&bench), ["a x 1", "b x 1"]);
}

/// Kinds that nobody asks for again by time alone.
fn patient(resources: &[&str]) -> PipelineConfig {
    let mut config = of(resources);
    config.timing.backoff =
        BackoffConfig { initial: LONG, absent_cap: LONG, ..config.timing.backoff };
    config
}

/// A kind that the server does not have is left alone until something says that it may be there: another order, or a
/// connection that was opened anew.
#[tokio::test]
async fn a_kind_that_is_not_there_is_looked_for_when_something_has_changed() {
    let config = patient(&["a", "b"]);
    let (mut bench, client) = begun(&config).await;
    let mut calls = Calls::default();
    for _ in ["as a watch", "as a list"] {
        calls.of(&mut bench.stub, "b").await.refuse(404);
    }
    let body = answer(calls.of(&mut bench.stub, "a").await, &["old"]);
    bench.ready().await;
    // A watch that ends and goes on over the same connection says nothing.
    drop(body);
    let body = bench.stub.watch("5").await.protobuf();
    body.send(event("ADDED", &pod("new", "6")));
    shows(&bench, &["a new 6", "a old 1"]).await;
    assert!(bench.stub.is_quiet());
    change(&bench, &client, &config);
    for _ in ["as a watch", "as a list"] {
        calls.of(&mut bench.stub, "b").await.open(404, JSON).abort();
    }
    // One that has to open another does, once there was an answer.
    body.abort();
    let body = calls.of(&mut bench.stub, "a").await.protobuf();
    let _other = answer(calls.of(&mut bench.stub, "b").await, &["come"]);
    shows(&bench, &["a new 6", "a old 1", "b come 1"]).await;
    drop(body);
}

/// A proxy that cannot reach the server may say 404 of everything, and nothing tells when it can again: neither kinds that
/// are shown nor all of them together are taken for absent.
#[tokio::test]
async fn what_is_shown_and_all_kinds_together_are_asked_for_soon() {
    let config = patient(&["a", "b"]);
    let (mut bench, _) = begun(&config).await;
    for _ in 0..12 {
        bench.stub.next().await.refuse(404);
    }
    // The first that works again wakes the other one, if that has been alone with its failure.
    let mut watches = BTreeMap::new();
    while watches.len() < 2 {
        let call = bench.stub.next().await;
        let path = call.path.clone();
        match path.split_once("?allowWatchBookmarks=true&resourceVersionMatch") {
            Some((plural, _)) => drop(watches.insert(plural.to_owned(), answer(call, &["old"]))),
            None => call.refuse(404),
        }
    }
    shows(&bench, &["a old 1", "b old 1"]).await;
    watches.remove("/api/v1/b").expect("a watch").abort();
    for _ in 0..6 {
        bench.stub.next().await.refuse(404);
    }
}
