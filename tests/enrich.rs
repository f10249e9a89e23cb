//! Lines of StatsD senders that get labels of their pods, through the program. Pods have addresses in 127.0.0.0/8, from which
//! the tests send.

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;

use common::cluster::Cluster;
use common::{Program, get, replace, run, until, valid_text};
use kstatd_double::Options;

const HERE: [&str; 4] = [
    "--listen=127.0.0.1:0",
    "--telemetry-listen=127.0.0.1:0",
    "--statsd.listen-udp=0.0.0.0:0",
    "--statsd.listen-tcp=0.0.0.0:0",
];

fn cluster() -> Cluster {
    Cluster::with(&Options { pods: 200, local_pods: true, ..Options::default() })
}

/// The labels of a series.
type Labels = BTreeMap<String, String>;

/// A pod as the families of pods show it.
#[derive(Clone, Debug)]
struct Pod {
    address: IpAddr,
    labels: Labels,
}

struct Running {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Running {
    fn start(cluster: &Cluster, flags: &[&str]) -> Self {
        let running = Self::unready(cluster, flags);
        until("the first lists", || {
            get(running.telemetry, "/metrics").text().contains("\nkstatd_ready 1\n").then_some(())
        });
        running
    }

    fn unready(cluster: &Cluster, flags: &[&str]) -> Self {
        let program = Program::start("kstatd", [&HERE[..], flags, &[&cluster.flag()]].concat());
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { program, main, telemetry }
    }

    /// Returns the address of a listener as seen from the own host.
    fn listener(&self, protocol: &str) -> SocketAddr {
        let port = self.program.address(&["Accepting StatsD Traffic"], protocol).port();
        ([127, 0, 0, 1], port).into()
    }

    /// Sends a datagram from an address.
    fn udp(&self, from: IpAddr, text: &str) {
        let socket = UdpSocket::bind((from, 0)).expect("a local address");
        socket.send_to(text.as_bytes(), self.listener("udp")).expect("sent");
    }

    /// Returns the series of a family with their values.
    fn series(&self, path: &str, family: &str) -> Vec<(Labels, f64)> {
        series(&get(self.main, path).text(), family)
    }

    /// Returns the value of an own metric, 0 if it is absent.
    fn own(&self, family: &str, value: &str) -> f64 {
        let all = series(&get(self.telemetry, "/metrics").text(), family);
        let of_value = |(labels, _): &&(Labels, f64)| labels.values().any(|label| label == value);
        all.iter().filter(of_value).map(|(_, value)| value).sum()
    }

    /// Returns the pods that have an address of their own and a workload.
    fn pods(&self) -> Vec<Pod> {
        let infos = self.series("/metrics/kubernetes", "kstatd_pod_workload_info");
        let infos: BTreeMap<_, _> =
            infos.into_iter().map(|(labels, _)| (labels["uid"].clone(), labels)).collect();
        let phases = self.series("/metrics/kubernetes", "kube_pod_status_phase");
        let is_running = |uid: &String| {
            phases.iter().any(|(labels, value)| {
                *value == 1.0 && labels["uid"] == *uid && labels["phase"] == "Running"
            })
        };
        let pods = self.series("/metrics/kubernetes", "kube_pod_info").into_iter();
        let pods = pods.filter_map(|(labels, _)| {
            let address = labels.get("pod_ip")?.parse().ok()?;
            let is_own = labels["host_network"] == "false" && is_running(&labels["uid"]);
            is_own.then(|| Pod { address, labels: infos[&labels["uid"]].clone() })
        });
        pods.collect()
    }
}

fn series(text: &str, family: &str) -> Vec<(Labels, f64)> {
    let lines = valid_text(text).into_iter().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| line.split(['{', ' ']).next() == Some(family));
    let parsed = lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let labels = series.split_once('{').map_or("", |(_, labels)| labels);
        let labels = labels.trim_end_matches('}').split("\",").filter_map(|label| {
            let (name, value) = label.split_once("=\"")?;
            Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
        });
        (labels.collect(), value.parse().expect("a number"))
    });
    parsed.collect()
}

/// Counts pods by these of their labels.
fn count(pods: &[Pod], names: &[&str]) -> BTreeMap<Vec<String>, f64> {
    let mut counts = BTreeMap::new();
    for pod in pods {
        let key = names.iter().map(|name| pod.labels[*name].clone()).collect();
        *counts.entry(key).or_insert(0.0) += 1.0;
    }
    counts
}

/// Returns a family's values by these labels, which are all of its labels.
fn values(series: Vec<(Labels, f64)>, names: &[&str]) -> BTreeMap<Vec<String>, f64> {
    let series = series.into_iter().map(|(labels, value)| {
        assert_eq!(labels.keys().map(String::as_str).collect::<Vec<_>>(), names);
        (labels.into_values().collect(), value)
    });
    series.collect()
}

const WORKLOAD: [&str; 3] = ["namespace", "workload", "workload_type"];

/// Over UDP and TCP, a line counts for the workload that the families of pods name, also in protobuf's order and compressed.
#[test]
fn lines_get_the_workloads_of_their_senders() {
    let cluster = cluster();
    let program = Running::start(&cluster, &["--statsd.enrich=workload"]);
    let pods = program.pods();
    assert!(pods.len() > 50, "{pods:?}");
    for pod in &pods {
        program.udp(pod.address, "by_udp:1|c\nby_udp:1|c");
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        socket.bind(&SocketAddr::new(pod.address, 0).into()).expect("bound");
        socket.connect(&program.listener("tcp").into()).expect("connected");
        TcpStream::from(socket).write_all(b"by_tcp:1|c\n").expect("sent");
    }
    let total = pods.len() as f64;
    until("all lines", || {
        (program.own("kstatd_statsd_enriched_lines_total", "address") == 3.0 * total).then_some(())
    });
    let want = count(&pods, &WORKLOAD);
    assert!(want.len() > 5 && want.len() < pods.len());
    assert_eq!(values(program.series("/metrics", "by_tcp"), &WORKLOAD), want);
    let twice = want.into_iter().map(|(key, pods)| (key, 2.0 * pods)).collect();
    assert_eq!(values(program.series("/metrics/statsd", "by_udp"), &WORKLOAD), twice);
}

/// The labels of a selection, and the sender in the explanation of a line.
#[test]
fn the_selection_decides_about_labels_and_explain_shows_them() {
    let cluster = cluster();
    let program = Running::start(&cluster, &["--statsd.enrich=pod,node"]);
    let pod = program.pods().remove(0);
    program.udp(pod.address, "a:1|c|#pod:mine");
    let names = ["exported_pod", "node", "pod"];
    let labels =
        until("the series", || program.series("/metrics", "a").pop().map(|(labels, _)| labels));
    assert_eq!(labels.keys().map(String::as_str).collect::<Vec<_>>(), names);
    assert_eq!((&labels["pod"], &labels["node"]), (&pod.labels["pod"], &pod.labels["node"]));
    let explain = |flags: &[&str]| {
        let addr = format!("--addr={}", program.main);
        run("kstatd", [&["explain", &addr, "a:1|c|#pod:mine"], flags].concat()).stdout
    };
    let sender = format!("--sender={}", pod.address);
    let text = explain(&[&sender]);
    let want = format!("sender: pod {}, found by address: ", pod.labels["uid"]);
    assert!(text.contains(&want), "{text}");
    assert!(text.contains("exported_pod=\"mine\",node="), "{text}");
    assert!(explain(&[]).contains("sender: not known (no_origin)"));
    let addr = format!("--addr={}", program.main);
    let claimed = format!("a:1|c|#x:y|e:it-false,cn-app,pu-{}", pod.labels["uid"]);
    let text = run("kstatd", ["explain", &addr, &claimed]).stdout;
    assert!(text.contains("found by external_data"), "{text}");
    let json = run("kstatd", ["explain", &addr, &sender, &claimed, "--output=json"]).stdout;
    assert!(json.contains("\"outcome\":\"address\""), "{json}");
}

/// Lines are kept without labels while the pods or their owners cannot be listed, the status names the kind, and a relist or
/// an expired watch loses nothing.
#[test]
fn lines_are_kept_while_pods_cannot_be_listed() {
    let cluster = cluster();
    let reference = Running::start(&cluster, &[]);
    let pods = reference.pods();
    let is_deployment = |pod: &&Pod| pod.labels["workload_type"] == "deployment";
    let pod = pods.iter().find(is_deployment).expect("a Deployment").clone();
    drop(reference);
    cluster.double.refuse("pods", Some(403));
    cluster.double.refuse("replicasets", Some(403));
    let program = Running::unready(&cluster, &["--statsd.enrich=workload"]);
    let status = |part: &str| {
        until(part, || {
            let status = run("kstatd", ["status", &format!("--addr={}", program.main)]).stdout;
            (status.contains(part) && status.contains("403")).then_some(())
        });
    };
    status("pods");
    program.udp(pod.address, "a:1|c");
    let unknown = "kstatd_statsd_unknown_sender_lines_total";
    until("not synced", || (program.own(unknown, "not_synced") == 1.0).then_some(()));
    assert_eq!(program.series("/metrics/statsd", "a"), [(Labels::new(), 1.0)]);
    cluster.double.refuse("pods", None);
    until("the pods", || {
        program.udp(pod.address, "b:1|c");
        (program.own(unknown, "unknown_workload") > 0.0).then_some(())
    });
    status("replicasets");
    cluster.double.refuse("replicasets", None);
    until("the workload", || {
        program.udp(pod.address, "c:1|c");
        program.series("/metrics/statsd", "c").into_iter().find(|(labels, _)| !labels.is_empty())
    });
    // Over an expired watch the sender stays known.
    let before = program.own(unknown, "not_synced") + program.own(unknown, "unknown_workload");
    cluster.double.forget_history();
    cluster.double.set_events_per_second(200.0);
    let changes = cluster.double.changes();
    until("changes", || (cluster.double.changes() > changes + 200).then_some(()));
    cluster.double.set_events_per_second(0.0);
    let after = program.own(unknown, "not_synced") + program.own(unknown, "unknown_workload");
    assert_eq!(before, after);
}

/// A change of the configuration that lists pods anew forgets no sender and ends no series.
#[test]
fn senders_stay_known_over_a_reload() {
    let cluster = cluster();
    let directory = tempfile::tempdir().expect("directory");
    let file = directory.path().join("options.yml");
    replace(&file, "metric_denylist: {\"^kstatd_workload_pods$\": {}}\n");
    let config = format!("--config={}", file.display());
    let program = Running::start(&cluster, &["--statsd.enrich=workload", &config]);
    let pod = program.pods().remove(0);
    let count = || program.series("/metrics", "a").first().map_or(0.0, |(_, value)| *value);
    let mut sent = 0.0;
    let mut send = || {
        program.udp(pod.address, "a:1|c");
        sent += 1.0;
        sent
    };
    let wanted = send();
    until("the first line", || (count() == wanted).then_some(()));
    replace(&file, "metric_denylist: {\"^kube_pod_status_phase$\": {}}\n");
    until("the new configuration", || {
        send();
        let workloads = program.series("/metrics", "kstatd_workload_pods");
        let phases = program.series("/metrics", "kube_pod_status_phase");
        (!workloads.is_empty() && phases.is_empty()).then_some(())
    });
    let wanted = send();
    until("every line in one series", || (count() == wanted).then_some(()));
    assert_eq!(program.series("/metrics", "a").len(), 1);
    assert_eq!(program.own("kstatd_statsd_enriched_lines_total", "address"), wanted);
}

/// A process of a node watches only the pods of the node, without families, and finds the same workloads.
#[test]
fn a_process_may_know_the_pods_of_its_node_only() {
    let cluster = cluster();
    let reference = Running::start(&cluster, &[]);
    let pods = reference.pods();
    drop(reference);
    let node = pods[0].labels["node"].clone();
    let program = Running::start(
        &cluster,
        &[
            "--statsd.enrich=workload",
            "--resources=pods",
            "--metric-denylist=.*",
            &format!("--node={node}"),
        ],
    );
    let (here, elsewhere): (Vec<Pod>, Vec<Pod>) =
        pods.into_iter().partition(|pod| pod.labels["node"] == node);
    assert!(here.len() > 3 && elsewhere.len() > 3);
    here.iter().chain(&elsewhere[..3]).for_each(|pod| program.udp(pod.address, "a:1|c"));
    until("all lines", || {
        let known = program.own("kstatd_statsd_enriched_lines_total", "address");
        let unknown = program.own("kstatd_statsd_unknown_sender_lines_total", "unknown_address");
        (known == here.len() as f64 && unknown == 3.0).then_some(())
    });
    let mut all = program.series("/metrics", "a");
    all.retain(|(labels, _)| !labels.is_empty());
    assert_eq!(values(all, &WORKLOAD), count(&here, &WORKLOAD));
    let body = get(program.main, "/metrics/kubernetes").text();
    assert!(!body.contains("kube_") && !body.contains("kstatd_"), "{body}");
}

/// The credentials of a Unix socket show that this process is in no pod, so a container ID in the line counts.
#[test]
fn unix_sockets_tell_the_process() {
    let cluster = cluster();
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("socket");
    let unix = format!("--statsd.listen-unixgram={}", path.display());
    let program = Running::start(&cluster, &["--statsd.enrich=workload", &unix]);
    let uid = program.pods()[0].labels["uid"].clone();
    let socket = UnixDatagram::unbound().expect("a socket");
    for line in ["a:1|c".to_owned(), format!("a:1|c|#x:y|e:it-false,cn-app,pu-{uid}")] {
        socket.send_to(line.as_bytes(), &path).expect("sent");
    }
    let unknown = |cause| program.own("kstatd_statsd_unknown_sender_lines_total", cause);
    until("both lines", || {
        // A test in a container whose cgroup is visible has an ID that no pod has.
        let unknown = unknown("host_process") + unknown("unknown_container");
        let known = program.own("kstatd_statsd_enriched_lines_total", "external_data");
        ((unknown, known) == (1.0, 1.0)).then_some(())
    });
}

/// The flag needs a cluster, and does not exist under the name of the original.
#[test]
fn the_flag_is_refused_where_it_has_no_effect() {
    let output = run("statsd_exporter", ["--statsd.enrich=workload"]);
    assert!(!output.status.success() && output.stderr.contains("only kstatd run"), "{output:?}");
    let output = run("kstatd", ["run", "--statsd.enrich=workload", "--kubeconfig="]);
    assert!(
        !output.status.success() && output.stderr.contains("--statsd.enrich needs"),
        "{output:?}"
    );
    let output = run("kstatd", ["run", "--statsd.enrich=pods"]);
    assert!(
        !output.status.success() && output.stderr.contains("unknown label \"pods\""),
        "{output:?}"
    );
}
