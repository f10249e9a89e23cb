//! Labels that explode are contained: every budget holds and every total stays exact, whatever arrives.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use common::cluster::Cluster;
use common::{Program, get, request, until};
use kstatd::exposition::budget::{Budget, BudgetMode};
use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::statsd::mapper::Mapper;
use kstatd::statsd::{Clock, Offline, OfflineConfig};
use proptest::prelude::*;

/// A line of an exposition whose label values need no escapes.
#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').expect("an end");
    let pair = |label: &str| {
        let (name, value) = label.split_once('=').expect("a label");
        (name.to_owned(), value.trim_matches('"').to_owned())
    };
    Sample {
        name: name.to_owned(),
        labels: labels.split(',').filter(|label| !label.is_empty()).map(pair).collect(),
        value: value.parse().expect("a number"),
    }
}

fn samples(body: &str) -> Vec<Sample> {
    body.lines().filter(|line| !line.starts_with('#')).map(sample).collect()
}

/// The same of an offline registry.
fn text(offline: &Offline) -> String {
    let frames = offline.frames(Format::Text, &ScrapeQuery::default());
    String::from_utf8(frames.flatten().collect()).expect("UTF-8")
}

fn offline(mapping: &str, budget: &Budget, key_cache_size: usize, clock: &Clock) -> Offline {
    let (budget, clock) = (budget.clone(), clock.clone());
    let config = OfflineConfig { key_cache_size, budget, clock, ..OfflineConfig::default() };
    Offline::new(Mapper::from_yaml(mapping).expect("a mapping"), config)
}

fn enforced() -> Budget {
    Budget { mode: BudgetMode::Enforce, ..Budget::default() }
}

/// What the sums by `label` of a metric come to.
fn sums(body: &str, metric: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for sample in samples(body).iter().filter(|sample| sample.name == metric) {
        let value = sample.labels.get(label).cloned().unwrap_or_default();
        *sums.entry(value).or_default() += sample.value;
    }
    sums
}

#[derive(Clone, Debug)]
enum Step {
    /// Metric, type (`r` is a counter whose rule has budgets of its own), label values and number.
    Line(u8, &'static str, Vec<(&'static str, u8)>, u8),
    Wait(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![6 => Just("c"), 1 => Just("g"), 2 => Just("h"), 1 => Just("ms"), 2 => Just("r")];
    let label = |name: &'static str, values: u8| prop_oneof![1 => Just(Vec::new()), 6 => (0..values).prop_map(move |value| vec![(name, value)])];
    let line = (0..4u8, kind, label("code", 3), label("url", 40), label("pod", 6), 1..9u8)
        .prop_map(|(metric, kind, code, url, pod, number)| {
            Step::Line(metric, kind, [code, url, pod].concat(), number)
        });
    prop_oneof![30 => line, 1 => (1..40u8).prop_map(Step::Wait)]
}

fn budget() -> impl Strategy<Value = Budget> {
    let most = |most: u64| prop_oneof![1 => Just(0), 3 => 1..most];
    (most(60), most(25), most(8), most(12), prop_oneof![2 => Just(0), 1 => 2_000..30_000u64])
        .prop_map(|(series, series_per_metric, values_per_label, value_bytes, memory)| Budget {
            series,
            series_per_metric,
            values_per_label,
            value_bytes,
            memory,
            ..enforced()
        })
}

/// Rules of the metrics of [`line`].
const RULES: &str = "mappings:\n\
    - {match: s.*, name: s_$1, observer_type: summary}\n\
    - {match: r.*, name: r_$1, limits: {series: 6, values_per_label: 2, value_bytes: 5}}\n";

/// The budgets that such a metric has.
fn budget_of(metric: &str, all: &Budget) -> Budget {
    if metric.starts_with("r_") {
        return Budget { series_per_metric: 6, values_per_label: 2, value_bytes: 5, ..all.clone() };
    }
    all.clone()
}

/// The line of a step. Values are longer the greater they are.
fn line((metric, kind, labels, number): (u8, &str, &[(&str, u8)], u8)) -> String {
    let tag =
        |(name, value): &(&str, u8)| format!("{name}:v{:0>1$}", value, 1 + usize::from(value / 4));
    let tags: Vec<String> = labels.iter().map(tag).collect();
    let (name, kind) = match kind {
        "ms" => (format!("s.m{metric}"), "ms"),
        "r" => (format!("r.m{metric}"), "c"),
        kind => (format!("m{metric}_{kind}"), kind),
    };
    format!("{name}:{number}|{kind}|#{}", tags.join(","))
}

/// The series that has the sum of such lines, and what one of them adds.
fn added(metric: u8, kind: &str, number: u8) -> Option<(String, f64)> {
    let number = f64::from(number);
    match kind {
        "g" => None,
        "h" => Some((format!("m{metric}_h_count"), 1.0)),
        "ms" => Some((format!("s_m{metric}_count"), 1.0)),
        "r" => Some((format!("r_m{metric}"), number)),
        kind => Some((format!("m{metric}_{kind}"), number)),
    }
}

fn check_bounds(body: &str, budget: &Budget) -> Result<(), TestCaseError> {
    let all = samples(body);
    let within = |count: usize, most: u64| most == 0 || count as u64 <= most;
    prop_assert!(within(all.len(), budget.series), "{} series: {body}", all.len());
    let family = |name: &str| {
        let suffixes = ["_bucket", "_sum", "_count"];
        suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name).to_owned()
    };
    let mut by_metric = BTreeMap::<String, usize>::new();
    let mut values = BTreeMap::<(String, String), BTreeSet<String>>::new();
    for sample in &all {
        *by_metric.entry(family(&sample.name)).or_default() += 1;
        let own = |(name, value): &(&String, &String)| {
            let written = ["le", "quantile", "otel_metric_overflow"];
            !written.contains(&name.as_str()) && **value != budget.fold_value
        };
        for (name, value) in sample.labels.iter().filter(own) {
            values.entry((family(&sample.name), name.clone())).or_default().insert(value.clone());
        }
    }
    for (metric, count) in by_metric {
        let most = budget_of(&metric, budget).series_per_metric;
        prop_assert!(within(count, most), "{metric}: {count}");
    }
    for ((metric, label), values) in values {
        let budget = budget_of(&metric, budget);
        prop_assert!(within(values.len(), budget.values_per_label), "{metric} {label} {values:?}");
        let longest = values.iter().map(String::len).max().unwrap_or(0);
        prop_assert!(within(longest, budget.value_bytes), "{metric} {label} {values:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Without expiry nothing of what was accepted is ever lost.
    #[test]
    fn totals_are_exact_and_every_bound_holds(
        steps in prop::collection::vec(step(), 1..250),
        budget in budget(),
    ) {
        let clock = Clock::manual();
        let defaults = "defaults: {observer_type: histogram, histogram_options: {buckets: [4]}}\n";
        let mut offline = offline(&[defaults, RULES].concat(), &budget, 1 << 10, &clock);
        let mut accepted = BTreeMap::<String, f64>::new();
        for step in &steps {
            let Step::Line(metric, kind, labels, number) = step else { continue };
            let words = offline.line(line((*metric, kind, labels, *number)).as_bytes());
            if let Some((name, number)) = added(*metric, kind, *number).filter(|_| words.is_empty()) {
                *accepted.entry(name).or_default() += number;
            }
        }
        let body = text(&offline);
        check_bounds(&body, &budget)?;
        for (name, sum) in &accepted {
            prop_assert_eq!(sums(&body, name, "").get("").copied().unwrap_or_default(), *sum, "{} in {}", name, body);
        }
    }

    /// With expiry every bound holds at every moment, and a line that is known goes where an unknown one would.
    #[test]
    fn bounds_hold_while_series_come_and_go(
        steps in prop::collection::vec(step(), 1..250),
        budget in budget(),
    ) {
        let clock = Clock::manual();
        let defaults = "defaults: {ttl: 2s, observer_type: histogram, histogram_options: {buckets: [4]}}\n";
        let mapping = &[defaults, RULES].concat();
        let mut known = offline(mapping, &budget, 1 << 10, &clock);
        let mut unknown = offline(mapping, &budget, 0, &clock);
        for step in &steps {
            match step {
                Step::Line(metric, kind, labels, number) => {
                    let line = line((*metric, kind, labels, *number));
                    prop_assert_eq!(known.line(line.as_bytes()), unknown.line(line.as_bytes()), "{}", line);
                }
                Step::Wait(tenths) => {
                    clock.advance(Duration::from_millis(u64::from(*tenths) * 100));
                    known.expire();
                    unknown.expire();
                    let body = text(&known);
                    check_bounds(&body, &budget)?;
                    prop_assert_eq!(&body, &text(&unknown));
                }
            }
        }
        // When all has gone, the account is empty: there is room for what there was room for at first.
        clock.advance(Duration::from_secs(60));
        known.expire();
        prop_assert_eq!(text(&known), "");
        let mut fresh = offline(mapping, &budget, 0, &clock);
        for step in &steps {
            let Step::Line(metric, kind, labels, number) = step else { continue };
            let line = line((*metric, kind, labels, *number));
            prop_assert_eq!(known.line(line.as_bytes()), fresh.line(line.as_bytes()), "{}", line);
        }
        prop_assert_eq!(text(&known), text(&fresh));
    }
}

#[test]
fn one_label_that_explodes_folds_alone() {
    let budget = Budget { values_per_label: 3, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    for url in 0..100 {
        for code in ["200", "404"] {
            assert!(
                offline.line(format!("hits:1|c|#url:/{url},code:{code}").as_bytes()).is_empty()
            );
        }
    }
    let body = text(&offline);
    let urls: Vec<String> = sums(&body, "hits", "url").into_keys().collect();
    assert_eq!(urls, ["/0", "/1", "/2", "other"]);
    let by_code = sums(&body, "hits", "code");
    assert_eq!(by_code, BTreeMap::from([("200".to_owned(), 100.0), ("404".to_owned(), 100.0)]));
    // Known values go on, also with another code.
    offline.line(b"hits:1|c|#url:/1,code:500");
    assert!(text(&offline).contains("hits{code=\"500\",url=\"/1\"} 1\n"));
}

#[test]
fn a_metric_with_too_many_label_sets_goes_on_in_one_series() {
    let budget = Budget { series_per_metric: 5, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    for number in 0..100 {
        let line = format!("hits:1|c|#a:{},b:{}", number % 10, number / 10);
        assert!(offline.line(line.as_bytes()).is_empty());
    }
    let body = text(&offline);
    assert!(body.contains("hits{otel_metric_overflow=\"true\"} 96\n"), "{body}");
    assert_eq!(samples(&body).len(), 5);
}

/// A sender may make up names of labels as well as values.
#[test]
fn names_of_labels_without_end_are_contained() {
    let budget = Budget { series_per_metric: 300, values_per_label: 10, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    for number in 0..2_000 {
        assert!(offline.line(format!("hits:1|c|#label{number}:x").as_bytes()).is_empty());
    }
    let body = text(&offline);
    assert!(body.contains("hits{otel_metric_overflow=\"true\"} 1701\n"), "{body}");
    assert_eq!(samples(&body).len(), 300);
}

#[test]
fn what_does_not_add_up_is_refused_and_counted() {
    let budget = Budget { values_per_label: 1, name_bytes: 10, ..enforced() };
    let mut offline = offline("", &budget, 1 << 10, &Clock::manual());
    assert!(offline.line(b"level:1|g|#who:a").is_empty());
    for _ in 0..3 {
        assert_eq!(offline.line(b"level:2|g|#who:b"), ["label_limit"]);
    }
    assert!(offline.line(b"level:5|g|#who:a").is_empty());
    assert_eq!(offline.line(b"much.too.long:1|c"), ["name_limit"]);
    assert_eq!(offline.line(b"c:1|c|#much_too_long:1"), ["name_limit"]);
    assert_eq!(samples(&text(&offline)).len(), 1);
    let own: Vec<u8> = offline.self_metrics().flatten().collect();
    let own = String::from_utf8(own).expect("UTF-8");
    for line in [
        "kstatd_statsd_over_budget_total{action=\"refused\",label=\"who\",limit=\"values-per-label\",metric_name=\"level\"} 3",
        "kstatd_statsd_over_budget_total{action=\"refused\",label=\"much_too_long\",limit=\"name-bytes\",metric_name=\"c\"} 1",
        "kstatd_statsd_rejected_samples_total{reason=\"label_limit\"} 3",
    ] {
        assert!(own.contains(line), "{line} in {own}");
    }
}

#[test]
fn what_was_folded_stays_folded_and_what_expires_gives_room_back() {
    let clock = Clock::manual();
    let budget = Budget { values_per_label: 2, ..enforced() };
    for key_cache_size in [0, 1 << 10] {
        let mut offline = offline("defaults: {ttl: 10s}", &budget, key_cache_size, &clock);
        let mut send =
            |value: &str| assert!(offline.line(format!("m:1|c|#v:{value}").as_bytes()).is_empty());
        ["a", "b", "c"].into_iter().for_each(&mut send);
        clock.advance(Duration::from_secs(8));
        send("c");
        clock.advance(Duration::from_secs(4));
        offline.expire();
        // Room for two; `c` keeps counting where it did.
        for value in ["c", "d", "e", "f"] {
            assert!(offline.line(format!("m:1|c|#v:{value}").as_bytes()).is_empty());
        }
        let expected = [("d", 1.0), ("e", 1.0), ("other", 4.0)];
        let expected = expected.map(|(value, sum)| (value.to_owned(), sum));
        assert_eq!(sums(&text(&offline), "m", "v"), BTreeMap::from(expected));
        clock.advance(Duration::from_secs(11));
        offline.expire();
        offline.line(b"m:1|c|#v:c");
        assert_eq!(sums(&text(&offline), "m", "v"), BTreeMap::from([("c".to_owned(), 1.0)]));
    }
}

#[test]
fn a_rule_has_budgets_of_its_own() {
    let mapping = "mappings:\n\
        - {match: few.*, name: few, labels: {l: $1}, limits: {values_per_label: 1}}\n\
        - {match: many.*, name: many, labels: {l: $1}, limits: {values_per_label: 0, series: 0}}\n\
        - {match: long.*, name: long, labels: {l: $1}, limits: {value_bytes: 3}}\n";
    let budget =
        Budget { values_per_label: 2, series_per_metric: 4, value_bytes: 10, ..enforced() };
    let mut offline = offline(mapping, &budget, 1 << 10, &Clock::manual());
    for metric in ["few", "many", "long", "usual"] {
        for value in ["v1", "v2", "v3333", "v4"] {
            let line = match metric {
                "usual" => format!("usual:1|c|#l:{value}"),
                metric => format!("{metric}.{value}:1|c"),
            };
            assert!(offline.line(line.as_bytes()).is_empty());
        }
    }
    let body = text(&offline);
    let values = |metric: &str| sums(&body, metric, "l").into_keys().collect::<Vec<_>>();
    assert_eq!(values("few"), ["other", "v1"]);
    assert_eq!(values("many"), ["v1", "v2", "v3333", "v4"]);
    assert_eq!(values("long"), ["other", "v1", "v2"]);
    assert_eq!(values("usual"), ["other", "v1", "v2"]);
}

#[test]
fn tracking_counts_and_changes_nothing() {
    let budget = Budget {
        mode: BudgetMode::Track,
        values_per_label: 2,
        series_per_metric: 3,
        value_bytes: 4,
        name_bytes: 4,
        series: 5,
        memory: 1,
        ..Budget::default()
    };
    let clock = Clock::manual();
    let (mut tracked, mut free) =
        (offline("", &budget, 64, &clock), offline("", &Budget::default(), 64, &clock));
    for number in 0..50 {
        for line in [format!("hits:1|c|#url:/{number}"), format!("level{number}:1|g|#l:longer")] {
            assert_eq!(tracked.line(line.as_bytes()), free.line(line.as_bytes()));
        }
    }
    assert_eq!(text(&tracked), text(&free));
    let own: Vec<u8> = tracked.self_metrics().flatten().collect();
    let own = String::from_utf8(own).expect("UTF-8");
    assert!(
        own.contains(
            "{action=\"tracked\",label=\"url\",limit=\"values-per-label\",metric_name=\"hits\"} 48"
        ),
        "{own}"
    );
}

struct Running {
    program: Program,
    http: SocketAddr,
    tcp: SocketAddr,
}

/// With no socket for datagrams unless `flags` say one.
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

/// A URL with its query as the value of a label: the bound holds, totals by any other label are exact, and the report
/// names the offender.
#[test]
fn urls_with_queries_are_contained_and_named() {
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
    let said = running.program.line(&["beyond a budget"]);
    assert!(said.contains("http_requests") && said.contains("url"), "{said}");
}

/// Whoever brings the series is named, whichever way the lines came.
#[test]
fn senders_are_named_by_address_and_container() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let unixgram = format!("--statsd.listen-unixgram={}", socket.display());
    // A socket of both families, which sees IPv4 inside of IPv6.
    let flags = ["--statsd.listen-udp=[::]:0", &unixgram, "--limit.values-per-label=500"];
    let running = start("kstatd", &flags);
    let udp = running.program.address(&["Accepting StatsD Traffic"], "udp");
    let datagrams = |from: &str, lines: std::ops::Range<u32>, end: &str| {
        let sender = UdpSocket::bind((from, 0)).expect("bound");
        let line = |number| format!("http.requests:1|c|#url:/{number}{end}\nknown:1|c");
        let lines: Vec<String> = lines.map(line).collect();
        // Few enough for the socket's buffer, which holds what is not read yet.
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
    // The id of the container is a label, so that each has a series for what was folded.
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
fn the_report_of_prometheus() {
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

/// Names come from whoever can send a datagram: they are data in every form, and lists are no longer than asked for.
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
    let report = running.json("/api/v1/status/tsdb?limit=100000");
    let pairs = report["data"]["seriesCountByLabelValuePair"].as_array().expect("pairs");
    let evil =
        pairs.iter().find(|pair| pair["name"].as_str().is_some_and(|name| name.contains("script")));
    assert_eq!(evil.map(|pair| &pair["name"]), Some(&"v=\"}]<script>\\\u{1}é".into()), "{report}");
    assert_eq!(pairs.len(), 20 + 2 + 3, "{report}");
}

#[test]
fn only_the_authorised_see_the_reports() {
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
fn under_the_name_of_the_original_there_are_no_budgets_unless_asked_for() {
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
