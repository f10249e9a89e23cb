//! Commands that query a running process about its series: `explain` and `top`.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use common::cluster::Cluster;
use common::{Output, Program, get, replace, request, run, until};
use serde_json::Value;

const HERE: [&str; 2] = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];
const STATSD: [&str; 2] = ["--statsd.listen-udp=", "--statsd.listen-tcp=127.0.0.1:0"];

const MAPPING: &str = "mappings:\n\
    - {match: web.*, name: short}\n\
    - {match: web.*.*, name: web_total, labels: {method: $1, url: $2}, limits: {values_per_label: 2}}\n";

struct Kstatd {
    program: Program,
    main: SocketAddr,
}

impl Kstatd {
    fn start(flags: &[&str]) -> Self {
        let program = Program::start("kstatd", [&HERE, &STATSD, flags].concat());
        let main = program.address(&["Started metrics server"], "address");
        Self { program, main }
    }

    /// Sends lines and waits until they are counted.
    fn send(&self, lines: &str) {
        let before = self.status()["statsd"]["lines"].as_u64().expect("lines");
        let address = self.program.address(&["Accepting StatsD Traffic"], "tcp");
        let mut client = TcpStream::connect(address).expect("connect");
        client.write_all(lines.as_bytes()).expect("send");
        let wanted = before + lines.lines().count() as u64;
        until("the lines", || (self.status()["statsd"]["lines"] == wanted).then_some(()));
    }

    fn status(&self) -> Value {
        serde_json::from_str(&get(self.main, "/status?format=json").text()).expect("JSON")
    }

    fn ask(&self, command: &str, args: &[&str]) -> Output {
        run("kstatd", [&[command, &format!("--addr={}", self.main)], args].concat())
    }

    fn explain(&self, line: &str) -> String {
        self.ask("explain", &[line]).stdout
    }
}

fn mapping(folder: &Path, text: &str) -> String {
    let file = folder.join("mapping.yml");
    replace(&file, text);
    format!("--statsd.mapping-config={}", file.display())
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn explain_uses_the_state_of_the_running_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let kstatd =
        Kstatd::start(&[&mapping(folder.path(), MAPPING), "--limit.series-per-metric=5000"]);
    kstatd.send("web.get.a:1|c\nweb.get.b:1|c\n");
    let (series, status) = (get(kstatd.main, "/metrics/statsd").text(), kstatd.status());

    // A counter that only decreases creates no series, and is reported once.
    let falls = kstatd.ask("explain", &["t:-3|c"]);
    assert!(!falls.status.success(), "{falls:?}");
    let end = "no rule matches; metric: t\n    rejected here: illegal_negative_counter (a counter cannot decrease)\n";
    assert!(falls.stdout.ends_with(end) && !falls.stdout.contains("creates"), "{falls:?}");
    let both = kstatd.explain("t:-3|c:4|c");
    assert!(both.contains("creates t\n"), "{both}");
    assert_eq!(both.matches("illegal_negative_counter").count(), 1, "{both}");
    let output = kstatd.ask("explain", &["web.get.a:1|c|#code:200"]);
    assert!(output.status.success(), "{output:?}");
    let expected = "web.get.a:1|c|#code:200\n  counter web.get.a: 1\n    tags: code=\"200\"\n    \
        rule 1, line 2: web.*: no match: want 2 segments, got 3\n    \
        rule 2, line 3: web.*.*: match\n    \
        metric: web_total\n    labels from the rule: method=\"get\", url=\"a\"\n    \
        at most 2 values per label\n    \
        budgets: series-per-metric 2 of 5,000, series 3 of 1,000,000\n    \
        creates web_total{code=\"200\",method=\"get\",url=\"a\"}\n";
    assert_eq!(output.stdout, expected);
    let there = "updates web_total{method=\"get\",url=\"a\"}\n";
    assert!(
        kstatd.explain("web.get.a:1|c").ends_with(there),
        "{}",
        kstatd.explain("web.get.a:1|c")
    );
    let folds = kstatd.explain("web.get.c:1|c");
    assert!(folds.contains("\n    url exceeds --limit.values-per-label: folded\n"), "{folds}");
    let other = "web_total{method=\"get\",url=\"other\"}";
    assert!(folds.ends_with(&format!("creates {other}\n")), "{folds}");
    let output = kstatd.ask("explain", &["web.get.a:1|g", "bad", "web.get.a:1|c"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("rejected here: other_kind ("), "{output:?}");
    assert!(output.stdout.contains("rejected: malformed_line ("), "{output:?}");
    assert_eq!(output.stderr, "error: 2 of 3 lines were rejected\n");
    kstatd.explain("nobody.knows:1|c");

    // Nothing was ingested, counted or cached.
    assert_eq!(get(kstatd.main, "/metrics/statsd").text(), series);
    let after = kstatd.status();
    let without = |status: &Value| {
        let mut statsd = status["statsd"].clone();
        statsd.as_object_mut().expect("facts").remove("listeners");
        statsd
    };
    assert_eq!(without(&after), without(&status));

    // The line has the predicted effect.
    kstatd.send("web.get.c:1|c\n");
    let series = get(kstatd.main, "/metrics/statsd").text();
    assert!(series.contains("\nweb_total{method=\"get\",url=\"other\"} 1\n"), "{series}");
    let folded = kstatd.explain("web.get.c:1|c");
    assert!(
        folded.ends_with(&format!("updates {other}, into which it was folded before\n")),
        "{folded}"
    );
    let counted = "values-per-label of method 1 of 2, values-per-label of url 2 of 2";
    assert!(folded.contains(counted), "{folded}");

    // The active mapping is used, not the file.
    let flag = mapping(folder.path(), "mappings: [{match: web.*.*, name: replaced}]\n");
    assert!(kstatd.explain("web.get.a:1|c").ends_with(there));
    kstatd.program.signal("HUP");
    let replaced =
        || Some(kstatd.explain("web.get.a:1|c")).filter(|text| text.contains("replaced"));
    let text = until("the new mapping", replaced);
    assert!(text.ends_with("creates replaced\n"), "{text}");

    // Flags that describe the process's own state are rejected.
    let output = kstatd.ask("explain", &["a:1|c", &flag]);
    assert!(output.stderr.contains("--statsd.mapping-config"), "{output:?}");
    let output = kstatd.ask("explain", &["\u{1b}[2Jx\u{202e}:1|c"]);
    assert!(!output.stdout.contains(['\u{1b}', '\u{202e}']), "{output:?}");
    assert!(output.stdout.starts_with("\\u{1b}[2Jx\\u{202e}:1|c\n"), "{output:?}");
}

#[test]
fn explain_endpoint_bounds_untrusted_input() {
    let kstatd = Kstatd::start(&[]);
    let path = |line: &str| format!("/api/v1/explain?line={}", encoded(line));
    let text = get(kstatd.main, &path("a.b:1|c\n"));
    assert_eq!(
        (text.status, text.header("content-type")),
        (200, Some("text/plain; charset=utf-8"))
    );
    assert!(text.text().starts_with("a.b:1|c\n  counter a.b: 1\n"), "{}", text.text());
    let answer = get(kstatd.main, &format!("{}&format=json", path("a.b:1|c|#x:y")));
    let answer: Value = serde_json::from_str(&answer.text()).expect("JSON");
    assert_eq!((&answer["status"], &answer["data"]["accepted"]), (&"success".into(), &true.into()));
    let sample = &answer["data"]["parts"][0]["sample"];
    assert_eq!((&sample["type"], &sample["metric"]), (&"counter".into(), &"a_b".into()));
    assert_eq!(sample["landing"]["series"], "a_b{x=\"y\"}");
    assert_eq!(sample["landing"]["state"], "new");
    for (query, part) in [
        ("", "line="),
        ("?line=", "line="),
        (&format!("?line={}", encoded("a:1|c\nb:1|c")), "one line"),
        (&format!("?line={}", "a".repeat(20_000)), "16384 bytes"),
        ("?line=a&format=xml", "format"),
    ] {
        let answer = get(kstatd.main, &format!("/api/v1/explain{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(part), "{}", answer.text());
        let answer = get(kstatd.main, &format!("/status{}", query.replace("line=", "explain=")));
        assert!([200, 400].contains(&answer.status), "{query}");
    }
    assert_eq!(request(kstatd.main, "POST", &path("a:1|c"), &[]).expect("an answer").status, 404);
    // Invalid UTF-8 is a line too.
    let answer = get(kstatd.main, "/api/v1/explain?line=%FF%3A1%7Cc").text();
    assert!(answer.contains("rejected: malformed_line"), "{answer}");
    // The answer for a line with many samples is bounded.
    let long: String = (0..1_000).map(|n| format!(":1|c|#t:{n}")).collect();
    let answer = get(kstatd.main, &path(&format!("a{long}"))).text();
    assert!(answer.len() < 64 << 10, "{} bytes", answer.len());
    assert_eq!(get(kstatd.main, "/metrics/statsd").text(), "");
}

#[test]
fn status_page_explains_a_line() {
    let kstatd = Kstatd::start(&[]);
    let page = get(kstatd.main, "/status").text();
    let form =
        "<form method=\"get\" action=\"/status#explain\" id=\"explain\"><input name=\"explain\"";
    assert!(page.contains(form) && !page.contains("creates"), "{page}");
    let ask = |line: &str| get(kstatd.main, &format!("/status?explain={}", encoded(line)));
    let page = ask("a.b:1|c|#x:y").text();
    assert!(page.contains(form) && page.contains("value=\"a.b:1|c|#x:y\""), "{page}");
    assert!(page.contains("    creates a_b{x=&quot;y&quot;}\n"), "{page}");
    let script = "\"><script>alert('1')</script><img src=x onerror=\"alert(2)\">";
    for line in [
        script.to_owned(),
        format!("{script}:1|c|#{script}:{script}"),
        format!("a:1|c|#b:{script}"),
    ] {
        let page = ask(&line).text();
        for part in ["<script", "<img", "onerror=\""] {
            assert!(!page.contains(part), "{part} in {page}");
        }
        assert!(page.contains("&lt;script&gt;alert('1')&lt;/script&gt;"), "{page}");
    }
    let json =
        get(kstatd.main, &format!("/status?format=json&explain={}", encoded("a:1|g"))).text();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["explanation"]["parts"][0]["sample"]["type"], "gauge");
    assert!(kstatd.status().get("explanation").is_none());
    let text =
        get(kstatd.main, &format!("/status?format=text&explain={}", encoded("a:1|g"))).text();
    assert!(text.contains("\nEXPLANATION\n  a:1|g\n    gauge a: 1\n"), "{text}");
    assert_eq!(get(kstatd.main, &format!("/status?explain={}", "a".repeat(20_000))).status, 400);
}

#[test]
fn queries_require_authorisation() {
    let cluster = Cluster::new(10);
    let kstatd = Kstatd::start(&[&cluster.flag(), "--auth-filter", "--resources=pods"]);
    for path in ["/api/v1/explain?line=a:1%7Cc", "/status?explain=a:1%7Cc"] {
        assert_eq!(get(kstatd.main, path).status, 401, "{path}");
    }
    for command in [&["explain", "a:1|c"][..], &["top"]] {
        let output = run("kstatd", [command, &[&format!("--addr={}", kstatd.main)]].concat());
        assert_eq!(
            output.status.code(),
            Some(if command[0] == "top" { 2 } else { 1 }),
            "{output:?}"
        );
        assert!(output.stderr.contains("401"), "{output:?}");
    }
    let without =
        [&HERE[..], &["--statsd.listen-udp=", "--statsd.listen-tcp=", "--resources=pods"]].concat();
    let program = Program::start("kstatd", [&without[..], &[&cluster.flag()]].concat());
    let main = program.address(&["Started metrics server"], "address");
    assert_eq!(get(main, "/api/v1/explain?line=a:1%7Cc").status, 404);
    let page = get(main, "/status?explain=a:1%7Cc");
    assert!(page.status == 200 && !page.text().contains("name=\"explain\""));
    let output = run("kstatd", ["explain", "a:1|c", &format!("--addr={main}")]);
    assert!(output.stderr.contains("this process does not receive StatsD lines"), "{output:?}");
}

#[test]
fn under_the_name_of_the_original() {
    let flags = [
        "--web.listen-address=127.0.0.1:0",
        "--statsd.listen-udp=",
        "--statsd.listen-tcp=127.0.0.1:0",
    ];
    for path in ["/metrics", "/"] {
        let path = format!("--web.telemetry-path={path}");
        let program = Program::start("statsd_exporter", [&flags[..], &[&path]].concat());
        let web = program.address(&["Accepting Prometheus Requests"], "addr");
        let addr = format!("--addr={web}");
        let output = run("kstatd", ["explain", "a:1|c", &addr]);
        assert_eq!(output.stdout.lines().last(), Some("    creates a"), "{output:?}");
        let output = run("kstatd", ["top", &addr]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout.starts_with("OK  statsd_exporter "), "{output:?}");
        // With the path `/`, every unknown path is that of the metrics.
        let output = run("kstatd", ["explain", "object", "pods", "a/b", &addr]);
        let absent = output.stderr.contains("has no objects of Kubernetes");
        assert_eq!(absent, path.ends_with("/metrics"), "{output:?}");
    }
    let program = Program::start(
        "statsd_exporter",
        [&flags[..], &["--web.telemetry-path=/api/v1/explain"]].concat(),
    );
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let text = get(web, "/api/v1/explain?line=a:1%7Cc").text();
    assert!(text.contains("\n# TYPE statsd_exporter_lines_total counter\n"), "{text}");
}

#[test]
fn top_sorts_drills_down_and_shows_the_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let kstatd = Kstatd::start(&[&mapping(folder.path(), MAPPING), "--limit.values-per-label=50"]);
    let urls: String = (0..60).map(|n| format!("hits:1|c|#code:200,url:/item/{n}\n")).collect();
    kstatd.send(&format!("{urls}wide:1|h\nweb.get.a:1|c\nweb.get.a:1|c\n"));
    let output = kstatd.ask("top", &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert!(lines[0].starts_with(&format!("WARN  kstatd {}, kstatd ", kstatd.main)), "{output:?}");
    let warning = "  ! StatsD: url of hits exceeds --limit.values-per-label (10 label sets folded)";
    assert_eq!(lines[1], warning);
    assert!(lines[2].starts_with("series 57 in 3 metrics   label sets 53   memory "), "{output:?}");
    assert!(lines[2].contains("   new in 5 min 53, in 1 h 53   lines "), "{output:?}");
    assert_eq!(lines[3], "  over --limit.values-per-label: url of hits, folded 10 times");
    assert_eq!(
        lines[4],
        "  from 127.0.0.1: new in 5 min 53, in 1 h 53, over budget 10, latest metric web_total"
    );
    let head =
        lines.iter().position(|line| line.trim_start().starts_with("METRIC")).expect("a head");
    let names = |from: &[&str]| -> Vec<String> {
        let first = |line: &&str| line.split_whitespace().next().unwrap_or_default().to_owned();
        from.iter().map(first).collect()
    };
    assert_eq!(names(&lines[head + 1..]), ["hits", "wide", "web_total"]);
    let cells: Vec<&str> = lines[head + 1].split_whitespace().collect();
    assert_eq!(cells[..5], ["hits", "counter", "51", "51", "51"]);
    assert!(lines[head + 1].ends_with("  url 51"), "{output:?}");
    let output = kstatd.ask("top", &["--sort=bytes", "--rows=1", "--once"]);
    assert_eq!(names(&[output.stdout.lines().last().expect("a row")]), ["hits"]);
    let output = kstatd.ask("top", &["--sort=growth"]);
    assert_eq!(
        output.stdout.lines().nth(head + 1).map(|line| names(&[line])[0].clone()),
        Some("hits".to_owned())
    );
    let output = kstatd.ask("top", &["--sort=lines"]);
    let rows: Vec<&str> = output.stdout.lines().skip(head + 1).collect();
    // 60 lines of hits, 2 of the rule, 1 of wide.
    assert_eq!(names(&rows), ["unmapped", "rule", "unmapped"], "{output:?}");
    assert!(rows[0].trim_start().starts_with("unmapped  hits  "), "{output:?}");
    assert!(rows[1].trim_start().starts_with("rule      web.*.*"), "{output:?}");

    let output = kstatd.ask("top", &["hits"]);
    let text = &output.stdout;
    assert!(text.contains("\ncounter hits: 51 series of 51 label sets, "), "{output:?}");
    let row = |label: &str| {
        let rows = text.lines().map(str::trim_start);
        rows.filter(|line| line.starts_with(label)).map(str::to_owned).next().expect(label)
    };
    assert!(row("url ").contains(" 51 ") && row("url ").contains("/item/"), "{output:?}");
    assert!(row("code ").ends_with("  200"), "{output:?}");
    assert!(!text.contains("web_total"), "{output:?}");
    let output = kstatd.ask("top", &["nothing"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.starts_with("there is no metric \"nothing\" at "), "{output:?}");

    let output = kstatd.ask("top", &["--json"]);
    let json: Value = serde_json::from_str(&output.stdout).expect("JSON");
    assert_eq!(
        (&json["status"]["state"], &json["cardinality"]["series"]),
        (&"warn".into(), &57.into())
    );
    assert_eq!(json["cardinality"]["metrics"][0]["labels"][0]["name"], "url");

    // Control characters from clients are escaped.
    kstatd.send("hostile:1|c|#url:\u{1b}]0;title\u{7}\u{9b}2J\u{202e}\n");
    for args in [&["hostile"][..], &[], &["--sort=lines"]] {
        let text = kstatd.ask("top", args).stdout;
        let steers = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!text.contains(steers), "{text:?}");
    }
    assert!(kstatd.ask("top", &["hostile"]).stdout.contains("\\u{1b}]0;title\\u{7}"));

    // Both a degraded and an unreachable process are reported.
    mapping(folder.path(), "mappings: [{match: [}]\n");
    kstatd.program.signal("HUP");
    until("a reload that failed", || (kstatd.status()["state"] == "degraded").then_some(()));
    let output = kstatd.ask("top", &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        output.stdout.starts_with("DEGRADED  ") && output.stdout.contains("\n  ! mapping "),
        "{output:?}"
    );
    let output = run("kstatd", ["top", "--addr=127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("127.0.0.1:1") && output.stdout.is_empty(), "{output:?}");
}

#[test]
fn top_distinguishes_unknown_from_zero() {
    let cluster = Cluster::new(20);
    let kstatd = Kstatd::start(&[&cluster.flag(), "--resources=pods"]);
    until("the first lists", || (get(kstatd.main, "/metrics").status == 200).then_some(()));
    kstatd.send("hits:1|c\n");
    let output = kstatd.ask("top", &["--rows=100"]);
    let row = |name: &str| -> Vec<String> {
        let of = |line: &&str| line.split_whitespace().next() == Some(name);
        let line = output.stdout.lines().find(of).unwrap_or_else(|| panic!("{name}: {output:?}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("kube_pod_info")[3..5], ["-", "-"], "{output:?}");
    assert_eq!(row("hits")[3..5], ["1", "1"], "{output:?}");
    let output = kstatd.ask("top", &["kube_pod_info"]);
    assert!(output.stdout.contains(", new in 5 min -, in 1 h -\n"), "{output:?}");
    let report = get(kstatd.main, "/api/v1/status/cardinality?metric=kube_pod_info").text();
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert!(report["data"]["metrics"][0]["newByMinute"].is_null(), "{report}");
}

#[test]
fn requests_of_commands_are_not_counted_as_scrapes() {
    let cluster = Cluster::new(5);
    let kstatd = Kstatd::start(&[&cluster.flag(), "--resources=pods"]);
    kstatd.send("hits:1|c\n");
    let telemetry = kstatd.program.address(&["Started self metrics server"], "address");
    let counted = || {
        let text = get(telemetry, "/metrics").text();
        let name = "http_request_duration_seconds_count{handler=\"metrics\"";
        text.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = counted();
    for output in [
        kstatd.ask("top", &[]),
        kstatd.ask("top", &["hits"]),
        run("kstatd", ["cardinality", "suggest", &format!("--addr={}", kstatd.main)]),
        run("kstatd", ["cardinality", "suggest", &format!("--addr={}/metrics", kstatd.main)]),
    ] {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    assert_eq!(kstatd.status()["scrapes"], serde_json::json!([]));
    assert_eq!(counted(), before);
    assert_eq!(get(kstatd.main, "/metrics/statsd").status, 200);
    assert_eq!(kstatd.status()["scrapes"].as_array().expect("scrapes").len(), 1);
}

#[test]
fn commands_obey_their_timeout() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = format!("--addr={}", silent.local_addr().expect("address"));
    let commands: [&[&str]; 3] = [&["top"], &["cardinality", "suggest"], &["status"]];
    std::thread::scope(|scope| {
        for command in commands {
            let address = address.as_str();
            scope.spawn(move || {
                let began = std::time::Instant::now();
                let output = run("kstatd", [command, &[address]].concat());
                assert!(output.stderr.contains("within 10 s"), "{output:?}");
                // Doubling the time would be 20 s.
                assert!(began.elapsed().as_secs() < 18, "{command:?}: {:?}", began.elapsed());
            });
        }
    });
}

/// A server that answers the first path late and the second never.
#[test]
fn all_requests_of_status_share_one_timeout() {
    const LATE: Duration = Duration::from_secs(6);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = format!("--addr={}", listener.local_addr().expect("address"));
    let (asked, requests) = std::sync::mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        let mut open = Vec::new();
        for late in [true, false] {
            let (mut stream, _) = listener.accept().expect("accept");
            let _ = stream.read(&mut [0; 4096]).expect("request");
            if late {
                std::thread::sleep(LATE);
                let absent =
                    b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(absent).expect("answer");
            }
            asked.send(()).expect("test");
            open.push(stream);
        }
        listener.accept().map(drop)
    });
    let began = std::time::Instant::now();
    let output = run("kstatd", ["status", &address]);
    let elapsed = began.elapsed();
    assert_eq!(requests.try_iter().count(), 2, "both paths are requested");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.ends_with(": no answer within 10 s\n"), "{output:?}");
    // Separate ones of 10 s would end after 16 s.
    assert!(elapsed < Duration::from_secs(15), "{elapsed:?}");
    drop(server);
}
