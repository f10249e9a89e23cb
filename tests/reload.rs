//! Configuration changes at runtime and during startup, tested from outside with the API double.

mod common;
#[path = "web_config/pki.rs"]
#[allow(dead_code, reason = "another test uses the rest")]
mod pki;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;

use common::{DEADLINE, Gate, Passage, Program, Reserved, get, request, until, valid_text};

/// A synthetic cluster behind a gate.
struct Cluster {
    cluster: common::cluster::Cluster,
    gate: Gate,
}

impl Cluster {
    fn new(pods: u32, passage: Passage) -> Self {
        let cluster = common::cluster::Cluster::new(pods);
        let gate = Gate::new(cluster.double.address(), passage);
        Self { cluster, gate }
    }

    fn url(&self) -> String {
        format!("http://{}", self.gate.address())
    }

    fn double(&self) -> &kstatd_double::Double {
        &self.cluster.double
    }
}

/// An options file.
struct File {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("options.yaml");
        std::fs::write(&path, text).expect("write");
        Self { _dir: dir, path }
    }

    fn write(&self, text: &str) {
        common::replace(&self.path, text);
    }

    /// As a shell does: the file is empty for a moment.
    fn overwrite(&self, text: &str) {
        std::fs::write(&self.path, text).expect("write");
    }

    fn flag(&self) -> String {
        format!("--config={}", self.path.display())
    }
}

/// A running exporter with an options file.
struct Exporter {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
    path: String,
}

impl Exporter {
    fn start(cluster: &Cluster, file: &File, flags: &[&str]) -> Self {
        let (server, config) = (format!("--apiserver={}", cluster.url()), file.flag());
        let fixed =
            ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
        let args = [&[server.as_str(), config.as_str()], &fixed[..], flags].concat();
        Self::of(Program::start("kube-state-metrics", &args), file)
    }

    /// The same under kstatd's own name.
    fn native(cluster: &Cluster, file: &File) -> Self {
        let args = [
            format!("--apiserver={}", cluster.url()),
            file.flag(),
            "--listen=127.0.0.1:0".to_owned(),
            "--telemetry-listen=127.0.0.1:0".to_owned(),
            "--statsd.listen-udp=".to_owned(),
            "--statsd.listen-tcp=".to_owned(),
        ];
        Self::of(Program::start("kstatd", &args), file)
    }

    fn of(program: Program, file: &File) -> Self {
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { program, main, telemetry, path: file.path.display().to_string() }
    }

    fn gauge(&self) -> Option<bool> {
        let name = "kube_state_metrics_last_config_reload_successful";
        let series = format!("{name}{{filename=\"{}\",type=\"config\"}} ", self.path);
        let text = get(self.telemetry, "/metrics").text();
        text.lines().find_map(|line| line.strip_prefix(&series)).map(|value| value == "1")
    }

    fn wait_gauge(&self, value: bool) {
        until(&format!("the gauge is {value}"), || (self.gauge() == Some(value)).then_some(()));
    }

    /// Returns the number of series of this family, in a valid exposition without duplicates.
    fn count(&self, family: &str) -> usize {
        let text = get(self.main, "/metrics").text();
        let samples = valid_text(&text);
        let series = samples.iter().filter_map(|line| line.rsplit_once(' '));
        let distinct: std::collections::BTreeSet<&str> = series.map(|(series, _)| series).collect();
        assert_eq!(distinct.len(), samples.len(), "a series is there twice");
        let head = format!("{family}{{");
        samples.iter().filter(|line| line.starts_with(&head)).count()
    }
}

#[test]
fn sigterm_ends_a_startup_without_an_api_server() {
    for signal in ["TERM", "INT"] {
        let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
        let server = format!("--apiserver=http://{}", silent.local_addr().expect("address"));
        let mut program = Program::start("kube-state-metrics", [&server, "--port=0"]);
        let (mut asked, _) = silent.accept().expect("it asks");
        asked.read_exact(&mut [0; 4]).expect("for something");
        program.signal(signal);
        // No server has answered, and none will.
        assert_eq!(program.ended().code(), Some(0), "{signal}: {:?}", program.log());
        assert!(!program.log().iter().any(|line| line.contains("does not answer")));
    }
}

/// A user with a token can start even if the token file cannot be read.
#[test]
fn token_is_used_while_its_file_is_unreadable() {
    let server = TcpListener::bind("127.0.0.1:0").expect("bind");
    server.set_nonblocking(true).expect("an option");
    let asked = || {
        let (stream, _) = until("it asks", || server.accept().ok());
        stream.set_nonblocking(false).expect("an option");
        stream
    };
    let dir = tempfile::tempdir().expect("directory");
    let (config, token) = (dir.path().join("config"), dir.path().join("token"));
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
         users: [{{name: u, user: {{token: beside, tokenFile: {}}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n",
        server.local_addr().expect("address"),
        token.display()
    );
    std::fs::write(&config, text).expect("write");
    let flag = format!("--kubeconfig={}", config.display());
    let program = Program::start("kube-state-metrics", [&flag, "--port=0", "--telemetry-port=0"]);
    // Returns the head of a request, and its connection.
    let request = || {
        let (mut stream, mut head) = (asked(), Vec::new());
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            head.extend(byte);
        }
        (String::from_utf8(head).expect("a head").to_lowercase(), stream)
    };
    let has =
        |head: &str, token: &str| head.contains(&format!("authorization: bearer {token}\r\n"));
    let (head, mut stream) = request();
    assert!(has(&head, "beside"), "{head}");
    let body = r#"{"gitVersion":"v1.36.0"}"#;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).expect("answered");
    let log = program.line(&["the token beside it is used"]);
    assert!(log.contains(&token.display().to_string()), "{log}");
    common::replace(&token, "newer");
    // Requests in flight may still have the previous token.
    until("the newer token is used", || has(&request().0, "newer").then_some(()));
}

#[test]
fn edit_during_startup_is_applied() {
    let cluster = Cluster::new(20, Passage::Silent);
    let file = File::new("resources: {nodes: {}}\n");
    let server = format!("--apiserver={}", cluster.url());
    let fixed =
        ["--host=127.0.0.1", "--port=0", "--telemetry-host=127.0.0.1", "--telemetry-port=0"];
    let config = file.flag();
    let args = [&[server.as_str(), config.as_str()], &fixed[..]].concat();
    let program = Program::start("kube-state-metrics", &args);
    // The file was read: the API server's address comes from the same flags.
    let asks = || {
        let open = format!(":{:04X} ", cluster.gate.address().port());
        let table = std::fs::read_to_string("/proc/net/tcp").expect("connections");
        table.lines().any(|line| {
            line.split_whitespace()
                .nth(2)
                .is_some_and(|remote| format!("{remote} ").ends_with(&open))
                && line.split_whitespace().nth(3) == Some("01")
        })
    };
    until("it waits for the API server", || asks().then_some(()));
    file.write("resources: {pods: {}}\n");
    cluster.gate.set(Passage::Open);
    let exporter = Exporter::of(program, &file);
    until("the later content is in force", || {
        (exporter.count("kube_pod_info") == cluster.double().objects_of("pods")).then_some(())
    });
    exporter.wait_gauge(true);
    assert_eq!(exporter.count("kube_node_info"), 0);
}

#[test]
fn edit_during_an_outage_is_applied_after_it() {
    let cluster = Cluster::new(50, Passage::Open);
    let file = File::new("resources: {pods: {}, nodes: {}}\n");
    let exporter = Exporter::start(&cluster, &file, &[]);
    exporter.wait_gauge(true);
    let (pods, nodes) = (cluster.double().objects_of("pods"), cluster.double().objects_of("nodes"));
    cluster.gate.set(Passage::Cut);
    file.write("resources: {pods: {}, nodes: {}}\nmetric_denylist: {kube_pod_info: {}}\n");
    exporter.wait_gauge(false);
    exporter.program.line(&["The API server fails"]);
    assert_eq!((exporter.count("kube_pod_info"), exporter.count("kube_node_info")), (pods, nodes));
    cluster.gate.set(Passage::Open);
    until("the new file is in force", || {
        let shown = exporter.count("kube_pod_info");
        assert!(shown == pods || shown == 0, "{shown}");
        assert!(exporter.count("kube_pod_status_phase") > 0);
        assert_eq!(exporter.count("kube_node_info"), nodes);
        (shown == 0).then_some(())
    });
    exporter.wait_gauge(true);
}

#[test]
fn invalid_file_only_changes_the_gauge() {
    let cluster = Cluster::new(20, Passage::Open);
    for flags in [&[][..], &["--continue-without-config"]] {
        let usable = "resources: {pods: {}}\nmetric_denylist: {kube_pod_info: {}}\n\
                      enable_gzip_encoding: true\n";
        let file = File::new(usable);
        let exporter = Exporter::start(&cluster, &file, flags);
        exporter.wait_gauge(true);
        let unusable = [
            "resources: {foo: {}}\n",
            "resources: [pods]\n",
            "metric_allowlist: {\"kube_(\": {}}\n",
            "tls_config: x\n",
            "custom_resource_state_config_file: x\n",
            "namespace: a\npod: b\n",
            "port: 70000\n",
            "resources: {nodes: {}}\nlabels_allow_list: {nodes: [\"a*b*\"]}\nport: 9\n",
            "metric_allowlist: {a: {}}\nmetric_denylist: {b: {}}\n",
            "{{",
        ];
        for text in unusable {
            file.write(text);
            exporter.wait_gauge(false);
            assert_eq!(exporter.count("kube_pod_info"), 0, "{text}");
            assert!(exporter.count("kube_pod_status_phase") > 0, "{text}");
            assert_eq!(exporter.count("kube_node_info"), 0, "{text}");
            let gzip = request(exporter.main, "GET", "/metrics", &[("Accept-Encoding", "gzip")]);
            assert_eq!(gzip.expect("answer").header("content-encoding"), Some("gzip"), "{text}");
            file.write(usable);
            exporter.wait_gauge(true);
        }
        std::fs::remove_file(&file.path).expect("remove");
        exporter.wait_gauge(false);
        assert!(exporter.count("kube_pod_status_phase") > 0);
        assert_eq!(exporter.count("kube_pod_info"), 0);
        file.write("resources: {nodes: {}}\n");
        until("nodes", || (exporter.count("kube_node_info") > 0).then_some(()));
        exporter.wait_gauge(true);
    }
}

#[test]
fn invalid_file_at_startup_is_applied_when_repaired() {
    let cluster = Cluster::new(20, Passage::Open);
    let file = File::new("resources: {nodes: {}}\nlabels_allow_list: {nodes: [\"a*b*\"]}\n");
    let flags = ["--continue-without-config", "--resources=pods"];
    let exporter = Exporter::start(&cluster, &file, &flags);
    until("pods, as the flags say", || (exporter.count("kube_pod_info") > 0).then_some(()));
    assert_eq!((exporter.gauge(), exporter.count("kube_node_info")), (Some(false), 0));
    file.overwrite("resources: {nodes: {}}\n");
    until("nodes", || (exporter.count("kube_node_info") > 0).then_some(()));
    exporter.wait_gauge(true);
}

/// Both the options file and the invalid file were read; the options file is not edited again.
#[test]
fn files_named_by_a_rejected_options_file_are_watched() {
    let cluster = Cluster::new(20, Passage::Open);
    let file = File::new("resources: {pods: {}}\n");
    let exporter = Exporter::start(&cluster, &file, &[]);
    exporter.wait_gauge(true);
    let dir = tempfile::tempdir().expect("directory");
    let cases = [
        ("custom_resource_state_config_file", Some("spec: [\n"), "spec: {resources: []}\n"),
        ("custom_resource_state_config_file", None, "spec: {resources: []}\n"),
        ("tls_config", Some("http_server_config: 1\n"), "http_server_config: {http2: true}\n"),
        ("tls_config", None, "http_server_config: {http2: true}\n"),
    ];
    for (number, (key, broken, mended)) in cases.into_iter().enumerate() {
        let named = dir.path().join(format!("{number}.yaml"));
        if let Some(broken) = broken {
            std::fs::write(&named, broken).expect("write");
        }
        let with = format!("resources: {{nodes: {{}}}}\n{key}: {}\n", named.display());
        file.write(&with);
        exporter.wait_gauge(false);
        exporter.program.line(&["Cannot apply the new configuration", &format!("{number}.yaml")]);
        assert_eq!(exporter.count("kube_node_info"), 0, "{with}");
        common::replace(&named, mended);
        exporter.wait_gauge(true);
        until("nodes", || (exporter.count("kube_node_info") > 0).then_some(()));
        file.write("resources: {pods: {}}\n");
        until("pods", || (exporter.count("kube_node_info") == 0).then_some(()));
        exporter.wait_gauge(true);
    }
    // The contents of the named file, in turn.
    let (pki, web) = (pki::Pki::new(), dir.path().join("web.yaml"));
    let names = "tls_server_config: {cert_file: server.crt, key_file: server.key}\n";
    std::fs::write(&web, names).expect("write");
    std::fs::write(dir.path().join("server.crt"), pki.text("server.crt")).expect("write");
    file.write(&format!("resources: {{nodes: {{}}}}\ntls_config: {}\n", web.display()));
    exporter.program.line(&["Cannot apply the new configuration", "server.key"]);
    exporter.wait_gauge(false);
    common::replace(&dir.path().join("server.key"), &pki.text("server.key"));
    until("it speaks TLS", || {
        let refused = request(exporter.main, "GET", "/metrics", &[]);
        refused.map_or(Some(()), |answer| (answer.status == 400).then_some(()))
    });
}

/// Objects and `/readyz` wait for the API server; lines and their scrapes do not.
#[test]
fn statsd_works_before_the_shard_is_known() {
    let cluster = Cluster::new(5, Passage::Silent);
    let server = format!("--apiserver={}", cluster.url());
    let args = [
        "run",
        &server,
        "--pod=kstatd-0",
        "--pod-namespace=monitoring",
        "--listen=127.0.0.1:0",
        "--telemetry-listen=127.0.0.1:0",
        "--statsd.listen-udp=127.0.0.1:0",
        "--statsd.listen-tcp=",
    ];
    let mut program = Program::start("kstatd", args);
    let udp = program.address(&["Accepting StatsD Traffic"], "udp");
    let main = program.address(&["Started metrics server"], "address");
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    sender.send_to(b"heard:1|c", udp).expect("sent");
    let lines = || get(main, "/metrics/statsd").text().contains("heard 1\n");
    until("the line is shown", || lines().then_some(()));
    assert_eq!(get(main, "/metrics/kubernetes").status, 503);
    assert_eq!(get(main, "/readyz").status, 503);
    // An API server that does not know the pod does not stop ingestion either.
    cluster.gate.set(Passage::Open);
    program.line(&["Cannot determine the shard of this pod", "404"]);
    assert!(lines());
    assert_eq!(get(main, "/readyz").status, 503);
    program.signal("TERM");
    assert_eq!(program.ended().code(), Some(0));
}

#[test]
fn compression_and_timeouts_follow_the_file() {
    let cluster = Cluster::new(20, Passage::Open);
    for native in [true, false] {
        let file = File::new("resources: {pods: {}}\n");
        let exporter = if native {
            Exporter::native(&cluster, &file)
        } else {
            Exporter::start(&cluster, &file, &[])
        };
        exporter.wait_gauge(true);
        let encoding = || {
            let answer = request(exporter.main, "GET", "/metrics", &[("Accept-Encoding", "gzip")]);
            answer.expect("no gap").header("content-encoding").map(str::to_owned)
        };
        assert_eq!(encoding(), None);
        let delivered = cluster.double().delivered();
        file.write(
            "resources: {pods: {}}\nenable_gzip_encoding: true\nserver_read_header_timeout: 3s\n",
        );
        until("bodies are compressed", || encoding().map(drop));
        exporter.wait_gauge(true);
        let mut silent = TcpStream::connect(exporter.main).expect("connect");
        silent.set_read_timeout(Some(DEADLINE)).expect("timeout");
        assert_eq!(silent.read(&mut [0; 1]).expect("closed"), 0);
        // Nothing was listed for it.
        assert_eq!(cluster.double().delivered(), delivered);
        file.write("resources: {pods: {}}\n");
        until("bodies are plain", || encoding().is_none().then_some(()));
    }
}

#[test]
fn listeners_move_when_they_can() {
    let cluster = Cluster::new(5, Passage::Open);
    let file = File::new("resources: {pods: {}}\n");
    let mut exporter = Exporter::start(&cluster, &file, &[]);
    exporter.wait_gauge(true);
    let reserved = [Reserved::new(), Reserved::new(), Reserved::new()];
    let [to, free, third] = [0, 1, 2].map(|number: usize| reserved[number].address);
    let busy = TcpListener::bind(to).expect("bind");
    let ports = |main: u16, telemetry: u16| {
        file.write(&format!(
            "resources: {{pods: {{}}}}\nport: {main}\ntelemetry_port: {telemetry}\n"
        ));
    };
    // The port is in use: the listener stays.
    ports(to.port(), 0);
    exporter.wait_gauge(false);
    exporter.program.line(&["Cannot listen on the new address", &to.to_string(), "in use"]);
    assert_eq!(get(exporter.main, "/healthz").status, 200);
    drop(busy);
    until("it has moved", || request(to, "GET", "/healthz", &[]).ok());
    exporter.main = to;
    exporter.wait_gauge(true);
    assert!(exporter.count("kube_pod_info") > 0);
    // Both listeners swap ports, then one moves to the port that the other leaves.
    ports(to.port(), free.port());
    until("the other one too", || request(free, "GET", "/readyz", &[]).ok());
    ports(free.port(), to.port());
    let is_main = |address| request(address, "GET", "/healthz", &[]).is_ok_and(|a| a.status == 200);
    until("crossed", || (is_main(free) && !is_main(to)).then_some(()));
    exporter.main = free;
    exporter.telemetry = to;
    exporter.wait_gauge(true);
    ports(third.port(), free.port());
    until("in a row", || (is_main(third) && !is_main(free)).then_some(()));
    exporter.main = third;
    exporter.telemetry = free;
    exporter.wait_gauge(true);
    // The same port on another address of the host conflicts with its own socket, and for now with that of another program, too.
    let (port, other) = (third.port(), free.port());
    let text = format!(
        "resources: {{pods: {{}}}}\nhost: 0.0.0.0\nport: {port}\ntelemetry_port: {other}\n"
    );
    let busy = TcpListener::bind(("127.0.0.2", port)).expect("bind");
    file.write(&text);
    let failures = || {
        let is_failure = |line: &&String| {
            line.contains("Cannot listen on the new") && line.contains(&port.to_string())
        };
        exporter.program.log().iter().filter(is_failure).count()
    };
    until("a failure", || (failures() > 0).then_some(()));
    // The own socket was closed once, in vain.
    until("two more", || {
        assert_eq!(get(third, "/healthz").status, 200);
        (failures() > 2).then_some(())
    });
    drop(busy);
    file.write(&format!("{text}# again\n"));
    // The wildcard address depends on whether the host has IPv6.
    until("on every address", || {
        let moved = |line: &String| {
            line.contains("Started metrics server")
                && line.contains(&format!(":{}\"", third.port()))
                && !line.contains("127.0.0.1")
        };
        exporter.program.log().iter().any(moved).then_some(())
    });
    exporter.wait_gauge(true);
    assert!(exporter.count("kube_pod_info") > 0);
}

#[test]
fn changes_of_kubeconfig_files_are_applied() {
    let (one, two) = (Cluster::new(20, Passage::Open), Cluster::new(45, Passage::Open));
    let dir = tempfile::tempdir().expect("directory");
    let (users, clusters) = (dir.path().join("users"), dir.path().join("clusters"));
    std::fs::write(&users, "users: [{name: u, user: {}}]\n").expect("write");
    let write = |url: &str| {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        );
        common::replace(&clusters, &text);
    };
    write(&one.url());
    let args = [
        "--listen=127.0.0.1:0",
        "--telemetry-listen=127.0.0.1:0",
        "--resources=pods",
        "--statsd.listen-udp=",
        "--statsd.listen-tcp=",
    ];
    let program = Program::spawn(
        common::command("kstatd", args)
            .env("KUBECONFIG", std::env::join_paths([&users, &clusters]).expect("paths"))
            .stdin(Stdio::null()),
    );
    let main = program.address(&["Started metrics server"], "address");
    until("the first lists are complete", || (get(main, "/metrics").status == 200).then_some(()));
    let pods = || {
        let text = get(main, "/metrics").text();
        valid_text(&text).iter().filter(|line| line.starts_with("kube_pod_info{")).count()
    };
    let (first, second) = (one.double().objects_of("pods"), two.double().objects_of("pods"));
    assert_ne!(first, second);
    until("the first cluster", || (pods() == first).then_some(()));
    write(&two.url());
    until("the second cluster", || {
        let shown = pods();
        assert!(shown == first || shown == second, "{shown}");
        (shown == second).then_some(())
    });
}

#[test]
fn invalid_files_are_rejected_under_every_name() {
    let cluster = Cluster::new(5, Passage::Open);
    let server = format!("--apiserver={}", cluster.url());
    let flags: [(&[&str], &str); 3] = [
        (&["--tls-config=x"], "--tls-config"),
        (&["--custom-resource-state-config=x"], "--custom-resource-state-config"),
        (&["--custom-resource-state-config-file=x"], "--custom-resource-state-config-file=x"),
    ];
    let custom = "failed to parse Custom Resource State metrics";
    let keys = [
        ("tls_config: x\n", "line 1, column 13: web configuration x: No such file".to_owned()),
        ("custom_resource_config: x\n", format!("line 1, column 25: {custom}")),
        ("custom_resource_state_config_file: x\n", format!("line 1, column 36: {custom}")),
        ("custom_resource_config_file: x\n", format!("line 1, column 30: {custom}")),
    ];
    let refused = |name: &str, args: &[&str], part: &str| {
        let output = common::run(name, args);
        assert_eq!(output.status.code(), Some(1), "{name} {args:?}: {output:?}");
        assert!(output.stderr.contains(part), "{name} {args:?}: {output:?}");
    };
    let listen = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];
    let statsd = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=127.0.0.1:0"];
    let native = [&listen[..], &statsd[..]].concat();
    for with_cluster in [&[][..], &[server.as_str()]] {
        for (flags, part) in flags {
            refused("kstatd", &[&native[..], with_cluster, flags].concat(), part);
            refused("kstatd", &[&["run"], &native[..], with_cluster, flags].concat(), part);
            refused("kube-state-metrics", &[&["--port=0"], with_cluster, flags].concat(), part);
        }
        for (text, part) in &keys {
            let file = File::new(text);
            for tolerant in [&[][..], &["--continue-without-config"]] {
                let config = file.flag();
                let more = [&[config.as_str()], with_cluster, tolerant].concat();
                refused("kstatd", &[&native[..], &more].concat(), part);
                refused("kube-state-metrics", &[&["--port=0"], &more[..]].concat(), part);
            }
            let output = common::run("kstatd", ["check-config", &file.flag()]);
            assert_eq!(output.status.code(), Some(1), "{text}: {output:?}");
            assert!(output.stdout.contains(part), "{text}: {output:?}");
        }
    }
    for (name, args) in [
        ("statsd_exporter", ["--web.config.file=x"]),
        ("kstatd", ["--web.config.file=x"]),
        ("kube-state-metrics", ["--web.config.file=x"]),
    ] {
        assert_ne!(common::run(name, args).status.code(), Some(0), "{name}");
    }
    assert_ne!(common::run("kstatd", ["demo", "--tls-config=x"]).status.code(), Some(0));
}

/// Regardless of which side used a name first, `/metrics` never has two families of it, in any format at any time.
#[test]
fn custom_resource_metric_hides_a_statsd_metric() {
    let cluster = Cluster::new(20, Passage::Open);
    let custom = |names: &[&str]| {
        let metric = |name: &&str| {
            format!(
                "{{name: {name}, help: Theirs., each: {{type: Gauge, gauge: {{path: [spec, replicas]}}}}}}"
            )
        };
        let metrics: Vec<String> = names.iter().map(metric).collect();
        format!(
            "spec: {{resources: [{{groupVersionKind: {{group: apps, version: v1, kind: Deployment}}, \
             metricNamePrefix: '', metrics: [{}]}}]}}\n",
            metrics.join(", ")
        )
    };
    let file = File::new(&custom(&["first"]));
    let args = [
        "run".to_owned(),
        format!("--apiserver={}", cluster.url()),
        format!("--custom-resource-state-config-file={}", file.path.display()),
        "--listen=127.0.0.1:0".to_owned(),
        "--telemetry-listen=127.0.0.1:0".to_owned(),
        "--statsd.listen-udp=127.0.0.1:0".to_owned(),
        "--statsd.listen-tcp=".to_owned(),
    ];
    let program = Program::start("kstatd", args);
    let udp = program.address(&["Accepting StatsD Traffic"], "udp");
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    let send = |line: &str| {
        sender.send_to(line.as_bytes(), udp).expect("sent");
    };
    // Returns the samples of a body without duplicate family names.
    let scrape = || {
        let text = get(main, "/metrics").text();
        valid_text(&text);
        for encoding in ["identity", "gzip"] {
            let headers =
                [("Accept", "application/openmetrics-text"), ("Accept-Encoding", encoding)];
            let answer = request(main, "GET", "/metrics", &headers).expect("an answer");
            let mut body = String::new();
            match answer.header("content-encoding") {
                Some("gzip") => drop(
                    flate2::read::MultiGzDecoder::new(&answer.body[..])
                        .read_to_string(&mut body)
                        .expect("gzip"),
                ),
                _ => body = answer.text(),
            }
            let types = body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
            let names: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
            let distinct: std::collections::BTreeSet<&&str> = names.iter().collect();
            assert_eq!(distinct.len(), names.len(), "two families of one name: {names:?}");
        }
        text
    };
    let shows = |what: &str, line: &str| {
        until(what, || scrape().lines().any(|own| own.starts_with(line)).then_some(()));
    };
    let says = |line: &str| {
        let own = || get(telemetry, "/metrics").text().lines().any(|own| own == line);
        until(line, || own().then_some(()));
    };
    until("the first lists", || (get(main, "/metrics").status == 200).then_some(()));
    for line in ["taken:3|c", "timer:7|ms", "other:1|c"] {
        send(line);
    }
    shows("Kubernetes", "first{");
    shows("a line", "taken 3");
    shows("a line", "timer_count 1");
    file.write(&custom(&["first", "taken", "timer_count", "new"]));
    shows("the new metric", "taken{");
    let text = scrape();
    for line in ["taken 3", "timer_count 1", "timer_sum", "timer{"] {
        assert!(!text.contains(&format!("\n{line}")), "{line}");
    }
    assert!(text.contains("\nother 1\n"));
    let log = program.line(&["StatsD metrics are hidden"]);
    assert!(
        log.contains("taken") && log.contains("timer") && !log.contains(r#""other\""#),
        "{log}"
    );
    says("kstatd_statsd_hidden_families_total 2");
    // A hidden metric keeps counting; a new one is rejected.
    send("taken:4|c\nnew:1|c\nother:1|c");
    says("kstatd_statsd_rejected_samples_total{reason=\"reserved_name\"} 1");
    shows("a line", "other 2");
    file.write(&custom(&["first"]));
    shows("the metric of before", "taken 7");
    assert!(scrape().contains("\ntimer_count 1\n"));
    let log = program.line(&["StatsD metrics are shown again"]);
    assert!(log.contains("taken") && log.contains("timer"), "{log}");
    send("new:1|c");
    shows("a line", "new 1");
}

/// The numbers of objects and the limit end with the limit.
#[test]
fn a_removed_object_limit_has_no_metrics() {
    let cluster = Cluster::new(20, Passage::Open);
    let file = File::new("object_limit: 5\nresources: {pods: {}}\n");
    let exporter = Exporter::start(&cluster, &file, &[]);
    let has_limit = || {
        let text = get(exporter.telemetry, "/metrics").text();
        text.contains("kube_state_metrics_list_objects_limit{resource=\"*v1.Pod\"} 5\n")
    };
    until("the limit", || has_limit().then_some(()));
    file.write("resources: {pods: {}}\n");
    until("no limit", || (!has_limit()).then_some(()));
    let text = get(exporter.telemetry, "/metrics").text();
    assert!(!text.contains("kube_state_metrics_list_objects{"), "{text}");
}

/// A proxy that refuses a tunnel is named, and the place that it refuses.
#[test]
fn a_refused_tunnel_names_its_target() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = proxy.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in proxy.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let file = File::new(&format!(
        "clusters: [{{name: c, cluster: {{server: 'https://api.test:6443', proxy-url: 'http://{address}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n"
    ));
    let kubeconfig = format!("--kubeconfig={}", file.path.display());
    let args = [&*kubeconfig, "--resources=pods", "--host=127.0.0.1", "--port=0"];
    let args = [&args[..], &["--telemetry-host=127.0.0.1", "--telemetry-port=0"]].concat();
    let program = Program::start("kube-state-metrics", args);
    program.line(&[&format!("proxy http://{address}"), "CONNECT api.test:6443: "]);
}
