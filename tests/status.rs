//! The status page of healthy and degraded processes, in all formats.

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use common::cluster::Cluster;
use common::{Gate, NO_LINKS, Output, Passage, Program, get, request, run, until};
use serde_json::Value;

const HERE: [&str; 2] = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];
const NO_STATSD: [&str; 2] = ["--statsd.listen-udp=", "--statsd.listen-tcp="];
const STATSD: [&str; 2] = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=127.0.0.1:0"];

struct Kstatd {
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Kstatd {
    fn start(flags: &[&[&str]]) -> Self {
        let program = Program::start("kstatd", [&[&HERE[..]], flags].concat().concat());
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { program, main, telemetry }
    }

    fn statsd(&self) -> TcpStream {
        let address = self.program.address(&["Accepting StatsD Traffic"], "tcp");
        TcpStream::connect(address).expect("connect")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&get(self.main, "/status?format=json").text()).expect("JSON")
    }

    fn page(&self) -> String {
        let answer = get(self.main, "/status");
        assert_eq!(answer.status, 200);
        assert_harmless(&answer.text());
        answer.text()
    }

    /// Returns the facts once the condition holds.
    fn facts(&self, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.json()).filter(|facts| so(facts)))
    }

    fn command(&self) -> Output {
        run("kstatd", ["status", &format!("--addr={}", self.main)])
    }
}

fn is_ok(facts: &Value) -> bool {
    facts["state"] == "ok"
}

/// Returns the sentences of one category.
fn sentences<'f>(facts: &'f Value, of: &str) -> Vec<&'f str> {
    let text = |problem: &'f Value| problem["text"].as_str().or(problem.as_str()).expect("text");
    facts[of].as_array().expect(of).iter().map(text).collect()
}

/// Asserts that a page has no script and no external resources.
fn assert_harmless(page: &str) {
    let page = page.to_lowercase();
    for part in ["<script", "<img", "<link", "<iframe", "onerror=\"", "@import", "javascript:"] {
        assert!(!page.contains(part), "{part} in {page}");
    }
    for (_, rest) in page.match_indices("href=\"").map(|(at, _)| page.split_at(at + 6)) {
        let runbook = "https://github.com/kstatd/kstatd/blob/main/docs/runbook/kstatd";
        let is_known = rest.starts_with('/') || rest.starts_with(runbook);
        assert!(is_known, "a link to elsewhere: {}", &rest[..40.min(rest.len())]);
    }
}

/// Returns the targets of the links and forms of a page.
fn links(page: &str) -> Vec<String> {
    let of = |mark: &str| -> Vec<String> {
        let parts = page.split(mark).skip(1);
        parts.filter_map(|part| Some(part.split('"').next()?.replace("&amp;", "&"))).collect()
    };
    let mut links = [of(" href=\""), of(" action=\""), of(" formaction=\"")].concat();
    links.sort();
    links.dedup();
    links
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups.map(|group| std::str::from_utf8(group).expect("digits")).collect::<Vec<_>>().join(",")
}

#[test]
fn all_forms_agree_on_a_healthy_process() {
    let cluster = Cluster::new(1_200);
    let kstatd = Kstatd::start(&[&STATSD, &[&cluster.flag(), "--resources=pods,nodes", NO_LINKS]]);
    let mut clients = kstatd.statsd();
    clients.write_all(b"web.requests:1|c|#code:200\nweb.requests:1|c|#code:500\n").expect("send");
    kstatd.facts("a list and two series", |facts| is_ok(facts) && facts["statsd"]["series"] == 2);
    let scrape = request(kstatd.main, "GET", "/metrics", &[("User-Agent", "Prometheus/3.0")]);
    let scrape = scrape.expect("a scrape").text();
    let facts = kstatd.facts("a scrape", |facts| !facts["scrapes"][0].is_null());

    assert_eq!((sentences(&facts, "reasons").len(), sentences(&facts, "notes").len()), (0, 0));
    let last = &facts["scrapes"][0];
    for (key, wanted) in
        [("client", "127.0.0.1"), ("agent", "Prometheus/3.0"), ("path", "/metrics")]
    {
        assert_eq!(last[key], wanted);
    }
    assert_eq!((&last["status"], &last["complete"]), (&200.into(), &true.into()));
    assert_eq!(last["bytes"], scrape.len());

    let (page, text) = (kstatd.page(), get(kstatd.main, "/status?format=text").text());
    assert!(text.starts_with("OK  kstatd"), "{text}");
    assert!(page.contains("<strong>OK</strong>"), "{page}");
    let basis = page.split_once("2/2 kinds synced · ").and_then(|(_, rest)| rest.split_once('<'));
    assert!(basis.is_some_and(|(basis, _)| basis.contains("last scrape ")), "{page}");
    let kinds = facts["kubernetes"]["kinds"].as_array().expect("kinds");
    assert_eq!(kinds.len(), 2);
    for kind in kinds {
        let name = kind["resource"].as_str().expect("a name");
        let (objects, series) = (cluster.double.objects_of(name) as u64, &kind["series"]);
        assert_eq!(kind["objects"], objects);
        let of_kind = get(kstatd.main, &format!("/metrics/kubernetes?resources={name}")).text();
        let lines = of_kind.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(*series, lines, "{name}");
        assert_eq!((&kind["health"], &kind["phase"]), (&"ok".into(), &"watching".into()));
        for number in [objects, lines as u64].map(with_commas) {
            assert!(page.contains(&format!(">{number}<")), "{number} of {name}");
            let row = text.lines().find(|line| line.trim_start().starts_with(name));
            assert!(row.is_some_and(|row| row.contains(&number)), "{number} of {name}: {text}");
        }
    }

    // On every page, and each link works.
    for address in [kstatd.main, kstatd.telemetry] {
        let answer = get(address, "/status");
        let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
        let policy = header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(!policy.contains("script"), "{policy}");
        assert_eq!(header("content-type"), "text/html; charset=UTF-8");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let links = links(&answer.text());
        assert!(links.len() >= 3, "{links:?}");
        let profiles = links.iter().any(|link| link.contains("/debug/pprof/"));
        assert_eq!(profiles, address == kstatd.telemetry, "{links:?}");
        for link in links.iter().filter(|link| !link.contains("pprof/profile")) {
            let link = match link.as_str() {
                "/debug/pprof/flamegraph" => "/debug/pprof/flamegraph?seconds=1",
                // Only release builds sample the heap from the start.
                "/debug/pprof/heap" | "/debug/pprof/heap_flamegraph" => continue,
                link => link.split('#').next().unwrap_or_default(),
            };
            assert_eq!(get(address, link).status, 200, "{link}");
        }
        let front = get(address, "/").text();
        assert!(front.contains("href=\"/status\""), "{front}");
    }
    assert!(get(kstatd.main, "/").text().contains("<p>OK, up "));
    assert_eq!(get(kstatd.main, "/status?format=xml").status, 400);
    let output = kstatd.command();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.starts_with("OK  kstatd"), "{output:?}");
}

#[test]
fn forbidden_kind_is_first_with_its_missing_rule() {
    let cluster = Cluster::new(100);
    cluster.double.refuse("ingresses", Some(403));
    let flags = [&cluster.flag(), "--resources=pods,ingresses,nodes", NO_LINKS];
    let kstatd = Kstatd::start(&[&NO_STATSD, &flags]);
    let facts = kstatd.facts("one kind that fails", |facts| {
        let reasons = sentences(facts, "reasons");
        matches!(reasons[..], [one] if one.starts_with("ingresses: 403"))
    });
    let reason = sentences(&facts, "reasons")[0];
    assert!(
        reason.starts_with("ingresses: 403 Forbidden, an RBAC rule is missing, since "),
        "{reason}"
    );
    assert!(reason.ends_with(" UTC, no data yet"), "{reason}");
    let worst = &facts["kubernetes"]["kinds"][0];
    assert_eq!((&worst["resource"], &worst["health"]), (&"ingresses".into(), &"failing".into()));
    assert_eq!(worst["failure"]["reason"], "forbidden");
    assert!(worst["errors"].as_u64() >= Some(1), "{worst}");
    let rule =
        "- apiGroups: [networking.k8s.io]\n  resources:\n  - ingresses\n  verbs: [list, watch]\n";
    assert_eq!(worst["missing_rule"], rule);

    let page = kstatd.page();
    for part in
        ["<strong>DEGRADED</strong>", "/3 kinds synced", reason, &format!("<pre>{rule}</pre>")]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    let row = |kind: &str| page.find(&format!("<td class=\"t\">{kind}</td>")).expect("a row");
    assert!(row("ingresses") < row("nodes") && row("ingresses") < row("pods"));
    let output = kstatd.command();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.starts_with("DEGRADED") && output.stdout.contains(reason), "{output:?}");
    assert!(output.stdout.contains("apiGroups: [networking.k8s.io]"), "{output:?}");
    // The unauthenticated page has no names.
    let front = get(kstatd.main, "/").text();
    assert!(front.contains("<p>DEGRADED, up ") && !front.contains("ingresses"), "{front}");

    cluster.double.refuse("ingresses", None);
    kstatd.facts("all is well", is_ok);
    assert_eq!(kstatd.command().status.code(), Some(0));
}

#[test]
fn silent_and_unreachable_servers_are_reported() {
    let cluster = Cluster::new(100);
    let gate = Gate::new(cluster.double.address(), Passage::Silent);
    let server = format!("--apiserver=http://{}", gate.address());
    let kstatd = Kstatd::start(&[&NO_STATSD, &[&server, "--resources=pods,nodes", NO_LINKS]]);
    let facts = kstatd.facts("two list/watches", |facts| {
        facts["kubernetes"]["kinds"].as_array().is_some_and(|kinds| kinds.len() == 2)
    });
    assert_eq!(facts["state"], "degraded");
    let reasons = sentences(&facts, "reasons");
    assert_eq!(reasons, ["2 kinds: initial list in progress, 0 objects so far"]);
    // An empty response is retried and counts as a failure.
    kstatd.facts("a failure", |facts| {
        let reasons = sentences(facts, "reasons");
        reasons.iter().any(|reason| {
            reason.starts_with("2 kinds: no answer within 15 s since ")
                && reason.ends_with("no data yet")
        })
    });
    assert_eq!(kstatd.command().status.code(), Some(1));
    gate.set(Passage::Open);
    kstatd.facts("all is well", is_ok);
    gate.set(Passage::Cut);
    let facts = kstatd.facts("an outage", |facts| {
        let reasons = sentences(facts, "reasons");
        reasons.iter().any(|reason| reason.starts_with("2 kinds: "))
    });
    let reason = sentences(&facts, "reasons")[0];
    assert!(reason.contains(", data ") && reason.ends_with(" old"), "{reason}");
    // The age has increased since.
    let (begin, _) = reason.rsplit_once(", data ").expect("an age");
    assert!(kstatd.page().contains(begin));
}

#[test]
fn client_data_cannot_run_in_a_browser() {
    let kstatd = Kstatd::start(&[&STATSD]);
    let mut clients = kstatd.statsd();
    let script = "<script>alert('1')</script>";
    let lines = format!(
        "{script}:1|c\n{script}\"><img src=x onerror=\"alert(2)\">\nup:1|c\nup:1|g|#a:{script}\nup:-1|c\n"
    );
    clients.write_all(lines.as_bytes()).expect("send");
    let agent = [("User-Agent", "<img src=x onerror=\"alert(3)\">")];
    assert_eq!(request(kstatd.main, "GET", "/metrics", &agent).expect("a scrape").status, 200);
    let refused = |facts: &Value| facts["statsd"]["refused"].as_array().map(Vec::len) == Some(3);
    let facts = kstatd.facts("three reasons", refused);
    let last = |reason: &str| {
        let all = facts["statsd"]["refused"].as_array().expect("refused").iter();
        all.clone().find(|refused| refused["reason"] == reason).expect(reason)["line"].clone()
    };
    assert_eq!(last("other_kind"), format!("up:1|g|#a:{script}"));
    assert_eq!(last("illegal_negative_counter"), "up:-1|c");
    for refused in facts["statsd"]["refused"].as_array().expect("refused") {
        assert_eq!(refused["count"], 1, "{refused}");
    }
    // Rejected samples do not degrade the process.
    assert!(is_ok(&facts) && sentences(&facts, "notes").len() == 3, "{facts}");
    let names = facts["statsd"]["unmapped_names"].as_array().expect("names");
    assert!(names.iter().any(|name| name["name"] == script), "{names:?}");
    for path in [
        "/status",
        "/status?line=%3Cscript%3Ealert(1)%3C/script%3E%22%3E%3Cimg%20src=x%3E:1%7Cc",
        "/",
    ] {
        let page = get(kstatd.main, path).text();
        assert_harmless(&page);
    }
    let page = kstatd.page();
    assert!(page.contains("&lt;script&gt;alert('1')&lt;/script&gt;"), "{page}");
    // Control characters are escaped.
    clients.write_all(b"\x1b[31mred\n").expect("send");
    let escaped = || Some(kstatd.command().stdout).filter(|text| text.contains("\\u{1b}[31mred"));
    let text = until("the line", escaped);
    assert!(!text.contains('\u{1b}'), "{text}");
}

/// A rule matches the name alone, also of lines whose key is known.
#[test]
fn names_without_a_rule_have_no_tags() {
    let kstatd = Kstatd::start(&[&STATSD]);
    let mut clients = kstatd.statsd();
    let lines = "hits#route=/a:1|c\nhits,route=/b:1|c\nhits[route=/c]:1|c\n".repeat(200);
    clients.write_all(lines.as_bytes()).expect("send");
    let facts = kstatd.facts("all lines", |facts| facts["statsd"]["unmapped"] == 600);
    let names = facts["statsd"]["unmapped_names"].as_array().expect("names");
    let names: Vec<&Value> = names.iter().map(|name| &name["name"]).collect();
    assert_eq!(names, ["hits"]);
}

/// Text browsers and editors show the complete page.
#[test]
fn client_data_is_escaped() {
    let kstatd = Kstatd::start(&[&STATSD]);
    let hostile = "a\u{1b}[2J\u{7}\0\u{7f}\u{9b}1m\u{202e}\u{2066}b";
    let lines = format!("{hostile}:1|c\nok:1|c|#{hostile}:{hostile}\nno{hostile}\n");
    kstatd.statsd().write_all(lines.as_bytes()).expect("send");
    let agent = "x\u{9b}\u{202e}y";
    let scrape = request(kstatd.main, "GET", "/metrics", &[("User-Agent", agent)]);
    assert_eq!(scrape.expect("a scrape").status, 200);
    kstatd.facts("all of it", |facts| {
        facts["statsd"]["series"] == 2
            && !facts["scrapes"][0].is_null()
            && facts["statsd"]["lines"] == 3
    });
    let encoded: String = hostile.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for (address, path) in [
        (kstatd.main, "/status?labels=1".to_owned()),
        (kstatd.telemetry, "/status?labels=1".to_owned()),
        (kstatd.main, format!("/status?explain={encoded}:1%7Cc")),
        (kstatd.main, "/status?format=text&labels=1".to_owned()),
        (kstatd.main, "/".to_owned()),
    ] {
        let page = get(address, &path).text();
        let steers = |c: &char| {
            (c.is_control() && *c != '\n')
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert_eq!(page.chars().find(steers), None, "{path}: {page:?}");
        assert!(path == "/" || page.contains("\\u{1b}[2J\\u{7}\\0"), "{path}: {page}");
    }
}

/// Each parameter with its value: nothing is ignored silently.
#[test]
fn invalid_parameters_are_reported() {
    let kstatd = Kstatd::start(&[&STATSD]);
    for (path, value) in [
        ("/status?format=nonsense", "format=\"nonsense\""),
        ("/status?labels=2", "labels=\"2\""),
        ("/status?refresh=%3Cx%3E", "refresh=\"<x>\""),
        ("/status?refresh=<x>", "refresh=\"<x>\""),
        ("/status?format=%ff", "format=\"\u{fffd}\""),
        ("/api/v1/status/tsdb?limit=0", "limit=\\\"0\\\""),
        ("/api/v1/status/tsdb?limit=10001", "limit=\\\"10001\\\""),
        ("/api/v1/status/cardinality?limit=10001", "limit=\\\"10001\\\""),
        ("/api/v1/status/cardinality?sort=names", "sort=\\\"names\\\""),
        ("/api/v1/explain?line=a:1%7Cc&format=xml", "format=\"xml\""),
    ] {
        let answer = get(kstatd.main, path);
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text().contains(value), "{path}: {}", answer.text());
    }
    for path in ["/status?format=&refresh=0&labels=1", "/api/v1/status/tsdb?limit=10000"] {
        assert_eq!(get(kstatd.main, path).status, 200, "{path}");
    }
}

#[test]
fn exploding_label_is_reported_with_examples() {
    let kstatd = Kstatd::start(&[&STATSD]);
    let lines: String = (0..200).map(|n| format!("hits:1|c|#code:200,url:/item/{n}\n")).collect();
    kstatd.statsd().write_all(lines.as_bytes()).expect("send");
    let facts = kstatd.facts("the series", |facts| facts["statsd"]["series"] == 200);
    let metric = &facts["cardinality"]["metrics"][0];
    assert_eq!((&metric["name"], &metric["labels"][0]["name"]), (&"hits".into(), &"url".into()));
    assert_eq!(metric["labels"][0]["values"], 200);
    let example = metric["labels"][0]["examples"][0].as_str().expect("an example");
    assert!(example.starts_with("/item/"), "{metric}");
    let page = kstatd.page();
    let row = format!("<code>url</code><small> e.g. </small><code>{example}</code>");
    assert!(page.contains(&row) && page.contains("<td class=\"n\">200</td>"), "{page}");
    let output = kstatd.command().stdout;
    assert!(output.contains(&format!("\n      url: 200 values, e.g. {example}, ")), "{output}");
    // Frequent requests can omit the pass over all series.
    let without = get(kstatd.main, "/status?labels=0").text();
    assert!(
        !without.contains(example) && without.contains("href=\"/status?labels=1\""),
        "{without}"
    );
    assert!(get(kstatd.main, "/status?labels=1").text().contains(&row));
}

#[test]
fn rule_hits_and_failed_mapping_reload_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mapping.yml");
    let rules = "mappings: [{match: web.*, name: web}, {match: old.*, name: old}]\n";
    std::fs::write(&file, rules).expect("a mapping");
    let flag = format!("--statsd.mapping-config={}", file.display());
    let kstatd = Kstatd::start(&[&STATSD, &[&flag]]);
    let mut clients = kstatd.statsd();
    clients
        .write_all(b"web.a:1|c\nweb.a:1|c\nother.x:1|c\nother.x:1|c\nother.x:1|c\n")
        .expect("send");
    let facts = kstatd.facts("five events", |facts| {
        let statsd = &facts["statsd"];
        statsd["unmapped"] == 3 && statsd["rules"][0]["hits"] == 2
    });
    assert!(is_ok(&facts), "{facts}");
    let statsd = &facts["statsd"];
    assert_eq!((&statsd["mapped"], &statsd["unmapped"]), (&2.into(), &3.into()));
    assert_eq!(statsd["rules"], serde_json::json!([{"pattern": "web.*", "hits": 2}]));
    assert_eq!(statsd["never_hit"], serde_json::json!(["old.*"]));
    assert_eq!(statsd["unmapped_names"][0]["name"], "other.x");
    assert_eq!(sentences(&facts, "notes"), ["60% of StatsD events match no mapping rule"]);
    assert_eq!(facts["files"][0]["in_force"], true);
    let listeners = statsd["listeners"].as_array().expect("listeners");
    let udp = listeners.iter().find(|listener| listener["protocol"] == "udp").expect("UDP");
    assert!(udp["receive_buffer_bytes"].as_u64() > Some(1_000), "{udp}");
    assert_eq!(udp["dropped"], 0);

    std::fs::write(&file, "mappings: [{match: [}]\n").expect("a broken mapping");
    kstatd.program.signal("HUP");
    let facts = kstatd.facts("a reload that failed", |facts| !is_ok(facts));
    let reasons = sentences(&facts, "reasons");
    let of_file = format!("mapping {} is not applied, keeping the content of ", file.display());
    assert!(matches!(reasons[..], [reason] if reason.starts_with(&of_file)), "{reasons:?}");
    // The first error with its position, consistent with the log.
    assert!(reasons[0].contains(" UTC: line 1, column "), "{reasons:?}");
    let error = facts["files"][0]["error"].as_str().expect("an error");
    assert!(reasons[0].ends_with(error), "{reasons:?}");
    assert!(kstatd.page().contains("rejected"));
    kstatd.program.line(&["Error reloading config, keeping the previous one"]);
    kstatd.program.line(&["Options file, custom resources and kubeconfig have not changed"]);
    let says = |part: &str| kstatd.program.log().iter().any(|line| line.contains(part));
    assert!(!says("Changes detected") && !says("The new configuration is in force"));
    std::fs::write(&file, rules).expect("the mapping from before");
    kstatd.program.signal("HUP");
    let facts = kstatd.facts("it is in force again", is_ok);
    assert!(facts["files"][0]["error"].is_null(), "{facts}");

    // The share of unmapped events is that since the reload.
    std::fs::write(&file, "mappings: [{match: other.*, name: other}]\n").expect("a mapping");
    kstatd.program.signal("HUP");
    let facts = kstatd.facts("the new rules", |facts| {
        facts["statsd"]["rule_count"] == 1 && sentences(facts, "notes").is_empty()
    });
    assert_eq!((&facts["statsd"]["mapped"], &facts["statsd"]["unmapped"]), (&2.into(), &3.into()));
}

#[test]
fn exit_codes_without_an_answer() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address");
    let cluster = Cluster::new(10);
    for address in [nobody.to_string(), cluster.double.address().to_string(), "nonsense".to_owned()]
    {
        let output = run("kstatd", ["status", "--addr", &address]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(&address) && output.stdout.is_empty(), "{output:?}");
    }
}

/// Answers every request with `head`, and repeats `body` until the client stops reading. Returns its address and the
/// number of bytes sent.
fn hostile_server(head: &'static str, body: &'static [u8]) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    let sent = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&sent);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            if stream.read(&mut request).is_err() || stream.write_all(head.as_bytes()).is_err() {
                continue;
            }
            while !body.is_empty() && stream.write_all(body).is_ok() {
                counter.fetch_add(body.len() as u64, Ordering::Relaxed);
            }
        }
    });
    (address, sent)
}

#[test]
fn endless_response_is_limited() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nOK\n";
    static BODY: [u8; 65_536] = [b'x'; 65_536];
    let (address, sent) = hostile_server(HEAD, &BODY);
    for args in [&["status"][..], &["top", "--once"], &["explain", "a:1|c"]] {
        let before = sent.load(Ordering::Relaxed);
        let output = run("kstatd", [args, &["--addr", &address]].concat());
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}: {output:?}");
        assert!(output.stderr.len() < 1000, "{args:?}: {output:?}");
        // Up to 64 MiB for each of two or three paths, and the socket buffers.
        let taken = sent.load(Ordering::Relaxed) - before;
        assert!(taken < 256 << 20, "{args:?} read {taken} bytes");
    }
}

#[test]
fn control_characters_in_responses_are_escaped() {
    let text = "OK  \u{1b}]0;title\u{7}\u{9b}31m\u{202e}kstatd\n  second\tline\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    let refusal = text.replace("OK", "no");
    let refused = format!(
        "HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{refusal}",
        refusal.len()
    );
    let (accepting, _) = hostile_server(head.leak(), b"");
    let (refusing, _) = hostile_server(refused.leak(), b"");
    for address in [&accepting, &refusing] {
        for args in [
            &["status", "--addr", address][..],
            &["top", "--once", "--addr", address],
            &["explain", "a:1|c", "--addr", address],
            &["diff", &format!("http://{address}/metrics"), "/dev/null"],
        ] {
            let output = run("kstatd", args);
            let said = format!("{}{}", output.stdout, output.stderr);
            let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!said.is_empty() && !said.contains(steers), "{args:?}: {said:?}");
        }
    }
    let output = run("kstatd", ["status", "--addr", &accepting]);
    assert_eq!(
        output.stdout,
        "OK  \\u{1b}]0;title\\u{7}\\u{9b}31m\\u{202e}kstatd\n  second\\tline\n"
    );
}

#[test]
fn status_over_tls_with_a_password() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    let own =
        rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, key) =
        (file("tls.crt", &own.cert.pem()), file("tls.key", &own.signing_key.serialize_pem()));
    let hash = bcrypt::hash("open sesame", 4).expect("a hash");
    let config = format!(
        "tls_server_config: {{cert_file: {certificate}, key_file: {key}}}\nbasic_auth_users: {{ops: {hash}}}\n"
    );
    let config = format!("--tls-config={}", file("web.yml", &config));
    let kstatd = Kstatd::start(&[&STATSD, &[&config]]);

    let password = file("password", "open sesame\n");
    let addr = format!("--addr=https://{}", kstatd.main);
    let known = format!("--certificate-authority={certificate}");
    let ops = ["--username=ops", &format!("--password-file={password}")];
    let output = run("kstatd", [&["status", &addr, &known][..], &ops].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.starts_with("OK  "), "{output:?}");
    for command in [&["top", "--once"][..], &["explain", "a:1|c"]] {
        let output = run("kstatd", [command, &[&addr, &known], &ops].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    for (flags, why) in [(&[&addr, &known][..], "401"), (&[&addr], "certificate")] {
        let flags: Vec<&str> = flags.iter().map(|flag| &flag[..]).collect();
        let output = run("kstatd", [&["status"][..], &flags].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(output.stderr.contains(why), "{output:?}");
    }
}

#[test]
fn under_the_names_of_the_originals() {
    let cluster = Cluster::new(50);
    let flags = [
        &cluster.flag(),
        "--host=127.0.0.1",
        "--port=0",
        "--telemetry-host=127.0.0.1",
        "--telemetry-port=0",
    ];
    let program = Program::start("kube-state-metrics", flags);
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    for address in [main, telemetry] {
        let text = until("all is well", || {
            let text = get(address, "/kstatd/status?format=text").text();
            text.starts_with("OK").then_some(text)
        });
        assert!(text.starts_with("OK  kube-state-metrics"), "{text}");
        assert!(get(address, "/").text().contains("href=\"/kstatd/status\""));
        assert_eq!(get(address, "/status").status, 404);
        let output = run("kstatd", ["status", &format!("--addr=http://{address}/")]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let flags = [
        "--web.listen-address=127.0.0.1:0",
        "--statsd.listen-udp=127.0.0.1:0",
        "--statsd.listen-tcp=",
    ];
    for (path, front) in [("/metrics", true), ("/", false)] {
        let path = format!("--web.telemetry-path={path}");
        let program = Program::start("statsd_exporter", [&flags[..], &[&path]].concat());
        let web = program.address(&["Accepting Prometheus Requests"], "addr");
        let page = get(web, "/kstatd/status").text();
        assert_harmless(&page);
        assert!(page.contains("<h1>statsd_exporter</h1>"), "{page}");
        assert_eq!(get(web, "/").text().contains("href=\"/kstatd/status\""), front);
        let output = run("kstatd", ["status", &format!("--addr={web}")]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn names_require_authorisation() {
    let cluster = Cluster::new(50);
    let kstatd =
        Kstatd::start(&[&NO_STATSD, &[&cluster.flag(), "--auth-filter", "--resources=pods"]]);
    for address in [kstatd.main, kstatd.telemetry] {
        for path in ["/status", "/status?format=json", "/status?format=text"] {
            assert_eq!(get(address, path).status, 401, "{path}");
        }
        let front = get(address, "/");
        assert_eq!(front.status, 200);
        assert!(!front.text().contains("pods"), "{}", front.text());
    }
    let output = kstatd.command();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stderr.contains("401"), "{output:?}");
}

/// The page's style sheet matches the hash in its policy.
#[test]
fn style_sheet_matches_the_policy() {
    let kstatd = Kstatd::start(&[&STATSD]);
    let answer = get(kstatd.main, "/status");
    let page = answer.text();
    let style = page.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/status/style.css");
    assert_eq!(style, Some(&*std::fs::read_to_string(file).expect("the style")));
    assert!(!page.contains(" style=\""), "a style that the policy does not let through");
}

/// A label with unlimited growth is reported with its metric.
#[test]
fn exceeded_budgets_are_reported() {
    let kstatd = Kstatd::start(&[&STATSD, &["--limit.values-per-label=2"]]);
    let mut lines: String =
        (0..9).map(|n| format!("hits:1|c|#code:200,url:/{n}<script>\n")).collect();
    lines += "small:1|g\n";
    kstatd.statsd().write_all(lines.as_bytes()).expect("send");
    let facts = kstatd.facts("all lines", |facts| facts["statsd"]["lines"] == 10);
    let statsd = &facts["statsd"];
    let at = &statsd["over_budget"][0]["at"];
    assert!(facts["at"].as_f64() >= at.as_f64() && at.as_f64() > Some(1e9), "{facts}");
    let over = serde_json::json!([{
        "metric": "hits", "label": "url", "limit": "values-per-label", "action": "folded", "label_sets": 7, "at": at
    }]);
    assert_eq!(statsd["over_budget"], over);
    let largest = serde_json::json!([
        {"name": "hits", "kind": "counter", "label_sets": 3, "labels": "code, url"},
        {"name": "small", "kind": "gauge", "label_sets": 1, "labels": ""},
    ]);
    assert_eq!((&statsd["largest"], &statsd["new_in_an_hour"]), (&largest, &4.into()));
    assert_eq!(facts["state"], "warn", "{facts}");
    let warning = "StatsD: url of hits exceeds --limit.values-per-label (7 label sets folded)";
    assert!(sentences(&facts, "warnings").contains(&warning), "{facts}");
    assert!(kstatd.page().contains("--limit.values-per-label</td><td>folded</td>"));
    let text = get(kstatd.main, "/status?format=text&labels=0").text();
    assert!(text.contains("over --limit.values-per-label: url of hits, 7 label sets folded\n"));
    assert!(text.contains("counter hits: 3 label sets of code, url\n"), "{text}");
}
