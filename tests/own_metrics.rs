//! The own metrics, tested from outside: exposed data and its age, sources of StatsD series, and few log lines for
//! any failure.

mod common;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use common::cluster::Cluster;
use common::{Gate, NO_LINKS, Passage, Program, get, until, valid_text};

const HERE: [&str; 2] = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];

/// A program under kstatd's own name.
struct Kstatd {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Kstatd {
    fn start(flags: &[&str]) -> Self {
        let program = Program::start("kstatd", [&HERE[..], flags].concat());
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { program, main, telemetry }
    }

    /// Starts the program without a StatsD side, with this API server.
    fn of(server: &str, flags: &[&str]) -> Self {
        let server = format!("--apiserver={server}");
        let off = ["--statsd.listen-udp=", "--statsd.listen-tcp=", &server];
        Self::start(&[&off[..], flags].concat())
    }

    /// Starts the program without a Kubernetes side.
    fn statsd(flags: &[&str]) -> (Self, TcpStream) {
        let on = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=127.0.0.1:0"];
        let kstatd = Self::start(&[&on[..], flags].concat());
        let address = kstatd.program.address(&["Accepting StatsD Traffic"], "tcp");
        (kstatd, TcpStream::connect(address).expect("connect"))
    }

    /// Returns the own metrics.
    fn own(&self) -> String {
        let text = get(self.telemetry, "/metrics").text();
        valid_text(&text);
        text
    }

    /// Waits until this series has this value.
    fn has(&self, series: &str, wanted: f64) {
        until(&format!("{series} is {wanted}"), || {
            (value(&self.own(), series) == Some(wanted)).then_some(())
        });
    }
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Returns the series lines of a scrape.
fn lines_of(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

/// Asserts that families are sorted by name and unique.
fn assert_sorted(text: &str) {
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(names.len() > 20 && names.is_sorted_by(|a, b| a < b), "{names:#?}");
}

#[test]
fn kinds_have_state_and_age() {
    let cluster = Cluster::new(150);
    let gate = Gate::new(cluster.double.address(), Passage::Silent);
    let server = format!("http://{}", gate.address());
    let kstatd = Kstatd::of(&server, &["--resources=pods,nodes"]);
    let of = |name: &str, kind: &str| {
        format!("kstatd_kubernetes_{name}{{namespace=\"\",resource=\"*v1.{kind}\"}}")
    };
    kstatd.has(&of("synced", "Pod"), 0.0);
    let own = kstatd.own();
    for series in [
        of("objects", "Pod"),
        of("series", "Node"),
        of("last_list_success_timestamp_seconds", "Pod"),
        of("last_heard_timestamp_seconds", "Pod"),
        "kstatd_ready".to_owned(),
    ] {
        assert_eq!(value(&own, &series), Some(0.0), "{series}");
    }
    assert_eq!(get(kstatd.main, "/readyz").status, 503);
    gate.set(Passage::Open);
    kstatd.has("kstatd_ready", 1.0);
    assert_eq!(get(kstatd.main, "/readyz").status, 200);
    let own = kstatd.own();
    assert_sorted(&own);
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("time").as_secs_f64();
    for (resource, kind) in [("pods", "Pod"), ("nodes", "Node")] {
        let scrape = get(kstatd.main, &format!("/metrics?resources={resource}")).text();
        let lines = lines_of(&scrape);
        let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
        let objects = cluster.double.objects_of(resource);
        for (name, wanted) in
            [("objects", objects), ("series", lines.len()), ("bytes", bytes), ("synced", 1)]
        {
            assert_eq!(value(&own, &of(name, kind)), Some(wanted as f64), "{name} of {kind}");
        }
        for name in ["last_list_success_timestamp_seconds", "last_heard_timestamp_seconds"] {
            let time = value(&own, &of(name, kind)).expect(name);
            assert!((now - 120.0..=now).contains(&time), "{name}: {time}, now {now}");
        }
    }
}

#[test]
fn namespaces_are_reported_separately_and_missing_ones_logged() {
    let cluster = Cluster::new(150);
    let kstatd = Kstatd::of(
        &cluster.double.url(),
        &["--resources=pods,nodes", "--namespaces=default,kube-system,kube-sytem", NO_LINKS],
    );
    let line = kstatd.program.line(&["WARN", "Namespaces do not exist", "kube-sytem"]);
    assert!(!line.contains("default"), "{line}");
    kstatd.has("kstatd_ready", 1.0);
    let own = kstatd.own();
    let objects = lines_of(&own).into_iter();
    let objects: Vec<&str> =
        objects.filter_map(|line| line.strip_prefix("kstatd_kubernetes_objects{")).collect();
    let labels: Vec<&str> =
        objects.iter().filter_map(|line| Some(line.rsplit_once("} ")?.0)).collect();
    assert_eq!(
        labels,
        [
            "namespace=\"\",resource=\"*v1.Node\"",
            "namespace=\"default\",resource=\"*v1.Pod\"",
            "namespace=\"kube-system\",resource=\"*v1.Pod\"",
            "namespace=\"kube-sytem\",resource=\"*v1.Pod\"",
        ]
    );
    assert!(objects[3].ends_with(" 0"), "{objects:?}");
}

/// Returns the number of log lines that contain this text.
fn count(program: &Program, part: &str) -> usize {
    program.log().iter().filter(|line| line.contains(part)).count()
}

#[test]
fn outage_and_recovery_are_one_log_line_each() {
    let cluster = Cluster::new(100);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let kstatd = Kstatd::of(&format!("http://{}", gate.address()), &[]);
    kstatd.has("kstatd_ready", 1.0);
    let kinds = lines_of(&kstatd.own())
        .iter()
        .filter(|line| line.starts_with("kstatd_kubernetes_synced{") && line.ends_with(" 1"))
        .count();
    assert!(kinds > 20, "{kinds}");
    let errors = || {
        let own = kstatd.own();
        lines_of(&own)
            .iter()
            .filter(|line| line.starts_with("kstatd_kubernetes_errors_total{"))
            .count()
    };
    assert_eq!(errors(), 0);
    gate.set(Passage::Cut);
    kstatd.program.line(&["WARN", "The API server fails", &format!("count={kinds}")]);
    assert!(errors() >= kinds, "{}", errors());
    // Exposed data and its metrics stay: the state is complete but old.
    kstatd.has("kstatd_kubernetes_synced{namespace=\"\",resource=\"*v1.Pod\"}", 1.0);
    assert_eq!(get(kstatd.main, "/readyz").status, 200);
    gate.set(Passage::Open);
    kstatd.program.line(&["INFO", "The API server works again", &format!("count={kinds}")]);
    assert_eq!(count(&kstatd.program, "The API server fails"), 1);
    assert_eq!(count(&kstatd.program, "The API server works again"), 1);
    assert_eq!(count(&kstatd.program, "Failed to list or watch"), 0);
    assert_eq!(count(&kstatd.program, "Listed and watched again"), 0);
}

#[test]
fn dropped_objects_are_not_synced() {
    let cluster = Cluster::new(100);
    let gate = Gate::new(cluster.double.address(), Passage::Open);
    let kstatd = Kstatd::of(
        &format!("http://{}", gate.address()),
        &["--resources=pods,nodes", "--staleness-limit=1ms"],
    );
    kstatd.has("kstatd_ready", 1.0);
    let of =
        |name: &str| format!("kstatd_kubernetes_{name}{{namespace=\"\",resource=\"*v1.Pod\"}}");
    cluster.double.refuse("pods", Some(403));
    gate.set(Passage::Cut);
    kstatd.program.line(&["The API server fails"]);
    gate.set(Passage::Open);
    kstatd.has(&of("synced"), 0.0);
    kstatd.has(&of("objects"), 0.0);
    let forbidden =
        "kstatd_kubernetes_errors_total{namespace=\"\",reason=\"forbidden\",resource=\"*v1.Pod\"}";
    assert!(value(&kstatd.own(), forbidden) >= Some(1.0));
    cluster.double.refuse("pods", None);
    kstatd.has(&of("synced"), 1.0);
    kstatd.has(&of("objects"), cluster.double.objects_of("pods") as f64);
}

fn send(stream: &mut TcpStream, lines: &str) {
    stream.write_all(lines.as_bytes()).expect("send");
}

#[test]
fn statsd_series_by_family() {
    let (kstatd, mut stream) = Kstatd::statsd(&[]);
    let mut lines = String::new();
    for family in 0..60 {
        for series in 0..=family {
            lines.push_str(&format!("family_{family:02}:1|c|#n:{series}\n"));
        }
    }
    // The name for the rest is not the name of a family.
    lines.push_str("other:1|c\n");
    send(&mut stream, &lines);
    let of = |family: &str| format!("kstatd_statsd_family_series{{family=\"{family}\"}}");
    kstatd.has(&of("family_59"), 60.0);
    // Ten families with 1 to 10 series are not among the largest.
    kstatd.has(&of("other"), 56.0);
    let own = kstatd.own();
    assert_sorted(&own);
    assert_eq!(value(&own, &of("family_10")), Some(11.0));
    assert_eq!(value(&own, &of("family_09")), None);
    let families = lines_of(&own).into_iter();
    assert_eq!(
        families.filter(|line| line.starts_with("kstatd_statsd_family_series{")).count(),
        51
    );
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("write");
}

#[test]
fn rule_hits_and_last_mapping_reload() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("mapping.yml");
    write(
        &path,
        "mappings:\n- {match: 'a.*', name: a, labels: {x: $1}}\n\
         - {match: 'b', name: b, match_metric_type: gauge}\n\
         - {match: 'noise\\..*', match_type: regex, name: n, action: drop}\n- {match: never, name: never}\n",
    );
    let flag = format!("--statsd.mapping-config={}", path.display());
    let (kstatd, mut stream) = Kstatd::statsd(&[&flag]);
    let hits = |rule: &str| format!("kstatd_statsd_rule_hits_total{{rule=\"{rule}\"}}");
    let file = format!("{{filename=\"{}\"}}", path.display());
    let ok = format!("kstatd_statsd_mapping_last_reload_successful{file}");
    let since = format!("kstatd_statsd_mapping_last_reload_success_timestamp_seconds{file}");
    // The second of two identical lines takes the fast path; an invalid value is not an event.
    send(
        &mut stream,
        "a.1:1|c\na.1:1|c\na.2:1|c\na.2:x|c\na.3:1|c\nb:1|g\nb:1|c\nnoise.x:1|c\nnoise.x:1|c\n",
    );
    kstatd.has(&hits("noise\\\\..*"), 2.0);
    let own = kstatd.own();
    assert_eq!(value(&own, &hits("a.*")), Some(4.0));
    assert_eq!(value(&own, &hits("b (gauge)")), Some(1.0));
    assert_eq!(value(&own, &hits("never")), Some(0.0));
    assert_eq!(value(&own, &ok), Some(1.0));
    let began = value(&own, &since).expect("a time");
    assert!(began > 1e9, "{began}");
    write(&path, "mappings: [{match: 'a.*'");
    kstatd.program.signal("HUP");
    kstatd.has(&ok, 0.0);
    assert_eq!(value(&kstatd.own(), &since), Some(began));
    // The counter of an unchanged rule continues; its position in the file is irrelevant.
    write(&path, "mappings:\n- {match: new, name: new}\n- {match: 'a.*', name: a}\n");
    kstatd.program.signal("HUP");
    kstatd.has(&ok, 1.0);
    let own = kstatd.own();
    assert!(value(&own, &since) > Some(began));
    assert_eq!(value(&own, &hits("a.*")), Some(4.0));
    assert_eq!(value(&own, &hits("never")), None);
    send(&mut stream, "new:1|c\na.1:1|c\n");
    kstatd.has(&hits("a.*"), 5.0);
    kstatd.has(&hits("new"), 1.0);
}

#[test]
fn receive_buffer_is_the_granted_size() {
    let buffer = |flag: &str| {
        let (kstatd, _stream) = Kstatd::statsd(&[flag]);
        let series = "kstatd_statsd_receive_buffer_bytes{listener=\"udp\",socket=\"0\"}";
        value(&kstatd.own(), series).expect("a buffer")
    };
    // The kernel doubles the value for its own records, and grants small values without a limit.
    assert_eq!(buffer("--statsd.read-buffer=65536"), 131_072.0);
    assert!(buffer("--statsd.read-buffer=0") > 131_072.0);
}

/// The original has one registry: all families of a body are sorted together.
#[test]
fn families_are_sorted_by_name() {
    let args = [
        "--web.listen-address=127.0.0.1:0",
        "--statsd.listen-tcp=127.0.0.1:0",
        "--statsd.listen-udp=",
    ];
    let program = Program::start("statsd_exporter", args);
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let statsd = program.address(&["Accepting StatsD Traffic"], "tcp");
    let mut stream = TcpStream::connect(statsd).expect("connect");
    send(&mut stream, "promise:1|c\nprocess_open_fds:1|c\nzebra:1|c\nant:1|c\n");
    let text = until("the lines have come", || {
        let text = get(web, "/metrics").text();
        text.contains("zebra 1").then_some(text)
    });
    valid_text(&text);
    assert_sorted(&text);
    for part in [
        "ant 1",
        "promise 1",
        "process_open_fds ",
        "promhttp_metric_handler_requests_total{code=\"200\"} ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Clients cannot use the names of own metrics.
    assert!(!text.contains("# TYPE process_open_fds counter"), "{text}");
    assert_sorted(&get(web, "/kstatd/metrics").text());
}

/// docs/own-metrics.md has exactly one row for each exposed family.
#[test]
fn document_lists_every_own_family() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("docs/own-metrics.md")).expect("document");
    let rows =
        document.lines().filter_map(|line| line.strip_prefix("| `kstatd_")?.split('`').next());
    let rows: BTreeSet<String> = rows.map(|name| format!("kstatd_{name}")).collect();
    let cluster = Cluster::new(20);
    let dir = tempfile::tempdir().expect("directory");
    let mapping = dir.path().join("mapping.yml");
    write(&mapping, "mappings: [{match: a, name: a}]");
    let kstatd = Kstatd::start(&[
        &cluster.flag(),
        "--resources=pods",
        "--statsd.listen-udp=127.0.0.1:0",
        "--statsd.listen-tcp=",
        "--statsd.relay.address=127.0.0.1:9",
        "--statsd.enrich=workload",
        &format!("--statsd.mapping-config={}", mapping.display()),
        "--standby",
        "--standby-peers=127.0.0.1:9",
    ]);
    kstatd.has("kstatd_ready", 1.0);
    let own = kstatd.own();
    let served = own.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let served: BTreeSet<String> =
        served.filter(|name| name.starts_with("kstatd_")).map(str::to_owned).collect();
    assert!(served.len() > 30, "{served:?}");
    let missing: Vec<&String> = served.difference(&rows).collect();
    assert!(missing.is_empty(), "docs/own-metrics.md has no row for {missing:?}");
    // Some families appear only with their first event; they must at least occur in a source file.
    let mut sources = String::new();
    for file in [
        "src/telemetry/kube.rs",
        "src/telemetry/scrapes.rs",
        "src/kube/snapshot.rs",
        "src/statsd/metrics/families.rs",
        "src/app/standby/mod.rs",
    ] {
        sources.push_str(&std::fs::read_to_string(root.join(file)).expect(file));
    }
    for name in rows.difference(&served) {
        assert!(
            sources.contains(&format!("\"{name}\"")),
            "docs/own-metrics.md has a row for {name}"
        );
    }
}

#[test]
fn gauges_of_a_removed_kind_disappear() {
    let cluster = Cluster::new(20);
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("options.yml");
    let options = |resources: &str| write(&path, &format!("resources: {{{resources}}}\n"));
    options("pods: {}, nodes: {}");
    let flag = format!("--config={}", path.display());
    let kstatd = Kstatd::of(&cluster.double.url(), &[&flag, NO_LINKS]);
    kstatd.has("kstatd_ready", 1.0);
    let kinds = || {
        let own = kstatd.own();
        let lines = lines_of(&own).into_iter();
        let heard = "kstatd_kubernetes_last_heard_timestamp_seconds{namespace=\"\",resource=\"*v1.";
        let kinds =
            lines.filter_map(|line| Some(line.strip_prefix(heard)?.split('"').next()?.to_owned()));
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(kinds(), ["Node", "Pod"]);
    options("nodes: {}, services: {}");
    until("the kinds are those of the file", || (kinds() == ["Node", "Service"]).then_some(()));
}
