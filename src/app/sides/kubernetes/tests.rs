//! Tests of the Kubernetes side with servers that answer no request, or only those about a pod.

mod history;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::app::standby::gated;
use crate::cli::config::{self, Load};
use crate::cli::native::RunArgs;
use crate::exposition::Source;

/// Starts a side without an API server.
async fn started() -> (Config, Box<dyn Side>) {
    started_with(RunArgs::default(), "http://127.0.0.1:1").await
}

fn config_with(mut args: RunArgs, apiserver: &str) -> Config {
    (args.listen, args.telemetry_listen) = (":1".to_owned(), ":2".to_owned());
    args.kube.0.apiserver = apiserver.to_owned();
    args.kube.0.resources.insert("configmaps".to_owned());
    config::kstatd(&args, Load::First, |_| true).expect("a configuration")
}

async fn started_with(args: RunArgs, apiserver: &str) -> (Config, Box<dyn Side>) {
    let config = config_with(args, apiserver);
    let metrics = KubeMetrics::default();
    let names = Arc::default();
    let start = StartContext {
        config: &config,
        metrics: &metrics,
        names: &names,
        pods: None,
        merged_metrics: None,
    };
    let side = KubeSide::start(start).await.expect("a side");
    (config, side)
}

#[tokio::test]
async fn unlistable_kinds_are_waited_for_up_to_30_s() {
    let (_config, mut side) = started().await;
    let source = gated(&side.features(), None);
    while !source.missing().iter().any(|kind| kind.starts_with("configmaps: ")) {
        let _ = tokio::time::timeout(Duration::from_millis(10), side.next_event()).await;
    }
    ends_after_thirty_seconds(&*source).await;
    side.stop().await;
}

/// Checks that one kind is missing for 30 s, and then not waited for any more.
async fn ends_after_thirty_seconds(source: &dyn Source) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(source.missing().len(), 1);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(source.missing(), Vec::<String>::new());
}

/// Returns the arguments of the pod `ksm-0` of a StatefulSet.
fn pod_args() -> RunArgs {
    let mut args = RunArgs::default();
    (args.kube.0.pod, args.kube.0.pod_namespace) = ("ksm-0".to_owned(), "m".to_owned());
    args
}

/// A server that answers requests for the pod `ksm-0` and its StatefulSet while `knows_pod`, and refuses all others.
#[derive(Default)]
struct Server {
    knows_pod: AtomicBool,
    /// The further headers of refusals.
    headers: &'static str,
    requests: Mutex<String>,
}

impl Server {
    /// Starts to answer and returns the URL.
    fn serve(self: &Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that has gone needs no answer.
                let _ = answer(stream, &server);
            }
        });
        url
    }

    /// Waits until there were requests for all of these paths.
    async fn expect_requests(&self, side: &mut dyn Side, paths: &[&str]) {
        let were_asked = || {
            let requests = self.requests.lock().expect("the requests");
            paths.iter().all(|path| requests.contains(path))
        };
        let asked = async {
            while !were_asked() {
                let _ = tokio::time::timeout(Duration::from_millis(10), side.next_event()).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asked).await.expect("requests");
    }
}

fn answer(mut stream: std::net::TcpStream, server: &Server) -> std::io::Result<()> {
    let Server { knows_pod, headers, requests } = server;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        request.extend(byte);
    }
    let request = String::from_utf8_lossy(&request);
    requests.lock().expect("the requests").push_str(&request);
    let asks_for = |path: &str| request.contains(path);
    let owner = r#"{"apiVersion":"apps/v1","kind":"StatefulSet","name":"ksm","controller":true}"#;
    let (code, body) = match () {
        () if !knows_pod.load(Ordering::Relaxed) => (503, "{}".to_owned()),
        () if asks_for("/pods/ksm-0 ") => {
            (200, format!(r#"{{"metadata":{{"ownerReferences":[{owner}]}}}}"#))
        }
        () if asks_for("/statefulsets/ksm ") => {
            (200, r#"{"metadata":{},"spec":{"replicas":1}}"#.to_owned())
        }
        () => (503, "{}".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {code} Made up\r\n{headers}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The time until the shard of this pod is known is not taken from that of its kinds.
#[tokio::test]
async fn kinds_are_waited_for_after_the_shard_is_found() {
    let server = Arc::<Server>::default();
    let (_config, mut side) = started_with(pod_args(), &server.serve()).await;
    let source = gated(&side.features(), None);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(40)).await;
    tokio::time::resume();
    assert_eq!(source.missing(), ["the first lists"]);
    server.knows_pod.store(true, Ordering::Relaxed);
    loop {
        let missing = source.missing();
        assert!(!missing.is_empty(), "a scrape would lack config maps");
        if missing.iter().any(|kind| kind.starts_with("configmaps: ")) {
            break;
        }
        let _ = tokio::time::timeout(Duration::from_millis(10), side.next_event()).await;
    }
    ends_after_thirty_seconds(&*source).await;
    side.stop().await;
}

/// The wait that a server asked for, when it was asked for the shard, does not delay requests to another one.
#[tokio::test]
async fn another_server_is_asked_for_the_shard_at_once() {
    let watches = ["/statefulsets?", "/configmaps?"];
    for (knows_pod, refused) in [(false, &["/pods/ksm-0 "][..]), (true, &watches)] {
        let headers = "Retry-After: 120\r\n";
        let first = Arc::new(Server { knows_pod: knows_pod.into(), headers, ..Server::default() });
        let other = Arc::new(Server { knows_pod: true.into(), ..Server::default() });
        let (_config, mut side) = started_with(pod_args(), &first.serve()).await;
        first.expect_requests(&mut *side, refused).await;
        let config = config_with(pod_args(), &other.serve());
        side.prepare(&config).expect("usable").expect("a connection").await.expect("a client");
        assert_eq!(side.reload(&config), Ok(()));
        other.expect_requests(&mut *side, &watches).await;
        side.stop().await;
    }
}

/// Refuses and logs a reload without a preceding `prepare`.
#[tokio::test]
async fn a_reload_without_prepare_is_refused() {
    let (config, mut side) = started().await;
    assert!(
        side.reload(&config).expect_err("nothing is prepared").to_string().contains("connection")
    );
    let preparing = side.prepare(&config).expect("usable").expect("something to do");
    preparing.await.expect("a connection");
    assert_eq!(side.reload(&config), Ok(()));
    side.stop().await;
}

#[test]
fn kubernetes_family_names_and_their_openmetrics_suffixes_are_reserved() {
    let names: BTreeSet<String> = built_in().collect();
    for (name, want) in [
        ("kube_pod_status_ready", true),
        ("kube_pod_container_status_restarts_total", true),
        ("kube_pod_container_status_restarts", true),
        ("kube_pod_container_status_restarts_created", true),
        // No gauge collides with these names.
        ("kube_pod_status_ready_total", false),
        ("kube_pod_status_ready_created", false),
    ] {
        assert_eq!(names.contains(name), want, "{name}");
    }
}
