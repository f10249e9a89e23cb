//! Tests of open watches: delivery of events, and watches that end, break or never end.

use super::*;

#[tokio::test]
async fn expired_watch_leads_to_a_relist() {
    let (mut fixture, body) = synced_pods(&config()).await;
    body.send(error(410, "Expired"));
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    body.send(event("ADDED", &pod("c", "9")));
    fixture
        .wait_for_metric("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"added\"} 3")
        .await;
    // The old state is exposed until the new one is complete.
    assert_eq!(fixture.series(), ["a 1", "b 2"]);
    body.send(bookmark("10", true));
    fixture.wait_for_series(&["c 9"]).await;
    body.send(event("MODIFIED", &pod("c", "11")));
    fixture.wait_for_series(&["c 11"]).await;
    drop(body);
    // The same with an HTTP status, and from a server that no longer supports streaming lists.
    fixture.stub.expect_watch("11").await.refuse(410);
    fixture.stub.expect_streaming_list().await.refuse(422);
    let request = fixture.stub.expect_request("/api/v1/pods?limit=500").await;
    request.respond(200, PROTOBUF, list("30", "", &[]));
    fixture.stub.expect_watch("30").await;
    assert_eq!(fixture.series(), [""; 0]);
}

#[tokio::test]
async fn error_events_lead_to_a_relist() {
    for (code, reason) in [(500, "InternalError"), (0, "Gone"), (403, "Forbidden")] {
        let (mut fixture, body) = synced_pods(&config()).await;
        body.send(error(code, reason));
        fixture.stub.expect_streaming_list().await;
        assert_eq!(fixture.series(), ["a 1", "b 2"]);
        assert!(
            fixture.failure().contains(&format!("because of {reason}")),
            "{}",
            fixture.failure()
        );
    }
}

#[tokio::test]
async fn connection_reset_within_a_frame() {
    let mut fixture = Fixture::new(&config()).await;
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    let added = event("ADDED", &pod("a", "1"));
    body.send(added.clone());
    body.send(added[..20].to_vec());
    body.abort();
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    assert_eq!(fixture.series(), [""; 0]);
    body.send([event("ADDED", &pod("b", "2")), bookmark("5", true)].concat());
    fixture.wait_for_series(&["b 2"]).await;
    let modified = event("MODIFIED", &pod("b", "6"));
    body.send([&modified[..], &modified[..20]].concat());
    fixture.wait_for_series(&["b 6"]).await;
    body.abort();
    let body = fixture.stub.expect_watch("6").await.start_watch();
    // A body with a regular end within a frame.
    body.send(modified[..20].to_vec());
    drop(body);
    let body = fixture.stub.expect_watch("6").await.start_watch();
    body.send(event("DELETED", &pod("b", "7")));
    fixture.wait_for_series(&[]).await;
    assert!(fixture.handle.is_ready());
}

/// The streams of two kinds.
struct NodesAndPods {
    nodes: stub::BodyWriter,
    pods: stub::BodyWriter,
}

/// Starts the responses to the streaming lists of nodes and pods, which arrive in any order.
async fn stream_nodes_and_pods(fixture: &mut Fixture) -> NodesAndPods {
    let (one, two) =
        (fixture.stub.expect_streaming_list().await, fixture.stub.expect_streaming_list().await);
    let (nodes, pods) = if one.path.contains("nodes") { (one, two) } else { (two, one) };
    let (nodes, pods) = (nodes.start_watch(), pods.start_watch());
    NodesAndPods { nodes, pods }
}

/// Returns a synced pipeline with the node `n`, whose list has version 5, and the pod `a`, whose list has version 20.
async fn synced_nodes_and_pods() -> (Fixture, NodesAndPods) {
    let resources = vec![watched("nodes", false), watched("pods", true)];
    let mut fixture = Fixture::new(&PipelineConfig { resources, ..config() }).await;
    let streams = stream_nodes_and_pods(&mut fixture).await;
    streams.nodes.send([event("ADDED", &pod("n", "3")), bookmark("5", true)].concat());
    streams.pods.send([event("ADDED", &pod("a", "10")), bookmark("20", true)].concat());
    fixture.ready().await;
    (fixture, streams)
}

/// A server restored from a backup continues from an older resource version. A watch from a later version would be
/// silent until the server reaches it again, and deleted objects would stay exposed forever.
#[tokio::test]
async fn restored_server_leads_to_a_relist() {
    let (mut fixture, NodesAndPods { nodes, pods }) = synced_nodes_and_pods().await;
    drop(nodes);
    fixture.stub.expect_watch("5").await.refuse(503);
    let request = fixture.stub.expect_request("/api/v1/nodes?limit=1").await;
    // Later than the version of nodes but earlier than that of pods. The object on the page is not used.
    request.respond(200, PROTOBUF, list("12", "", &[pod("other", "4")]));
    let nodes = fixture.stub.expect_streaming_list().await.start_watch();
    nodes.send([event("ADDED", &pod("m", "4")), bookmark("12", true)].concat());
    fixture.wait_for_series(&["a 10", "nodes{name=\"m 4"]).await;
    drop(pods);
    fixture.stub.expect_watch("20").await.refuse(503);
    let request = fixture.stub.expect_request("/api/v1/pods?limit=1").await;
    request.respond(200, PROTOBUF, list("13", "", &[pod("b", "2")]));
    let pods = fixture.stub.expect_streaming_list().await.start_watch();
    pods.send([event("ADDED", &pod("b", "2")), bookmark("13", true)].concat());
    fixture.wait_for_series(&["b 2", "nodes{name=\"m 4"]).await;
    // Other kinds are relisted as well.
    drop(nodes);
    let request = fixture.stub.expect_streaming_list().await;
    assert!(request.path.contains("/nodes?"), "{}", request.path);
}

/// Events of other kinds that arrive during the version check do not make the server look like a restored one.
#[tokio::test]
async fn events_during_a_version_check_are_not_a_restore() {
    let (mut fixture, NodesAndPods { nodes, pods }) = synced_nodes_and_pods().await;
    drop(nodes);
    fixture.stub.expect_watch("5").await.refuse(503);
    let request = fixture.stub.expect_request("/api/v1/nodes?limit=1").await;
    pods.send(event("ADDED", &pod("b", "40")));
    fixture.wait_for_series(&["a 10", "b 40", "nodes{name=\"n 3"]).await;
    request.respond(200, PROTOBUF, list("20", "", &[pod("n", "3")]));
    let nodes = fixture.stub.expect_watch("5").await.start_watch();
    drop(nodes);
    // The next response has to include it.
    fixture.stub.expect_watch("5").await.refuse(503);
    let request = fixture.stub.expect_request("/api/v1/nodes?limit=1").await;
    request.respond(200, PROTOBUF, list("39", "", &[pod("n", "3")]));
    fixture.stub.expect_streaming_list().await;
}

#[tokio::test]
async fn watch_that_ends_immediately_is_a_failure() {
    let timing = Timing { short_watch: Duration::from_secs(60), ..config().timing };
    let (mut fixture, body) = synced_pods(&PipelineConfig { timing, ..config() }).await;
    drop(body);
    drop(fixture.stub.expect_watch("5").await.start_watch());
    drop(fixture.stub.expect_watch("5").await.start_watch());
    fixture.stub.expect_watch("5").await;
    assert_eq!(fixture.series(), ["a 1", "b 2"]);
}

#[tokio::test]
async fn garbage_responses_are_failures() {
    let mut fixture = Fixture::new(&config()).await;
    fixture.stub.expect_streaming_list().await.respond(200, PROTOBUF, "<html>no</html>");
    let request = fixture.stub.expect_request("/api/v1/pods?limit=500&resourceVersion=0").await;
    request.respond(200, "text/html", "<html>");
    let request = fixture.stub.expect_streaming_list().await;
    assert!(fixture.failure().contains("\"text/html\""), "{}", fixture.failure());
    request.respond(200, JSON, "");
    let request = fixture.stub.next_request().await;
    request.respond(200, JSON, "[]");
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    assert!(fixture.failure().contains("expected a JSON object"), "{}", fixture.failure());
    assert!(!fixture.handle.is_ready());
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    fixture.ready().await;
    body.send(event("RENAMED", &pod("a", "1")));
    fixture.stub.expect_streaming_list().await;
    assert!(fixture.failure().contains("\"RENAMED\""), "{}", fixture.failure());
    assert_eq!(fixture.series(), ["a 1"]);
}

/// A watch is dead if it does not end in time.
#[tokio::test]
async fn overdue_watch_is_reopened_on_another_connection() {
    let timing = Timing {
        watch_cycle: Duration::ZERO,
        watch_slack: Duration::ZERO,
        // Backoff would exceed the deadline, so it must not be applied.
        backoff: BackoffConfig {
            initial: BEYOND_DEADLINE,
            cap: BEYOND_DEADLINE,
            ..config().timing.backoff
        },
        ..config().timing
    };
    let mut fixture = Fixture::new(&PipelineConfig { timing, ..config() }).await;
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    // The streaming list continues as a watch of unknown duration. It is reopened, and nothing counts as failed.
    body.closed().await;
    let request = fixture.stub.expect_watch("5").await;
    assert!(request.path.contains("&timeoutSeconds=1&"), "{}", request.path);
    let body = request.start_watch();
    body.closed().await;
    // It was silent for only a second, which may be the server's delay.
    let body = fixture.stub.expect_watch("5").await.start_watch();
    body.send(event("ADDED", &pod("b", "6")));
    body.closed().await;
    fixture.stub.expect_watch("6").await;
    fixture.wait_for_series(&["a 1", "b 6"]).await;
    assert_eq!(fixture.failure(), "");
}

/// A watch that ends when it was asked to is no retry, so it takes no token of the rate limit.
#[tokio::test]
async fn watches_that_end_on_time_take_no_token() {
    let backoff = BackoffConfig { spacing: BEYOND_DEADLINE, ..config().timing.backoff };
    // Watches of a second, which may end a second early.
    let watch_cycle = Duration::from_secs(1);
    let timing = Timing { backoff, watch_cycle, ..config().timing };
    let (mut fixture, body) = synced_pods(&PipelineConfig { timing, ..config() }).await;
    // The streaming list ends early, which takes the only token.
    drop(body);
    for _ in 0..5 {
        drop(fixture.stub.expect_watch("5").await.start_watch());
    }
}

/// The version of an object in a list is older than that of the list.
#[tokio::test]
async fn interrupted_watch_resumes_from_the_version_of_the_list() {
    let mut fixture = Fixture::new(&config()).await;
    fixture.stub.expect_streaming_list().await.refuse(422);
    fixture.stub.next_request().await.respond(200, PROTOBUF, list("5", "", &[pod("a", "1")]));
    let body = fixture.stub.expect_watch("5").await.start_watch();
    body.send(event("MODIFIED", &pod("a", "6"))[..20].to_vec());
    drop(body);
    fixture.stub.expect_watch("5").await;
    fixture.wait_for_series(&["a 1"]).await;
}

/// A load balancer that cuts streams leaves no gap, no matter how often.
#[tokio::test]
async fn interrupted_watch_resumes_immediately() {
    let backoff =
        BackoffConfig { initial: BEYOND_DEADLINE, cap: BEYOND_DEADLINE, ..config().timing.backoff };
    let timing = Timing { backoff, short_watch: BEYOND_DEADLINE, ..config().timing };
    let (mut fixture, mut body) = synced_pods(&PipelineConfig { timing, ..config() }).await;
    for version in 6..40 {
        let version = version.to_string();
        body.send(event("MODIFIED", &pod("a", &version)));
        fixture.wait_for_series(&[&format!("a {version}"), "b 2"]).await;
        body.abort();
        body = fixture.stub.expect_watch(&version).await.start_watch();
    }
    body.send(bookmark("50", false));
    fixture
        .wait_for_metric(
            "kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"bookmark\"} 2",
        )
        .await;
    drop(body);
    // A cut before any event is a failure, followed by backoff.
    body = fixture.stub.expect_watch("50").await.start_watch();
    fixture
        .wait_for_metric(
            "kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"success\"} 36",
        )
        .await;
    body.abort();
    fixture
        .wait_for_metric("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"broken\",resource=\"*v1.pods\"} 35")
        .await;
    assert!(fixture.stub.is_idle());
}

#[tokio::test]
async fn batched_events_keep_their_order() {
    let (mut fixture, body) = synced_pods(&config()).await;
    for version in 6..=1000 {
        let (even, version) = (version % 2 == 0, version.to_string());
        body.send(event("MODIFIED", &pod("a", &version)));
        body.send(event(if even { "ADDED" } else { "DELETED" }, &pod("c", &version)));
    }
    let total =
        |kind| format!("kstatd_kubernetes_events_total{{resource=\"*v1.pods\",type=\"{kind}\"}}");
    fixture.wait_for_metric(&format!("{} 995", total("modified"))).await;
    fixture.wait_for_series(&["a 1000", "b 2", "c 1000"]).await;
    fixture.wait_for_metric(&format!("{} 497", total("deleted"))).await;
    drop(body);
    fixture.stub.expect_watch("1000").await;
}

#[tokio::test]
async fn no_batching_during_a_list() {
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        timing: Timing { gather: BEYOND_DEADLINE, ..config().timing },
        ..config()
    };
    let mut fixture = Fixture::new(&config).await;
    let NodesAndPods { nodes, pods } = stream_nodes_and_pods(&mut fixture).await;
    nodes.send(bookmark("5", true));
    for n in 1..=20 {
        let version = n.to_string();
        pods.send(event("ADDED", &pod(&version, &version)));
        nodes.send(event("MODIFIED", &pod("n", &version)));
        for (resource, kind) in [("pods", "added"), ("nodes", "modified")] {
            let name = "kstatd_kubernetes_events_total";
            let labels = format!("resource=\"*v1.{resource}\",type=\"{kind}\"");
            fixture.wait_for_metric(&format!("{name}{{{labels}}} {n}")).await;
        }
    }
    assert!(!fixture.handle.is_ready());
    pods.send(bookmark("30", true));
    fixture.ready().await;
}

#[tokio::test]
async fn batching_does_not_delay_a_stop() {
    let config = PipelineConfig {
        timing: Timing { gather: BEYOND_DEADLINE, ..config().timing },
        ..config()
    };
    let (fixture, body) = synced_pods(&config).await;
    body.send(event("MODIFIED", &pod("a", "6")));
    tokio::time::timeout(DEADLINE, fixture.pipeline.stop()).await.expect("an end");
    body.closed().await;
}

/// The requested duration includes the initial state, so that it is long for kinds without bookmarks, too.
#[tokio::test]
async fn streaming_lists_may_take_minutes() {
    for kind in ["events", "pods"] {
        let resources = vec![watched(kind, true)];
        let mut fixture = Fixture::new(&PipelineConfig { resources, ..config() }).await;
        let request = fixture.stub.expect_streaming_list().await;
        let (_, seconds) = request.path.split_once("timeoutSeconds=").expect("a duration");
        let seconds: u64 = seconds.trim_end_matches("&watch=true").parse().expect("seconds");
        assert!((300..=600).contains(&seconds), "{kind}: {seconds} s");
    }
}
