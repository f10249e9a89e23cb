//! Polls of the other pods of a StatefulSet.

use arc_swap::ArcSwap;

use super::*;
use crate::kube::peers::{PeerOptions, Peers, peer_stage};

/// All pods of a StatefulSet begin to poll at the same moment, so the first poll must not look up each of them.
#[tokio::test]
async fn addresses_of_many_pods_are_looked_up_at_a_limited_rate() {
    let mut stub = StubServer::start().await;
    let client = Arc::new(ArcSwap::from_pointee(connect(&stub).await));
    let names: Vec<String> = (0..127).map(|number| format!("ksm-{number}")).collect();
    let options = PeerOptions { port: 1, identity: None };
    let mut peers = Peers::poll(client, "m".to_owned(), names, &options, 128);
    let mut looked_up = Vec::new();
    loop {
        tokio::select! {
            request = stub.next_request() => {
                looked_up.push(request.path.clone());
                request.refuse(404);
            }
            () = peers.changed() => break,
        }
    }
    assert!((1..8).contains(&looked_up.len()), "{looked_up:?}");
    // Most pods have not been asked, and may be in a transition.
    assert!(!peers.latest().has_polled());
    // Later polls continue with the next ones.
    while looked_up.len() < 10 {
        let request = stub.next_request().await;
        looked_up.push(request.path.clone());
        request.refuse(404);
    }
    looked_up.sort();
    let expected = (0..10).map(|number| format!("/api/v1/namespaces/m/pods/ksm-{number}"));
    assert_eq!(looked_up, expected.collect::<Vec<_>>());
}

/// A pod that has not been asked yet may be slower than those that have answered.
#[tokio::test]
async fn all_pods_are_prepared_only_if_all_were_asked() {
    let (mut api, mut first) = (StubServer::start().await, StubServer::start().await);
    let client = Arc::new(ArcSwap::from_pointee(connect(&api).await));
    let names: Vec<String> = (0..40).map(|number| format!("ksm-{number}")).collect();
    let port = first.url.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let options = PeerOptions { port, identity: None };
    let mut peers = Peers::poll(client, "m".to_owned(), names, &options, 41);
    let pod = r#"{"metadata":{},"status":{"podIP":"127.0.0.1"}}"#;
    let mut was_last_asked = false;
    loop {
        tokio::select! {
            request = api.next_request() => {
                was_last_asked |= request.path.ends_with("/ksm-39");
                if request.path.ends_with("/ksm-0") {
                    request.respond(200, JSON, pod);
                } else {
                    request.refuse(404);
                }
            }
            request = first.next_request() => {
                request.respond(200, "text/plain", "kstatd_kubernetes_shard_stage{total=\"41\"} 1\n");
            }
            () = peers.changed() => {
                if !peers.latest().may_any_be_below(peer_stage::PREPARED) {
                    break;
                }
            }
        }
    }
    assert!(was_last_asked);
}
