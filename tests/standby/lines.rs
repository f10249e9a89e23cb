//! StatsD lines that one replica receives and the others apply.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use kstatd_double::Options;

use super::common::DEADLINE;
use super::{Cluster, Gate, Passage, Replica, Reserved, get, pair, until};

/// Sends lines, one per datagram.
fn send(to: SocketAddr, lines: impl Iterator<Item = String>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    for line in lines {
        socket.send_to(line.as_bytes(), to).expect("sent");
    }
}

/// Returns two replicas that expose nothing of each other's lines yet: the second one knows the first one, which reaches it
/// only once the gate is open.
fn unknown_second() -> ([Replica; 2], [Reserved; 2], Gate) {
    let ports = [Reserved::new(), Reserved::new()];
    let own = ports.each_ref().map(|port| port.address);
    let gate = Gate::new(own[1], Passage::Cut);
    let first = Replica::kstatd(own[0], &[own[0], gate.address()], &[]);
    first.becomes(true);
    let second = Replica::kstatd(own[1], &own, &[]);
    second.hears(own[0], true);
    second.becomes(false);
    ([first, second], ports, gate)
}

/// Sends counters to a replica and waits until it has applied them.
fn count(replica: &Replica, number: usize) {
    send(replica.udp(), (0..number).map(|_| "hits:1|c".to_owned()));
    let series = "statsd_exporter_samples_total";
    until("applied", || (replica.own(series) == Some(number as f64)).then_some(()));
}

/// A replica that starts receives lines at once, but the one that exposes polls it for the first time a moment later.
#[test]
fn lines_from_before_the_first_poll_are_delivered() {
    let ([first, second], _ports, gate) = unknown_second();
    count(&second, 10);
    gate.set(Passage::Open);
    first.hears(gate.address(), true);
    send(second.udp(), ["hits:1|c".to_owned()].into_iter());
    until("the last line", || (first.own("kstatd_standby_lines_total") >= Some(1.0)).then_some(()));
    until("all lines", || get(first.main, "/metrics").text().contains("\nhits 11\n").then_some(()));
    assert_eq!(first.own("kstatd_standby_lines_total"), Some(11.0));
    assert_eq!(first.own("kstatd_standby_lost_lines_total"), Some(0.0));
    // Nobody looks for a Unix socket that does not exist.
    let top = |replica: &Replica| {
        crate::common::run("kstatd", ["top", "--once", &format!("--addr={}", replica.main)]).stdout
    };
    assert!(top(&first).contains("another replica"), "{}", top(&first));
    assert!(!top(&second).contains("another replica"), "{}", top(&second));
}

/// What the others received before the start of a replica is not among its lines: no counter of it continues theirs.
#[test]
fn lines_from_before_the_start_are_not_delivered() {
    let ports = [Reserved::new(), Reserved::new()];
    let own = ports.each_ref().map(|port| port.address);
    let first = Replica::kstatd(own[0], &own, &[]);
    first.becomes(true);
    count(&first, 10);
    // If the first poll of a replica is slow, it may ask for the lines of up to 2 s before its start. Each of these polls waits
    // half a second for news.
    let answer = get(own[0], "/kstatd/standby").text();
    let head = answer.lines().next().expect("a head");
    let head: serde_json::Value = serde_json::from_str(head).expect("JSON");
    let (id, version, next) = (&head["replica"]["id"], &head["version"], &head["next"]);
    let target = format!("/kstatd/standby?from=1&to={id}&version={version}&next={next}");
    for _ in 0..5 {
        assert_eq!(get(own[0], &target).status, 200);
    }
    let second = Replica::kstatd(own[1], &own, &[]);
    second.hears(own[0], true);
    first.hears(own[1], true);
    send(first.udp(), ["hits:1|c".to_owned()].into_iter());
    until("the line", || (second.own("kstatd_standby_lines_total") >= Some(1.0)).then_some(()));
    drop(first);
    second.becomes(true);
    let body = get(second.main, "/metrics").text();
    assert!(body.contains("\nhits 1\n"), "{body}");
    assert_eq!(second.own("kstatd_standby_lost_lines_total"), Some(0.0));
}

/// Lines count once, whichever replica receives them, and are relayed once.
#[test]
fn statsd_counters_continue_after_a_takeover() {
    let target = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let relay = format!("--statsd.relay.address={}", target.local_addr().expect("address"));
    let flags = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=", &relay];
    let ([mut first, second], _ports) = pair("kstatd", &flags);
    let counted = |number: u64| {
        (0..number).flat_map(move |n| [String::from("hits:1|c"), format!("last_{number}:{n}|g")])
    };
    send(first.udp(), counted(300));
    send(second.udp(), counted(200));
    let lines = "kstatd_standby_lines_total";
    until("mirrored", || (second.own(lines) == Some(600.0)).then_some(()));
    until("forwarded", || (first.own(lines) == Some(400.0)).then_some(()));
    let body = get(first.main, "/metrics").text();
    assert!(body.contains("\nhits 500\n") && body.contains("\nlast_200 199\n"), "{body}");
    first.program.signal("TERM");
    assert!(first.program.ended().success());
    second.becomes(true);
    let body = get(second.main, "/metrics").text();
    assert!(body.contains("\nhits 500\n") && body.contains("\nlast_300 299\n"), "{body}");
    assert_eq!(second.own(lines), Some(600.0), "no line returns");
    assert_eq!(second.own("kstatd_standby_lost_lines_total"), Some(0.0));
    // Every line was relayed once, by the replica that received it.
    target.set_read_timeout(Some(DEADLINE)).expect("timeout");
    let (mut buffer, mut relayed) = ([0; 65_535], 0);
    while relayed < 1_000 {
        let length = target.recv(&mut buffer).expect("a datagram");
        relayed += buffer[..length].iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(relayed, 1_000);
    assert_eq!(second.own("statsd_exporter_relay_lines_relayed_total{target=\"x\"}"), None);
}

/// Lines that were sent to one replica during a partition reach the other one afterwards.
#[test]
fn lines_of_a_partition_are_delivered_afterwards() {
    let ports = [Reserved::new(), Reserved::new()];
    let own = ports.each_ref().map(|port| port.address);
    let gate = Gate::new(own[0], Passage::Open);
    let first = Replica::kstatd(own[0], &own, &[]);
    first.becomes(true);
    let second = Replica::kstatd(own[1], &[own[1], gate.address()], &[]);
    second.hears(gate.address(), true);
    send(first.udp(), (0..10).map(|_| "a:1|c".to_owned()));
    let lines = "kstatd_standby_lines_total";
    until("mirrored", || (second.own(lines) == Some(10.0)).then_some(()));
    gate.set(Passage::Cut);
    second.hears(gate.address(), false);
    send(first.udp(), (0..10).map(|_| "a:1|c".to_owned()));
    gate.set(Passage::Open);
    until("mirrored", || (second.own(lines) == Some(20.0)).then_some(()));
    assert_eq!(second.own("kstatd_standby_lost_lines_total"), Some(0.0));
}

/// A line that one replica received gets the labels of its sender's pod on the other one too, although it comes from that
/// replica's address there.
#[test]
fn lines_keep_their_senders_on_other_replicas() {
    let cluster = Cluster::with(&Options { pods: 100, local_pods: true, ..Options::default() });
    let flags = [
        &cluster.flag(),
        "--statsd.enrich=workload",
        "--statsd.listen-udp=0.0.0.0:0",
        "--statsd.listen-tcp=",
    ];
    let (replicas, _ports) = pair("kstatd", &flags);
    replicas.iter().for_each(Replica::synced);
    let text = get(replicas[0].main, "/metrics/kubernetes").text();
    let is_deployed = |line: &&str| {
        line.starts_with("kube_pod_info{")
            && ["created_by_kind=\"ReplicaSet\"", "host_network=\"false\""]
                .iter()
                .all(|part| line.contains(part))
    };
    let addresses = text.lines().filter(is_deployed).filter_map(|line| {
        let (_, rest) = line.split_once("pod_ip=\"")?;
        rest.split_once('"')?.0.parse::<IpAddr>().ok()
    });
    let address = addresses.take(1).last().expect("a pod with an address");
    let socket = UdpSocket::bind((address, 0)).expect("a local address");
    let port = replicas[1].udp().port();
    socket
        .send_to(b"a:1|c|#k:v\na:1|c|#k:v\n\x01fake\x01a:1|c", ("127.0.0.1", port))
        .expect("sent");
    // The standby received the lines, and the other replica exposes them.
    until("the lines with their sender", || {
        let text = get(replicas[0].main, "/metrics/statsd").text();
        let mut series = text.lines().filter(|line| line.starts_with("a{"));
        let series =
            series.find(|line| line.contains("k=\"v\",namespace=") && line.ends_with(" 2"))?;
        assert!(series.contains("workload_type=\"deployment\""), "{text}");
        Some(())
    });
    assert_eq!(replicas[0].own("kstatd_statsd_enriched_lines_total{by=\"replica\"}"), Some(3.0));
    assert_eq!(replicas[1].own("kstatd_statsd_enriched_lines_total{by=\"address\"}"), Some(3.0));
}
