//! How events come, and what becomes of a watch that ends or does not.

use super::*;

#[tokio::test]
async fn expired_watch_is_replaced_as_a_whole() {
    let (mut bench, body) = watching(&config()).await;
    body.send(error(410, "Expired"));
    let body = bench.stub.streaming().await.protobuf();
    body.send(event("ADDED", &pod("c", "9")));
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"added\"} 3").await;
    // Until the new state is complete, everybody sees the old one.
    assert_eq!(bench.series(), ["a 1", "b 2"]);
    body.send(bookmark("10", true));
    bench.shows(&["c 9"]).await;
    body.send(event("MODIFIED", &pod("c", "11")));
    bench.shows(&["c 11"]).await;
    drop(body);
    // The same as an HTTP status, and from a server that no longer streams lists.
    bench.stub.watch("11").await.refuse(410);
    bench.stub.streaming().await.refuse(422);
    let call = bench.stub.expect("/api/v1/pods?limit=500").await;
    call.answer(200, PROTOBUF, list("30", "", &[]));
    bench.stub.watch("30").await;
    assert_eq!(bench.series(), [""; 0]);
}

#[tokio::test]
async fn other_errors_in_a_watch_lead_to_a_new_list() {
    for (code, reason) in [(500, "InternalError"), (0, "Gone"), (403, "Forbidden")] {
        let (mut bench, body) = watching(&config()).await;
        body.send(error(code, reason));
        bench.stub.streaming().await;
        assert_eq!(bench.series(), ["a 1", "b 2"]);
        assert!(bench.failure().contains(&format!("because of {reason}")), "{}", bench.failure());
    }
}

#[tokio::test]
async fn connection_lost_within_a_frame() {
    let mut bench = Bench::new(&config()).await;
    let body = bench.stub.streaming().await.protobuf();
    let added = event("ADDED", &pod("a", "1"));
    body.send(added.clone());
    body.send(added[..20].to_vec());
    body.abort();
    let body = bench.stub.streaming().await.protobuf();
    assert_eq!(bench.series(), [""; 0]);
    body.send([event("ADDED", &pod("b", "2")), bookmark("5", true)].concat());
    bench.shows(&["b 2"]).await;
    let modified = event("MODIFIED", &pod("b", "6"));
    body.send([&modified[..], &modified[..20]].concat());
    bench.shows(&["b 6"]).await;
    body.abort();
    let body = bench.stub.watch("6").await.protobuf();
    // A body that ends regularly, but within a frame.
    body.send(modified[..20].to_vec());
    drop(body);
    let body = bench.stub.watch("6").await.protobuf();
    body.send(event("DELETED", &pod("b", "7")));
    bench.shows(&[]).await;
    assert!(bench.handle.is_ready());
}

/// A server that was restored from a backup counts versions from an older one on: a watch from a later one would be
/// silent until that has been reached again, and what was lost would be shown for ever.
#[tokio::test]
async fn a_server_that_was_set_back_is_listed_anew() {
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        ..config()
    };
    let mut bench = Bench::new(&config).await;
    let (one, two) = (bench.stub.streaming().await, bench.stub.streaming().await);
    let (nodes, pods) = if one.path.contains("nodes") { (one, two) } else { (two, one) };
    let (nodes, pods) = (nodes.protobuf(), pods.protobuf());
    nodes.send([event("ADDED", &pod("n", "3")), bookmark("5", true)].concat());
    pods.send([event("ADDED", &pod("a", "10")), bookmark("20", true)].concat());
    bench.ready().await;
    drop(nodes);
    bench.stub.watch("5").await.refuse(503);
    let call = bench.stub.expect("/api/v1/nodes?limit=1").await;
    // Later than what is known of nodes, and not of everything. What is on the page is nobody's.
    call.answer(200, PROTOBUF, list("12", "", &[pod("other", "4")]));
    let nodes = bench.stub.streaming().await.protobuf();
    nodes.send([event("ADDED", &pod("m", "4")), bookmark("12", true)].concat());
    bench.shows(&["a 10", "nodes{name=\"m 4"]).await;
    drop(pods);
    bench.stub.watch("20").await.refuse(503);
    let call = bench.stub.expect("/api/v1/pods?limit=1").await;
    call.answer(200, PROTOBUF, list("13", "", &[pod("b", "2")]));
    let pods = bench.stub.streaming().await.protobuf();
    pods.send([event("ADDED", &pod("b", "2")), bookmark("13", true)].concat());
    bench.shows(&["b 2", "nodes{name=\"m 4"]).await;
    // Who has not looked since begins anew too.
    drop(nodes);
    let call = bench.stub.streaming().await;
    assert!(call.path.contains("/nodes?"), "{}", call.path);
}

#[tokio::test]
async fn watch_that_ends_at_once_is_a_failure() {
    let timing = Timing { short_watch: Duration::from_secs(60), ..config().timing };
    let (mut bench, body) = watching(&PipelineConfig { timing, ..config() }).await;
    drop(body);
    drop(bench.stub.watch("5").await.protobuf());
    drop(bench.stub.watch("5").await.protobuf());
    bench.stub.watch("5").await;
    assert_eq!(bench.series(), ["a 1", "b 2"]);
}

#[tokio::test]
async fn garbage_instead_of_lists_and_watches() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.answer(200, PROTOBUF, "<html>no</html>");
    let call = bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await;
    call.answer(200, "text/html", "<html>");
    let call = bench.stub.streaming().await;
    assert!(bench.failure().contains("\"text/html\""), "{}", bench.failure());
    call.answer(200, JSON, "");
    let call = bench.stub.next().await;
    call.answer(200, JSON, "[]");
    let body = bench.stub.streaming().await.protobuf();
    assert!(bench.failure().contains("expected a JSON object"), "{}", bench.failure());
    assert!(!bench.handle.is_ready());
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    bench.ready().await;
    body.send(event("RENAMED", &pod("a", "1")));
    bench.stub.streaming().await;
    assert!(bench.failure().contains("\"RENAMED\""), "{}", bench.failure());
    assert_eq!(bench.series(), ["a 1"]);
}

/// What says that a watch is dead is that it does not end.
#[tokio::test]
async fn a_watch_that_does_not_end_is_opened_anew_at_once_and_elsewhere() {
    let timing = Timing {
        watch_cycle: Duration::ZERO,
        watch_slack: Duration::ZERO,
        // Would be noticed: it is never waited for.
        backoff: BackoffConfig { initial: LONG, cap: LONG, ..config().timing.backoff },
        ..config().timing
    };
    let mut bench = Bench::new(&PipelineConfig { timing, ..config() }).await;
    let body = bench.stub.streaming().await.protobuf();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    // The list has become a watch of unknown length: it is opened anew, for which nothing has failed.
    body.gone().await;
    let call = bench.stub.watch("5").await;
    assert!(call.path.contains("&timeoutSeconds=1&"), "{}", call.path);
    let body = call.protobuf();
    body.gone().await;
    // Of this one nothing was heard for a second only, which may be the server's delay.
    let body = bench.stub.watch("5").await.protobuf();
    body.send(event("ADDED", &pod("b", "6")));
    body.gone().await;
    bench.stub.watch("6").await;
    bench.shows(&["a 1", "b 6"]).await;
    assert_eq!(bench.failure(), "");
}

/// A balancer that cuts streams now and then leaves no gap, however often it does.
#[tokio::test]
async fn a_watch_that_is_cut_goes_on_at_once() {
    let backoff = BackoffConfig { initial: LONG, cap: LONG, ..config().timing.backoff };
    let timing = Timing { backoff, short_watch: LONG, ..config().timing };
    let (mut bench, mut body) = watching(&PipelineConfig { timing, ..config() }).await;
    for version in 6..40 {
        let version = version.to_string();
        body.send(event("MODIFIED", &pod("a", &version)));
        bench.shows(&[&format!("a {version}"), "b 2"]).await;
        body.abort();
        body = bench.stub.watch(&version).await.protobuf();
    }
    body.send(bookmark("50", false));
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"bookmark\"} 2").await;
    drop(body);
    // Cut before anything came of it, it is a failure, which is waited after.
    body = bench.stub.watch("50").await.protobuf();
    bench
        .counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"success\"} 36")
        .await;
    body.abort();
    bench
        .counts("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"broken\",resource=\"*v1.pods\"} 35")
        .await;
    assert!(bench.stub.is_quiet());
}

#[tokio::test]
async fn events_that_gather_all_arrive_in_order() {
    let (mut bench, body) = watching(&config()).await;
    for version in 6..=1000 {
        let (even, version) = (version % 2 == 0, version.to_string());
        body.send(event("MODIFIED", &pod("a", &version)));
        body.send(event(if even { "ADDED" } else { "DELETED" }, &pod("c", &version)));
    }
    let total =
        |kind| format!("kstatd_kubernetes_events_total{{resource=\"*v1.pods\",type=\"{kind}\"}}");
    bench.counts(&format!("{} 995", total("modified"))).await;
    bench.shows(&["a 1000", "b 2", "c 1000"]).await;
    bench.counts(&format!("{} 497", total("deleted"))).await;
    drop(body);
    bench.stub.watch("1000").await;
}

#[tokio::test]
async fn nothing_rests_while_something_is_listed() {
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        timing: Timing { gather: LONG, ..config().timing },
        ..config()
    };
    let mut bench = Bench::new(&config).await;
    let (one, two) = (bench.stub.streaming().await, bench.stub.streaming().await);
    let nodes_first = one.path.contains("nodes");
    let (nodes, pods) = if nodes_first { (one, two) } else { (two, one) };
    let (nodes, pods) = (nodes.protobuf(), pods.protobuf());
    nodes.send(bookmark("5", true));
    for n in 1..=20 {
        let version = n.to_string();
        pods.send(event("ADDED", &pod(&version, &version)));
        nodes.send(event("MODIFIED", &pod("n", &version)));
        for (resource, kind) in [("pods", "added"), ("nodes", "modified")] {
            let name = "kstatd_kubernetes_events_total";
            let labels = format!("resource=\"*v1.{resource}\",type=\"{kind}\"");
            bench.counts(&format!("{name}{{{labels}}} {n}")).await;
        }
    }
    assert!(!bench.handle.is_ready());
    pods.send(bookmark("30", true));
    bench.ready().await;
}

#[tokio::test]
async fn a_rest_does_not_delay_the_end() {
    let config = PipelineConfig { timing: Timing { gather: LONG, ..config().timing }, ..config() };
    let (bench, body) = watching(&config).await;
    body.send(event("MODIFIED", &pod("a", "6")));
    tokio::time::timeout(DEADLINE, bench.pipeline.stop()).await.expect("an end");
    body.gone().await;
}
