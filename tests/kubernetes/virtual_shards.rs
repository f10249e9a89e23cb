//! `/metrics?shard=i&total_shards=n`: scrapes of a part of the objects, in every format, tested from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::net::{SocketAddr, UdpSocket};

use crate::common::cluster::Cluster;
use crate::common::{Program, get, request, until, valid_text};

const OPENMETRICS: (&str, &str) = ("Accept", "application/openmetrics-text; version=1.0.0");

const KSTATD: [&str; 4] = [
    "--listen=127.0.0.1:0",
    "--telemetry-listen=127.0.0.1:0",
    "--statsd.listen-udp=127.0.0.1:0",
    "--statsd.listen-tcp=",
];

/// Starts kube-state-metrics without one family and waits for its first lists.
fn kube_state_metrics(cluster: &Cluster, flags: &[&str]) -> (Program, SocketAddr) {
    let server = cluster.flag();
    let common = [
        server.as_str(),
        "--port=0",
        "--telemetry-port=0",
        "--host=127.0.0.1",
        "--telemetry-host=127.0.0.1",
        "--metric-denylist=kube_pod_created",
        "--enable-gzip-encoding",
        "--gate-metrics-until-synced",
    ];
    let program = Program::start("kube-state-metrics", [&common[..], flags].concat());
    let main = program.address(&["Started metrics server"], "address");
    until("everything is listed", || {
        (request(main, "HEAD", "/metrics", &[]).ok()?.status == 200).then_some(())
    });
    (program, main)
}

fn path(index: u32, total: u32) -> String {
    format!("/metrics?shard={index}&total_shards={total}")
}

/// Returns the body of a successful scrape, which must be valid.
fn scrape(main: SocketAddr, path: &str) -> String {
    let answer = get(main, path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let text = answer.text();
    valid_text(&text);
    text
}

fn sorted<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut lines: Vec<&str> = lines.collect();
    lines.sort_unstable();
    lines
}

fn samples(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter(|line| !line.starts_with('#'))
}

/// Returns the union of all virtual shards of a path with a query.
fn union(main: SocketAddr, query: &str, total: u32) -> String {
    (0..total).map(|index| scrape(main, &format!("{}{query}", path(index, total)))).collect()
}

/// Returns the UIDs of the pods of a body.
fn pods(body: &str) -> Vec<&str> {
    let info = body.lines().filter(|line| line.starts_with("kube_pod_info{"));
    info.filter_map(|line| line.split(",uid=\"").nth(1)?.split('"').next()).collect()
}

#[test]
fn virtual_shards_are_those_of_real_shards_in_every_format() {
    let cluster = Cluster::new(1_200);
    let (_whole, main) = kube_state_metrics(&cluster, &[]);
    let (_shard, real) = kube_state_metrics(&cluster, &["--shard=1", "--total-shards=3"]);
    let all = scrape(main, "/metrics");
    assert!(all.contains("kube_pod_info{") && !all.contains("kube_pod_created"));
    for total in [1, 2, 3, 64] {
        let union = union(main, "", total);
        assert!(sorted(samples(&union)) == sorted(samples(&all)), "{total}");
    }
    let virtual_shard = scrape(main, &path(1, 3));
    assert!(sorted(virtual_shard.lines()) == sorted(scrape(real, "/metrics").lines()));

    let namespaced = all.split("kube_pod_info{namespace=\"").nth(1).expect("a pod");
    let namespace = namespaced.split('"').next().expect("a namespace");
    for query in
        ["&resources=pods,nodes", "&exclude_resources=pods", &format!("&namespace={namespace}")]
    {
        let wanted = scrape(main, &format!("/metrics?{query}"));
        assert!(samples(&wanted).next().is_some(), "{query}");
        assert!(sorted(samples(&union(main, query, 3))) == sorted(samples(&wanted)), "{query}");
    }
    let path = path(0, 2);
    let plain = scrape(main, &path);
    let open = request(main, "GET", &path, &[OPENMETRICS]).expect("answer").text();
    assert!(open == format!("{plain}# EOF\n"));
    for (accept, want) in [("*/*", &plain), (OPENMETRICS.1, &open)] {
        let headers = [("Accept-Encoding", "gzip"), ("Accept", accept)];
        let answer = request(main, "GET", &path, &headers).expect("answer");
        assert_eq!(answer.header("content-encoding"), Some("gzip"));
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(answer.body.as_slice());
        decoder.read_to_string(&mut text).expect("one valid member");
        assert!(text == *want);
    }
    // The full scrape is unchanged.
    assert!(scrape(main, "/metrics") == all);
}

#[test]
fn invalid_shards_are_errors_that_name_parameter_and_value() {
    let cluster = Cluster::new(10);
    let program = Program::start("kstatd", [&[cluster.flag().as_str()], &KSTATD[..]].concat());
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    until("ready", || (get(main, "/readyz").status == 200).then_some(()));
    for (query, name, value) in [
        ("shard=0", "shard", "0"),
        ("total_shards=2", "total_shards", "2"),
        ("shard=2&total_shards=2", "shard", "2"),
        ("shard=-1&total_shards=2", "shard", "-1"),
        ("shard=one&total_shards=2", "shard", "one"),
        ("shard=&total_shards=2", "shard", ""),
        ("shard=0&total_shards=0", "total_shards", "0"),
        ("shard=0&total_shards=65", "total_shards", "65"),
        ("shard=0&total_shards=x", "total_shards", "x"),
        ("shard=0&shard=1&total_shards=2", "shard", "1"),
        ("shard=0&total_shards=2&total_shards=3", "total_shards", "3"),
        ("shard=%zz&total_shards=2", "shard", "shard=%zz"),
    ] {
        for path in ["/metrics", "/metrics/kubernetes", "/metrics/statsd"] {
            let answer = get(main, &format!("{path}?{query}"));
            assert_eq!(answer.status, 400, "{path}?{query}");
            let text = answer.text();
            let named = text.contains(name) && text.contains(&format!("{value:?}"));
            assert!(named, "{query}: {text}");
        }
        assert_eq!(get(telemetry, &format!("/metrics?{query}")).status, 200, "{query}");
    }
}

/// The shares of a real shard differ by less than a third, whatever the numbers of shards have in common.
#[test]
fn virtual_shards_of_a_real_shard_divide_its_share_evenly() {
    let cluster = Cluster::new(1_200);
    let flags = ["--shard=1", "--total-shards=2"];
    let (_shard, main) = kube_state_metrics(&cluster, &flags);
    let all = scrape(main, "/metrics");
    for total in [2, 4] {
        let parts: Vec<String> =
            (0..total).map(|index| scrape(main, &path(index, total))).collect();
        let union = parts.concat();
        assert!(sorted(samples(&union)) == sorted(samples(&all)), "{total}");
        let sizes: Vec<usize> = parts.iter().map(|part| pods(part).len()).collect();
        let even = pods(&all).len() / total as usize;
        assert!(sizes.iter().all(|size| size.abs_diff(even) * 3 < even), "{total}: {sizes:?}");
    }
}

#[test]
fn statsd_series_belong_to_the_first_virtual_shard() {
    let cluster = Cluster::new(100);
    let program = Program::start("kstatd", [&[cluster.flag().as_str()], &KSTATD[..]].concat());
    let main = program.address(&["Started metrics server"], "address");
    let statsd = program.address(&["Accepting StatsD Traffic"], "udp");
    until("ready", || (get(main, "/readyz").status == 200).then_some(()));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    until("a line has arrived", || {
        socket.send_to(b"hits:1|g", statsd).expect("send");
        get(main, "/metrics").text().contains("\nhits ").then_some(())
    });
    let all = scrape(main, "/metrics");
    assert!(sorted(samples(&union(main, "", 3))) == sorted(samples(&all)));
    for index in 0..3 {
        let shard = scrape(main, &path(index, 3));
        assert_eq!(shard.contains("\nhits "), index == 0, "{index}");
        let statsd = scrape(main, &path(index, 3).replace("/metrics", "/metrics/statsd"));
        assert_eq!(statsd.contains("hits "), index == 0, "{index}");
        let kubernetes = scrape(main, &path(index, 3).replace("/metrics", "/metrics/kubernetes"));
        assert!(kubernetes.contains("kube_pod_info{") && !kubernetes.contains("\nhits "));
    }
}

/// While pods come and go, no scrape of all virtual shards loses or repeats a pod that exists before and after it.
#[test]
fn a_pod_is_in_exactly_one_virtual_shard_while_others_change() {
    let cluster = Cluster::new(1_000);
    let (_program, main) = kube_state_metrics(&cluster, &[]);
    cluster.double.set_events_per_second(400.0);
    let before = cluster.double.changes();
    let mut first = scrape(main, "/metrics?resources=pods");
    let mut rounds = 0;
    while rounds < 5 || cluster.double.changes() < before + 200 {
        let union = union(main, "&resources=pods", 4);
        let last = scrape(main, "/metrics?resources=pods");
        let mut found = BTreeMap::<&str, usize>::new();
        pods(&union).into_iter().for_each(|uid| *found.entry(uid).or_default() += 1);
        let after: BTreeSet<&str> = pods(&last).into_iter().collect();
        let stable = pods(&first).into_iter().filter(|uid| after.contains(uid));
        assert!(stable.clone().count() > 500);
        assert!(stable.clone().all(|uid| found.contains_key(uid)), "a pod is missing");
        assert!(found.values().all(|count| *count == 1), "a pod is in two shards");
        first = last;
        rounds += 1;
    }
}
