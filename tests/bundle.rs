//! `kstatd bundle`: complete archives of each program, planted secrets, hashed names, and endpoints that fail.

#[path = "common/api_server.rs"]
mod api_server;
mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;

use api_server::{ApiServer, deployment, list, pod};
use common::cluster::Cluster;
use common::{Gate, Output, Passage, Program, Reserved, get, request, run, until};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

/// The bcrypt hash of the password `pw`.
const HASH: &str = "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW";

/// The files of an archive, profiles unpacked.
type Files = BTreeMap<String, Vec<u8>>;

/// Reads an archive with the system's tar, as a user does.
fn unpacked(archive: &Path) -> Files {
    let folder = tempfile::tempdir().expect("folder");
    let mut tar = std::process::Command::new("tar");
    let tar = tar.arg("-xzf").arg(archive).arg("-C").arg(folder.path()).arg("--strip-components=1");
    assert!(tar.status().expect("tar").success());
    let files = std::fs::read_dir(folder.path()).expect("files").map(|file| {
        let file = file.expect("a file").path();
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let mut content = std::fs::read(&file).expect("readable");
        if name.ends_with(".gz") {
            let packed = std::mem::take(&mut content);
            GzDecoder::new(&*packed).read_to_end(&mut content).expect("a profile");
        }
        (name, content)
    });
    files.collect()
}

/// Runs `kstatd bundle` and returns its files.
fn bundle(args: &[&str]) -> (Output, Files) {
    let folder = tempfile::tempdir().expect("folder");
    let archive = folder.path().join("bundle.tar.gz");
    let file = format!("--file={}", archive.display());
    let output = run("kstatd", [&["bundle", &file], args].concat());
    let files = if archive.exists() { unpacked(&archive) } else { Files::new() };
    (output, files)
}

fn text(files: &Files, name: &str) -> String {
    String::from_utf8(
        files.get(name).unwrap_or_else(|| panic!("{name}: {:?}", files.keys())).clone(),
    )
    .expect("UTF-8")
}

fn json(files: &Files, name: &str) -> Value {
    serde_json::from_str(&text(files, name)).expect("JSON")
}

/// Asserts that no file contains a text, whatever its case.
fn is_nowhere(files: &Files, text: &str) {
    for (name, content) in files {
        let content = String::from_utf8_lossy(content).to_lowercase();
        let at = content.find(text);
        let near =
            at.map(|at| content.chars().skip(at.saturating_sub(80)).take(200).collect::<String>());
        assert_eq!(near, None, "{text} in {name}");
    }
}

struct Addresses {
    main: SocketAddr,
    telemetry: SocketAddr,
}

/// Starts a kstatd and returns its addresses.
fn start(args: &[String]) -> (Program, Addresses) {
    let own = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0", "--statsd.listen-tcp="];
    let own = own.iter().map(|arg| (*arg).to_owned());
    let program = Program::start("kstatd", own.chain(args.iter().cloned()));
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    (program, Addresses { main, telemetry })
}

#[test]
fn secrets_are_in_no_file() {
    let cluster = Cluster::new(20);
    let folder = tempfile::tempdir().expect("folder");
    let write = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("write");
        path.display().to_string()
    };
    let kubeconfig = write(
        "kubeconfig",
        &format!(
            "clusters: [{{name: c, cluster: {{server: '{}'}}}}]\nusers: [{{name: u, user: {{token: planted-token}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\ncurrent-context: c\n",
            cluster.double.url()
        ),
    );
    let options = write(
        "options.yaml",
        "# password: planted-in-a-comment\nresources: {pods: {}, nodes: {}}\n",
    );
    let mapping = write(
        "mapping.yaml",
        "# https://me:planted-userinfo@example.com/\nmappings:\n- {match: 'a.*', name: a, labels: {token: planted-label}}\n",
    );
    let web = write("web.yaml", &format!("basic_auth_users:\n  me: {HASH}\n"));
    let (program, at) = start(&[
        format!("--kubeconfig={kubeconfig}"),
        format!("--config={options}"),
        format!("--statsd.mapping-config={mapping}"),
        format!("--web.config.file={web}"),
        "--log-level=debug".to_owned(),
        "--statsd.listen-udp=127.0.0.1:0".to_owned(),
    ]);
    let statsd = program.address(&["Accepting StatsD Traffic"], "udp");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket.send_to(b"Authorization: Bearer planted-in-a-line.1:x|c\n", statsd).expect("send");
    until("the line is refused", || {
        let answer = request(at.main, "GET", "/status", &[("Authorization", "Basic bWU6cHc=")])
            .expect("a status");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().contains("planted-in-a-line").then_some(())
    });
    let (main, telemetry) =
        (format!("--addr={}", at.main), format!("--telemetry-addr={}", at.telemetry));
    let (output, files) = bundle(&[&main, &telemetry, "--username=me", "--password=pw"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for name in [
        "bundle.json",
        "status.txt",
        "status.json",
        "readyz.txt",
        "cardinality.json",
        "metrics.txt",
        "configuration.json",
        "log.txt",
        "threads.txt",
        "cpu.pb.gz",
        "heap.pb.gz",
    ] {
        assert!(
            files.get(name).is_some_and(|content| !content.is_empty()),
            "{name}: {:?}",
            files.keys()
        );
        // The list on the terminal and in the archive.
        assert!(output.stdout.contains(name) || name == "bundle.json", "{output:?}");
    }
    is_nowhere(&files, "planted");
    is_nowhere(&files, &HASH.to_lowercase());
    // What is not secret is there.
    let configuration = json(&files, "configuration.json");
    let files_of: Vec<&str> = configuration["files"]
        .as_array()
        .expect("files")
        .iter()
        .filter_map(|file| file["what"].as_str())
        .collect();
    assert_eq!(files_of.len(), 3, "{configuration}");
    let shown = configuration.to_string();
    for part in [
        "resources: {pods: {}, nodes: {}}",
        "a.*",
        "\\\"me\\\": \\\"[removed]\\\"",
        "--statsd.mapping-config=",
        "Max open files",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(text(&files, "log.txt").contains("Started metrics server"));
    assert!(text(&files, "metrics.txt").contains("process_resident_memory_bytes"));
    assert!(json(&files, "status.json")["kubernetes"]["kinds"].is_array());
    // Strangers get neither log nor configuration.
    for path in ["/debug/pprof/log", "/debug/pprof/configuration"] {
        assert_eq!(get(at.telemetry, path).status, 401, "{path}");
        let known = [("Authorization", "Basic bWU6cHc=")];
        assert_eq!(
            request(at.telemetry, "GET", path, &known).expect("an answer").status,
            200,
            "{path}"
        );
        assert_eq!(request(at.main, "GET", path, &known).expect("an answer").status, 404, "{path}");
    }
}

#[test]
fn names_are_hashed_alike_in_every_file() {
    let cluster = Cluster::new(20);
    let folder = tempfile::tempdir().expect("folder");
    let mapping = folder.path().join("mapping.yaml");
    std::fs::write(
        &mapping,
        "mappings:\n- {match: acme.*, name: acme_checkout, labels: {acme_team: $1}}\n",
    )
    .expect("write");
    let (program, at) = start(&[
        cluster.flag(),
        "--namespaces=acme-payroll,default".to_owned(),
        "--metric-labels-allowlist=pods=[acme_team]".to_owned(),
        format!("--statsd.mapping-config={}", mapping.display()),
        "--statsd.listen-udp=127.0.0.1:0".to_owned(),
    ]);
    let statsd = program.address(&["Accepting StatsD Traffic"], "udp");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket
        .send_to(b"acme.ceo-salary:1|c\nacme-broken:x|c\nacme_unmapped.b:1|c\n", statsd)
        .expect("send");
    program.line(&["Namespaces do not exist", "acme-payroll"]);
    until("the lines are counted", || {
        get(at.main, "/status").text().contains("acme-broken").then_some(())
    });
    let (main, telemetry) =
        (format!("--addr={}", at.main), format!("--telemetry-addr={}", at.telemetry));
    let (output, plain) = bundle(&[&main, &telemetry]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for (name, part) in [
        ("log.txt", "acme-payroll"),
        ("status.json", "acme_checkout"),
        ("status.txt", "acme-broken"),
    ] {
        assert!(text(&plain, name).contains(part), "{name} without hashes has {part}");
    }
    let (output, files) = bundle(&[&main, &telemetry, "--hash-names", "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for name in ["acme", "ceo-salary"] {
        is_nowhere(&files, name);
    }
    let status = json(&files, "status.json");
    let hash =
        status["kubernetes"]["missing_namespaces"][0].as_str().expect("a namespace").to_owned();
    assert!(hash.starts_with("h-"), "{hash}");
    for name in ["log.txt", "configuration.json"] {
        assert!(text(&files, name).contains(&hash), "{hash} in {name}: {}", text(&files, name));
    }
    // What the program says stays.
    assert!(
        text(&files, "log.txt").contains("Started metrics server"),
        "{}",
        text(&files, "log.txt")
    );
    assert!(text(&files, "metrics.txt").contains("kstatd_kubernetes_objects{"));
    assert_eq!(status["program"]["name"], "kstatd");
    let listed: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(
        (&listed["names_are_hashed"], listed["files"].as_array().map(Vec::len)),
        (&json!(true), Some(files.len() - 1))
    );
    // Another archive has other hashes.
    let (_, again) = bundle(&[&main, &telemetry, "--hash-names"]);
    assert!(!text(&again, "log.txt").contains(&hash));
}

#[test]
fn an_archive_names_what_could_not_be_read() {
    let (_program, at) = start(&["--statsd.listen-udp=127.0.0.1:0".to_owned()]);
    let main = format!("--addr={}", at.main);
    let refused = Reserved::new();
    let silent = Gate::new(at.telemetry, Passage::Silent);
    for (address, reason) in [(refused.address, "refused"), (silent.address(), "no answer within")]
    {
        let (output, files) = bundle(&[&main, &format!("--telemetry-addr={address}")]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&files, "status.txt").starts_with("OK"));
        let errors = text(&files, "bundle.json");
        assert!(errors.contains(reason) && errors.contains(&address.to_string()), "{errors}");
        assert!(output.stdout.contains("MISSING") && !files.contains_key("log.txt"), "{output:?}");
    }
    // Another process on the port is not mistaken for it.
    let (_other, other) = start(&["--statsd.listen-udp=127.0.0.1:0".to_owned()]);
    let (output, files) = bundle(&[&main, &format!("--telemetry-addr={}", other.telemetry)]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        !files.contains_key("log.txt") && text(&files, "bundle.json").contains("another process"),
        "{output:?}"
    );
    let (output, files) = bundle(&[&format!("--addr={}", refused.address)]);
    assert!(output.status.code() == Some(2) && files.is_empty(), "{output:?}");
    // A file that exists is kept.
    let file = tempfile::NamedTempFile::new().expect("file");
    let output = run("kstatd", ["bundle", &main, &format!("--file={}", file.path().display())]);
    assert!(output.status.code() == Some(2) && output.stderr.contains("exists"), "{output:?}");
    // One that cannot be written completely is not.
    let folder = tempfile::tempdir().expect("folder");
    let archive = folder.path().join("a.tar.gz");
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$@\"";
    let mut limited = std::process::Command::new("sh");
    let limited = limited.args(["-c", script, "sh", env!("CARGO_BIN_EXE_kstatd"), "bundle", &main]);
    let output = limited.arg(format!("--file={}", archive.display())).output().expect("sh");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("too large"), "{output:?}");
    assert!(!archive.exists());
}

#[test]
fn the_originals_names_have_archives_too() {
    let statsd = Program::start(
        "statsd_exporter",
        [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
        ],
    );
    let web = statsd.address(&["Accepting Prometheus Requests"], "addr");
    let (output, files) = bundle(&[&format!("--addr={web}")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&files, "log.txt").contains("Starting StatsD"), "{}", text(&files, "log.txt"));
    let cluster = Cluster::new(5);
    let kube = Program::start(
        "kube-state-metrics",
        [
            &*cluster.flag(),
            "--host=127.0.0.1",
            "--port=0",
            "--telemetry-host=127.0.0.1",
            "--telemetry-port=0",
        ],
    );
    let main = kube.address(&["Started metrics server"], "address");
    let telemetry = kube.address(&["Started self metrics server"], "address");
    let (output, files) =
        bundle(&[&format!("--addr={main}"), &format!("--telemetry-addr={telemetry}")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&files, "log.txt").contains("Starting kube-state-metrics"));
    assert!(!text(&files, "metrics.txt").contains("kube_pod_info"), "own metrics only");
}

/// The options file may name another one than at the start.
#[test]
fn the_web_configuration_in_use_is_shown() {
    let cluster = Cluster::new(5);
    let folder = tempfile::tempdir().expect("folder");
    let (options, web) = (folder.path().join("options.yaml"), folder.path().join("web.yaml"));
    std::fs::write(&web, "http_server_config: {http2: true}\n").expect("write");
    std::fs::write(&options, "resources: {pods: {}}\n").expect("write");
    let (_program, at) = start(&[
        cluster.flag(),
        format!("--config={}", options.display()),
        "--statsd.listen-udp=127.0.0.1:0".to_owned(),
    ]);
    let shown = || {
        // What the archive gets.
        let text = get(at.telemetry, "/debug/pprof/configuration").text();
        let configuration: Value = serde_json::from_str(&text).expect("JSON");
        let files = configuration["files"].as_array().expect("files").iter();
        let web: Vec<Value> =
            files.filter(|file| file["what"] == "web configuration").cloned().collect();
        web
    };
    assert_eq!(shown(), [json!(null); 0]);
    let text = format!("resources: {{pods: {{}}}}\ntls_config: {}\n", web.display());
    common::replace(&options, &text);
    until("it is shown", || {
        let found = shown();
        found.first().is_some_and(|file| file["path"] == *web.to_string_lossy()).then_some(())
    });
}

#[test]
fn a_pod_has_its_description_and_log() {
    let (_program, at) = start(&["--statsd.listen-udp=127.0.0.1:0".to_owned()]);
    let server = ApiServer::start();
    let args = json!([
        format!("--listen=[::]:{}", at.main.port()),
        format!("--telemetry-listen=[::]:{}", at.telemetry.port()),
        "--apiserver=https://me:planted-argument@h",
    ]);
    server
        .serve("/apis/apps/v1/deployments", list(&[deployment("kstatd", "corp/kstatd:1", &args)]));
    server.serve("/apis/apps/v1/statefulsets", list(&[]));
    server.serve("/apis/apps/v1/daemonsets", list(&[]));
    let pods = "/api/v1/namespaces/monitoring/pods";
    server.serve(pods, list(&[pod("kstatd-0", &args)]));
    server.serve(&format!("{pods}/kstatd-0"), pod("kstatd-0", &args));
    server.serve(&format!("{pods}/kstatd-0/log"), json!("a line with token=planted-in-the-log"));
    for address in [at.main, at.telemetry] {
        server.forward(&format!("{pods}/kstatd-0:{}/proxy", address.port()), address);
    }
    let folder = tempfile::tempdir().expect("folder");
    let archive = folder.path().join("a.tar.gz");
    let (file, kubeconfig) = (
        format!("--file={}", archive.display()),
        format!("--kubeconfig={}", server.kubeconfig().display()),
    );
    let output = run("kubectl-kstatd", ["bundle", &file, &kubeconfig]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let files = unpacked(&archive);
    is_nowhere(&files, "planted");
    let described = json(&files, "pod.json");
    assert_eq!(described["containers"][0]["image"], "corp/kstatd:1");
    assert!(text(&files, "pod-log.txt").contains("a line with token=[removed]"));
    let logs: Vec<String> =
        server.requests().into_iter().filter(|one| one.contains("/log?")).collect();
    assert_eq!(logs.len(), 2, "{logs:?}");
    assert!(logs.iter().all(|one| one.contains("container=main&")), "{logs:?}");
    for name in ["log.txt", "status.json", "configuration.json", "cpu.pb.gz"] {
        assert!(files.contains_key(name), "{name}: {output:?}");
    }
    // A caller who may not read the log is told so.
    let message = "pods \"kstatd-0\" is forbidden: cannot get resource \"pods/log\"";
    let refusal = json!({"kind": "Status", "code": 403, "message": message});
    server.serve(&format!("{pods}/kstatd-0/log"), refusal);
    let file = format!("--file={}", folder.path().join("b.tar.gz").display());
    let output = run("kubectl-kstatd", ["bundle", &file, &kubeconfig]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("403 from the API server: pods"), "{output:?}");
    assert!(!output.stdout.contains("pods/proxy"), "{output:?}");
}
