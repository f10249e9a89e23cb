//! Polls of the other pods of a StatefulSet.

use arc_swap::ArcSwap;

use super::*;
use crate::kube::peers::{PeerOptions, Peers};

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
