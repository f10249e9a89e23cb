//! `/metrics?namespace=a`: scrapes limited to namespaces, in every format, tested from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};

use crate::common::cluster::Cluster;
use crate::common::{Program, get, request, until, valid_text};
use kstatd::resources::registry;

/// Returns the families of namespaced objects.
fn namespaced() -> BTreeSet<&'static str> {
    let kinds = registry().iter().filter(|resource| resource.api().namespaced);
    kinds.flat_map(|resource| resource.families()).map(|family| family.name).collect()
}

fn family(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap_or_default()
}

/// Returns the label `namespace` of a series, which is among its first labels.
fn namespace(line: &str) -> &str {
    let label = |start: &str| line.find(start).map(|at| &line[at + start.len()..]);
    let value = [label("{namespace=\""), label(",namespace=\"")].into_iter().flatten();
    value.max_by_key(|rest| rest.len()).and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

/// Returns the samples of a full scrape that belong to namespaced objects, by namespace.
fn by_namespace(whole: &str) -> BTreeMap<String, Vec<String>> {
    let families = namespaced();
    // Families about several kinds have the namespace of the objects that they are about.
    let is_namespaced = |line: &&str| {
        families.contains(family(line))
            || line.starts_with("kstatd_") && !namespace(line).is_empty()
    };
    let mut all = BTreeMap::<String, Vec<String>>::new();
    for line in whole.lines().filter(is_namespaced) {
        all.entry(namespace(line).to_owned()).or_default().push(line.to_owned());
    }
    all
}

fn samples(body: &str) -> Vec<String> {
    body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Asserts that a body has these samples in any order.
fn assert_samples(body: &str, mut wanted: Vec<String>, what: &str) {
    let mut got = samples(body);
    got.sort();
    wanted.sort();
    let other = |of: &[String], among: &[String]| {
        of.iter().find(|line| among.binary_search(line).is_err()).cloned()
    };
    assert!(
        got == wanted,
        "{what}: {} samples, not {}; {:?} is too much, {:?} is missing",
        got.len(),
        wanted.len(),
        other(&got, &wanted),
        other(&wanted, &got)
    );
}

/// Returns the first successful scrape: the program runs with `--gate-metrics-until-synced`.
fn complete(main: SocketAddr) -> String {
    let answered = || Some(get(main, "/metrics")).filter(|answer| answer.status == 200);
    until("everything is listed", answered).text()
}

#[test]
fn namespace_scrape_is_a_subset_in_every_format() {
    let cluster = Cluster::new(3_000);
    let program = Program::start(
        "kube-state-metrics",
        [
            &cluster.flag(),
            "--port=0",
            "--telemetry-port=0",
            "--host=127.0.0.1",
            "--telemetry-host=127.0.0.1",
            "--enable-gzip-encoding",
            "--gate-metrics-until-synced",
        ],
    );
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    let all = by_namespace(&complete(main));
    let names: Vec<&String> = all.keys().filter(|name| !name.is_empty()).collect();
    assert!(names.len() >= 4, "{names:?}");
    let part = |wanted: &[&String]| -> Vec<String> {
        wanted.iter().flat_map(|name| all[*name].clone()).collect()
    };
    let (one, two, three) = (names[0], names[1], names[2]);
    for (query, wanted) in [
        (format!("namespace={one}"), vec![one]),
        (format!("namespace={one},{three}"), vec![one, three]),
        (format!("namespace={three}&namespace={one},{two}"), vec![one, two, three]),
        (format!("namespace=absent,{two}"), vec![two]),
        ("namespace=absent".to_owned(), vec![]),
    ] {
        let path = format!("/metrics?{query}");
        let plain = get(main, &path);
        assert_eq!(plain.status, 200, "{path}");
        let plain = plain.text();
        valid_text(&plain);
        assert_samples(&plain, part(&wanted), &path);
        for line in plain.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            assert!(namespaced().contains(family(line)), "{path} has a header of {line}");
        }
        let accept = ("Accept", "application/openmetrics-text; version=1.0.0");
        let open = request(main, "GET", &path, &[accept]).expect("answer").text();
        assert!(open == format!("{plain}# EOF\n"), "{path}");
        // Twice: the second scrape uses data that the first one cached.
        for _ in 0..2 {
            for (accept, want) in [("*/*", &plain), (accept.1, &open)] {
                let headers = [("Accept-Encoding", "gzip"), ("Accept", accept)];
                let answer = request(main, "GET", &path, &headers).expect("answer");
                assert_eq!(answer.header("content-encoding"), Some("gzip"));
                let mut text = String::new();
                let mut decoder = flate2::read::GzDecoder::new(answer.body.as_slice());
                decoder.read_to_string(&mut text).expect("one valid member");
                assert!(text == *want, "{path}");
            }
        }
    }
    let pods = get(main, &format!("/metrics?namespace={one}&resources=pods")).text();
    let of_pods: Vec<String> =
        all[one].iter().filter(|line| family(line).starts_with("kube_pod_")).cloned().collect();
    assert_samples(&pods, of_pods, "pods");
    // The full scrape is unchanged.
    assert!(by_namespace(&get(main, "/metrics").text()) == all);

    for wrong in
        ["namespace=", "namespace=A", "namespace=a/b", "namespace=a&namespace=*", "namespace=%zz"]
    {
        let answer = get(main, &format!("/metrics?{wrong}"));
        assert_eq!(answer.status, 400, "{wrong}");
        assert!(answer.text().contains("namespace"), "{wrong}: {}", answer.text());
    }
    // While all namespaces are watched together, no own metric belongs to a single one.
    assert_eq!(get(telemetry, &format!("/metrics?namespace={one}")).text(), "");
    assert_eq!(get(telemetry, "/metrics?namespace=A").status, 400);
    assert_eq!(get(main, "/healthz?namespace=A").status, 200);
}

#[test]
fn cluster_scoped_series_are_excluded() {
    let cluster = Cluster::new(100);
    let program = Program::start(
        "kstatd",
        [
            &cluster.flag(),
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
        ],
    );
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    let statsd = program.address(&["Accepting StatsD Traffic"], "udp");
    until("ready", || (get(main, "/readyz").status == 200).then_some(()));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    until("a line has arrived", || {
        socket.send_to(b"hits:1|c|#namespace:x", statsd).expect("send");
        get(main, "/metrics").text().contains("hits{").then_some(())
    });
    let all = by_namespace(&get(main, "/metrics/kubernetes").text());
    let one = all.keys().find(|name| !name.is_empty()).expect("a namespace");
    for path in ["/metrics", "/metrics/kubernetes"] {
        let body = get(main, &format!("{path}?namespace={one}")).text();
        assert_samples(&body, all[one].clone(), path);
    }
    assert_eq!(get(main, "/metrics?namespace=x").text(), "");
    assert_eq!(get(main, "/metrics/statsd?namespace=x").text(), "");
    assert_eq!(get(telemetry, "/metrics?namespace=x").text(), "");
}
