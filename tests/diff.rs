//! `kstatd diff` through the command line: files, standard input, and servers that change, refuse or disconnect.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::cluster::Cluster;
use common::{Output, Program, get, run, run_with_input, until};
use serde_json::Value;

/// Runs `kstatd diff` with these arguments.
fn diff(args: &[&str]) -> Output {
    run("kstatd", [&["diff"], args].concat())
}

/// Asserts the exit code and returns the output.
fn assert_exit(code: i32, args: &[&str]) -> String {
    let output = diff(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}{}", output.stdout, output.stderr);
    output.stdout + &output.stderr
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("write");
        path.display().to_string()
    }
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).expect("memory");
    packed.finish().expect("memory")
}

const A: &str = "\
# HELP alone_a In A.\n# TYPE alone_a gauge\nalone_a{x=\"1\"} 1\nalone_a{x=\"2\"} 2\n\
# HELP values Words.\n# TYPE values gauge\nvalues{x=\"1\"} 1\nvalues{x=\"2\"} NaN\nvalues{x=\"3\"} 3\n\
# HELP kind Words.\n# TYPE kind gauge\nkind 1\n\
# HELP words One.\n# TYPE words gauge\nwords 1\n\
# HELP mark [STABLE] Words.\n# TYPE mark gauge\nmark 1\n\
# HELP shape Words.\n# TYPE shape gauge\nshape{a=\"1\",b=\"2\"} 1\n\
# HELP twice Words.\n# TYPE twice gauge\ntwice{a=\"1\"} 1\ntwice{a=\"1\"} 1\n\
# HELP empty Words.\n# TYPE empty gauge\n\
# HELP same Words.\n# TYPE same gauge\nsame{a=\"\\\"\\\\\",b=\"é}\"} 1.5\n";

const B: &str = "\
# HELP same Words.\n# TYPE same gauge\nsame{b=\"é}\",a=\"\\\"\\\\\"} 15e-1\n\
# HELP twice Words.\n# TYPE twice gauge\ntwice{a=\"1\"} 1\n\
# HELP shape Words.\n# TYPE shape gauge\nshape{a=\"1\",c=\"2\"} 1\n\
# HELP mark Words.\n# TYPE mark gauge\nmark 1\n\
# HELP words Two.\n# TYPE words gauge\nwords 1\n\
# HELP kind Words.\n# TYPE kind counter\nkind 1\n\
# HELP values Words.\n# TYPE values gauge\nvalues{x=\"1\"} 1\nvalues{x=\"2\"} NaN\nvalues{x=\"3\"} 4\n\
bare 7\n";

/// Returns the families with their differences and numbers of series.
fn differences(json: &str) -> BTreeMap<String, Vec<(String, Option<u64>)>> {
    let report: Value =
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let families = report["families"].as_array().expect("families").iter();
    families
        .map(|family| {
            let differences = family["differences"].as_array().expect("differences").iter();
            let what = |one: &Value| {
                (one["what"].as_str().expect("what").to_owned(), one["series"].as_u64())
            };
            (family["family"].as_str().expect("family").to_owned(), differences.map(what).collect())
        })
        .collect()
}

#[test]
fn files_are_compared_in_every_respect() {
    let folder = Folder::new();
    let (a, b) = (folder.file("a", A), folder.file("b.gz", gzip(B)));
    let text = assert_exit(1, &[&a, &b]);
    for part in [
        "(text, 9 families, 11 series, read once)",
        "\nalone_a\n  only in A: 2 series\n    alone_a{x=\"1\"} 1\n    alone_a{x=\"2\"} 2\n",
        "\nbare\n  only in B: 1 series\n    bare 7\n",
        "\nempty\n  only in A\n    A: no series\n    B: nothing\n",
        "\nkind\n  type\n    A: gauge\n    B: counter\n",
        "\nmark\n  stability\n    A: [STABLE]\n    B: nothing\n",
        "\nshape\n  only in A: 1 series\n    shape{a=\"1\",b=\"2\"} 1\n  only in B: 1 series\n    \
         shape{a=\"1\",c=\"2\"} 1\n  labels\n    A: b\n    B: c\n",
        "\ntwice\n  repeated\n    A: 1\n    B: 0\n",
        "\nvalues\n  value: 1 series\n    values{x=\"3\"} A: 3, B: 4\n",
        "\nwords\n  help\n    A: One.\n    B: Two.\n",
        "\n9 families differ; 8 series on both sides, 0 of them moved\n",
    ] {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
    assert!(!text.contains("same{"), "{text}");
    let json = assert_exit(1, &["--json", &a, &b]);
    let want = |what: &[(&str, Option<u64>)]| -> Vec<(String, Option<u64>)> {
        what.iter().map(|(what, series)| ((*what).to_owned(), *series)).collect()
    };
    let differences = differences(&json);
    assert_eq!(differences.len(), 9);
    assert_eq!(differences["alone_a"], want(&[("only_in_a", Some(2))]));
    let shape = [("only_in_a", Some(1)), ("only_in_b", Some(1)), ("labels", None)];
    assert_eq!(differences["shape"], want(&shape));
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["same"], false);
    let values = &report["families"][7]["differences"][0];
    assert_eq!(values["examples"][0]["a"], "3", "{report:#}");
    assert_eq!(values["explained"], Value::Null);
    // At most the requested number of examples.
    let one = assert_exit(1, &["--examples=1", &a, &b]);
    assert!(one.contains("    alone_a{x=\"1\"} 1\n    and 1 more\n"), "{one}");
    // Ignored families are not compared; a pattern matches the entire name.
    let rest = "alone_.|bare|empty|kind|mark|shape|twice|values";
    assert!(assert_exit(1, &["--ignore", rest, &a, &b]).contains("\n1 family differs;"));
    let none = assert_exit(0, &["--ignore", rest, "--ignore=words", &a, &b]);
    assert!(none.contains("\nno difference; 1 series on both sides"), "{none}");
    assert!(assert_exit(1, &["--ignore", "word", &a, &b]).contains("\n9 families differ"));
    // With A and B exchanged.
    assert!(assert_exit(1, &[&b, &a]).contains("\nalone_a\n  only in B: 2 series\n"));
    assert!(assert_exit(0, &[&a, &a]).contains("\nno difference;"));
}

#[test]
fn explained_families_are_summed_up_or_listed() {
    let folder = Folder::new();
    let family = |number: u32, help: &str| {
        let name = format!("kube_{number:02}");
        let series = (0..=number).map(|at| format!("{name}{{x=\"{at}\"}} 1\n")).collect::<String>();
        format!("# HELP {name} {help}\n# TYPE {name} gauge\n{series}")
    };
    let file = |name: &str, help: &str| {
        folder.file(name, (0..8).map(|number| family(number, help)).collect::<String>())
    };
    let (a, b) = (file("a", "One."), file("b", "Two."));
    let said = assert_exit(0, &[&a, &b]);
    let reason = "  help: sentences are kstatd's own; stability and deprecation are the same";
    let summed = format!(
        "{reason}: kube_00, kube_01, kube_02, kube_03, kube_04 and 3 more with 21 series\n"
    );
    assert!(said.contains(&summed), "{said}");
    let all = assert_exit(0, &["--explain-all", &a, &b]);
    assert!(
        all.contains(&format!("{reason}\n    kube_00 (1 series)\n    kube_01 (2 series)\n")),
        "{all}"
    );
    assert!(all.contains("    kube_07 (8 series)\n") && !all.contains(" more "), "{all}");
}

#[test]
fn text_is_compared_with_openmetrics() {
    let folder = Folder::new();
    let text = folder.file(
        "text",
        "# HELP c A \"b\" \\\\ c.\n# TYPE c_total counter\nc_total{a=\"1\"} 5\n\
         # HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"2.5\"} 1\n\
         h_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n\
         # HELP i_info I.\n# TYPE i_info gauge\ni_info{v=\"1\"} 1\n\
         # HELP u U.\n# TYPE u untyped\nu 1 1395066363000\n"
            .replace("HELP c ", "HELP c_total "),
    );
    let open = folder.file(
        "open",
        "# HELP c A \\\"b\\\" \\\\ c.\n# TYPE c counter\n# UNIT c things\nc_total{a=\"1\"} 5.0 # {t=\"x\"} 1\n\
         # HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"2.5\"} 1\n\
         h_bucket{le=\"+Inf\"} 1\nh_sum 1.0\nh_count 1\n\
         # HELP i I.\n# TYPE i info\ni_info{v=\"1\"} 1\n\
         # HELP u U.\n# TYPE u unknown\nu 1 1395066363\n# EOF\n",
    );
    let said = assert_exit(0, &["--strict", &text, &open]);
    assert!(said.contains("(OpenMetrics, 4 families, 8 series"), "{said}");
    // Within one format, the notation of numbers counts.
    let other = folder.file(
        "other",
        std::fs::read_to_string(&open)
            .expect("read")
            .replace("\"1.0\"", "\"1\"")
            .replace("HELP c ", "HELP c_total ")
            .replace("TYPE c ", "TYPE c_total "),
    );
    let said = assert_exit(1, &[&open, &other]);
    assert!(said.contains("\nh\n  bounds\n    A: 1.0\n    B: 1\n"), "{said}");
    assert!(said.contains("name: in OpenMetrics a counter's family has no `_total`: c_total"));
}

#[test]
fn explained_differences_do_not_count() {
    let folder = Folder::new();
    let a = folder.file(
        "a",
        "# HELP go_threads T.\n# TYPE go_threads gauge\ngo_threads 5\n\
         # HELP kube_pod_info [STABLE] Theirs.\n# TYPE kube_pod_info gauge\n\
         kube_pod_info{pod=\"a\"} 1\nkube_pod_info{pod=\"a\"} 1\n",
    );
    let b = folder.file(
        "b",
        "# HELP kube_pod_info [STABLE] Ours.\n# TYPE kube_pod_info gauge\nkube_pod_info{pod=\"a\"} 1\n",
    );
    let said = assert_exit(0, &[&a, &b]);
    for part in [
        "\nexplained (docs/compatibility.md):\n",
        "\n  only in A: there is no Go runtime: go_threads\n",
        "\n  repeated: a series that an object produces twice is printed once: kube_pod_info\n",
        "\n  help: sentences are kstatd's own; stability and deprecation are the same: kube_pod_info\n",
        "\nno difference;",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    let all = assert_exit(0, &["--explain-all", &a, &b]);
    for part in [
        "\n  only in A: there is no Go runtime\n    go_threads (1 series)\n",
        "\n  help: sentences are kstatd's own; stability and deprecation are the same\n    kube_pod_info (1 series)\n",
    ] {
        assert!(all.contains(part), "{part:?} in {all}");
    }
    let said = assert_exit(1, &["--strict", &a, &b]);
    assert!(
        said.contains("\ngo_threads\n  only in A: 1 series (explained: there is no Go runtime)\n")
    );
    assert!(said.contains("\n2 families differ;"), "{said}");
    let report: Value = serde_json::from_str(&assert_exit(0, &["--json", &a, &b])).expect("JSON");
    assert_eq!(report["same"], true);
    assert_eq!(report["families"][0]["differences"][0]["explained"], "there is no Go runtime");
}

#[test]
fn standard_input_is_supported() {
    let folder = Folder::new();
    let file = folder.file("a", A);
    for input in [A.as_bytes().to_vec(), gzip(A)] {
        let output = run_with_input("kstatd", ["diff", &file, "-"], &input);
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.contains("\nB: standard input (text, 9 families"), "{output:?}");
    }
    assert!(assert_exit(2, &["-", "-"]).contains("only one side can be standard input"));
}

/// A response and its handling.
#[derive(Clone)]
struct Reply {
    head: String,
    body: Vec<u8>,
}

impl Reply {
    fn text(body: impl Into<Vec<u8>>) -> Self {
        Self::of("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8", body)
    }

    fn of(status: &str, headers: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let length = body.len();
        Self { head: format!("{status}\r\n{headers}\r\nContent-Length: {length}"), body }
    }
}

/// A server that answers the n-th request, from 0, with `answer(n)`. Returns its URL and the request heads.
fn server(answer: impl Fn(usize) -> Reply + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let head = head_of(&stream);
            let number = seen.lock().expect("heads").len();
            seen.lock().expect("heads").push(head);
            let Reply { head, body } = answer(number);
            let mut stream = stream;
            let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    (url, heads)
}

fn head_of(stream: &TcpStream) -> String {
    let mut head = String::new();
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if line.is_empty() {
            break;
        }
        head += &line;
        head.push('\n');
    }
    head
}

/// Short enough for servers that answer immediately.
const SHORT_INTERVAL: &str = "--interval=10ms";

#[test]
fn incomparable_inputs_are_errors() {
    let folder = Folder::new();
    let good = folder.file("good", A);
    let missing = folder.path().join("missing").display().to_string();
    assert!(
        assert_exit(2, &[&good, &missing]).contains(&format!("error: {missing}: No such file"))
    );
    let broken = folder.file("broken", "a 1\nb{ 2\n");
    assert!(assert_exit(2, &[&broken, &good]).contains("broken: line 2: "));
    let packed = gzip(A);
    let cut = folder.file("cut", &packed[..packed.len() - 20]);
    assert!(assert_exit(2, &[&cut, &good]).starts_with("error: "));
    assert!(assert_exit(2, &["localhost:8080", &good]).contains("begins with http://"));
    assert!(assert_exit(2, &["ftp://a", &good]).contains("must be http or https"));
    assert!(assert_exit(2, &["--ignore=(", &good, &good]).contains("--ignore"));
    assert!(assert_exit(2, &["--watch=0s", &good, &good]).contains("must be a duration above 0"));
    assert!(assert_exit(2, &[&good]).contains("<B>"));
    assert!(
        assert_exit(2, &["--token=a", "--token-file=b", &good, &good])
            .contains("cannot be used with")
    );
    let free = TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    let refused = assert_exit(2, &[&format!("http://u:secret@{free}"), &good]);
    assert!(refused.contains(&format!("error: http://{free}: ")) && refused.contains("refused"));
    for (answer, part) in [
        (Reply::of("404 Not Found", "X: y", ""), "the server returned 404 Not Found"),
        (Reply::of("302 Found", "Location: /Login", ""), "302 Found, and points to /Login"),
        (
            Reply::of("200 OK", "Content-Type: text/html", "<html>"),
            "its Content-Type is \"text/html\"",
        ),
        (Reply::text("a 1\nb"), "line 2: the exposition ends in the middle of it"),
        (
            Reply::of(
                "200 OK",
                "Content-Type: application/openmetrics-text; version=1.0.0",
                "a 1\n",
            ),
            "# EOF is missing",
        ),
        (
            Reply::of("200 OK", "Content-Type: text/plain\r\nContent-Encoding: gzip", "no gzip"),
            "the response is truncated: it is no gzip",
        ),
        (
            Reply::of("200 OK", "Content-Type: text/plain\r\nContent-Encoding: gzip", gzip("a\n")),
            "line 1: a sample without a value",
        ),
        (
            Reply::of("200 OK", "Content-Type: text/plain\r\nContent-Encoding: br", "x"),
            "the response is encoded as br",
        ),
    ] {
        let (url, _) = server(move |_| answer.clone());
        let said = assert_exit(2, &[SHORT_INTERVAL, &url, &good]);
        assert!(said.contains(part) && said.contains(&url), "{part:?} in {said}");
    }
    let whole = Reply::text("a 1\n".repeat(9));
    let (url, _) = server(move |_| Reply { body: b"a 1\n".to_vec(), ..whole.clone() });
    assert!(assert_exit(2, &[SHORT_INTERVAL, &url, &good]).contains("is truncated"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", silent.local_addr().expect("address"));
    assert!(
        assert_exit(2, &["--timeout=50ms", &url, &good]).contains("no whole answer within 0.05 s")
    );
}

#[test]
fn requests_follow_the_flags() {
    let folder = Folder::new();
    let (url, heads) = server(|_| {
        let headers = "Content-Type: text/plain; version=0.0.4\r\nContent-Encoding: gzip";
        Reply::of("200 OK", headers, gzip(A))
    });
    let file = folder.file("a", A);
    let token = folder.file("token", "from-file\n");
    let password = folder.file("password", "pass word\n");
    let asked = |args: &[&str]| {
        heads.lock().expect("heads").clear();
        assert_exit(0, &[&[SHORT_INTERVAL], args, &[&file]].concat());
        let heads = heads.lock().expect("heads").clone();
        assert_eq!(heads.len(), 2, "as nothing differs, it is read twice");
        heads[0].clone()
    };
    let plain = asked(&[&url]);
    assert!(plain.starts_with("GET /metrics HTTP/1.1\n"), "{plain}");
    for header in [
        "accept: text/plain;version=0.0.4;q=1,*/*;q=0.1\n",
        "accept-encoding: gzip\n",
        "user-agent: kstatd/",
    ] {
        assert!(plain.contains(header), "{header:?} in {plain}");
    }
    assert!(!plain.contains("authorization"), "{plain}");
    let open = asked(&["--openmetrics", &format!("{url}/some/path?resources=pods#x")]);
    assert!(open.starts_with("GET /some/path?resources=pods HTTP/1.1\n"), "{open}");
    assert!(open.contains("accept: application/openmetrics-text;version=1.0.0;q=1,"), "{open}");
    let of_user = url.replace("http://", "http://me:p%40ss@");
    for (args, value) in [
        (vec!["--token=abc", &url], "Bearer abc"),
        (vec!["--token-file", &token, &url], "Bearer from-file"),
        (vec!["--username=me", "--password=p@ss", &url], "Basic bWU6cEBzcw=="),
        (vec!["--username=me", "--password-file", &password, &url], "Basic bWU6cGFzcyB3b3Jk"),
        (vec![of_user.as_str()], "Basic bWU6cEBzcw=="),
    ] {
        let head = asked(&args);
        assert!(head.contains(&format!("authorization: {value}\n")), "{value} in {head}");
    }
}

/// Returns certificate and key of a loopback server and its CA, as PEM.
fn certificates() -> (String, String, String) {
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().expect("key");
    let signed = authority.self_signed(&authority_key).expect("certificate").pem();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().expect("key");
    let params = rcgen::CertificateParams::new(["exporter.test".to_owned()]).expect("name");
    let certificate = params.signed_by(&key, &issuer).expect("certificate").pem();
    (certificate, key.serialize_pem(), signed)
}

#[test]
fn tls_and_basic_auth_are_supported() {
    let folder = Folder::new();
    let (certificate, key, authority) = certificates();
    folder.file("server.crt", certificate);
    folder.file("server.key", key);
    let authority = folder.file("ca.crt", authority);
    // The password is `pass`, with the lowest cost.
    let web = folder.file(
        "web.yml",
        format!(
            "tls_server_config: {{cert_file: server.crt, key_file: server.key}}\n\
             basic_auth_users: {{me: '{}'}}\n",
            bcrypt::hash("pass", 4).expect("hash")
        ),
    );
    let program = Program::start(
        "statsd_exporter",
        [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
            &format!("--web.config.file={web}"),
        ],
    );
    let url = format!("https://{}", program.address(&["Accepting Prometheus Requests"], "addr"));
    let user = ["--username=me", "--password=pass"];
    let name = "--tls-server-name=exporter.test";
    let trusted = ["--certificate-authority", &authority, name];
    let said = assert_exit(0, &[&user[..], &trusted, &[SHORT_INTERVAL, &url, &url]].concat());
    assert!(said.contains("\nno difference;"), "{said}");
    assert_exit(
        0,
        &[&user[..], &["--insecure-skip-tls-verify", SHORT_INTERVAL, &url, &url]].concat(),
    );
    let unknown = assert_exit(2, &[&user[..], &[name, SHORT_INTERVAL, &url, &url]].concat());
    assert!(unknown.contains("certificate"), "{unknown}");
    let unnamed =
        assert_exit(2, &[&user[..], &trusted[..2], &[SHORT_INTERVAL, &url, &url]].concat());
    assert!(
        unnamed.contains("not valid for name") || unnamed.contains("NotValidForName"),
        "{unnamed}"
    );
    let refused =
        assert_exit(2, &[&trusted[..], &["--username=me", "--password=no", &url, &url]].concat());
    assert!(refused.contains("the server returned 401 Unauthorized"), "{refused}");
}

#[test]
fn changing_values_are_not_differences() {
    // In each sample: a counter that both have from the start, one that A has had for longer, a gauge that is read
    // before and after its change, a series that appears and disappears.
    let body = |side: u64, n: u64| {
        let now = 2 * n + side;
        let longer = if side == 0 { 5_000_000 } else { 0 };
        let mut text = format!(
            "# TYPE together counter\ntogether {}\n# TYPE apart counter\napart {}\n\
             # TYPE moving gauge\nmoving {}\n# TYPE still gauge\nstill 5\n",
            1000 + now,
            longer + 100 * n,
            1.7e9 + (now / 2 * 10) as f64,
        );
        if now.is_multiple_of(3) {
            text += "# TYPE coming gauge\ncoming 1\n";
        }
        text
    };
    let (a, _) = server(move |n| Reply::text(body(0, n as u64)));
    let (b, _) = server(move |n| Reply::text(body(1, n as u64)));
    let said = assert_exit(0, &[SHORT_INTERVAL, &a, &b]);
    assert!(said.contains("\nno difference; 4 series on both sides, 3 of them moved\n"), "{said}");

    // One grows half as fast, one is an hour behind, one does not grow on the other side.
    let body = |side: u64, n: u64| {
        format!(
            "# TYPE half counter\nhalf {}\n# TYPE late gauge\nlate {}\n# TYPE other gauge\nother {side}\n",
            side * 1_000_000 + 100 * n / (1 + side),
            1.7e9 + (10 * n) as f64 - (side * 3600) as f64,
        )
    };
    let (a, _) = server(move |n| Reply::text(body(0, n as u64)));
    let (b, _) = server(move |n| Reply::text(body(1, n as u64)));
    let differences = differences(&assert_exit(1, &["--json", SHORT_INTERVAL, &a, &b]));
    let what = |family: &str| differences[family][0].0.clone();
    assert_eq!(differences.len(), 3, "{differences:?}");
    assert_eq!((what("half"), what("late")), ("increase".to_owned(), "value".to_owned()));
    assert_eq!(what("other"), "value");
}

#[test]
fn transient_differences_are_not_reported() {
    // B is one sample behind: its first comparison shows A's earlier value.
    let show = |n: usize| Reply::text(format!("# TYPE a gauge\na{{x=\"{}\"}} 1\n", n.min(1)));
    let (a, heads) = server(move |_| show(1));
    let (b, _) = server(move |n| show(n / 2));
    assert!(assert_exit(0, &[SHORT_INTERVAL, &a, &b]).contains("\nno difference;"));
    assert_eq!(heads.lock().expect("heads").len(), 3, "it had to look once more");
}

#[test]
fn increases_compare_counters_with_different_starts() {
    let body = |start: u64, n: u64| {
        let now = start + 100 * n;
        format!(
            "# TYPE grows counter\ngrows {now}\n# TYPE rests counter\nrests {start}\n\
             # TYPE t summary\nt{{quantile=\"0.5\"}} 2\nt_sum {}\nt_count {now}\n",
            2 * now
        )
    };
    let (a, _) = server(move |n| Reply::text(body(7000, n as u64)));
    let (b, _) = server(move |n| Reply::text(body(20, n as u64)));
    let said = assert_exit(1, &[SHORT_INTERVAL, &a, &b]);
    assert!(said.contains("\nrests\n  value: 1 series\n    rests A: 7000, B: 20\n"), "{said}");
    assert!(said.contains("\n1 family differs;"), "{said}");
    assert!(assert_exit(0, &["--increases", SHORT_INTERVAL, &a, &b]).contains("\nno difference;"));
}

#[test]
fn watch_reports_temporary_differences() {
    let (a, _) = server(|_| Reply::text("# TYPE x gauge\nx 1\n"));
    // It shows another value for a while, and then it is unavailable for a while.
    let (b, heads) = server(|n| match n {
        4..8 => Reply::text("# TYPE x gauge\nx 2\n"),
        8..10 => Reply::of("503 Service Unavailable", "Content-Type: text/plain", "restart"),
        _ => Reply::text("# TYPE x gauge\nx 1\n"),
    });
    let mut child = common::command("kstatd", ["diff", "--watch=1h", SHORT_INTERVAL, &a, &b])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    until("it is there again", || {
        let asked = heads.lock().expect("heads").len();
        (asked > 12 || child.try_wait().expect("wait").is_some()).then_some(())
    });
    // An interrupt ends the comparison, but the report is printed.
    let interrupt = ["-c", &format!("kill -INT {}", child.id())];
    assert!(Command::new("sh").args(interrupt).status().expect("kill").success());
    let output = child.wait_with_output().expect("end");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8");
    assert!(said.contains("\nx\n  value: 1 series, seen from "), "{said}");
    for line in [
        "there are differences",
        "the server returned 503 Service Unavailable",
        "both sides respond again",
    ] {
        assert!(said.contains(line), "{line:?} in {said}");
    }
    // There is always time for one comparison.
    let (b, _) = server(|_| Reply::text("# TYPE x gauge\nx 2\n"));
    assert_exit(1, &["--watch=1ms", "--interval=1ms", &a, &b]);
    let (b, _) = server(|_| Reply::of("500 Error", "X: y", ""));
    assert!(
        assert_exit(2, &["--watch=50ms", SHORT_INTERVAL, &a, &b])
            .contains("the server returned 500")
    );
}

/// A watch does not end before it could have found a difference, and says so if it cannot.
#[test]
fn a_watch_without_enough_comparisons_finds_nothing_equal() {
    let counter = |value: usize| {
        let text = format!("# TYPE x_total counter\nx_total {value}\n");
        Reply::text(text)
    };
    let (a, _) = server(move |n| counter(100 * n));
    let (b, _) = server(move |_| counter(0));
    assert_exit(1, &["--increases", "--watch=2ms", "--interval=1ms", &a, &b]);
    // Each value differs, but the other side answers only twice.
    let (a, _) = server(move |_| counter(1));
    let (b, _) = server(move |n| match n {
        0 | 1 => counter(2),
        _ => Reply::of("503 Service Unavailable", "Content-Type: text/plain", "gone"),
    });
    let said = assert_exit(2, &["--watch=20ms", "--interval=1ms", &a, &b]);
    assert!(said.contains("503"), "{said}");
}

/// Starts kstatd as kube-state-metrics with these flags and waits until everything is exposed.
fn exporter(cluster: &Cluster, flags: &[&str]) -> (Program, SocketAddr) {
    let server = cluster.flag();
    let fixed = [
        server.as_str(),
        "--port=0",
        "--telemetry-port=0",
        "--host=127.0.0.1",
        "--telemetry-host=127.0.0.1",
        "--gate-metrics-until-synced",
    ];
    let program = Program::start("kube-state-metrics", [&fixed[..], flags].concat());
    let main = program.address(&["Started metrics server"], "address");
    until("everything is listed", || (get(main, "/metrics").status == 200).then_some(()));
    (program, main)
}

#[test]
fn denied_family_is_the_only_difference() {
    let cluster = Cluster::new(300);
    let (_one, one) = exporter(&cluster, &[]);
    let (_two, two) = exporter(&cluster, &["--enable-gzip-encoding"]);
    let (_less, less) = exporter(&cluster, &["--metric-denylist=^kube_pod_info$"]);
    let [one, two, less] = [one, two, less].map(|address| format!("http://{address}"));
    for format in [&[][..], &["--openmetrics"]] {
        let said = assert_exit(0, &[format, &["--strict", &one, &two]].concat());
        assert!(said.contains("\nno difference;"), "{said}");
        let differences = differences(&assert_exit(
            1,
            &[format, &["--json", SHORT_INTERVAL, &one, &less]].concat(),
        ));
        let pods = vec![("only_in_a".to_owned(), Some(300))];
        assert_eq!(differences, BTreeMap::from([("kube_pod_info".to_owned(), pods)]));
    }
    // A saved scrape is equivalent.
    let folder = Folder::new();
    let saved = folder
        .file("saved", get(one["http://".len()..].parse().expect("address"), "/metrics").body);
    assert_exit(0, &["--strict", SHORT_INTERVAL, &saved, &two]);
}

/// Returns the peak memory in KiB after a file and nearly all of standard input have been read.
fn peak(file: &str, input: &[u8]) -> usize {
    let mut child = common::command("kstatd", ["diff", file, "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    let mut stdin = child.stdin.take().expect("stdin");
    // Written data has been read, except for the pipe's buffer.
    stdin.write_all(input).expect("write");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("status");
    drop(stdin);
    assert!(child.wait().expect("end").success());
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn memory_is_bounded_by_one_exposition() {
    let folder = Folder::new();
    let text = |pods: u32| {
        let pod = |pod: u32| {
            format!(
                "kube_pod_labels{{namespace=\"some-namespace\",pod=\"some-deployment-{pod:06}\",\
                 uid=\"0e7a5c1f-43b1-4a52-9d3a-{pod:012}\",label_app=\"some-deployment\",\
                 label_team=\"platform\",label_tier=\"backend\"}} 1\n"
            )
        };
        "# TYPE kube_pod_labels gauge\n".to_owned() + &(0..pods).map(pod).collect::<String>()
    };
    let (small, large) = (text(1), text(100_000));
    // Larger than the pipe's buffer, so reading has begun.
    let padded = small.clone() + &"# Nothing.\n".repeat(50_000);
    let base = peak(&folder.file("small", &small), padded.as_bytes());
    let used = peak(&folder.file("large", &large), large.as_bytes()) - base;
    let size = large.len() / 1024;
    assert!(used < size * 2, "{used} KiB for two expositions of {size} KiB");
}
