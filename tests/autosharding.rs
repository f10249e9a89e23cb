//! Pods of a StatefulSet that poll each other's progress, with an API server that knows only these pods.

mod common;
#[path = "web_config/pki.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod pki;

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use common::{Program, Reserved, until};

/// An API server with the StatefulSet `ksm` in the namespace `m`.
struct Api {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    replicas: Mutex<u32>,
    scaled: Condvar,
    /// Lists of StatefulSets are refused, for at least 5 s.
    is_outage: AtomicBool,
    /// The number of refused lists.
    refused: AtomicUsize,
}

impl Api {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let state = Arc::new(State { replicas: Mutex::new(1), ..State::default() });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || while answer(&stream, &shared).is_some() {});
            }
        });
        Self { address, state }
    }

    fn scale(&self, replicas: u32) {
        *self.state.replicas.lock().expect("lock") = replicas;
        self.state.scaled.notify_all();
    }
}

/// Answers a request; `None` when the connection ends.
fn answer(mut stream: &TcpStream, state: &State) -> Option<()> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    lines.by_ref().find(|line| line.as_ref().is_ok_and(String::is_empty))?.ok()?;
    let path = first.split(' ').nth(1)?;
    let now = *state.replicas.lock().expect("lock");
    let set = format!(r#"{{"metadata":{{}},"spec":{{"replicas":{now}}}}}"#);
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let (code, body) = match path {
        "/version" => (200, r#"{"gitVersion":"v1.36.0"}"#.to_owned()),
        "/apis/apps/v1/namespaces/m/statefulsets/ksm" => (200, set),
        "/apis/apps/v1/namespaces/m/statefulsets" if query.contains("watch=true") => {
            // A watch with a connection of its own is not probed.
            query.split('&').find(|part| *part == "timeoutSeconds=36")?;
            // Blocks until the state differs from the listed one; the watch then ends, which causes a list.
            let listed = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
            let listed: u32 = listed?.parse().ok()?;
            let lock = state.replicas.lock().expect("lock");
            drop(state.scaled.wait_while(lock, |there| *there == listed).expect("lock"));
            (200, String::new())
        }
        "/apis/apps/v1/namespaces/m/statefulsets" if state.is_outage.load(Ordering::Relaxed) => {
            state.refused.fetch_add(1, Ordering::Relaxed);
            (503, "{}".to_owned())
        }
        "/apis/apps/v1/namespaces/m/statefulsets" => {
            (200, format!(r#"{{"metadata":{{"resourceVersion":"{now}"}},"items":[{set}]}}"#))
        }
        "/api/v1/pods" if query.contains("sendInitialEvents") => (422, "{}".to_owned()),
        "/api/v1/pods" if query.contains("watch=true") => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            // Until the client disconnects.
            return lines.next().map(drop);
        }
        "/api/v1/pods" => {
            let list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
            (200, list.to_owned())
        }
        path => {
            let number: u32 = path.strip_prefix("/api/v1/namespaces/m/pods/ksm-")?.parse().ok()?;
            let owner =
                r#"{"apiVersion":"apps/v1","kind":"StatefulSet","name":"ksm","controller":true}"#;
            let status = format!(r#"{{"podIP":"{}"}}"#, host(number));
            (200, format!(r#"{{"metadata":{{"ownerReferences":[{owner}]}},"status":{status}}}"#))
        }
    };
    let wait = if code == 503 { "Retry-After: 10\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {code} Made up\r\n{wait}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()
}

fn host(number: u32) -> String {
    format!("127.0.0.{}", number + 2)
}

/// Starts a pod with its telemetry listener on a separate address, and waits until it shows its shard: only a later
/// change is a resharding.
fn pod(api: &Api, number: u32, flags: &[&str]) -> Program {
    let args = [
        format!("--apiserver=http://{}", api.address),
        format!("--pod=ksm-{number}"),
        format!("--telemetry-host={}", host(number)),
    ];
    let fixed = ["--pod-namespace=m", "--resources=pods", "--host=127.0.0.1", "--port=0"];
    let args: Vec<&str> = args.iter().map(String::as_str).chain(fixed).collect();
    let program = Program::start("kube-state-metrics", [&args[..], flags].concat());
    program.line(&["Started self metrics server"]);
    program.line(&["Dropped lost objects"]);
    program
}

/// Waits until each pod has polled the others during a resharding.
fn wait_until_all_have_polled(api: &Api, pods: &[Program]) {
    api.scale(2);
    for pod in pods {
        pod.line(&["Exposed gained objects", "total=2", "Some("]);
    }
}

#[test]
fn pods_poll_each_other_over_tls() {
    let (pki, dir) = (pki::Pki::new(), tempfile::tempdir().expect("directory"));
    for name in ["server.crt", "server.key", "ca.crt"] {
        std::fs::write(dir.path().join(name), pki.text(name)).expect("write");
    }
    let files = "cert_file: server.crt, key_file: server.key";
    for section in [files.to_owned(), format!("{files}, client_auth_type: RequireAnyClientCert")] {
        let web = dir.path().join("web.yaml");
        std::fs::write(&web, format!("tls_server_config: {{{section}}}\n")).expect("write");
        let (api, port) = (Api::start(), Reserved::new());
        let port = format!("--telemetry-port={}", port.address.port());
        let tls = format!("--tls-config={}", web.display());
        let pods = [0, 1].map(|number| pod(&api, number, &[&port, &tls]));
        wait_until_all_have_polled(&api, &pods);
    }
}

/// A process that has taken over a pod's address, but has another certificate, is not trusted.
#[test]
fn peers_with_another_certificate_are_not_trusted() {
    let (pki, dir) = (pki::Pki::new(), tempfile::tempdir().expect("directory"));
    let web = |name: &str, certificate: &str, key: &str| {
        std::fs::write(dir.path().join(certificate), pki.text(certificate)).expect("write");
        std::fs::write(dir.path().join(key), pki.text(key)).expect("write");
        let text = format!("tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\n");
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("write");
        format!("--tls-config={}", path.display())
    };
    let flags =
        [web("a.yaml", "server.crt", "server.key"), web("b.yaml", "server2.crt", "server2.key")];
    let (api, port) = (Api::start(), Reserved::new());
    let port = format!("--telemetry-port={}", port.address.port());
    let pods = [0, 1].map(|number: u32| pod(&api, number, &[&port, &flags[number as usize]]));
    api.scale(2);
    for pod in &pods {
        pod.line(&["Exposed gained objects", "total=2", "[None]"]);
    }
}

#[test]
fn pods_poll_each_other_after_listeners_move() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("options.yaml");
    let (api, ports) = (Api::start(), [Reserved::new(), Reserved::new()]);
    let options = |path: &Path, port: &Reserved| {
        common::replace(path, &format!("telemetry_port: {}\n", port.address.port()));
    };
    options(&file, &ports[0]);
    let config = format!("--config={}", file.display());
    let pods = [0, 1].map(|number| pod(&api, number, &[&config]));
    options(&file, &ports[1]);
    for number in [0, 1] {
        let moved = format!("{}:{}", host(number), ports[1].address.port());
        until("it has moved", || TcpStream::connect(&moved).ok());
    }
    for pod in &pods {
        pod.line(&["The new configuration is in force"]);
    }
    wait_until_all_have_polled(&api, &pods);
}

/// The watch of the StatefulSet fails as list/watches do: few lines, and requests when the server asks for them.
#[test]
fn an_outage_of_the_stateful_set_is_logged_and_waited_for() {
    let (api, port) = (Api::start(), Reserved::new());
    let pod = pod(&api, 0, &[&format!("--telemetry-port={}", port.address.port())]);
    api.state.is_outage.store(true, Ordering::Relaxed);
    api.scale(2);
    pod.line(&["Failed to list or watch", "server_error", "statefulset ksm in m"]);
    assert_eq!(api.state.refused.load(Ordering::Relaxed), 1);
    api.state.is_outage.store(false, Ordering::Relaxed);
    pod.line(&["Listed and watched again", "statefulset ksm in m"]);
    pod.line(&["The shard has changed", "of=2"]);
}
