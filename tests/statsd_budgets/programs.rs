//! Budgets and reports of running programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;

use crate::common::cluster::Cluster;
use crate::common::{self, Program, get, request, until};
use crate::sums;

struct Running {
    program: Program,
    http: SocketAddr,
    tcp: SocketAddr,
}

/// Starts a program without UDP unless `flags` contain a listener.
fn start(name: &str, flags: &[&str]) -> Running {
    let (fixed, parts): (&[&str], &str) = match name {
        "kstatd" => {
            (&["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"], "Started metrics server")
        }
        _ => (&["--web.listen-address=127.0.0.1:0"], "Accepting Prometheus Requests"),
    };
    let mut flags = [fixed, &["--statsd.listen-tcp=127.0.0.1:0"], flags].concat();
    if !flags.iter().any(|flag| flag.starts_with("--statsd.listen-udp")) {
        flags.push("--statsd.listen-udp=");
    }
    let program = Program::start(name, flags);
    let tcp = program.address(&["Accepting StatsD Traffic"], "tcp");
    let key = if name == "kstatd" { "address" } else { "addr" };
    let http = program.address(&[parts], key);
    Running { program, http, tcp }
}

impl Running {
    fn send(&self, lines: &str) {
        TcpStream::connect(self.tcp)
            .and_then(|mut stream| stream.write_all(lines.as_bytes()))
            .expect("sent");
    }

    fn metrics(&self, path: &str, last: &str) -> String {
        until("the last line counts", || {
            let body = get(self.http, path).text();
            body.contains(last).then_some(body)
        })
    }

    fn json(&self, path: &str) -> serde_json::Value {
        let response = get(self.http, path);
        assert_eq!(response.header("content-type"), Some("application/json"));
        serde_json::from_str(&response.text()).expect("JSON")
    }
}

/// A label with URLs and queries: the limit holds, totals by other labels are exact, and the report names the
/// label.
#[test]
fn urls_with_queries_are_contained_and_reported() {
    let running = start("kstatd", &["--limit.values-per-label=1000"]);
    for part in 1..=15 {
        let mut lines = String::new();
        for number in (part - 1) * 10_000..part * 10_000 {
            let code = if number % 10 == 0 { 500 } else { 200 };
            lines += &format!("http.requests:1|c|#url:/websocket?appliance={number},code:{code}\n");
        }
        lines += "parts:1|c\n";
        running.send(&lines);
        running.metrics("/metrics/statsd?name[]=parts", &format!("parts {part}\n"));
    }
    let body = get(running.http, "/metrics/statsd").text();
    assert_eq!(sums(&body, "http_requests", "url").len(), 1_001);
    let by_code = BTreeMap::from([("200".to_owned(), 135_000.0), ("500".to_owned(), 15_000.0)]);
    assert_eq!(sums(&body, "http_requests", "code"), by_code);
    let report = running.json("/api/v1/status/cardinality?limit=1");
    let metric = &report["data"]["metrics"][0];
    assert_eq!((&metric["name"], &metric["series"]), (&"http_requests".into(), &1_002.into()));
    assert_eq!(metric["labels"][0]["name"], "url");
    let budgets = &report["data"]["budgets"][0];
    assert_eq!(
        (&budgets["mode"], &budgets["seriesPerMetric"]),
        (&"enforce".into(), &100_000.into())
    );
    let beyond = &budgets["beyond"][0];
    let named = [&beyond["metric"], &beyond["label"], &beyond["limit"], &beyond["action"]];
    assert_eq!(named, ["http_requests", "url", "values-per-label", "folded"]);
    assert_eq!(beyond["times"], 149_000);
    let growth = report["data"]["newByMinute"].as_array().expect("minutes");
    let new: u64 = growth.iter().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!((growth.len(), new), (60, 1_003));
    let said = running.program.line(&["exceed a budget"]);
    assert!(said.contains("http_requests") && said.contains("url"), "{said}");
}

/// The senders of new series are named for each listener.
#[test]
fn senders_are_named_by_address_and_container() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let unixgram = format!("--statsd.listen-unixgram={}", socket.display());
    // A dual-stack socket, which reports IPv4 addresses mapped to IPv6.
    let flags = ["--statsd.listen-udp=[::]:0", &unixgram, "--limit.values-per-label=500"];
    let running = start("kstatd", &flags);
    let udp = running.program.address(&["Accepting StatsD Traffic"], "udp");
    let datagrams = |from: &str, lines: std::ops::Range<u32>, end: &str| {
        let sender = UdpSocket::bind((from, 0)).expect("bound");
        let line = |number| format!("http.requests:1|c|#url:/{number}{end}\nknown:1|c");
        let lines: Vec<String> = lines.map(line).collect();
        // Few enough lines for the socket's buffer.
        for datagram in lines.chunks(50) {
            let datagram = datagram.join("\n");
            sender.send_to(datagram.as_bytes(), ("127.0.0.1", udp.port())).expect("sent");
        }
    };
    datagrams("127.0.0.2", 0..300, "|c:ci-4711");
    datagrams("127.0.0.2", 300..600, "|c:ci-4712");
    datagrams("127.0.0.3", 600..610, "");
    let unix = UnixDatagram::unbound().expect("a socket");
    unix.send_to(b"from.unix:1|c", &socket).expect("sent");
    running.send("from.tcp:1|c\nknown:1|c\n");
    running.metrics("/metrics/statsd?name[]=known", "known 611\n");
    running.metrics("/metrics/statsd?name[]=from_unix", "from_unix 1\n");
    let report = running.json("/api/v1/status/cardinality");
    let senders = report["data"]["senders"].as_array().expect("senders");
    let sender = |address: serde_json::Value, container: &str| {
        let of = |each: &&serde_json::Value| {
            each["address"] == address && each["container"] == container
        };
        let sender = senders.iter().find(of).unwrap_or_else(|| panic!("{address} in {senders:?}"));
        let number = |name: &str| sender[name].as_u64().expect("a number");
        let minutes = sender["newByMinute"].as_array().expect("minutes");
        assert_eq!(
            minutes.iter().filter_map(|each| each.as_u64()).sum::<u64>(),
            number("newSeries")
        );
        (number("newSeries"), number("beyondBudget"), sender["lastMetric"].clone())
    };
    // The container ID is a label, so each container has its own folded series.
    let (first, second) =
        (sender("127.0.0.2".into(), "ci-4711"), sender("127.0.0.2".into(), "ci-4712"));
    assert_eq!((first.0, first.1), (300, 0));
    assert_eq!((second.0, second.1), (201, 100));
    assert_eq!(sender("127.0.0.3".into(), ""), (1, 10, "http_requests".into()));
    assert_eq!(sender("127.0.0.2".into(), ""), (1, 0, "known".into()));
    assert_eq!(sender("127.0.0.1".into(), ""), (1, 0, "from_tcp".into()));
    assert_eq!(sender(serde_json::Value::Null, ""), (1, 0, "from_unix".into()));
    assert_eq!(senders[0]["container"], "ci-4711");
}

#[test]
fn the_tsdb_status_matches_prometheus() {
    let running = start("kstatd", &[]);
    running.send("a.b:1|c|#x:1,y:1\na.b:1|c|#x:2,y:1\nt:5|ms|#y:1\nlast:1|c\n");
    running.metrics("/metrics/statsd", "last 1\n");
    let report = running.json("/api/v1/status/tsdb?limit=2");
    assert_eq!(report["status"], "success");
    let data = &report["data"];
    assert_eq!(data["headStats"]["numSeries"], 8);
    let stat = |name: &str, value: u64| serde_json::json!({"name": name, "value": value});
    let list = |stats: &[serde_json::Value]| serde_json::Value::from(stats.to_vec());
    assert_eq!(data["seriesCountByMetricName"], list(&[stat("t", 3), stat("a_b", 2)]));
    assert_eq!(data["labelValueCountByLabelName"], list(&[stat("__name__", 5), stat("x", 2)]));
    assert_eq!(data["seriesCountByLabelValuePair"], list(&[stat("y=1", 7), stat("__name__=t", 3)]));
    assert_eq!(data["memoryInBytesByLabelName"][1], stat("y", 3));
    for query in ["limit=0", "limit=-1", "limit=x", "limit="] {
        let refused = get(running.http, &format!("/api/v1/status/tsdb?{query}"));
        assert_eq!(refused.status, 400, "{query}");
        let refusal: serde_json::Value = serde_json::from_str(&refused.text()).expect("JSON");
        assert_eq!(
            (&refusal["status"], &refusal["errorType"]),
            (&"error".into(), &"bad_data".into())
        );
    }
    assert!(get(running.http, "/").text().contains("/api/v1/status/tsdb"));
}

/// Anyone who can send a datagram chooses names: they are data in every format, and lists are limited.
#[test]
fn hostile_names_are_data_in_the_report() {
    let running = start("kstatd", &["--limit.values-per-label=1"]);
    let mut lines = "evil:1|c|#v:\"}]<script>\\\u{1}é\nevil:1|c|#v:second\n".to_owned();
    (0..20).for_each(|n| lines += &format!("many:1|c|#l{n}:x\n"));
    lines += "last:1|c\n";
    running.send(&lines);
    running.metrics("/metrics/statsd", "last 1\n");
    let report = running.json("/api/v1/status/cardinality?limit=3");
    let metrics = report["data"]["metrics"].as_array().expect("metrics");
    let lists: Vec<usize> =
        metrics.iter().map(|metric| metric["labels"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(lists, [3, 1, 0], "{report}");
    let report = running.json("/api/v1/status/tsdb?limit=10000");
    let pairs = report["data"]["seriesCountByLabelValuePair"].as_array().expect("pairs");
    let evil =
        pairs.iter().find(|pair| pair["name"].as_str().is_some_and(|name| name.contains("script")));
    assert_eq!(evil.map(|pair| &pair["name"]), Some(&"v=\"}]<script>\\\u{1}é".into()), "{report}");
    assert_eq!(pairs.len(), 20 + 2 + 3, "{report}");
}

#[test]
fn reports_require_authorization() {
    let cluster = Cluster::new(1);
    let running = start("kstatd", &[&cluster.flag(), "--auth-filter", "--resources=pods"]);
    for path in ["/api/v1/status/tsdb", "/api/v1/status/cardinality", "/api/v1/status/tsdb?limit=1"]
    {
        assert_eq!(get(running.http, path).status, 401, "{path}");
        let post = request(running.http, "POST", path, &[]).expect("an answer");
        assert_eq!(post.status, 401, "{path}");
    }
}

#[test]
fn statsd_exporter_has_no_budgets_by_default() {
    let mut lines: String = (0..11_000).map(|n| format!("m:1|c|#v:{n}\n")).collect();
    lines += "last:1|c\n";
    for (flags, most) in [(&[][..], 11_000), (&["--limit.mode=enforce"], 10_001)] {
        let running = start("statsd_exporter", flags);
        running.send(&lines);
        let body = running.metrics("/metrics", "\nlast 1\n");
        assert_eq!(sums(&body, "m", "v").len(), most, "{flags:?}");
        assert_eq!(running.json("/api/v1/status/tsdb")["status"], "success");
    }
}

/// The programs apply a lower limit after SIGHUP and fold new series.
#[test]
fn a_limit_lowered_by_sighup_folds_under_every_name() {
    let rules = |limit: u32, probe: &str| {
        format!(
            "mappings:\n- {{match: c.*, name: c, labels: {{l: $1}}, limits: {{series: {limit}}}}}\n\
             - {{match: probe, name: {probe}}}\n"
        )
    };
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("c.{number}:1|c\n")).collect()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mapping.yml");
    let mapping = format!("--statsd.mapping-config={}", path.display());
    for name in ["kstatd", "statsd_exporter"] {
        std::fs::write(&path, rules(1_000, "old")).expect("written");
        let running = start(name, &["--limit.mode=enforce", &mapping]);
        running.send(&(lines(0..50) + "probe:1|c\n"));
        running.metrics("/metrics", "\nold 1\n");
        std::fs::write(&path, rules(10, "new")).expect("written");
        running.program.signal("HUP");
        until("the mapping is in force", || {
            running.send("probe:1|c\n");
            get(running.http, "/metrics").text().contains("\nnew ").then_some(())
        });
        running.send(&(lines(100..200) + "last:1|c\n"));
        let body = running.metrics("/metrics", "\nlast 1\n");
        assert_eq!(sums(&body, "c", "").get(""), Some(&150.0), "{name}: {body}");
        assert!(body.contains("\nc{otel_metric_overflow=\"true\"} 100\n"), "{name}: {body}");
    }
}

/// The log counts every rejection, at the latest at exit.
#[test]
fn the_log_counts_every_violation() {
    let running = start("kstatd", &["--limit.series-per-metric=10"]);
    let logged = |running: &Running| -> u64 {
        let lines = running.program.log();
        let lines =
            lines.iter().filter(|line| line.contains("exceed a budget") && line.contains("level"));
        let times = lines
            .filter_map(|line| line.split_once("times=")?.1.split(' ').next()?.parse::<u64>().ok());
        times.sum()
    };
    let lines = |numbers: std::ops::Range<u32>| -> String {
        numbers.map(|number| format!("level:1|g|#l:{number}\n")).collect()
    };
    running.send(&lines(0..110));
    until("the first report", || (logged(&running) == 100).then_some(()));
    running.send(&(lines(200..250) + "last:1|c\n"));
    running.metrics("/metrics/statsd?name[]=last", "last 1\n");
    running.program.signal("TERM");
    until("the last report", || (logged(&running) == 150).then_some(()));
}

const EMPTY: &str = "mappings:\n\
    - {match: n.*, name: n, labels: {url: $1}, normalise: {url: url}}\n\
    - {match: n, name: n}\n\
    - {match: '^t\\.([a-z]*)\\.x$', match_type: regex, name: t, labels: {who: $1}}\n\
    - {match: t, name: t}\n\
    - {match: '^h\\.([a-z]*)\\.x$', match_type: regex, name: h, labels: {who: $1}, observer_type: histogram, \
       histogram_options: {buckets: [1]}}\n\
    - {match: h, name: h, observer_type: histogram, histogram_options: {buckets: [1]}}\n";

/// Prometheus treats `m{a=""}` and `m` as one series, so one of two samples would be lost.
#[test]
fn a_label_with_an_empty_value_is_absent() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mapping.yml");
    std::fs::write(&path, EMPTY).expect("written");
    let mapping = format!("--statsd.mapping-config={}", path.display());
    let lines = "n:1|c\nn.?a=1:1|c\nn.?a=2:1|c\nn.#x:1|c\nn./y?b:1|c\nt:1|c\nt..x:1|c\nh:1|h\nh..x:1|h\n\
                 c:1|c\nc:1|c|#a:\nc,a=:1|c\nlast:1|c\n";
    for name in ["kstatd", "statsd_exporter"] {
        let running = start(name, &[&mapping]);
        running.send(lines);
        let body = running.metrics("/metrics", "\nlast 1\n");
        let shown = |name: &str| -> Vec<&str> {
            let of = |line: &&str| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            body.lines().filter(of).collect()
        };
        // A value normalised to the empty string yields no label under either name.
        assert_eq!(shown("n"), ["n 4", "n{url=\"/y\"} 1"], "{name}");
        assert_eq!(shown("c"), ["c 3"], "{name}");
        // Templates behave as in statsd_exporter under its name.
        let (counter, histogram): (&[&str], &[&str]) = match name {
            "kstatd" => (&["t 2"], &["h_count 2"]),
            _ => (&["t 1", "t{who=\"\"} 1"], &["h_count 1", "h_count{who=\"\"} 1"]),
        };
        assert_eq!((&*shown("t"), &*shown("h_count")), (counter, histogram), "{name}");
        let explained =
            common::run("kstatd", ["explain", "n.?a=1:1|c", &format!("--addr={}", running.http)]);
        let said = explained.stdout;
        assert!(said.contains("url is omitted: its normalised value is empty"), "{said}");
        assert!(said.contains("updates n"), "{said}");
    }
}

#[test]
fn empty_limit_values_are_rejected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mapping.yml");
    for (program, words) in
        [("kstatd", &["run"][..]), ("statsd_exporter", &[]), ("kube-state-metrics", &[])]
    {
        let output = common::run(program, [words, &["--limit.fold-value="]].concat());
        assert!(!output.status.success(), "{program}");
        let said = [output.stderr, output.stdout].concat();
        assert!(
            said.contains("limit.fold-value") && said.contains("value \"\" must not be empty"),
            "{program}: {said}"
        );
    }
    for (rule, said) in [
        ("normalise: {url: {truncate: 0}}", "line 2, column 72: truncate is 0"),
        ("limits: {fold_value: ''}", "fold_value"),
    ] {
        let text = format!("mappings:\n- {{match: a.*, name: a, labels: {{url: $1}}, {rule}}}\n");
        std::fs::write(&path, text).expect("written");
        let output = common::run(
            "kstatd",
            ["check-config", "--statsd.mapping-config", &path.to_string_lossy()],
        );
        assert!(!output.status.success(), "{rule}");
        assert!(output.stdout.contains(said), "{rule}: {}", output.stdout);
    }
}
