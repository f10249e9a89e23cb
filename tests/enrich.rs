//! Lines of StatsD senders that get labels of their pods, through the program. Pods have addresses in 127.0.0.0/8, from which
//! the tests send.

#[path = "common/api_server.rs"]
mod api_server;
mod common;
#[path = "enrich/containers.rs"]
mod containers;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;

use api_server::ApiServer;
use common::cluster::Cluster;
use common::{DEADLINE, Gate, Passage, Program, get, replace, request, run, until, valid_text};
use kstatd_double::Options;
use serde_json::json;

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
        running.wait_until_ready();
        running
    }

    fn wait_until_ready(&self) {
        until("the first lists", || {
            get(self.telemetry, "/metrics").text().contains("\nkstatd_ready 1\n").then_some(())
        });
    }

    fn unready(cluster: &Cluster, flags: &[&str]) -> Self {
        Self::unready_at(&cluster.flag(), flags)
    }

    fn unready_at(server: &str, flags: &[&str]) -> Self {
        let program = Program::start("kstatd", [&HERE[..], flags, &[server]].concat());
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
        (labels_of(series), value.parse().expect("a number"))
    });
    parsed.collect()
}

fn labels_of(series: &str) -> Labels {
    let labels = series.split_once('{').map_or("", |(_, labels)| labels);
    let labels = labels.trim_end_matches('}').split("\",").filter_map(|label| {
        let (name, value) = label.split_once("=\"")?;
        Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
    });
    labels.collect()
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

/// A replica that starts takes over lines once it knows the pods that sent them.
#[test]
fn a_new_replica_waits_for_the_pods_of_the_lines_it_takes_over() {
    let cluster = cluster();
    let standby = |peer: SocketAddr| {
        let peers = format!("--standby-peers={peer}");
        Running::unready(&cluster, &["--statsd.enrich=workload", "--standby", &peers])
    };
    let first = standby(([127, 0, 0, 1], 1).into());
    first.wait_until_ready();
    until("the active replica", || {
        let infos = first.series("/metrics/kubernetes", "kstatd_pod_workload_info");
        (!infos.is_empty()).then_some(())
    });
    let pods = first.pods();
    cluster.double.refuse("pods", Some(503));
    let second = standby(first.telemetry);
    let up = |value| move |(_, up): &(Labels, f64)| *up == value;
    until("the other replica", || {
        let peers = get(second.telemetry, "/metrics").text();
        series(&peers, "kstatd_standby_peer_up").iter().any(up(1.0)).then_some(())
    });
    for pod in &pods {
        first.udp(pod.address, "a:1|c");
    }
    until("the lines", || {
        let sum: f64 = first.series("/metrics/statsd", "a").iter().map(|(_, value)| value).sum();
        (sum == pods.len() as f64).then_some(())
    });
    cluster.double.refuse("pods", None);
    second.wait_until_ready();
    let lines = "kstatd_standby_lines_total";
    until("lines of the other replica", || {
        let all = series(&get(second.telemetry, "/metrics").text(), lines);
        (all.first()?.1 == pods.len() as f64).then_some(())
    });
    drop(first);
    let taken_over = until("the takeover", || {
        let series = second.series("/metrics/statsd", "a");
        (!series.is_empty()).then_some(series)
    });
    assert_eq!(values(taken_over, &WORKLOAD), count(&pods, &WORKLOAD));
}

/// A change of the configuration that lists pods anew forgets no sender and ends no series, also where the server refuses
/// the new lists.
#[test]
fn senders_stay_known_over_a_reload() {
    for refused in [&[][..], &["pods"], &["replicasets"]] {
        let cluster = cluster();
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("options.yml");
        replace(&file, "metric_denylist: {\"^kstatd_workload_pods$\": {}}\n");
        let config = format!("--config={}", file.display());
        let pods = Running::start(&cluster, &[]).pods();
        let is_deployment = |pod: &&Pod| pod.labels["workload_type"] == "deployment";
        let pod = pods.iter().find(is_deployment).expect("a Deployment");
        let names: BTreeSet<&str> = pods.iter().map(|pod| &*pod.labels["namespace"]).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let namespaces = format!("--namespaces={}", names.join(","));
        let program = Running::start(&cluster, &["--statsd.enrich=workload", &config, &namespaces]);
        let count = || program.series("/metrics", "a").first().map_or(0.0, |(_, value)| *value);
        let mut sent = 0.0;
        let mut send = || {
            program.udp(pod.address, "a:1|c");
            sent += 1.0;
            sent
        };
        let wanted = send();
        until("the first line", || (count() == wanted).then_some(()));
        for kind in refused {
            cluster.double.refuse(&format!("{}/{kind}", pod.labels["namespace"]), Some(403));
        }
        replace(&file, "metric_denylist: {\"^kube_pod_status_phase$\": {}}\n");
        until("the new configuration", || {
            send();
            let workloads = program.series("/metrics", "kstatd_workload_pods");
            let phases = program.series("/metrics", "kube_pod_status_phase");
            (!workloads.is_empty() && phases.is_empty()).then_some(())
        });
        let wanted = send();
        until("every line in one series", || (count() == wanted).then_some(()));
        assert_eq!(program.series("/metrics", "a").len(), 1, "{refused:?}");
        assert_eq!(program.own("kstatd_statsd_enriched_lines_total", "address"), wanted);
    }
}

/// Rules of a new mapping apply to lines of known senders, relays get lines as received, and each format of a scrape has the
/// same labels, compressed or not.
#[test]
fn mappings_relays_and_formats_apply_to_lines_of_pods() {
    let cluster = cluster();
    let directory = tempfile::tempdir().expect("directory");
    let mapping = directory.path().join("mapping.yml");
    replace(&mapping, "mappings:\n- {match: m.*, name: first, labels: {step: $1}}\n");
    let relay = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    relay.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let program = Running::start(
        &cluster,
        &[
            "--statsd.enrich=workload",
            "--enable-gzip-encoding",
            &format!("--statsd.mapping-config={}", mapping.display()),
            &format!("--statsd.relay.address={}", relay.local_addr().expect("an address")),
        ],
    );
    let pod = program.pods().remove(0);
    let line = "m.x:1|c|#namespace:mine,step:2";
    program.udp(pod.address, line);
    let mut relayed = [0; 512];
    let length = relay.recv(&mut relayed).expect("a relayed line");
    assert_eq!(String::from_utf8_lossy(&relayed[..length]).trim_end(), line);
    let mut want: Labels =
        WORKLOAD.iter().map(|name| ((*name).to_owned(), pod.labels[*name].clone())).collect();
    want.insert("exported_namespace".to_owned(), "mine".to_owned());
    let of_first = want.clone().into_iter().chain([("step".to_owned(), "x".to_owned())]).collect();
    let first = until("the first rule", || program.series("/metrics", "first").pop());
    assert_eq!(first, (of_first, 1.0));
    replace(&mapping, "mappings:\n- {match: m.*, name: second, labels: {workload: $1}}\n");
    program.program.signal("HUP");
    let second = until("the second rule", || {
        program.udp(pod.address, line);
        program.series("/metrics", "second").pop()
    });
    want.insert("exported_workload".to_owned(), "x".to_owned());
    want.insert("step".to_owned(), "2".to_owned());
    assert_eq!(second.0, want);
    let protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                    encoding=delimited";
    for accept in ["text/plain", "application/openmetrics-text", protobuf] {
        let scrape = |more: &[(&str, &str)]| {
            let headers = [&[("Accept", accept)], more].concat();
            request(program.main, "GET", "/metrics/statsd", &headers).expect("a response")
        };
        let (plain, packed) = (scrape(&[]), scrape(&[("Accept-Encoding", "gzip")]));
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{accept}");
        let mut unpacked = Vec::new();
        flate2::read::MultiGzDecoder::new(&packed.body[..])
            .read_to_end(&mut unpacked)
            .expect("gzip");
        for body in [plain.body, unpacked] {
            let labels: Vec<Labels> = if accept == protobuf {
                let samples = support::exposition::any_protobuf_samples(&body);
                let second = samples.keys().filter(|series| series.starts_with("second"));
                second.map(|series| labels_of(series)).collect()
            } else {
                let text = String::from_utf8(body).expect("text");
                let lines = text.lines().filter(|line| line.starts_with("second"));
                let lines = lines.filter(|line| !line.contains("_created{"));
                lines.map(|line| labels_of(line.rsplit_once(' ').expect("a value").0)).collect()
            };
            assert_eq!(labels, [want.clone()], "{accept}");
        }
    }
}

/// Each shard of objects knows the senders of all pods, so a line counts the same wherever it arrives.
#[test]
fn each_shard_knows_all_senders() {
    let cluster = cluster();
    let pods = Running::start(&cluster, &[]).pods();
    for shard in ["--shard=0", "--shard=1"] {
        let program =
            Running::start(&cluster, &["--statsd.enrich=workload", shard, "--total-shards=2"]);
        assert!((1..pods.len()).contains(&program.pods().len()), "{shard} has a part of the pods");
        pods.iter().for_each(|pod| program.udp(pod.address, "a:1|c"));
        until("all lines", || {
            let known = program.own("kstatd_statsd_enriched_lines_total", "address");
            (known == pods.len() as f64).then_some(())
        });
        assert_eq!(values(program.series("/metrics", "a"), &WORKLOAD), count(&pods, &WORKLOAD));
    }
}

/// While the API server cannot be reached, known senders stay known, for a bounded number of requests. A process that starts
/// meanwhile keeps lines without labels, and knows the senders when it has listed.
#[test]
fn senders_stay_known_without_the_api_server() {
    let cluster = cluster();
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let server = format!("--apiserver=http://{}", gate.address());
    let flags = ["--statsd.enrich=workload", "--resources=pods"];
    let start = || Running::unready_at(&server, &flags);
    let program = start();
    program.wait_until_ready();
    let pod = program.pods().remove(0);
    let requests = |program: &Running| {
        let all = get(program.telemetry, "/metrics").text();
        series(&all, "kube_state_metrics_list_total")
            .into_iter()
            .chain(series(&all, "kube_state_metrics_watch_total"))
            .map(|(_, value)| value)
            .sum::<f64>()
    };
    gate.set(Passage::Cut);
    let asked = requests(&program);
    assert!(asked > 0.0);
    let restarted = start();
    for _ in 0..20 {
        program.udp(pod.address, "b:1|c");
        restarted.udp(pod.address, "b:1|c");
    }
    let want = BTreeMap::from([(WORKLOAD.map(|name| pod.labels[name].clone()).to_vec(), 20.0)]);
    until("lines with labels", || {
        let have = values(program.series("/metrics/statsd", "b"), &WORKLOAD);
        (have == want).then_some(())
    });
    let unknown =
        |program: &Running| program.own("kstatd_statsd_unknown_sender_lines_total", "not_synced");
    until("lines without labels", || (unknown(&restarted) == 20.0).then_some(()));
    assert_eq!(restarted.series("/metrics/statsd", "b"), [(Labels::new(), 20.0)]);
    assert!(requests(&program) < asked + 100.0, "{} {asked}", requests(&program));
    gate.set(Passage::Open);
    until("a known sender again", || {
        restarted.udp(pod.address, "c:1|c");
        let of_pod = restarted.series("/metrics/statsd", "c").into_iter();
        of_pod.map(|(labels, _)| labels).find(|labels| !labels.is_empty())
    });
    assert_eq!(program.series("/metrics/statsd", "b").len(), 1);
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

/// Unknown senders in a full budget: no line is lost, each is counted by cause, and pods that have a series keep it.
#[test]
fn unknown_senders_share_a_full_budget() {
    let cluster = cluster();
    let flags = ["--statsd.enrich=pod", "--limit.series-per-metric=5"];
    let program = Running::start(&cluster, &flags);
    let pods = &program.pods()[..30];
    let sum = |wanted: f64| {
        until("all lines", || {
            let all = program.series("/metrics/statsd", "a");
            assert!(all.len() <= 5, "{all:?}");
            (all.iter().map(|(_, value)| value).sum::<f64>() == wanted).then_some(all)
        })
    };
    for (number, pod) in (1..).zip(pods) {
        program.udp(pod.address, "a:1|c");
        sum(f64::from(number));
    }
    for stranger in 1..=30 {
        program.udp([127, 9, 9, stranger].into(), &format!("a:1|c\na:1|c|#user:{stranger}"));
    }
    sum(90.0);
    pods.iter().for_each(|pod| program.udp(pod.address, "a:1|c"));
    let all = sum(120.0).into_iter().map(|(labels, value)| (labels, value as u64));
    let of_pod = |pod: &Pod| (Labels::from([("pod".to_owned(), pod.labels["pod"].clone())]), 2);
    let rest = Labels::from([("otel_metric_overflow".to_owned(), "true".to_owned())]);
    let want = pods[..4].iter().map(of_pod).chain([(rest, 112)]);
    assert_eq!(all.collect::<BTreeMap<_, _>>(), want.collect());
    assert_eq!(program.own("kstatd_statsd_enriched_lines_total", "address"), 60.0);
    assert_eq!(program.own("kstatd_statsd_unknown_sender_lines_total", "unknown_address"), 60.0);
}

/// Owners that own each other, or themselves: the chain of a pod ends at its ReplicaSet's owner, with few requests.
#[test]
fn cyclic_owners_end() {
    let server = ApiServer::start();
    let object = |name: &str, owner: &str| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true});
        json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": "1", "ownerReferences": [owner]})
    };
    let pod = |name: &str, owner: &str, last: u8| {
        let status = json!({"phase": "Running", "podIPs": [{"ip": format!("127.8.8.{last}")}]});
        json!({"metadata": object(name, owner), "spec": {}, "status": status})
    };
    let sets = [("a", "b"), ("b", "a"), ("self", "self")];
    let sets = sets.map(|(name, owner)| json!({"metadata": object(name, owner)}));
    let pods = [pod("p1", "a", 1), pod("p2", "b", 2), pod("p3", "self", 3)];
    for (path, kind, items) in [
        ("api/v1/pods", "PodList", &pods[..]),
        ("apis/apps/v1/replicasets", "ReplicaSetList", &sets),
        ("apis/batch/v1/jobs", "JobList", &[]),
    ] {
        let mut list = api_server::list(items);
        list["kind"] = kind.into();
        server.serve(&format!("/{path}"), list);
    }
    let kubeconfig = format!("--kubeconfig={}", server.kubeconfig().display());
    let program =
        Running::unready_at(&kubeconfig, &["--statsd.enrich=workload", "--resources=pods"]);
    program.wait_until_ready();
    for last in 1..=3 {
        program.udp([127, 8, 8, last].into(), "a:1|c");
    }
    let want =
        ["a", "b", "self"].map(|set| (["n", set, "replicaset"].map(str::to_owned).to_vec(), 1.0));
    until("all lines", || {
        let known = program.own("kstatd_statsd_enriched_lines_total", "address");
        (known == 3.0).then_some(())
    });
    assert_eq!(values(program.series("/metrics/statsd", "a"), &WORKLOAD), want.into());
    assert!(server.requests().len() < 30, "{:?}", server.requests());
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
