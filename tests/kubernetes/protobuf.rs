//! Protobuf of `kstatd run`: both sides have the samples of their text, for every query, plain and with gzip.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use crate::common::cluster::Cluster;
use crate::common::{DEADLINE, Program, get, request, until};
use crate::support::exposition::{protobuf_samples, text_samples};

const DELIMITED: &str = "application/vnd.google.protobuf; \
     proto=io.prometheus.client.MetricFamily; encoding=delimited";

const CUSTOM: &str = r#"
spec:
  resources:
    - groupVersionKind: {group: "", version: v1, kind: Pod}
      metricNamePrefix: custom_pod
      labelsFromPath: {pod: [metadata, name]}
      metrics:
        - {name: image, help: Image., each: {type: Info, info: {labelsFromPath: {node: [spec, nodeName]}}}}
        - name: phase
          help: "Phase \"now\"."
          each: {type: StateSet, stateSet: {labelName: phase, path: [status, phase], list: [Pending, Running, Failed]}}
        - {name: created, help: Age., each: {type: Gauge, gauge: {path: [metadata, creationTimestamp]}}}
"#;

/// A running `kstatd run` with series of both sides.
struct Kstatd {
    _program: Program,
    _cluster: Cluster,
    main: SocketAddr,
    telemetry: SocketAddr,
}

impl Kstatd {
    fn start(pods: u32, more: &[&str]) -> Self {
        let cluster = Cluster::new(pods);
        let flags = [
            "--listen=127.0.0.1:0",
            "--telemetry-listen=127.0.0.1:0",
            "--statsd.listen-udp=127.0.0.1:0",
            "--statsd.listen-tcp=",
            "--enable-gzip-encoding",
            "--metric-labels-allowlist=*=[*]",
            "--pod-workload-labels=workload,workload_type,labels=[*],pod_labels=[*]",
            &format!("--custom-resource-state-config={CUSTOM}"),
            &cluster.flag(),
        ];
        let program = Program::start("kstatd", [&flags, more].concat());
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        let statsd = program.address(&["Accepting StatsD Traffic"], "udp");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
        let lines = b"requests_total:3|c|#code:200\nrequests_total:1|c|#code:a\"b\ntemperature:-1.5|g\ntimes:20|ms";
        socket.send_to(lines, statsd).expect("send");
        until("both sides are complete", || {
            let ready = get(main, "/readyz").status == 200;
            (ready && get(main, "/metrics").text().contains("times_count 1")).then_some(())
        });
        Self { _program: program, _cluster: cluster, main, telemetry }
    }

    fn samples(&self, path: &str, accept: &str, encoding: &str) -> BTreeMap<String, String> {
        let headers = [("Accept", accept), ("Accept-Encoding", encoding)];
        let answer = request(self.main, "GET", path, &headers).expect("answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let is_protobuf = accept == DELIMITED;
        let content_type = answer.header("content-type").expect("a type").to_owned();
        assert_eq!(content_type.starts_with(DELIMITED), is_protobuf, "{path}: {content_type}");
        let mut body = answer.body.clone();
        assert_eq!(answer.header("content-encoding").is_some(), encoding == "gzip", "{path}");
        if encoding == "gzip" {
            body.clear();
            let mut decoder = flate2::read::GzDecoder::new(answer.body.as_slice());
            decoder.read_to_end(&mut body).expect("one valid member");
        }
        match is_protobuf {
            true => protobuf_samples(&body),
            false => text_samples(str::from_utf8(&body).expect("UTF-8")).expect("valid text"),
        }
    }
}

#[test]
fn protobuf_has_the_samples_of_the_text_for_every_query() {
    let kstatd = Kstatd::start(700, &[]);
    let whole = kstatd.samples("/metrics", "text/plain", "identity");
    for start in [
        "kube_pod_info{",
        "kube_node_info{",
        "custom_pod_image{",
        "custom_pod_phase{",
        "requests_total{",
        "times{",
        "times_sum{",
        "temperature{",
    ] {
        assert!(whole.keys().any(|key| key.starts_with(start)), "{start}");
    }
    let namespace = whole.keys().find_map(|key| key.strip_prefix("kube_pod_info{namespace=\""));
    let namespace = namespace.and_then(|rest| rest.split('"').next()).expect("a namespace");
    let mut counts = BTreeMap::new();
    for path in ["/metrics", "/metrics/kubernetes", "/metrics/statsd"] {
        for query in [
            "",
            &format!("?namespace={namespace}"),
            "?namespace=absent",
            "?resources=pods,nodes",
            "?exclude_resources=pods",
            "?shard=0&total_shards=3",
            "?shard=2&total_shards=3",
            "?name[]=kube_pod_status_phase&name[]=requests_total&name[]=custom_pod_phase",
        ] {
            let path = format!("{path}{query}");
            let text = kstatd.samples(&path, "text/plain", "identity");
            for encoding in ["identity", "gzip"] {
                let protobuf = kstatd.samples(&path, DELIMITED, encoding);
                assert!(
                    protobuf == text,
                    "{path}, {encoding}: {} and {} samples; text has {:?}, protobuf {:?}",
                    text.len(),
                    protobuf.len(),
                    text.iter().find(|(key, value)| protobuf.get(*key) != Some(value)),
                    protobuf.iter().find(|(key, value)| text.get(*key) != Some(value)),
                );
            }
            counts.insert(path, text.len());
        }
    }
    assert_eq!(counts["/metrics"], whole.len());
    assert_eq!(counts["/metrics?namespace=absent"], 0);
    assert!(counts["/metrics?shard=2&total_shards=3"] > whole.len() / 5);
    let accept = DELIMITED.replace("delimited", "compact-text");
    let text = request(kstatd.main, "GET", "/metrics", &[("Accept", &accept)]).expect("answer");
    let text = text.text();
    let metric = "name:\"kube_pod_info\" help:\"";
    assert_eq!(text.lines().filter(|line| line.starts_with(metric)).count(), 1);
    let first = text.lines().find(|line| line.starts_with(metric)).expect("a family");
    assert_eq!(first.matches(" metric:{label:{name:\"namespace\" value:\"").count(), 700);
}

/// A client that closes its connection ends the work and is counted.
#[test]
fn a_disconnected_client_ends_its_scrape() {
    let kstatd = Kstatd::start(3_000, &[]);
    let mut stream = TcpStream::connect(kstatd.main).expect("connect");
    stream.set_read_timeout(Some(DEADLINE)).expect("timeout");
    let head = format!("GET /metrics HTTP/1.1\r\nHost: test\r\nAccept: {DELIMITED}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("request");
    stream.read_exact(&mut [0; 1024]).expect("the response has begun");
    drop(stream);
    let count = "kstatd_http_scrapes_incomplete_total{cause=\"closed\"";
    until("it is counted", || {
        get(kstatd.telemetry, "/metrics").text().contains(count).then_some(())
    });
    let whole = kstatd.samples("/metrics", "text/plain", "identity");
    assert!(kstatd.samples("/metrics", DELIMITED, "gzip") == whole);
}

/// Start times: in protobuf always, in OpenMetrics only on request.
#[test]
fn start_times_are_in_protobuf_and_on_request_in_openmetrics() {
    let is_time = |text: &str| text.parse::<f64>().is_ok_and(|seconds| seconds > 1.6e9);
    for (flags, is_created) in [(&[][..], false), (&["--openmetrics.created"][..], true)] {
        let kstatd = Kstatd::start(10, flags);
        let accept = ("Accept", "application/openmetrics-text; version=1.0.0");
        let open = request(kstatd.main, "GET", "/metrics", &[accept]).expect("answer").text();
        assert!(open.contains("\nrequests_total{code=\"200\"} 3\n"));
        for series in ["requests_created{code=\"200\"} ", "times_created "] {
            let mut values = open.lines().filter_map(|line| line.strip_prefix(series));
            assert_eq!(values.next().is_some_and(is_time), is_created, "{series}");
        }
        let ours = |line: &&str| line.contains("_created ") && !line.starts_with('#');
        assert_eq!(open.lines().filter(ours).count(), usize::from(is_created));
        let text = get(kstatd.main, "/metrics/statsd").text();
        assert!(!text.contains("_created"), "{text}");
    }
    let kstatd = Kstatd::start(10, &[]);
    let accept = DELIMITED.replace("delimited", "compact-text");
    let read = |address| {
        request(address, "GET", "/metrics", &[("Accept", &accept)]).expect("answer").text()
    };
    let (main, own) = (read(kstatd.main), read(kstatd.telemetry));
    let created = |text: &str, family: &str| {
        let start = format!("name:\"{family}\" ");
        let line = text.lines().find(|line| line.starts_with(&start)).expect("a family");
        line.matches(" created_timestamp:{seconds:").count()
    };
    assert_eq!(created(&main, "requests_total"), 2);
    assert_eq!(created(&main, "times"), 1);
    assert_eq!(created(&main, "temperature"), 0);
    assert_eq!(created(&main, "kube_pod_container_status_restarts_total"), 0);
    assert_eq!(created(&own, "process_cpu_seconds_total"), 1);
    assert_eq!(created(&own, "process_network_receive_bytes_total"), 0);
    assert_eq!(created(&own, "process_open_fds"), 0);
}
