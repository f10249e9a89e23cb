//! What is asked for to know all of a kind, and what answers are taken for it.

use std::io::Write as _;

use super::*;

#[tokio::test]
async fn streaming_list_becomes_the_watch() {
    let mut bench = Bench::new(&config()).await;
    let call = bench.stub.next().await;
    let (start, rest) = call.path.split_once("&timeoutSeconds=").expect("a timeout");
    assert_eq!(
        start,
        "/api/v1/pods?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
    );
    let (seconds, rest) = rest.split_once('&').expect("more");
    assert!((300..=600).contains(&seconds.parse().expect("a number")), "{seconds}");
    assert_eq!(rest, "watch=true");
    assert_eq!(call.header("accept"), "application/vnd.kubernetes.protobuf,application/json");
    assert_eq!(call.header("accept-encoding"), "identity");
    assert_eq!(call.header("user-agent"), "kstatd/test");
    let body = call.protobuf();
    body.send([event("ADDED", &pod("a", "1")), event("ADDED", &pod("b", "2"))].concat());
    body.send([event("ADDED", &pod("c", "4")), event("DELETED", &pod("a", "5"))].concat());
    bench.counts("kstatd_kubernetes_events_total{resource=\"*v1.pods\",type=\"deleted\"} 1").await;
    assert_eq!(bench.series(), [""; 0]);
    assert!(!bench.handle.is_ready());
    body.send(bookmark("9", true));
    bench.ready().await;
    assert_eq!(bench.series(), ["b 2", "c 4"]);
    body.send([event("MODIFIED", &pod("b", "10")), event("ADDED", &pod("d", "11"))].concat());
    bench.shows(&["b 10", "c 4", "d 11"]).await;
    body.send([event("DELETED", &pod("c", "12")), bookmark("20", false)].concat());
    bench.shows(&["b 10", "d 11"]).await;
    drop(body);
    let body = bench.stub.watch("20").await.protobuf();
    body.send(event("MODIFIED", &pod("d", "21")));
    bench.shows(&["b 10", "d 21"]).await;
    drop(body);
    bench.stub.watch("21").await;
    bench
        .counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"success\"} 2")
        .await;
    let status = &bench.handle.status()[0];
    assert_eq!((status.encoding, status.objects), (Some(Encoding::Protobuf), 2));
    assert!(status.listed.is_some() && status.failure.is_none());
}

#[tokio::test]
async fn refused_streaming_list_becomes_pages_and_a_watch() {
    for code in [400, 403, 404, 422, 500] {
        let mut bench = Bench::new(&config()).await;
        bench.stub.streaming().await.refuse(code);
        let call = bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await;
        call.answer(200, PROTOBUF, list("7", "next/page=", &[pod("a", "1"), pod("b", "2")]));
        let call = bench.stub.expect("/api/v1/pods?continue=next%2Fpage%3D&limit=500").await;
        assert!(bench.series().is_empty() && !bench.handle.is_ready());
        let body = call.open(200, PROTOBUF);
        let bytes = list("7", "", &[pod("c", "3")]);
        for chunk in bytes.chunks(5) {
            body.send(chunk.to_vec());
        }
        drop(body);
        let body = bench.stub.watch("7").await.protobuf();
        assert!(bench.handle.is_ready());
        assert_eq!(bench.series(), ["a 1", "b 2", "c 3"]);
        body.send(event("MODIFIED", &pod("c", "8")));
        bench.shows(&["a 1", "b 2", "c 8"]).await;
        bench
            .counts("kube_state_metrics_list_total{resource=\"*v1.pods\",result=\"success\"} 2")
            .await;
        bench
            .counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"error\"} 1")
            .await;
    }
}

#[tokio::test]
async fn what_comes_compressed_is_read_as_it_comes() {
    let mut bench = Bench::new(&config()).await;
    let call = bench.stub.streaming().await;
    assert_eq!(call.header("accept-encoding"), "identity");
    let body = call.compressed(PROTOBUF);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut send = |bytes: Vec<u8>| {
        gzip.write_all(&bytes).and_then(|()| gzip.flush()).expect("memory takes it");
        for piece in std::mem::take(gzip.get_mut()).chunks(5) {
            body.send(piece.to_vec());
        }
    };
    send([event("ADDED", &pod("a", "1")), bookmark("2", true)].concat());
    bench.ready().await;
    assert_eq!(bench.series(), ["a 1"]);
    // The body goes on: an event is shown before there is more.
    send(event("ADDED", &pod("b", "3")));
    bench.shows(&["a 1", "b 3"]).await;
    drop(body);
    // It ends in the middle, which is no end of a watch that worked.
    let body = bench.stub.watch("3").await.compressed(PROTOBUF);
    bench.counts("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"broken\",resource=\"*v1.pods\"} 1").await;
    let many: Vec<u8> =
        (4..2000).flat_map(|n| event("MODIFIED", &pod("b", &n.to_string()))).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&many).expect("memory takes it");
    body.send(gzip.finish().expect("memory takes it"));
    bench.shows(&["a 1", "b 1999"]).await;
}

#[tokio::test]
async fn expired_token_becomes_one_whole_list() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.refuse(422);
    let call = bench.stub.next().await;
    call.answer(200, PROTOBUF, list("7", "t", &[pod("gone", "1"), pod("a", "2")]));
    bench.stub.expect("/api/v1/pods?continue=t&limit=500").await.refuse(410);
    let call = bench.stub.expect("/api/v1/pods").await;
    call.answer(200, PROTOBUF, list("20", "", &[pod("a", "2")]));
    bench.stub.watch("20").await;
    assert_eq!(bench.series(), ["a 2"]);
}

#[tokio::test]
async fn broken_page_is_asked_for_again() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.refuse(422);
    let first = list("7", "t", &[pod("a", "1")]);
    let mut received = first.len();
    bench.stub.next().await.answer(200, PROTOBUF, first);
    let body = bench.stub.next().await.open(200, PROTOBUF);
    let page = list("7", "", &[pod("b", "2"), pod("c", "3")]);
    body.send(page[..page.len() - 10].to_vec());
    received += page.len() - 10;
    let name = "kstatd_kubernetes_received_bytes_total{resource=\"*v1.pods\"}";
    bench.counts(&format!("{name} {received}")).await;
    body.abort();
    bench.stub.expect("/api/v1/pods?continue=t&limit=500").await.refuse(503);
    let call = bench.stub.expect("/api/v1/pods?continue=t&limit=500").await;
    call.answer(200, PROTOBUF, page);
    bench.stub.watch("7").await;
    assert_eq!(bench.series(), ["a 1", "b 2", "c 3"]);
    bench.counts("kube_state_metrics_list_total{resource=\"*v1.pods\",result=\"error\"} 2").await;
}

#[tokio::test]
async fn json_where_the_server_has_no_protobuf() {
    let mut bench = Bench::new(&config()).await;
    let body = bench.stub.streaming().await.open(200, JSON);
    let line = |kind, object: String| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
    body.send(line("ADDED", json_pod("a", "1")));
    body.send(line(
        "BOOKMARK",
        r#"{"metadata":{"resourceVersion":"3","annotations":{"k8s.io/initial-events-end":"true"}}}"#
            .to_owned(),
    ));
    bench.ready().await;
    let text = line("MODIFIED", json_pod("a", "4")) + &line("ADDED", json_pod("b", "5"));
    let (start, end) = text.split_at(70);
    body.send(start.to_owned());
    body.send(end.to_owned());
    bench.shows(&["a 4", "b 5"]).await;
    body.send(line("DELETED", json_pod("a", "6")));
    bench.shows(&["b 5"]).await;
    body.send(line("ERROR", r#"{"kind":"Status","code":410,"reason":"Expired"}"#.to_owned()));
    bench.stub.streaming().await.refuse(400);
    let text = format!(
        r#"{{"items":[{},{}],"metadata":{{"resourceVersion":"8"}}}}"#,
        json_pod("c", "7"),
        json_pod("d", "8")
    );
    bench.stub.expect("/api/v1/pods?limit=500").await.answer(200, JSON, text);
    bench.stub.watch("8").await;
    assert_eq!(bench.series(), ["c 7", "d 8"]);
    assert_eq!(bench.handle.status()[0].encoding, Some(Encoding::Json));
}

#[tokio::test]
async fn custom_resources_are_asked_for_in_json() {
    let mut config = config();
    config.resources[0].target.protobuf = false;
    config.resources[0].target.group = "example.com".to_owned();
    let mut bench = Bench::new(&config).await;
    let call = bench.stub.streaming().await;
    assert_eq!(call.header("accept"), "application/json");
    assert!(call.path.starts_with("/apis/example.com/v1/pods?"), "{}", call.path);
    call.refuse(400);
    let call = bench.stub.next().await;
    call.answer(200, JSON, r#"{"items":null,"metadata":{"resourceVersion":"1"}}"#);
    bench.ready().await;
    bench.stub.watch("1").await;
}

#[tokio::test]
async fn forbidden_is_ready_but_tried_again() {
    let mut bench = Bench::new(&config()).await;
    for _ in 0..3 {
        bench.stub.streaming().await.refuse(403);
        bench.stub.next().await.refuse(403);
        bench.ready().await;
    }
    assert_eq!(bench.failure(), "server answers 403: because of 403");
    let body = bench.stub.streaming().await.protobuf();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    bench.shows(&["a 1"]).await;
    assert_eq!(bench.failure(), "");
}

#[tokio::test]
async fn bad_credentials_and_outages_are_not_ready() {
    for code in [401, 429, 500, 503] {
        let mut bench = Bench::new(&config()).await;
        for _ in 0..2 {
            bench.stub.streaming().await.refuse(code);
            if code >= 500 {
                bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await.refuse(code);
            }
        }
        let call = bench.stub.streaming().await;
        assert!(!bench.handle.is_ready());
        let body = call.protobuf();
        body.send(bookmark("5", true));
        bench.ready().await;
        drop(body);
        bench.stub.watch("5").await.refuse(code);
        // Meanwhile it may have been set back.
        bench.stub.expect("/api/v1/pods?limit=1").await.refuse(code);
        let call = bench.stub.expect("/api/v1/pods?limit=1").await;
        call.answer(200, PROTOBUF, list("5", "", &[]));
        bench.stub.watch("5").await;
        assert!(bench.handle.is_ready());
    }
}

/// The limit holds for pages and events together; what is left out is counted, and comes when there is room.
#[tokio::test]
async fn object_limit_bounds_the_kind() {
    let mut bench = Bench::new(&PipelineConfig { object_limit: 2, ..config() }).await;
    let left_out =
        |n| format!("kstatd_kubernetes_objects_over_limit_total{{resource=\"*v1.pods\"}} {n}");
    let call = bench.stub.expect("/api/v1/pods?limit=2&resourceVersion=0").await;
    call.answer(200, PROTOBUF, list("6", "t", &[pod("a", "1")]));
    let call = bench.stub.expect("/api/v1/pods?continue=t&limit=2").await;
    // A server may give more than it was asked for. The page after this one is not asked for.
    call.answer(200, PROTOBUF, list("7", "u", &[pod("b", "2"), pod("c", "3")]));
    let body = bench.stub.watch("7").await.protobuf();
    assert_eq!(bench.series(), ["a 1", "b 2"]);
    bench.counts("kube_state_metrics_list_objects{resource=\"*v1.pods\"} 2").await;
    bench.counts("kube_state_metrics_list_objects_limit{resource=\"*v1.pods\"} 2").await;
    bench.counts(&left_out(2)).await;
    body.send([event("ADDED", &pod("d", "8")), event("MODIFIED", &pod("a", "9"))].concat());
    bench.shows(&["a 9", "b 2"]).await;
    bench.counts(&left_out(3)).await;
    // Who is left out moves the version too, and there is nothing to be had of a new list.
    body.send(event("MODIFIED", &pod("c", "10")));
    bench.counts(&left_out(4)).await;
    drop(body);
    let body = bench.stub.watch("10").await.protobuf();
    body.send([event("DELETED", &pod("b", "11")), event("ADDED", &pod("e", "12"))].concat());
    bench.shows(&["a 9", "e 12"]).await;
    body.send(event("DELETED", &pod("e", "13")));
    bench.shows(&["a 9"]).await;
    drop(body);
    let call = bench.stub.expect("/api/v1/pods?limit=2").await;
    let items = [pod("a", "9"), pod("c", "10"), pod("d", "8")];
    call.answer(200, PROTOBUF, list("14", "", &items));
    let body = bench.stub.watch("14").await.protobuf();
    assert_eq!(bench.series(), ["a 9", "c 10"]);
    body.send(error(410, "Expired"));
    let call = bench.stub.expect("/api/v1/pods?limit=2").await;
    call.answer(200, PROTOBUF, list("15", "t", &[pod("a", "1")]));
    bench.stub.next().await.refuse(410);
    bench.stub.expect("/api/v1/pods?limit=2").await;
    assert_eq!(bench.series(), ["a 9", "c 10"]);
}

/// Namespaces have one limit between them.
#[tokio::test]
async fn object_limit_bounds_all_namespaces_together() {
    let namespaces = ["one", "two"].map(str::to_owned).to_vec();
    let mut bench = Bench::new(&PipelineConfig { object_limit: 3, namespaces, ..config() }).await;
    let mut bodies = Vec::new();
    let calls = [bench.stub.next().await, bench.stub.next().await];
    for (call, (names, more)) in calls.into_iter().zip([(["a", "b"], ""), (["c", "d"], "t")]) {
        let namespace = call.path.split('/').nth(4).expect("a namespace").to_owned();
        call.answer(200, PROTOBUF, list("7", more, &names.map(|name| pod(name, "1"))));
        bodies.push((namespace, bench.stub.watch("7").await.protobuf()));
    }
    bench.shows(&["a 1", "b 1", "c 1"]).await;
    bench.counts("kube_state_metrics_list_objects{resource=\"*v1.pods\"} 3").await;
    let (second, ending) = bodies.pop().expect("two of them");
    let (_, first) = bodies.pop().expect("two of them");
    first.send([event("DELETED", &pod("a", "8")), bookmark("9", false)].concat());
    bench.shows(&["b 1", "c 1"]).await;
    // The one with something to come lists anew at the end of its watch, the other one goes on.
    drop(ending);
    let call = bench.stub.expect(&format!("/api/v1/namespaces/{second}/pods?limit=3")).await;
    call.answer(200, PROTOBUF, list("10", "", &[pod("c", "1"), pod("d", "1")]));
    bench.shows(&["b 1", "c 1", "d 1"]).await;
}

/// A start does not ask for everything at the same moment, and what takes long does not hold up the rest.
#[tokio::test]
async fn lists_take_turns() {
    let names: Vec<String> = (0..turns::AT_ONCE + 4).map(|n| format!("kind{n}")).collect();
    for list_turn in [LONG, Duration::ZERO] {
        let config = PipelineConfig {
            resources: names.iter().map(|name| watched(name, false)).collect(),
            timing: Timing { list_turn, ..config().timing },
            ..config()
        };
        let mut bench = Bench::new(&config).await;
        let mut calls = Vec::new();
        for _ in 0..turns::AT_ONCE {
            calls.push(bench.stub.streaming().await);
        }
        if list_turn == Duration::ZERO {
            for _ in 0..4 {
                calls.push(bench.stub.streaming().await);
            }
            continue;
        }
        let mut bodies = Vec::new();
        for left in (0..4).rev() {
            let body = calls.remove(0).protobuf();
            body.send(bookmark("5", true));
            bodies.push(body);
            calls.push(bench.stub.streaming().await);
            let listed = || bench.handle.status().iter().filter(|one| one.listed.is_some()).count();
            eventually(|| listed() == 4 - left, || listed().to_string()).await;
            assert!(bench.stub.is_quiet(), "{left} are to wait");
        }
        // Nor is everything asked for again at once when all watches have expired.
        for call in calls {
            let body = call.protobuf();
            body.send(bookmark("5", true));
            bodies.push(body);
        }
        bench.ready().await;
        for body in &bodies {
            body.send(error(410, "Expired"));
        }
        let mut calls = Vec::new();
        for _ in 0..turns::AT_ONCE {
            calls.push(bench.stub.streaming().await);
        }
        calls.remove(0).protobuf().send(bookmark("6", true));
        bench.stub.next().await;
    }
}

#[tokio::test]
async fn lists_from_the_servers_cache() {
    let config = PipelineConfig { use_apiserver_cache: true, ..config() };
    let (mut bench, body) = watching(&config).await;
    body.send(error(410, "Expired"));
    bench.stub.streaming().await.refuse(422);
    bench.stub.expect("/api/v1/pods?limit=500&resourceVersion=0").await;
}

#[tokio::test]
async fn lists_that_come_no_further_are_noticed() {
    let timing = Timing {
        list_answer: Duration::from_secs(3),
        watch_answer: Duration::from_secs(3),
        list_idle: Duration::from_secs(3),
        ..config().timing
    };
    let mut bench = Bench::new(&PipelineConfig { timing, ..config() }).await;
    let unanswered = bench.stub.streaming().await;
    let call = bench.stub.streaming().await;
    assert!(bench.failure().contains("no answer within 3s"), "{}", bench.failure());
    call.refuse(422);
    let body = bench.stub.next().await.open(200, PROTOBUF);
    body.send(list("7", "t", &[])[..9].to_vec());
    body.gone().await;
    let silent = bench.stub.streaming().await.protobuf();
    assert!(bench.failure().contains("nothing received for 3s"), "{}", bench.failure());
    silent.gone().await;
    let name = "kstatd_kubernetes_errors_total{namespace=\"\"";
    bench.counts(&format!("{name},reason=\"timeout\",resource=\"*v1.pods\"}} 1")).await;
    bench.counts(&format!("{name},reason=\"frozen\",resource=\"*v1.pods\"}} 2")).await;
    drop(unanswered);
}

/// Two list/watches that wait for a server; when it answers the one, the other does not wait any longer.
#[tokio::test]
async fn the_first_that_succeeds_wakes_the_others() {
    let backoff = BackoffConfig { initial: LONG, cap: LONG, ..config().timing.backoff };
    let config = PipelineConfig {
        resources: vec![watched("nodes", false), watched("pods", true)],
        timing: Timing { backoff, ..config().timing },
        ..config()
    };
    let mut bench = Bench::new(&config).await;
    let (one, two) = (bench.stub.streaming().await, bench.stub.streaming().await);
    one.refuse(503);
    let failures = || bench.handle.status().iter().filter(|s| s.failure.is_some()).count();
    eventually(|| failures() == 1, || format!("{} failures", failures())).await;
    let body = two.protobuf();
    drop(body);
    // It ended before it began: an ordinary list follows at once, which succeeds without having failed.
    let call = bench.stub.next().await;
    assert!(call.path.contains("limit=500"), "{}", call.path);
    // The server says when to come back: then it counts, not the time of our own.
    call.refuse_for(429, 1);
    let call = bench.stub.next().await;
    let body = call.protobuf();
    body.send([event("ADDED", &pod("a", "1")), bookmark("5", true)].concat());
    let call = bench.stub.next().await;
    assert!(call.path.contains("limit=500"), "{}", call.path);
}

/// What the server says about the time to come back is obeyed, for streaming lists too, and is visible.
#[tokio::test]
async fn throttled_lists_are_counted_and_come_back_when_the_server_says() {
    let mut bench = Bench::new(&config()).await;
    bench.stub.streaming().await.refuse_for(429, 3600);
    bench
        .counts("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"throttled\",resource=\"*v1.pods\"} 1")
        .await;
    bench.counts("kube_state_metrics_watch_total{resource=\"*v1.pods\",result=\"error\"} 1").await;
    assert!(bench.failure().contains("429"), "{}", bench.failure());
    assert!(bench.stub.is_quiet());
}

/// Whatever stands where a list should be, what is known stays.
#[tokio::test]
async fn what_is_no_list_replaces_none() {
    let status = stub::status(500, "InternalError");
    let foreign = stub::typed_list("NodeList", "9");
    let bodies: [(&str, Vec<u8>); 13] = [
        (JSON, STATUS.into()),
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
        let (mut bench, watch) = watching(&config()).await;
        watch.send(error(410, "Expired"));
        bench.stub.streaming().await.refuse(422);
        bench.stub.expect("/api/v1/pods?limit=500").await.answer(200, content_type, body.clone());
        let call = bench.stub.streaming().await;
        let what = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(bench.series(), ["a 1", "b 2"], "{what}");
        assert!(!bench.failure().is_empty(), "{what}");
        // The same in place of a streaming list.
        call.answer(200, content_type, body.clone());
        let call = bench.stub.expect("/api/v1/pods?limit=500").await;
        assert_eq!(bench.series(), ["a 1", "b 2"], "{what}");
        call.answer(200, PROTOBUF, list("20", "", &[pod("c", "19")]));
        // And of a watch.
        bench.stub.watch("20").await.answer(200, content_type, body);
        let call = bench.stub.next().await;
        assert_eq!(bench.series(), ["c 19"], "{what}");
        assert!(call.path.contains("/api/v1/pods?"));
    }
}

/// A status in the body of a success counts as if it were the answer's own.
#[tokio::test]
async fn a_status_in_a_success_is_taken_for_what_it_says() {
    for (content_type, body) in
        [(JSON, STATUS.replace("500", "410").into_bytes()), (PROTOBUF, stub::status(410, "Gone"))]
    {
        let (mut bench, watch) = watching(&config()).await;
        drop(watch);
        bench.stub.watch("5").await.answer(200, content_type, body);
        bench.stub.streaming().await;
        bench
            .counts("kstatd_kubernetes_errors_total{namespace=\"\",reason=\"expired\",resource=\"*v1.pods\"} 1")
            .await;
    }
}
