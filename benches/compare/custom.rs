//! Custom resources: both exporters list many objects of one kind with the same configuration.
//!
//! The server is a minimal one, because the API double has no custom resources. It answers only the requests that
//! both clients send: the definition, and the objects as a list or as the initial events of a watch.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::kube::Subject;
use super::process::{Memory, Server, free_port};
use super::programs::Programs;
use super::scrape;

/// Longest time to list all objects.
const LISTING: Duration = Duration::from_secs(240);

/// The configuration: ten families of all types, typical of operators.
const CONFIG: &str = r#"
kind: CustomResourceStateMetrics
spec:
  resources:
  - groupVersionKind: {group: bench.io, version: v1, kind: Widget}
    labelsFromPath: {name: [metadata, name], namespace: [metadata, namespace]}
    metrics:
    - {name: replicas, help: Wanted replicas., each: {type: Gauge, gauge: {path: [spec, replicas]}}}
    - {name: ready_replicas, help: Ready replicas., each: {type: Gauge, gauge: {path: [status, readyReplicas], nilIsZero: true}}}
    - {name: created, help: Time of creation., each: {type: Gauge, gauge: {path: [metadata, creationTimestamp]}}}
    - {name: generation, help: Generation., each: {type: Gauge, gauge: {path: [metadata, generation]}}}
    - {name: limit, help: Limits., each: {type: Gauge, gauge: {path: [spec, resources, limits], labelFromKey: resource}}}
    - {name: paused, help: Whether it is paused., each: {type: Gauge, gauge: {path: [spec, paused]}}}
    - {name: condition, help: Conditions., each: {type: Gauge, gauge: {path: [status, conditions], valueFrom: [status], labelsFromPath: {type: [type]}}}}
    - {name: last_transition, help: Time of the change., each: {type: Gauge, gauge: {path: [status, conditions, "[type=Ready]", lastTransitionTime]}}}
    - {name: widget_info, help: About it., each: {type: Info, info: {labelsFromPath: {version: [spec, version], class: [spec, class]}}}}
    - {name: phase, help: Phase., each: {type: StateSet, stateSet: {labelName: phase, path: [status, phase], list: [Pending, Running, Failed]}}}
"#;

/// The cost of listing all objects.
pub struct ListCost {
    /// CPU seconds until all objects were listed.
    pub cpu: f64,
    /// Wall-clock seconds until all objects were listed.
    pub ready: f64,
    /// Memory at that time.
    pub memory: Memory,
}

/// A server with a number of custom resources of about 5 KB.
pub struct Cluster {
    port: u16,
    objects: usize,
    delivered: Arc<AtomicUsize>,
    config: std::path::PathBuf,
}

impl Cluster {
    /// Serves until the process ends.
    pub fn new(objects: usize, programs: &Programs) -> Result<Self> {
        let config = programs.scratch.join("custom-resources.yaml");
        std::fs::write(&config, CONFIG)?;
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let delivered = Arc::new(AtomicUsize::new(0));
        let world = Arc::new(World { objects, delivered: Arc::clone(&delivered) });
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let world = Arc::clone(&world);
                // A broken connection is not an error of the server.
                std::thread::spawn(move || drop(world.serve(stream)));
            }
        });
        Ok(Self { port, objects, delivered, config })
    }

    /// Bytes of one object.
    pub fn object_size(&self) -> usize {
        object(0).len()
    }

    /// Starts an exporter and waits until it has listed all objects.
    pub fn list(&self, who: Subject, programs: &Programs) -> Result<ListCost> {
        let (port, telemetry) = (free_port()?, free_port()?);
        let (name, program, mut arguments) = match who {
            Subject::Peer => ("custom-peer", &programs.kube_state_metrics, vec![]),
            Subject::Ours => {
                ("custom-ours", &programs.kstatd, vec!["kube-state-metrics".to_owned()])
            }
        };
        arguments.extend([
            format!("--apiserver=http://127.0.0.1:{}", self.port),
            "--host=127.0.0.1".to_owned(),
            format!("--port={port}"),
            "--telemetry-host=127.0.0.1".to_owned(),
            format!("--telemetry-port={telemetry}"),
            "--custom-resource-state-only=true".to_owned(),
            format!("--custom-resource-state-config-file={}", self.config.display()),
        ]);
        self.delivered.store(0, Ordering::Relaxed);
        let server = Server::start(name, program, &arguments, &programs.scratch)?;
        let deadline = Instant::now() + LISTING;
        while self.delivered.load(Ordering::Relaxed) < self.objects {
            server.cpu()?;
            if Instant::now() > deadline {
                bail!("{name}: not all objects were fetched in {} s", LISTING.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let ready = server.settle(LISTING)?.duration_since(server.started()).as_secs_f64();
        let (cpu, memory) = (server.cpu()?, server.memory()?);
        let body = scrape::body(port, "/metrics")?;
        let lines = body.split(|byte| *byte == b'\n');
        let series = lines.filter(|line| line.starts_with(b"kube_customresource_phase{")).count();
        if series != 3 * self.objects {
            bail!("{name}: {series} series of the last family");
        }
        Ok(ListCost { cpu, ready, memory })
    }
}

struct World {
    objects: usize,
    delivered: Arc<AtomicUsize>,
}

const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.bench.io","uid":"d","resourceVersion":"5"},"spec":{"group":"bench.io","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},"versions":[{"name":"v1","served":true,"storage":true}]},"status":{"conditions":[{"type":"Established","status":"True"}]}}"#;

impl World {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        let mut output = std::io::BufWriter::with_capacity(256 * 1024, stream);
        loop {
            let mut line = String::new();
            if input.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
            while line.trim_end() != "" {
                line.clear();
                if input.read_line(&mut line)? == 0 {
                    return Ok(());
                }
            }
            let (path, query) = target.split_once('?').unwrap_or((&target, ""));
            match path {
                "/version" => whole(
                    &mut output,
                    "200 OK",
                    r#"{"major":"1","minor":"36","gitVersion":"v1.36.3","platform":"linux/amd64"}"#,
                )?,
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" => {
                    let one = |_: usize| DEFINITION.to_owned();
                    self.collection(
                        &mut output,
                        &mut input,
                        query,
                        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
                        (1, &one),
                    )?;
                }
                "/apis/bench.io/v1/widgets" => {
                    let one = |number: usize| {
                        self.delivered.fetch_add(1, Ordering::Relaxed);
                        object(number)
                    };
                    self.collection(
                        &mut output,
                        &mut input,
                        query,
                        ("bench.io/v1", "Widget"),
                        (self.objects, &one),
                    )?;
                }
                _ => whole(
                    &mut output,
                    "404 Not Found",
                    r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#,
                )?,
            }
            output.flush()?;
        }
    }

    fn collection(
        &self,
        output: &mut impl Write,
        input: &mut impl Read,
        query: &str,
        (api_version, kind): (&str, &str),
        (count, one): (usize, &dyn Fn(usize) -> String),
    ) -> std::io::Result<()> {
        let asks = |what: &str| query.split('&').any(|pair| pair == what);
        output.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        if !asks("watch=true") && !asks("watch=1") {
            let head = format!(
                "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"100000\"}},\"items\":["
            );
            chunk(output, &head)?;
            for number in 0..count {
                let comma = if number == 0 { "" } else { "," };
                chunk(output, &format!("{comma}{}", one(number)))?;
            }
            chunk(output, "]}\n")?;
            return output.write_all(b"0\r\n\r\n");
        }
        if asks("sendInitialEvents=true") {
            for number in 0..count {
                chunk(output, &format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", one(number)))?;
            }
            chunk(
                output,
                &format!(
                    "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{{\"resourceVersion\":\"100000\",\"annotations\":{{\"k8s.io/initial-events-end\":\"true\"}}}}}}}}\n"
                ),
            )?;
        }
        output.flush()?;
        // No further events; blocks until the client disconnects.
        let _ = input.read(&mut [0]);
        Ok(())
    }
}

fn whole(output: &mut impl Write, status: &str, body: &str) -> std::io::Result<()> {
    write!(
        output,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn chunk(output: &mut impl Write, text: &str) -> std::io::Result<()> {
    write!(output, "{:x}\r\n{text}\r\n", text.len())
}

/// Returns an object of about 5 KB. The metrics read a tenth of it.
fn object(number: usize) -> String {
    let team = number / 100;
    let env: Vec<String> = (0..20)
        .map(|n| {
            format!(
                r#"{{"name":"SETTING_{n}","value":"some-value-{number}-{n}","optional":false}}"#
            )
        })
        .collect();
    let fields: Vec<String> = (0..34)
        .map(|n| format!(r#""f:field{n}":{{".":{{}},"f:name":{{}},"f:value{number}":{{}}}}"#))
        .collect();
    let rules: Vec<String> = (0..18)
        .map(|n| format!(r#"{{"match":{{"path":"/api/v{n}/widgets/{number}","methods":["GET","POST"]}},"weight":{n}}}"#))
        .collect();
    format!(
        r#"{{"apiVersion":"bench.io/v1","kind":"Widget","metadata":{{"name":"widget-{number:05}","namespace":"team-{team}","uid":"00000000-0000-4000-8000-{number:012x}","resourceVersion":"{}","generation":{},"creationTimestamp":"2026-01-{:02}T10:00:00Z","labels":{{"app":"widget-{number}","team":"team-{team}"}},"annotations":{{"note":"made by a benchmark","checksum":"{number:064x}"}},"managedFields":[{{"manager":"kubectl","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{{{}}}}}]}},"spec":{{"replicas":{},"paused":{},"version":"v1.{}.0","class":"class-{}","resources":{{"limits":{{"cpu":"{}m","memory":"1Gi"}},"requests":{{"cpu":"10m"}}}},"env":[{}],"rules":[{}]}},"status":{{"phase":"{}","readyReplicas":{},"conditions":[{{"type":"Ready","status":"True","lastTransitionTime":"2026-02-01T00:00:{:02}Z","message":"everything is as it should be"}},{{"type":"Synced","status":"{}","lastTransitionTime":"2026-02-01T00:00:00Z"}}]}}}}"#,
        number + 10,
        number % 7,
        number % 28 + 1,
        fields.join(","),
        number % 5,
        number.is_multiple_of(10),
        number % 9,
        number % 3,
        100 + number % 4 * 50,
        env.join(","),
        rules.join(","),
        ["Pending", "Running", "Running", "Failed"][number % 4],
        number % 5,
        number % 60,
        if number.is_multiple_of(3) { "False" } else { "True" },
    )
}
