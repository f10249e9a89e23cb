//! Tests of lists: the requests, and which responses count as a list.

use std::io::Write as _;

use super::*;

#[tokio::test]
async fn streaming_list_continues_as_watch() {
    let mut fixture = Fixture::new(&config()).await;
    let request = fixture.stub.next_request().await;
    let (start, rest) = request.path.split_once("&timeoutSeconds=").expect("a timeout");
    assert_eq!(
        start,
        "/api/v1/pods?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
    );
    let (seconds, rest) = rest.split_once('&').expect("more");
    assert!((300..=600).contains(&seconds.parse().expect("a number")), "{seconds}");
    assert_eq!(rest, "watch=true");
    assert_eq!(request.header("accept"), "application/vnd.kubernetes.protobuf,application/json");
    assert_eq!(request.header("accept-encoding"), "identity");
    assert_eq!(request.header("user-agent"), "kstatd/test");
    let body = request.start_watch();
    body.send([event("ADDED", &pod("a", "1")), event("ADDED", &pod("b", "2"))].concat());
    body.send([event("ADDED", &pod("c", "4")), event("DELETED", &pod("a", "5"))].concat());
    fixture
        .wait_for_metric("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"deleted\"} 1")
        .await;
    assert_eq!(fixture.series(), [""; 0]);
    assert!(!fixture.handle.is_ready());
    body.send(bookmark("9", true));
    fixture.ready().await;
    assert_eq!(fixture.series(), ["b 2", "c 4"]);
    body.send([event("MODIFIED", &pod("b", "10")), event("ADDED", &pod("d", "11"))].concat());
    fixture.wait_for_series(&["b 10", "c 4", "d 11"]).await;
    body.send([event("DELETED", &pod("c", "12")), bookmark("20", false)].concat());
    fixture.wait_for_series(&["b 10", "d 11"]).await;
    drop(body);
    let body = fixture.stub.expect_watch("20").await.start_watch();
    body.send(event("MODIFIED", &pod("d", "21")));
    fixture.wait_for_series(&["b 10", "d 21"]).await;
    drop(body);
    fixture.stub.expect_watch("21").await;
    fixture
        .wait_for_metric(
            "kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"success\"} 2",
        )
        .await;
    let status = &fixture.handle.status()[0];
    assert_eq!((status.encoding, status.objects), (Some(Encoding::Protobuf), 2));
    assert!(status.listed.is_some() && status.failure.is_none());
}

#[tokio::test]
async fn refused_streaming_list_falls_back_to_pages() {
    for code in [400, 403, 404, 422, 500] {
        let mut fixture = Fixture::new(&config()).await;
        fixture.stub.expect_streaming_list().await.refuse(code);
        let request = fixture.stub.expect_request("/api/v1/pods?limit=500&resourceVersion=0").await;
        request.respond(200, PROTOBUF, list("7", "next/page=", &[pod("a", "1"), pod("b", "2")]));
        let request =
            fixture.stub.expect_request("/api/v1/pods?continue=next%2Fpage%3D&limit=500").await;
        assert!(fixture.series().is_empty() && !fixture.handle.is_ready());
        let body = request.start_response(200, PROTOBUF);
        let bytes = list("7", "", &[pod("c", "3")]);
        for chunk in bytes.chunks(5) {
            body.send(chunk.to_vec());
        }
        drop(body);
        let body = fixture.stub.expect_watch("7").await.start_watch();
        assert!(fixture.handle.is_ready());
        assert_eq!(fixture.series(), ["a 1", "b 2", "c 3"]);
        body.send(event("MODIFIED", &pod("c", "8")));
        fixture.wait_for_series(&["a 1", "b 2", "c 8"]).await;
        fixture
            .wait_for_metric(
                "kube_state_metrics_list_total{resource=\"*v1.pods\",result=\"success\"} 2",
            )
            .await;
        fixture
            .wait_for_metric(
                "kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"error\"} 1",
            )
            .await;
    }
}

#[tokio::test]
async fn gzip_responses_are_decoded_incrementally() {
    let mut fixture = Fixture::new(&config()).await;
    let request = fixture.stub.expect_streaming_list().await;
    assert_eq!(request.header("accept-encoding"), "identity");
    let body = request.start_gzip_response(PROTOBUF);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut send = |bytes: Vec<u8>| {
        gzip.write_all(&bytes).and_then(|()| gzip.flush()).expect("memory takes it");
        for piece in std::mem::take(gzip.get_mut()).chunks(5) {
            body.send(piece.to_vec());
        }
    };
    send([event("ADDED", &pod("a", "1")), bookmark("2", true)].concat());
    fixture.ready().await;
    assert_eq!(fixture.series(), ["a 1"]);
    // The event is exposed although the body has not ended.
    send(event("ADDED", &pod("b", "3")));
    fixture.wait_for_series(&["a 1", "b 3"]).await;
    drop(body);
    // It ends within the gzip stream, which is not the regular end of a watch.
    let body = fixture.stub.expect_watch("3").await.start_gzip_response(PROTOBUF);
    fixture.wait_for_metric("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"broken\",resource=\"*v1.pods\"} 1").await;
    let many: Vec<u8> =
        (4..2000).flat_map(|n| event("MODIFIED", &pod("b", &n.to_string()))).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&many).expect("memory takes it");
    body.send(gzip.finish().expect("memory takes it"));
    fixture.wait_for_series(&["a 1", "b 1999"]).await;
}

#[tokio::test]
async fn expired_continue_token_leads_to_an_unpaged_list() {
    let mut fixture = Fixture::new(&config()).await;
    fixture.stub.expect_streaming_list().await.refuse(422);
    let request = fixture.stub.next_request().await;
    request.respond(200, PROTOBUF, list("7", "t", &[pod("gone", "1"), pod("a", "2")]));
    fixture.stub.expect_request("/api/v1/pods?continue=t&limit=500").await.refuse(410);
    let request = fixture.stub.expect_request("/api/v1/pods").await;
    request.respond(200, PROTOBUF, list("20", "", &[pod("a", "2")]));
    fixture.stub.expect_watch("20").await;
    assert_eq!(fixture.series(), ["a 2"]);
}

#[tokio::test]
async fn broken_page_is_retried() {
    let mut fixture = Fixture::new(&config()).await;
    fixture.stub.expect_streaming_list().await.refuse(422);
    let first = list("7", "t", &[pod("a", "1")]);
    let mut received = first.len();
    fixture.stub.next_request().await.respond(200, PROTOBUF, first);
    let body = fixture.stub.next_request().await.start_response(200, PROTOBUF);
    let page = list("7", "", &[pod("b", "2"), pod("c", "3")]);
    body.send(page[..page.len() - 10].to_vec());
    received += page.len() - 10;
    let name = "kstatd_kubernetes_received_bytes_total{resource=\"*v1.pods\"}";
    fixture.wait_for_metric(&format!("{name} {received}")).await;
    body.abort();
    fixture.stub.expect_request("/api/v1/pods?continue=t&limit=500").await.refuse(503);
    let request = fixture.stub.expect_request("/api/v1/pods?continue=t&limit=500").await;
    request.respond(200, PROTOBUF, page);
    fixture.stub.expect_watch("7").await;
    assert_eq!(fixture.series(), ["a 1", "b 2", "c 3"]);
    fixture
        .wait_for_metric("kube_state_metrics_list_total{resource=\"*v1.pods\",result=\"error\"} 2")
        .await;
}

#[tokio::test]
async fn fallback_to_json() {
    let mut fixture = Fixture::new(&config()).await;
    let body = fixture.stub.expect_streaming_list().await.start_response(200, JSON);
    let line = |kind, object: String| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    body.send(line("ADDED", json_pod("a", "1")));
    body.send(line(
        "BOOKMARK",
        r#"{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}"#
            .to_owned(),
    ));
    fixture.ready().await;
    let text = line("MODIFIED", json_pod("a", "4")) + &line("ADDED", json_pod("b", "5"));
    let (start, end) = text.split_at(70);
    body.send(start.to_owned());
    body.send(end.to_owned());
    fixture.wait_for_series(&["a 4", "b 5"]).await;
    body.send(line("DELETED", json_pod("a", "6")));
    fixture.wait_for_series(&["b 5"]).await;
    body.send(line("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired"}"#.to_owned()));
    fixture.stub.expect_streaming_list().await.refuse(400);
    let text = format!(
        r#"{{"items":[{},{}],"metadata":{{"resourceVersion":"8"}}}}"#,
        json_pod("c", "7"),
        json_pod("d", "8")
    );
    fixture.stub.expect_request("/api/v1/pods?limit=500").await.respond(200, JSON, text);
    fixture.stub.expect_watch("8").await;
    assert_eq!(fixture.series(), ["c 7", "d 8"]);
    assert_eq!(fixture.handle.status()[0].encoding, Some(Encoding::Json));
}

#[tokio::test]
async fn custom_resources_are_requested_in_json() {
    let mut config = config();
    config.resources[0].api.protobuf = false;
    config.resources[0].api.group = "example.com".to_owned();
    let mut fixture = Fixture::new(&config).await;
    let request = fixture.stub.expect_streaming_list().await;
    assert_eq!(request.header("accept"), "application/json");
    assert!(request.path.starts_with("/apis/example.com/v1/pods?"), "{}", request.path);
    request.refuse(400);
    let request = fixture.stub.next_request().await;
    request.respond(200, JSON, r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#);
    fixture.ready().await;
    fixture.stub.expect_watch("1").await;
}

#[tokio::test]
async fn forbidden_kind_is_ready_and_retried() {
    let mut fixture = Fixture::new(&config()).await;
    for _ in 0..3 {
        fixture.stub.expect_streaming_list().await.refuse(403);
        fixture.stub.next_request().await.refuse(403);
        fixture.ready().await;
    }
    assert_eq!(fixture.failure(), "server answers 403: because of 403");
    let body = fixture.stub.expect_streaming_list().await.start_watch();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    fixture.wait_for_series(&["a 1"]).await;
    assert_eq!(fixture.failure(), "");
}

#[tokio::test]
async fn bad_credentials_and_outages_are_not_ready() {
    for code in [401, 429, 500, 503] {
        let mut fixture = Fixture::new(&config()).await;
        for _ in 0..2 {
            fixture.stub.expect_streaming_list().await.refuse(code);
            if code >= 500 {
                fixture
                    .stub
                    .expect_request("/api/v1/pods?limit=500&resourceVersion=0")
                    .await
                    .refuse(code);
            }
        }
        let request = fixture.stub.expect_streaming_list().await;
        assert!(!fixture.handle.is_ready());
        let body = request.start_watch();
        body.send(bookmark("5", true));
        fixture.ready().await;
        drop(body);
        fixture.stub.expect_watch("5").await.refuse(code);
        // The server may have been restored in the meantime.
        fixture.stub.expect_request("/api/v1/pods?limit=1").await.refuse(code);
        let request = fixture.stub.expect_request("/api/v1/pods?limit=1").await;
        request.respond(200, PROTOBUF, list("5", "", &[]));
        fixture.stub.expect_watch("5").await;
        assert!(fixture.handle.is_ready());
    }
}

/// The limit applies to pages and events together. Objects over the limit are counted, and added once there is room.
#[tokio::test]
async fn object_limit_applies_to_pages_and_events() {
    let mut fixture = Fixture::new(&PipelineConfig { object_limit: 2, ..config() }).await;
    let left_out =
        |n| format!("kstatd_kubernetes_objects_over_limit_total{{resource=\"*v1.pods\"}} {n}");
    let request = fixture.stub.expect_request("/api/v1/pods?limit=2&resourceVersion=0").await;
    request.respond(200, PROTOBUF, list("6", "t", &[pod("a", "1")]));
    let request = fixture.stub.expect_request("/api/v1/pods?continue=t&limit=2").await;
    // The server may send more than requested. The page after this one is not requested.
    request.respond(200, PROTOBUF, list("7", "u", &[pod("b", "2"), pod("c", "3")]));
    let body = fixture.stub.expect_watch("7").await.start_watch();
    assert_eq!(fixture.series(), ["a 1", "b 2"]);
    fixture.wait_for_metric("kube_state_metrics_list_objects{resource=\"*v1.pods\"} 2").await;
    fixture.wait_for_metric("kube_state_metrics_list_objects_limit{resource=\"*v1.pods\"} 2").await;
    fixture.wait_for_metric(&left_out(2)).await;
    body.send([event("ADDED", &pod("d", "8")), event("MODIFIED", &pod("a", "9"))].concat());
    fixture.wait_for_series(&["a 9", "b 2"]).await;
    fixture.wait_for_metric(&left_out(3)).await;
    // Rejected objects advance the resource version, too, and a new list would not help.
    body.send(event("MODIFIED", &pod("c", "10")));
    fixture.wait_for_metric(&left_out(4)).await;
    drop(body);
    let body = fixture.stub.expect_watch("10").await.start_watch();
    body.send([event("DELETED", &pod("b", "11")), event("ADDED", &pod("e", "12"))].concat());
    fixture.wait_for_series(&["a 9", "e 12"]).await;
    body.send(event("DELETED", &pod("e", "13")));
    fixture.wait_for_series(&["a 9"]).await;
    // What an explanation says is not as old as the last list.
    let quotas = fixture.handle.lists().into_iter().map(|list| list.place(b"f").quota);
    assert_eq!(quotas.collect::<Vec<_>>(), [Some((1, 2))]);
    drop(body);
    let request = fixture.stub.expect_request("/api/v1/pods?limit=2").await;
    let items = [pod("a", "9"), pod("c", "10"), pod("d", "8")];
    request.respond(200, PROTOBUF, list("14", "", &items));
    let body = fixture.stub.expect_watch("14").await.start_watch();
    assert_eq!(fixture.series(), ["a 9", "c 10"]);
    body.send(error(410, "Expired"));
    let request = fixture.stub.expect_request("/api/v1/pods?limit=2").await;
    request.respond(200, PROTOBUF, list("14", "", &items[..1]));
    let body = fixture.stub.expect_watch("14").await.start_watch();
    fixture.wait_for_metric("kube_state_metrics_list_objects{resource=\"*v1.pods\"} 1").await;
    body.send([event("ADDED", &items[1]), event("ADDED", &items[2])].concat());
    fixture.wait_for_series(&["a 9", "c 10"]).await;
    body.send(error(410, "Expired"));
    let request = fixture.stub.expect_request("/api/v1/pods?limit=2").await;
    request.respond(200, PROTOBUF, list("15", "t", &[pod("a", "1")]));
    fixture.stub.next_request().await.refuse(410);
    fixture.stub.expect_request("/api/v1/pods?limit=2").await;
    assert_eq!(fixture.series(), ["a 9", "c 10"]);
}

/// The namespaces of a kind share one limit.
#[tokio::test]
async fn object_limit_is_shared_by_namespaces() {
    let namespaces = ["one", "two"].map(str::to_owned).to_vec();
    let mut fixture =
        Fixture::new(&PipelineConfig { object_limit: 3, namespaces, ..config() }).await;
    let mut bodies = Vec::new();
    let requests = [fixture.stub.next_request().await, fixture.stub.next_request().await];
    for (request, (names, more)) in requests.into_iter().zip([(["a", "b"], ""), (["c", "d"], "t")])
    {
        let namespace = request.path.split('/').nth(4).expect("a namespace").to_owned();
        request.respond(200, PROTOBUF, list("7", more, &names.map(|name| pod(name, "1"))));
        bodies.push((namespace, fixture.stub.expect_watch("7").await.start_watch()));
    }
    fixture.wait_for_series(&["a 1", "b 1", "c 1"]).await;
    fixture.wait_for_metric("kube_state_metrics_list_objects{resource=\"*v1.pods\"} 3").await;
    let (second, ending) = bodies.pop().expect("two of them");
    let (_, first) = bodies.pop().expect("two of them");
    first.send([event("DELETED", &pod("a", "8")), bookmark("9", false)].concat());
    fixture.wait_for_series(&["b 1", "c 1"]).await;
    // The list/watch with rejected objects relists at the end of its watch; the other continues.
    drop(ending);
    let request =
        fixture.stub.expect_request(&format!("/api/v1/namespaces/{second}/pods?limit=3")).await;
    request.respond(200, PROTOBUF, list("10", "", &[pod("c", "1"), pod("d", "1")]));
    fixture.wait_for_series(&["b 1", "c 1", "d 1"]).await;
}

/// At startup not all lists run at once, and a slow list does not block the others.
#[tokio::test]
async fn concurrent_lists_are_limited() {
    let names: Vec<String> = (0..list_permits::AT_ONCE + 4).map(|n| format!("kind{n}")).collect();
    for list_turn in [BEYOND_DEADLINE, Duration::ZERO] {
        let config = PipelineConfig {
            resources: names.iter().map(|name| watched(name, false)).collect(),
            timing: Timing { list_turn, ..config().timing },
            ..config()
        };
        let mut fixture = Fixture::new(&config).await;
        let mut requests = Vec::new();
        for _ in 0..list_permits::AT_ONCE {
            requests.push(fixture.stub.expect_streaming_list().await);
        }
        if list_turn == Duration::ZERO {
            for _ in 0..4 {
                requests.push(fixture.stub.expect_streaming_list().await);
            }
            continue;
        }
        let mut bodies = Vec::new();
        for left in (0..4).rev() {
            let body = requests.remove(0).start_watch();
            body.send(bookmark("5", true));
            bodies.push(body);
            requests.push(fixture.stub.expect_streaming_list().await);
            let listed =
                || fixture.handle.status().iter().filter(|one| one.listed.is_some()).count();
            eventually(|| listed() == 4 - left, || listed().to_string()).await;
            assert!(fixture.stub.is_idle(), "{left} are to wait");
        }
        // The same limit holds when all watches expire at once.
        for request in requests {
            let body = request.start_watch();
            body.send(bookmark("5", true));
            bodies.push(body);
        }
        fixture.ready().await;
        for body in &bodies {
            body.send(error(410, "Expired"));
        }
        let mut requests = Vec::new();
        for _ in 0..list_permits::AT_ONCE {
            requests.push(fixture.stub.expect_streaming_list().await);
        }
        requests.remove(0).start_watch().send(bookmark("6", true));
        fixture.stub.next_request().await;
    }
}

#[tokio::test]
async fn lists_from_the_watch_cache() {
    let config = PipelineConfig { use_apiserver_cache: true, ..config() };
    let (mut fixture, body) = synced_pods(&config).await;
    body.send(error(410, "Expired"));
    fixture.stub.expect_streaming_list().await.refuse(422);
    fixture.stub.expect_request("/api/v1/pods?limit=500&resourceVersion=0").await;
}

#[tokio::test]
async fn stalled_lists_time_out() {
    let timing = Timing {
        list_answer: Duration::from_secs(3),
        watch_answer: Duration::from_secs(3),
        list_idle: Duration::from_secs(3),
        ..config().timing
    };
    let mut fixture = Fixture::new(&PipelineConfig { timing, ..config() }).await;
    let unanswered = fixture.stub.expect_streaming_list().await;
    let request = fixture.stub.expect_streaming_list().await;
    assert!(fixture.failure().contains("no answer within 3 s"), "{}", fixture.failure());
    request.refuse(422);
    let body = fixture.stub.next_request().await.start_response(200, PROTOBUF);
    body.send(list("7", "t", &[])[..9].to_vec());
    body.closed().await;
    let silent = fixture.stub.expect_streaming_list().await.start_watch();
    assert!(fixture.failure().contains("nothing received for 3s"), "{}", fixture.failure());
    silent.closed().await;
    let name = "kstatd_kubernetes_errors_total{namespace=\"\"";
    fixture.wait_for_metric(&format!("{name},reason=\"timeout\",resource=\"*v1.pods\"}} 1")).await;
    fixture.wait_for_metric(&format!("{name},reason=\"frozen\",resource=\"*v1.pods\"}} 2")).await;
    drop(unanswered);
}

/// Two list/watches are in backoff. Once one succeeds, the other retries immediately.
#[tokio::test]
async fn first_success_wakes_list_watches_in_backoff() {
    let backoff =
        BackoffConfig { initial: BEYOND_DEADLINE, cap: BEYOND_DEADLINE, ..config().timing.backoff };
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        timing: Timing { backoff, ..config().timing },
        ..config()
    };
    let mut fixture = Fixture::new(&config).await;
    let (one, two) =
        (fixture.stub.expect_streaming_list().await, fixture.stub.expect_streaming_list().await);
    one.refuse(503);
    let failures = || fixture.handle.status().iter().filter(|s| s.failure.is_some()).count();
    eventually(|| failures() == 1, || format!("{} failures", failures())).await;
    let body = two.start_watch();
    drop(body);
    // The streaming list ended before its first event: a paged list follows at once and succeeds without having failed.
    let request = fixture.stub.next_request().await;
    assert!(request.path.contains("limit=500"), "{}", request.path);
    // `Retry-After` overrides the own backoff.
    request.refuse_with_retry_after(429, 1);
    let request = fixture.stub.next_request().await;
    let body = request.start_watch();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    let request = fixture.stub.next_request().await;
    assert!(request.path.contains("limit=500"), "{}", request.path);
}

/// `Retry-After` is obeyed, for streaming lists too, and the refusal is counted.
#[tokio::test]
async fn throttled_lists_obey_retry_after() {
    let mut fixture = Fixture::new(&config()).await;
    fixture.stub.expect_streaming_list().await.refuse_with_retry_after(429, 3600);
    fixture
        .wait_for_metric("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"throttled\",resource=\"*v1.pods\"} 1")
        .await;
    fixture
        .wait_for_metric("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"error\"} 1")
        .await;
    assert!(fixture.failure().contains("429"), "{}", fixture.failure());
    assert!(fixture.stub.is_idle());
}

/// A response that is not a list leaves the known state unchanged.
#[tokio::test]
async fn responses_that_are_not_lists_change_nothing() {
    let status = stub::status(500, "InternalError");
    let foreign = stub::typed_list("NodeList", "9");
    let bodies: [(&str, Vec<u8>); 13] = [
        (JSON, ERROR_STATUS.into()),
        (JSON, "{}".into()),
        (JSON, r#"{"kind":"PodList","items":[]}"#.into()),
        (JSON, r#"{"kind":"PodList","items":[],"metadata":{"resourceVersion":""}}"#.into()),
        (JSON, r#"{"kind":"PodList","metadata":{"resourceVersion":"9"}}"#.into()),
        (JSON, r#"{"kind":"NodeList","metadata":{"resourceVersion":"9"},"items":[]}"#.into()),
        (JSON, r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":["#.into()),
        (JSON, "<html>log in</html>".into()),
        (JSON, "".into()),
        ("text/html", "<html>log in</html>".into()),
        (PROTOBUF, status.clone()),
        (PROTOBUF, foreign),
        (PROTOBUF, list("", "", &[])),
    ];
    for (content_type, body) in bodies {
        let (mut fixture, watch) = synced_pods(&config()).await;
        watch.send(error(410, "Expired"));
        fixture.stub.expect_streaming_list().await.refuse(422);
        fixture.stub.expect_request("/api/v1/pods?limit=500").await.respond(
            200,
            content_type,
            body.clone(),
        );
        let request = fixture.stub.expect_streaming_list().await;
        let what = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(fixture.series(), ["a 1", "b 2"], "{what}");
        assert!(!fixture.failure().is_empty(), "{what}");
        // The same response to a streaming list.
        request.respond(200, content_type, body.clone());
        let request = fixture.stub.expect_request("/api/v1/pods?limit=500").await;
        assert_eq!(fixture.series(), ["a 1", "b 2"], "{what}");
        request.respond(200, PROTOBUF, list("20", "", &[pod("c", "19")]));
        // The same response to a watch.
        fixture.stub.expect_watch("20").await.respond(200, content_type, body);
        let request = fixture.stub.next_request().await;
        assert_eq!(fixture.series(), ["c 19"], "{what}");
        assert!(request.path.contains("/api/v1/pods?"));
    }
}

/// A `Status` in the body of a 200 is treated like the HTTP status.
#[tokio::test]
async fn status_in_a_200_is_an_error() {
    for (content_type, body) in [
        (JSON, ERROR_STATUS.replace("500", "410").into_bytes()),
        (PROTOBUF, stub::status(410, "Gone")),
    ] {
        let (mut fixture, watch) = synced_pods(&config()).await;
        drop(watch);
        fixture.stub.expect_watch("5").await.respond(200, content_type, body);
        fixture.stub.expect_streaming_list().await;
        fixture
            .wait_for_metric("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"expired\",resource=\"*v1.pods\"} 1")
            .await;
    }
}
