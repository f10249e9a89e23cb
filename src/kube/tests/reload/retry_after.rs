//! Tests of configuration changes while the server asks for a wait before the next request.

use super::*;

/// A `Retry-After` in seconds, of which two minutes are obeyed.
const LONG: u64 = 3600;

/// A kind that yields to others is not requested before the time in its `Retry-After`, also after another kind has recovered.
#[tokio::test]
async fn a_kind_that_yields_obeys_retry_after() {
    let config = with_one_request(&["a", "b", "c"]);
    let (mut fixture, client, mut requests, _bodies) = synced(&config).await;
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..config };
    let number = reconfigure(&fixture, &client, &selected);
    let request = requests.next_for(&mut fixture.stub, "a").await;
    let asked = Instant::now();
    request.refuse_with_retry_after(429, 4);
    requests.next_for(&mut fixture.stub, "b").await.refuse(503);
    let _c = stream_list(requests.next_for(&mut fixture.stub, "c").await, &["new"]);
    let request = requests.next_for(&mut fixture.stub, "b").await;
    assert!(requests.0.values().all(Vec::is_empty), "a is requested before its time");
    let _b = stream_list(request, &["new"]);
    wait_for_lines(&fixture, &["a old 1", "b new 1", "c new 1"]).await;
    let _a = stream_list(requests.next_for(&mut fixture.stub, "a").await, &["new"]);
    assert!(asked.elapsed() >= Duration::from_secs(4), "{:?}", asked.elapsed());
    wait_until_applied(&fixture, number).await;
    wait_for_lines(&fixture, &["a new 1", "b new 1", "c new 1"]).await;
}

/// A change of the options, or another one, does not change what the server has asked for.
#[tokio::test]
async fn another_change_obeys_retry_after() {
    let config = with_one_request(&["a"]);
    let (mut fixture, client, mut requests, _bodies) = synced(&config).await;
    let selected =
        |selector: &str| PipelineConfig { selector: selector.to_owned(), ..config.clone() };
    reconfigure(&fixture, &client, &selected("x=y"));
    requests.next_for(&mut fixture.stub, "a").await.refuse_with_retry_after(429, 3);
    let asked = Instant::now();
    let throttled =
        r#"kstatd_kubernetes_errors_total{namespace="",reason="throttled",resource="*v1.a"} 1"#;
    fixture.wait_for_metric(throttled).await;
    let number = reconfigure(&fixture, &client, &selected("x=z"));
    let _a = stream_list(requests.next_for(&mut fixture.stub, "a").await, &["new"]);
    assert!(asked.elapsed() >= Duration::from_secs(3), "{:?}", asked.elapsed());
    wait_until_applied(&fixture, number).await;
    wait_for_lines(&fixture, &["a new 1"]).await;
}

/// A kind that has not been listed yet has no state to keep, but its server has asked it to wait too.
#[tokio::test]
async fn a_change_before_the_first_list_obeys_retry_after() {
    let config = with_one_request(&["a"]);
    let (mut fixture, client) = Fixture::with_client(&config).await;
    let mut requests = RequestQueue::default();
    requests.next_for(&mut fixture.stub, "a").await.refuse_with_retry_after(429, 3);
    let asked = Instant::now();
    let throttled =
        r#"kstatd_kubernetes_errors_total{namespace="",reason="throttled",resource="*v1.a"} 1"#;
    fixture.wait_for_metric(throttled).await;
    let number =
        reconfigure(&fixture, &client, &PipelineConfig { selector: "x=y".to_owned(), ..config });
    let _a = stream_list(requests.next_for(&mut fixture.stub, "a").await, &["new"]);
    assert!(asked.elapsed() >= Duration::from_secs(3), "{:?}", asked.elapsed());
    wait_until_applied(&fixture, number).await;
    wait_for_lines(&fixture, &["a new 1"]).await;
}

/// Another API server has not asked for a wait.
#[tokio::test]
async fn another_server_is_requested_at_once() {
    let config = with_one_request(&["a", "b"]);
    let (mut fixture, client, mut requests, _bodies) = synced(&config).await;
    let selected = PipelineConfig { selector: "x=y".to_owned(), ..config };
    reconfigure(&fixture, &client, &selected);
    let start = Instant::now();
    for plural in ["a", "b"] {
        requests.next_for(&mut fixture.stub, plural).await.refuse_with_retry_after(429, LONG);
    }
    let mut other = StubServer::start().await;
    let client = Arc::new(connect(&other).await);
    let number = reconfigure(&fixture, &client, &selected);
    let _a = stream_list(other.next_request().await, &["there"]);
    let _b = stream_list(other.next_request().await, &["there"]);
    wait_until_applied(&fixture, number).await;
    wait_for_lines(&fixture, &["a there 1", "b there 1"]).await;
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}
