//! Several replicas with `--standby`, of which one exposes its metrics, while they are scraped every 200 ms.

#[path = "common/any_certificate.rs"]
mod any_certificate;
mod common;
#[path = "standby/lines.rs"]
mod lines;
#[path = "web_config/pki.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod pki;
#[path = "standby/tls.rs"]
mod tls;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::{Gate, Passage, Program, Reserved, get, replace, request, until, valid_text};

/// The interval between two scrapes of a replica.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(200);

/// The usual scrape interval, which no gap may exceed.
const USUAL_INTERVAL: Duration = Duration::from_secs(15);

/// A replica.
struct Replica {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Replica {
    /// Starts a replica whose telemetry listener has this address.
    fn start(name: &str, telemetry: SocketAddr, peers: &[SocketAddr], flags: &[&str]) -> Self {
        let peers: Vec<String> = peers.iter().map(SocketAddr::to_string).collect();
        let mut args = vec!["--standby".to_owned(), format!("--standby-peers={}", peers.join(","))];
        match name {
            "kstatd" => {
                args.push("--listen=127.0.0.1:0".to_owned());
                args.push(format!("--telemetry-listen={telemetry}"));
            }
            _ => {
                args.extend(["--host=127.0.0.1", "--port=0"].map(str::to_owned));
                args.push(format!("--telemetry-host={}", telemetry.ip()));
                args.push(format!("--telemetry-port={}", telemetry.port()));
            }
        }
        args.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let program = Program::start(name, args);
        let main = program.address(&["Started metrics server"], "address");
        program.line(&["Started self metrics server"]);
        Self { program, main, telemetry }
    }

    /// Starts a replica under its own name, with StatsD over UDP only.
    fn kstatd(telemetry: SocketAddr, peers: &[SocketAddr], flags: &[&str]) -> Self {
        let statsd = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp="];
        Self::start("kstatd", telemetry, peers, &[&statsd[..], flags].concat())
    }

    /// Returns one of its own metrics.
    fn own(&self, series: &str) -> Option<f64> {
        let text = get(self.telemetry, "/metrics").text();
        let mut samples = valid_text(&text).into_iter();
        samples.find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until it exposes its metrics, or no longer does.
    fn becomes(&self, active: bool) {
        let wanted = f64::from(!active);
        until(&format!("active is {active}"), || {
            (self.own("kstatd_standby") == Some(wanted)).then_some(())
        });
    }

    /// Waits until the other replica answers it.
    fn hears(&self, peer: SocketAddr, answers: bool) {
        let series = format!("kstatd_standby_peer_up{{peer=\"{peer}\"}}");
        until(&series, || (self.own(&series) == Some(f64::from(answers))).then_some(()));
    }

    /// Waits until its status contains this text.
    fn reports(&self, path: &str, text: &str) {
        until(text, || get(self.main, path).text().contains(text).then_some(()));
    }

    /// Waits until it has served its first lists, or would do so.
    fn synced(&self) {
        until("synced", || (get(self.main, "/readyz").status == 200).then_some(()));
    }

    fn udp(&self) -> SocketAddr {
        self.program.address(&["Accepting StatsD Traffic"], "udp")
    }
}

/// Starts two replicas that know each other; the first one exposes.
fn pair(name: &str, flags: &[&str]) -> ([Replica; 2], [Reserved; 2]) {
    let ports = [Reserved::new(), Reserved::new()];
    let addresses = ports.each_ref().map(|port| port.address);
    let first = Replica::start(name, addresses[0], &addresses, flags);
    first.becomes(true);
    let second = Replica::start(name, addresses[1], &addresses, flags);
    second.hears(addresses[0], true);
    first.hears(addresses[1], true);
    second.becomes(false);
    ([first, second], ports)
}

/// A scrape that got metrics.
struct Exposure {
    replica: usize,
    sent: Instant,
    received: Instant,
}

/// Scrapes every replica every 200 ms, each on its own thread.
struct Scraper {
    exposures: Arc<Mutex<Vec<Exposure>>>,
    is_done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Scraper {
    fn start(replicas: &[Replica]) -> Self {
        let (exposures, is_done) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let scrape = |(number, replica): (usize, &Replica)| {
            let (address, exposures) = (replica.main, Arc::clone(&exposures));
            let is_done = Arc::clone(&is_done);
            std::thread::spawn(move || {
                let mut gzip = false;
                while !is_done.load(Ordering::SeqCst) {
                    let sent = Instant::now();
                    gzip = !gzip;
                    if scrape(address, gzip).is_some_and(|size| size > 100) {
                        let exposure = Exposure { replica: number, sent, received: Instant::now() };
                        exposures.lock().expect("lock").push(exposure);
                    }
                    std::thread::park_timeout(SCRAPE_INTERVAL.saturating_sub(sent.elapsed()));
                }
            })
        };
        let threads = replicas.iter().enumerate().map(scrape).collect();
        Self { exposures, is_done, threads }
    }

    /// Waits until this replica has answered so many scrapes from now on.
    fn sees(&self, replica: usize, scrapes: usize) {
        let count = || {
            let exposures = self.exposures.lock().expect("lock");
            exposures.iter().filter(|one| one.replica == replica).count()
        };
        let before = count();
        until("scrapes", || (count() >= before + scrapes).then_some(()));
    }

    /// Ends the scrapes and returns those that got metrics, in the order in which they were sent.
    fn exposures(self) -> Vec<Exposure> {
        self.is_done.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("scraper");
        }
        let mut exposures = std::mem::take(&mut *self.exposures.lock().expect("lock"));
        exposures.sort_by_key(|one| one.sent);
        exposures
    }

    /// Returns the longest time without metrics, and checks that the replicas exposed in this order, one at a time.
    fn end(self, order: &[usize]) -> Duration {
        let exposures = self.exposures();
        let mut seen: Vec<usize> = Vec::new();
        for one in &exposures {
            // Concurrent scrapes have no order.
            let is_after_next = exposures.iter().any(|other| {
                other.received < one.sent && order_of(order, other) > order_of(order, one)
            });
            assert!(!is_after_next, "replica {} exposed after its successor", one.replica);
            seen.push(one.replica);
        }
        for replica in order {
            assert!(seen.contains(replica), "replica {replica} never exposed");
        }
        assert!(seen.iter().all(|replica| order.contains(replica)), "{order:?}");
        longest_gap(&exposures)
    }
}

/// Returns the longest time without metrics.
fn longest_gap(exposures: &[Exposure]) -> Duration {
    let mut received: Vec<Instant> = exposures.iter().map(|one| one.received).collect();
    received.sort();
    let longest = received.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default();
    assert!(longest < USUAL_INTERVAL, "no metrics for {longest:?}");
    longest
}

fn order_of(order: &[usize], one: &Exposure) -> Option<usize> {
    order.iter().position(|replica| *replica == one.replica)
}

/// Returns the size of a response, if there is one within a second.
fn scrape(address: SocketAddr, gzip: bool) -> Option<usize> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    let accept = if gzip { "gzip" } else { "identity" };
    let head = format!(
        "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).ok()?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).ok()?;
    let end = response.windows(4).position(|window| window == b"\r\n\r\n")?;
    response.starts_with(b"HTTP/1.1 200").then_some(response.len() - end)
}

/// Runs a fault of the first of two replicas, under scrapes, and returns the longest gap.
fn takeover(
    name: &str,
    flags: &[&str],
    fault: impl FnOnce(&mut [Replica; 2], &Scraper),
) -> Duration {
    let (mut replicas, _ports) = pair(name, flags);
    replicas.iter().filter(|_| name == "kstatd").for_each(Replica::synced);
    let scraper = Scraper::start(&replicas);
    scraper.sees(0, 3);
    fault(&mut replicas, &scraper);
    scraper.sees(1, 10);
    scraper.end(&[0, 1])
}

fn cluster_flags(cluster: &Cluster) -> [String; 2] {
    [cluster.flag(), "--resources=pods,nodes".to_owned()]
}

fn with_cluster(name: &str, more: &[&str], fault: impl FnOnce(&mut [Replica; 2], &Scraper)) {
    let cluster = Cluster::new(50);
    let flags = cluster_flags(&cluster);
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let gap = takeover(name, &flags, fault);
    println!("{name}: no metrics for {gap:?}");
}

const NO_STATSD: [&str; 2] = ["--statsd.listen-udp=", "--statsd.listen-tcp="];

#[test]
fn a_standby_takes_over_from_a_killed_replica() {
    with_cluster("kube-state-metrics", &[], |replicas, _| replicas[0].program.signal("KILL"));
}

#[test]
fn a_standby_takes_over_from_a_frozen_replica_which_does_not_return() {
    with_cluster("kstatd", &NO_STATSD, |replicas, scraper| {
        replicas[0].program.freeze();
        let first = get(replicas[1].main, "/metrics").text();
        assert!(first.contains("kube_pod_info"), "the first scrape after the freeze has metrics");
        // Longer than 2 s: after a shorter pause it would go on.
        scraper.sees(1, 15);
        replicas[0].program.signal("CONT");
        replicas[0].becomes(false);
    });
}

/// A process that ends hands over before it closes its listeners. It is started again and stays a standby.
#[test]
fn a_replica_that_ends_hands_over() {
    with_cluster("kstatd", &NO_STATSD, |replicas, _| {
        replicas[0].program.signal("TERM");
        assert!(replicas[0].program.ended().success());
        let lines = replicas[0].program.log();
        assert!(!lines.iter().any(|line| line.contains("has taken over")), "{lines:?}");
    });
}

/// The API server fails, a configuration is reloaded, and shards are requested: none of it changes who exposes.
#[test]
fn faults_of_the_api_server_and_reloads_change_nothing() {
    let cluster = Cluster::new(50);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let server = format!("--apiserver=http://{}", gate.address());
    let flags = [&server, "--resources=pods", NO_STATSD[0], NO_STATSD[1]];
    let ([first, second], _ports) = pair("kstatd", &flags);
    for replica in [&first, &second] {
        replica.synced();
    }
    let whole = get(first.main, "/metrics").text();
    gate.set(Passage::Cut);
    for replica in [&first, &second] {
        replica.program.signal("HUP");
        replica.program.line(&["have not changed"]);
        replica.reports("/status?format=json", "no connection");
    }
    assert_eq!(get(first.main, "/metrics").text().lines().count(), whole.lines().count());
    for path in ["/metrics", "/metrics/kubernetes", "/metrics?shard=0&total_shards=2"] {
        assert_eq!(get(second.main, path).text(), "", "{path}");
    }
    assert_eq!(get(second.main, "/metrics?shard=2&total_shards=2").status, 400);
    assert_eq!((first.own("kstatd_standby"), second.own("kstatd_standby")), (Some(0.0), Some(1.0)));
}

#[test]
fn a_synced_standby_is_ready_and_empty_in_every_format() {
    let cluster = Cluster::new(5);
    let flag = cluster.flag();
    let ([first, second], _ports) =
        pair("kstatd", &[&flag, "--enable-gzip-encoding", NO_STATSD[0], NO_STATSD[1]]);
    second.synced();
    let open = "application/openmetrics-text";
    let protobuf = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                    encoding=delimited";
    for (accept, want) in [("text/plain", ""), (open, "# EOF\n"), (protobuf, "")] {
        let response = request(second.main, "GET", "/metrics", &[("Accept", accept)]);
        let response = response.expect("a response");
        assert_eq!((response.status, response.text().as_str()), (200, want), "{accept}");
        let headers = [("Accept", accept), ("Accept-Encoding", "gzip")];
        let response = request(second.main, "GET", "/metrics", &headers).expect("a response");
        assert_eq!(response.header("content-encoding"), Some("gzip"));
        let mut text = String::new();
        let mut member = flate2::read::GzDecoder::new(&response.body[..]);
        member.read_to_string(&mut text).expect("gzip");
        assert_eq!(text, want, "{accept}");
    }
    second.reports("/status", &format!("standby: {} exposes the metrics", first.telemetry));
    first.reports("/status", "standby: this replica exposes the metrics");
}

/// A proxy that records the paths of the requests to an API server.
fn recorded(server: SocketAddr) -> (SocketAddr, Arc<Mutex<BTreeSet<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    let paths = Arc::<Mutex<BTreeSet<String>>>::default();
    let shared = Arc::clone(&paths);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(upstream) = TcpStream::connect(server) else { continue };
            let pair = (client.try_clone().expect("clone"), upstream.try_clone().expect("clone"));
            std::thread::spawn(move || std::io::copy(&mut &pair.1, &mut &pair.0));
            let paths = Arc::clone(&shared);
            std::thread::spawn(move || {
                let mut buffer = [0; 16 << 10];
                while let Ok(length) = (&client).read(&mut buffer) {
                    if length == 0 {
                        return;
                    }
                    let text = String::from_utf8_lossy(&buffer[..length]);
                    let path = text.split(' ').nth(1).unwrap_or_default().split('?').next();
                    paths.lock().expect("lock").extend(path.map(str::to_owned));
                    if (&upstream).write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, paths)
}

#[test]
fn replicas_ask_the_api_server_nothing_else() {
    let cluster = Cluster::new(5);
    let (alone, of_alone) = recorded(cluster.double.address());
    let (together, of_both) = recorded(cluster.double.address());
    let flag = |server: SocketAddr| format!("--apiserver=http://{server}");
    let fixed = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0", "--resources=pods"];
    let one = flag(alone);
    let plain = Program::start("kstatd", [&fixed[..], &NO_STATSD, &[&one]].concat());
    let main = plain.address(&["Started metrics server"], "address");
    until("synced", || (get(main, "/readyz").status == 200).then_some(()));
    let both = flag(together);
    let flags = [&both, "--resources=pods", NO_STATSD[0], NO_STATSD[1]];
    let ([first, second], _ports) = pair("kstatd", &flags);
    for replica in [&first, &second] {
        replica.synced();
    }
    drop(first);
    second.becomes(true);
    assert_eq!(*of_alone.lock().expect("lock"), *of_both.lock().expect("lock"));
}

/// Both sides of a partition expose and report it, and only then. Afterwards the one that was longer active goes on.
#[test]
fn a_partition_is_reported_by_both_sides() {
    let ports = [Reserved::new(), Reserved::new()];
    let own = ports.each_ref().map(|port| port.address);
    let gates = own.map(|address| Gate::new(address, Passage::Open));
    let cluster = Cluster::new(5);
    let flag = cluster.flag();
    let flags = [flag.as_str(), "--resources=pods"];
    let first = Replica::kstatd(own[0], &[own[0], gates[1].address()], &flags);
    first.becomes(true);
    let second = Replica::kstatd(own[1], &[own[1], gates[0].address()], &flags);
    second.hears(gates[0].address(), true);
    first.hears(gates[1].address(), true);
    second.becomes(false);
    let replicas = [first, second];
    let [first, second] = &replicas;
    replicas.iter().for_each(Replica::synced);
    let scraper = Scraper::start(&replicas);
    scraper.sees(0, 5);
    let cut = Instant::now();
    gates.iter().for_each(|gate| gate.set(Passage::Cut));
    second.becomes(true);
    scraper.sees(1, 3);
    for (replica, gate) in [(first, &gates[1]), (second, &gates[0])] {
        replica.hears(gate.address(), false);
        replica.reports("/status", &format!("standby: {} has not answered", gate.address()));
        assert_eq!(replica.own("kstatd_standby"), Some(0.0), "a duplicate is better than a gap");
    }
    gates.iter().for_each(|gate| gate.set(Passage::Open));
    second.becomes(false);
    let healed = Instant::now();
    first.hears(gates[1].address(), true);
    first.becomes(true);
    scraper.sees(0, 5);
    for replica in &replicas {
        until("the report ends", || {
            let status = get(replica.main, "/status").text();
            (!status.contains("has not answered")).then_some(())
        });
    }
    let exposures = scraper.exposures();
    let doubled = |one: &&Exposure| one.replica == 1;
    assert!(
        exposures.iter().filter(doubled).all(|one| one.received > cut && one.sent < healed),
        "the standby exposes outside the partition"
    );
    println!("partition: no metrics for {:?}", longest_gap(&exposures));
}

/// Answers every connection with the same bytes, and then nothing.
fn impostor(answer: &'static [u8], repeat: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                for _ in 0..repeat {
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
                let _ = stream.read(&mut [0; 4096]);
            });
        }
    });
    address
}

/// Returns an answer of an active replica with these numbers of its lines.
fn lie(first: u64, next: u64, text: &str) -> String {
    let replica =
        r#"{"id":7,"group":"0/1","started":1,"active_since":1,"synced":true,"leaving":false}"#;
    format!(
        "{{\"protocol\":1,\"replica\":{replica},\"version\":1,\"first\":{first},\"next\":{next}}}\n{text}"
    )
}

/// Answers each request with this body.
fn replying(body: &str) -> SocketAddr {
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    impostor(Vec::leak(answer.into_bytes()), 1)
}

/// Sends a valid answer so slowly that it is never complete.
fn dripping() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{\"protocol\":1,";
            for byte in answer {
                if stream.write_all(&[*byte]).is_err() {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(100));
            }
        }
    });
    address
}

#[test]
fn peers_that_are_no_replicas_cause_no_gap() {
    const HTML: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html>\n";
    const ERROR: &[u8] = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n";
    const LATER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{\"protocol\":2}\n";
    const LONG: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n";
    for (address, error) in [
        (impostor(HTML, 1), "not that of a replica"),
        (impostor(ERROR, 1), "Internal Server Error"),
        (impostor(LATER, 1), "version 2 of the protocol"),
        (impostor(LONG, 1_000_000), "not answered"),
        (impostor(b"", 0), "no answer within 2s"),
        (impostor(b"\0\xff\r\n\r\n", 1), "not answered"),
        (replying(&lie(1, 3, "a:1|c\n")), "another number of lines"),
        (replying(&lie(9, 4, "")), "another number of lines"),
        (replying(&lie(1, 2, "a:1|c\nb")), "another number of lines"),
        (dripping(), "no answer within 2s"),
    ] {
        let own = Reserved::new();
        let replica = Replica::kstatd(own.address, &[own.address, address], &[]);
        replica.becomes(true);
        replica.hears(address, false);
        replica.reports("/status", error);
    }
}

#[test]
fn names_that_cannot_be_resolved_cause_no_gap() {
    let own = Reserved::new();
    let peers = format!("--standby-peers=no-such-host.invalid:1,{}", own.address);
    let replica = Replica::kstatd(own.address, &[own.address], &[&peers]);
    replica.becomes(true);
    replica.reports("/status", "no-such-host.invalid:1 cannot be looked up");
    let series = "kstatd_standby_peer_up{peer=\"no-such-host.invalid:1\"}";
    until(series, || (replica.own(series) == Some(0.0)).then_some(()));
}

/// Replicas of different shards do not replace each other.
#[test]
fn other_shards_are_no_standbys() {
    let cluster = Cluster::new(5);
    let flag = cluster.flag();
    let ports = [Reserved::new(), Reserved::new()];
    let own = ports.each_ref().map(|port| port.address);
    let shard = |number: usize| {
        let shard = format!("--shard={number}");
        Replica::start(
            "kube-state-metrics",
            own[number],
            &own,
            &[&flag, &shard, "--total-shards=2"],
        )
    };
    let shards = [shard(0), shard(1)];
    for replica in &shards {
        replica.becomes(true);
        replica.reports("/kstatd/status", "it is shard");
    }
}

/// A reload of the shard reaches one replica earlier than the other. Only one exposes meanwhile, and with a process that starts
/// later.
#[test]
fn replicas_follow_a_reload_of_the_shard() {
    let (cluster, dir) = (Cluster::new(20), tempfile::tempdir().expect("directory"));
    let files = [0, 1].map(|number| dir.path().join(format!("options-{number}.yaml")));
    let flags = files.each_ref().map(|path| {
        replace(path, "shard: 0\ntotal_shards: 2\n");
        format!("--config={}", path.display())
    });
    let ports = [Reserved::new(), Reserved::new()];
    let own = ports.each_ref().map(|port| port.address);
    let start = |number: usize| {
        let flags = [&cluster.flag(), "--resources=pods", &flags[number]];
        Replica::start("kube-state-metrics", own[number], &own, &flags)
    };
    let first = start(0);
    first.becomes(true);
    let mut second = start(1);
    for file in &files {
        second.hears(own[0], true);
        first.hears(own[1], true);
        second.becomes(false);
        replace(file, "shard: 0\ntotal_shards: 3\n");
        let reloaded = if file == &files[0] { &first } else { &second };
        reloaded.reports("/kstatd/status", "shard 0 of 3");
    }
    second.program.signal("KILL");
    second.program.ended();
    first.hears(own[1], false);
    second = start(1);
    second.hears(own[0], true);
    first.hears(own[1], true);
    second.becomes(false);
    first.becomes(true);
}

/// Replicas reach each other despite passwords, but strangers read no lines then. With TLS they use their certificate.
#[test]
fn replicas_with_users_and_tls_agree() {
    let (pki, dir) = (pki::Pki::new(), tempfile::tempdir().expect("directory"));
    for name in ["server.crt", "server.key"] {
        std::fs::write(dir.path().join(name), pki.text(name)).expect("write");
    }
    let hash = bcrypt::hash("pass", 4).expect("hash");
    let users = format!("basic_auth_users: {{me: '{hash}'}}\n");
    let tls = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n".to_owned();
    for (text, is_tls) in [(users, false), (tls, true)] {
        let web = dir.path().join("web.yaml");
        std::fs::write(&web, text).expect("write");
        let web = format!("--tls-config={}", web.display());
        let ports = [Reserved::new(), Reserved::new()];
        let own = ports.each_ref().map(|port| port.address);
        let first = Replica::kstatd(own[0], &own, &[&web]);
        first.program.line(&["This replica exposes its metrics"]);
        let second = Replica::kstatd(own[1], &own, &[&web]);
        first.program.line(&["Another replica answers", &own[1].to_string()]);
        second.program.line(&["Another replica answers", &own[0].to_string()]);
        if !is_tls {
            assert_eq!(get(own[0], "/metrics").status, 401);
            let answer = get(own[0], "/kstatd/standby").text();
            assert!(
                answer.starts_with("{\"protocol\":1,")
                    && answer.contains("\"next\":0,\"has_senders\":false}\n"),
                "{answer}"
            );
        }
        drop(first);
        second.program.line(&["This replica exposes its metrics"]);
    }
}

/// A standby that takes over while it lists anew for a reload exposes what it has.
#[test]
fn a_takeover_during_a_reload_has_metrics() {
    let cluster = Cluster::new(20);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let options = tempfile::NamedTempFile::new().expect("a file");
    let write = |text: &str| std::fs::write(options.path(), text).expect("written");
    write("resources: {pods: {}}\n");
    let (server, path) = (format!("--apiserver=http://{}", gate.address()), options.path());
    let statsd = ["--statsd.listen-udp=", "--statsd.listen-tcp="].map(str::to_owned);
    let flags = [&[server, format!("--config={}", path.display())], &statsd[..]].concat();
    let ([first, second], _ports) =
        pair("kstatd", &Vec::from_iter(flags.iter().map(String::as_str)));
    second.synced();
    // The list of the reload gets no answer.
    gate.set(Passage::Silent);
    write("resources: {pods: {}}\nlabels_allow_list: {pods: [app]}\n");
    let name = "kube_state_metrics_last_config_reload_successful";
    let gauge = format!("{name}{{filename=\"{}\",type=\"config\"}}", path.display());
    until("the list", || (second.own(&gauge) == Some(0.0)).then_some(()));
    drop(first);
    second.becomes(true);
    let answer = get(second.main, "/metrics");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("\nkube_pod_info{"));
}

#[test]
fn invalid_flags_are_refused() {
    for (flags, error) in [
        (&["--standby"][..], "--standby and --standby-peers need each other"),
        (&["--standby-peers=a:1"], "--standby and --standby-peers need each other"),
        (&["--standby", "--standby-peers=a:1,b"], "must be host:port"),
        (&["--standby", "--standby-peers=a:0"], "must be host:port"),
        (&["--standby", "--standby-peers=a:1", "--pod=x"], "--standby and --pod exclude"),
    ] {
        for name in ["kstatd", "kube-state-metrics"] {
            let output = common::run(name, flags);
            assert!(!output.status.success(), "{flags:?}");
            assert!(output.stderr.contains(error), "{name} {flags:?}: {}", output.stderr);
        }
    }
}
