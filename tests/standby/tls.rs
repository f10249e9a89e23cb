//! Replicas that show each other their certificate.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConnection, DEFAULT_VERSIONS, StreamOwned};

use super::common::cluster::Cluster;
use super::common::{DEADLINE, Reserved, replace, until};
use super::{Replica, any_certificate, pki};

/// Returns the response to a request over TLS.
fn get(address: SocketAddr, path: &str) -> String {
    let config =
        any_certificate::client(ring::default_provider(), DEFAULT_VERSIONS).with_no_client_auth();
    let connection =
        ClientConnection::new(Arc::new(config), any_certificate::server_name()).expect("client");
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
    let mut stream = StreamOwned::new(connection, stream);
    let head = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Connections that replicas open after a rotation show and expect the new certificate, also beside those from before.
#[test]
fn certificates_rotate_between_replicas() {
    let (cluster, dir) = (Cluster::new(5), tempfile::tempdir().expect("directory"));
    let rotate = || {
        let pki = pki::Pki::new();
        for name in ["server.crt", "server.key"] {
            replace(&dir.path().join(name), &pki.text(name));
        }
    };
    rotate();
    let web = dir.path().join("web.yaml");
    let text = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n\
                http_server_config: {http2: false}\n";
    std::fs::write(&web, text).expect("write");
    let (web, server) = (format!("--tls-config={}", web.display()), cluster.flag());
    let ports = [Reserved::new(), Reserved::new()];
    let own = ports.each_ref().map(|port| port.address);
    let first = Replica::kstatd(own[0], &own, &[&web, &server]);
    first.program.line(&["This replica exposes its metrics"]);
    let second = Replica::kstatd(own[1], &own, &[&web, &server]);
    second.program.line(&["Another replica answers", &own[0].to_string()]);
    first.program.line(&["Another replica answers", &own[1].to_string()]);
    let own_metrics = |replica: &Replica| get(replica.telemetry, "/metrics");
    for replica in [&first, &second] {
        until("synced", || own_metrics(replica).contains("\nkstatd_ready 1\n").then_some(()));
    }
    rotate();
    // It asks the other one over another connection than that of its polls.
    for _ in 0..20 {
        let scraped = get(second.main, "/metrics");
        assert!(scraped.contains(" 200 OK") && !scraped.contains("kube_pod_info"), "{scraped}");
    }
    assert!(own_metrics(&second).contains("\nkstatd_standby_takeovers_total 0\n"));
    assert!(get(first.main, "/metrics").contains("\nkube_pod_info{"));
}
