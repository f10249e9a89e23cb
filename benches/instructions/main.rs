//! Instruction counts of the hot stages, measured with callgrind and compared with a checked-in baseline.
//!
//! Unlike times, counts do not depend on other load, so CI can reject a change that makes a stage more than 10%
//! slower: `.ci/instructions`, which measures the shipped program. If the increase is intended, `.ci/instructions
//! --renew` writes a new baseline, which becomes part of the commit. `--profiler KSTATD` compares that program with and
//! without the heap profiler instead. Requires valgrind (Debian: `apt-get install valgrind`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hint::black_box;
use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use kstatd::cache::{Rendered, Store};
use kstatd::exposition::budget::{Budget, BudgetMode};
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::kube::frame::{Encoding, ListReader, WatchReader};
use kstatd::mapper::{Buffer, Mapper, MetricType};
use kstatd::pods::{Pod, PodIndex, PodWorkload, Selection};
use kstatd::server::gzip::Member;
use kstatd::statsd::line::ParserFlags;
use kstatd::statsd::{Offline, OfflineConfig};

#[path = "../../tests/support/bounds.rs"]
mod bounds;
#[path = "../fixture/mod.rs"]
mod fixture;
use bounds::Bounds;
use fixture::{Pods, updates};

/// The stages that are compared within one run: stage and reference stage. The former need no baseline.
const OVERHEADS: [(&str, &str); 12] = [
    ("list a pod", "decode and render a pod, protobuf"),
    ("handle an event, 1,000 pods", "decode and render a pod, protobuf"),
    ("handle an event, 10,000 pods", "handle an event, 1,000 pods"),
    ("update a pod of 1,000", "decode and render a pod, protobuf"),
    ("scrape a pod as gzip for the first time", "scrape a pod as text"),
    ("ingest a new label set", "ingest a new series"),
    ("the same line with budgets", "ingest a known line"),
    ("the same line in a datagram", "ingest a known line"),
    ("the same line of a pod", "the same line in a datagram"),
    ("a line with a container ID", "the same line in a datagram"),
    ("a line with sections in another order", "the same line in a datagram"),
    ("a line with a pod's container ID", "the same line in a datagram"),
];
/// The file with the baselines and the maximum ratios.
const BOUNDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/bounds.csv");

/// An operation that is repeated `operations` times after its setup.
struct Stage {
    name: &'static str,
    operations: u64,
    set_up: fn() -> Box<dyn FnMut()>,
}

const STAGES: &[Stage] = &[
    Stage { name: "decode and render a pod, protobuf", operations: 500, set_up: || render(false) },
    Stage { name: "decode and render a pod, JSON", operations: 500, set_up: || render(true) },
    Stage { name: "update a pod of 1,000", operations: 500, set_up: update },
    Stage { name: "list a pod", operations: 1_000, set_up: list },
    Stage { name: "handle an event, 1,000 pods", operations: 500, set_up: || events(1_000) },
    Stage { name: "handle an event, 10,000 pods", operations: 500, set_up: || events(10_000) },
    Stage { name: "scrape a pod as text", operations: 1_000, set_up: scrape },
    Stage { name: "scrape a pod as gzip", operations: 1_000, set_up: gzip },
    Stage {
        name: "scrape a pod as gzip for the first time",
        operations: 1_000,
        set_up: first_gzip,
    },
    Stage { name: "ingest a known line", operations: 20_000, set_up: || ingest_known(no_budget()) },
    Stage { name: "ingest a new series", operations: 2_000, set_up: || ingest_new(no_budget()) },
    Stage { name: "ingest a new label set", operations: 2_000, set_up: ingest_new_labels },
    Stage {
        name: "the same line with budgets",
        operations: 20_000,
        set_up: || ingest_known(run_budget()),
    },
    Stage {
        name: "the same series with budgets",
        operations: 2_000,
        set_up: || ingest_new(run_budget()),
    },
    Stage {
        name: "the same line in a datagram",
        operations: 20_000,
        set_up: || ingest_datagrams("", false),
    },
    Stage {
        name: "the same line of a pod",
        operations: 20_000,
        set_up: || ingest_datagrams("", true),
    },
    Stage {
        name: "a line with a container ID",
        operations: 20_000,
        set_up: || ingest_datagrams(CONTAINER, false),
    },
    Stage {
        name: "a line with sections in another order",
        operations: 20_000,
        set_up: || ingest_datagrams(TIMESTAMP, false),
    },
    Stage {
        name: "a line with a pod's container ID",
        operations: 20_000,
        set_up: || ingest_datagrams(CONTAINER, true),
    },
    Stage { name: "map a name, 100 glob rules", operations: 10_000, set_up: map_hit },
    Stage { name: "miss with 100 glob rules", operations: 10_000, set_up: map_miss },
];

/// Stages that take too long for every check; `--stage` runs one of them.
const SLOW_STAGES: &[Stage] =
    &[Stage { name: "handle an event, 100,000 pods", operations: 500, set_up: || events(100_000) }];

fn render(json: bool) -> Box<dyn FnMut()> {
    let pods = Pods::new(500, json, 0);
    let mut out = Rendered::default();
    Box::new(move || {
        for at in 0..500 {
            pods.render(at, &mut out);
            black_box(out.lines.len());
        }
    })
}

fn update() -> Box<dyn FnMut()> {
    let (_, store) = Pods::new(1_000, false, 0).catalog();
    let updates = updates(1_000);
    Box::new(move || {
        for pair in updates.iter().cycle().take(250) {
            store.apply(&pair[1]);
            store.apply(&pair[0]);
        }
    })
}

/// Encodes a length-delimited protobuf field.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (vec![tag << 3 | 2], bytes.len());
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out.extend_from_slice(bytes);
    out
}

/// Puts a protobuf message into the API server's envelope.
fn envelope(message: &[u8]) -> Vec<u8> {
    [&b"k8s\0"[..], &field(2, message)].concat()
}

/// Everything from the body of a list to the store.
fn list() -> Box<dyn FnMut()> {
    let pods = Pods::new(1_000, false, 0);
    let mut items = field(1, &field(2, b"1"));
    pods.objects.iter().for_each(|object| items.extend(field(2, object)));
    let body = envelope(&items);
    let store = Arc::new(Store::new(pods.renderer.schema()));
    let mut out = Rendered::default();
    Box::new(move || {
        let (mut reader, mut list) = (ListReader::new(Encoding::Protobuf), store.replace());
        for chunk in body.chunks(64 << 10) {
            reader.feed(chunk.to_vec().into());
            while let Some(object) = reader.next().expect("a list") {
                pods.renderer.render(object, &mut out).expect("a well-formed pod");
                list.push(&out);
            }
        }
        reader.finish().expect("a complete list");
        list.commit();
        black_box(store.len());
    })
}

/// Everything from the body of a watch to the store: status reports of kubelets for pods of a store of this size.
fn events(pods: u32) -> Box<dyn FnMut()> {
    let before = Pods::new(pods, false, 0);
    let (_, store) = before.catalog();
    let uid = |pods: &Pods, at: usize| {
        let mut out = Rendered::default();
        pods.render(at, &mut out);
        out.uid
    };
    let places: HashMap<Vec<u8>, usize> =
        (0..before.objects.len()).map(|at| (uid(&before, at), at)).collect();
    let old: HashSet<&Vec<u8>> = before.objects.iter().collect();
    let after = Pods::new(pods, false, 1_000);
    let mut frames = Vec::new();
    for (at, object) in after.objects.iter().enumerate().filter(|(_, new)| !old.contains(new)) {
        let Some(place) = places.get(&uid(&after, at)) else { continue };
        for object in [object, &before.objects[*place]] {
            let event = [field(1, b"MODIFIED"), field(2, &field(1, &envelope(object)))].concat();
            frames.push([&(event.len() as u32).to_be_bytes()[..], &event].concat());
        }
    }
    let (mut reader, mut out) = (WatchReader::new(Encoding::Protobuf), Rendered::default());
    Box::new(move || {
        for frame in frames.iter().cycle().take(500) {
            reader.feed(frame.clone().into());
            let event = reader.next().expect("a watch").expect("a complete event");
            before.renderer.render(event.object, &mut out).expect("a well-formed pod");
            store.apply(&out);
        }
    })
}

fn scrape() -> Box<dyn FnMut()> {
    let (catalog, _) = Pods::new(1_000, false, 0).catalog();
    Box::new(move || {
        let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
        black_box(frames.map(|frame| frame.len()).sum::<usize>());
    })
}

fn first_gzip() -> Box<dyn FnMut()> {
    let (catalog, _) = Pods::new(1_000, false, 0).catalog();
    Box::new(move || {
        let pieces = catalog.deflated(Format::Text, &ScrapeQuery::default());
        black_box(Member::new(pieces).map(|frame| frame.len()).sum::<usize>());
    })
}

fn gzip() -> Box<dyn FnMut()> {
    let mut body = first_gzip();
    // The first run fills caches that later runs use.
    body();
    body
}

/// Lines of 200 series in datagrams of 20: counters, gauges and timers, some with tags.
fn packets() -> Vec<Vec<u8>> {
    let line = |at: usize| match at % 4 {
        0 => format!("api.requests.route{}:1|c", at % 200),
        1 => format!("api.requests:1|c|#route:r{},status:200,region:eu-west-1", at % 200),
        2 => format!("queue.depth.q{}:17|g", at % 200),
        _ => format!("api.latency.route{}:12.5|ms", at % 200),
    };
    let lines: Vec<String> = (0..20_000).map(line).collect();
    lines.chunks(20).map(|packet| packet.join("\n").into_bytes()).collect()
}

fn empty_registry(budget: Budget) -> Offline {
    let config = OfflineConfig { budget, ..OfflineConfig::default() };
    Offline::new(Mapper::from_yaml("").expect("an empty mapping"), config)
}

fn no_budget() -> Budget {
    Budget::default()
}

/// The budgets of `kstatd run`.
fn run_budget() -> Budget {
    Budget {
        mode: BudgetMode::Enforce,
        series: 1_000_000,
        series_per_metric: 100_000,
        values_per_label: 10_000,
        value_bytes: 1_024,
        name_bytes: 1_024,
        ..Budget::default()
    }
}

fn ingest_known(budget: Budget) -> Box<dyn FnMut()> {
    let packets = packets();
    let mut registry = empty_registry(budget);
    packets.iter().for_each(|packet| registry.lines(packet));
    Box::new(move || packets.iter().for_each(|packet| registry.lines(packet)))
}

/// A section with the ID of a container, as DogStatsD clients append it.
const CONTAINER: &str = "|c:ci-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A timestamp and a rate, after the tags if there are any.
const TIMESTAMP: &str = "|T1656581409|@1";

/// An index with three pods, of which the first has the container.
fn pods() -> Arc<PodIndex> {
    let index = PodIndex::new(Selection::parse("workload").expect("a selection"));
    index.set_list(0, Some(true));
    for pod in 0..3u8 {
        let container = CONTAINER.trim_start_matches("|c:ci-").into();
        index.put(
            0,
            Pod {
                uid: format!("{pod}").into(),
                namespace: "default".into(),
                name: format!("pod-{pod}").into(),
                node: "node".into(),
                workload: Some(PodWorkload { name: "web".into(), kind: "deployment".into() }),
                addresses: Box::new([[10, 0, 0, pod].into()]),
                node_addresses: Box::default(),
                containers: if pod == 0 { Box::new([container]) } else { Box::default() },
                started: None,
                is_finished: false,
            },
        );
    }
    Arc::new(index)
}

/// The lines of [`packets`] with this end, each in a datagram of its own, from three senders, which are known pods if the
/// lines are `enriched`.
fn ingest_datagrams(end: &str, enriched: bool) -> Box<dyn FnMut()> {
    let packets = packets();
    let lines: Vec<Vec<u8>> = packets
        .iter()
        .flat_map(|packet| packet.split(|byte| *byte == b'\n'))
        .map(|line| [line, end.as_bytes()].concat())
        .collect();
    let mut registry = empty_registry(no_budget());
    if enriched {
        let config = OfflineConfig {
            budget: no_budget(),
            pods: Some(pods()),
            flags: ParserFlags { origins: true, ..ParserFlags::default() },
            ..OfflineConfig::default()
        };
        registry = Offline::new(Mapper::from_yaml("").expect("an empty mapping"), config);
    }
    let address = |at: usize| Some(std::net::IpAddr::from([10, 0, 0, (at % 3) as u8]));
    let mut ingest = move || {
        for batch in lines.chunks(64) {
            let datagrams = batch.iter().enumerate();
            registry.datagrams(datagrams.map(|(at, line)| (address(at), line.as_slice())));
        }
    };
    ingest();
    Box::new(ingest)
}

fn ingest_new(budget: Budget) -> Box<dyn FnMut()> {
    let mut registry = empty_registry(budget);
    let lines: Vec<String> = (0..2_000).map(|at| format!("job.run{at}:1|c|#team:core")).collect();
    Box::new(move || lines.iter().for_each(|line| registry.lines(line.as_bytes())))
}

/// Label sets of one metric, none of which occurs twice: a URL as a label.
fn ingest_new_labels() -> Box<dyn FnMut()> {
    let mut registry = empty_registry(no_budget());
    let line = |at: u32| {
        let appliance = at.wrapping_mul(2_654_435_761);
        format!("http.requests:1|c|#code:200,url:/websocket?appliance={appliance:08x}")
    };
    let lines: Vec<String> = (0..10_000).map(line).collect();
    let (known, new) = lines.split_at(8_000);
    known.iter().for_each(|line| registry.lines(line.as_bytes()));
    let new = new.to_vec();
    Box::new(move || new.iter().for_each(|line| registry.lines(line.as_bytes())))
}

fn lookup(name: &'static str) -> Box<dyn FnMut()> {
    let rule = |at| format!("- {{match: metric{at}.*, name: single, labels: {{name: $1}}}}\n");
    let rules: String = (0..100).map(rule).collect();
    let mapper = Mapper::from_yaml(&format!("mappings:\n{rules}")).expect("a valid mapping");
    let mut buffer = Buffer::default();
    Box::new(move || {
        for _ in 0..10_000 {
            let mapped = mapper.map(black_box(name), MetricType::Counter, &mut buffer);
            black_box(mapped.is_some());
        }
    })
}

fn map_hit() -> Box<dyn FnMut()> {
    lookup("metric50.some_name")
}

fn map_miss() -> Box<dyn FnMut()> {
    lookup("unknown.some_name")
}

/// The measured function: callgrind collects only within it, by its name.
#[inline(never)]
fn collected_by_callgrind(work: &mut dyn FnMut()) {
    work();
    black_box(());
}

/// Runs this program again under callgrind for one stage.
fn count(stage: &Stage) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*collected_by_callgrind*")
        .arg(program)
        .args(["--stage", stage.name])
        .output()
        .map_err(|error| format!("valgrind: {error}; it is needed to count instructions"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let collected = log.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .filter(|_| output.status.success())
        .and_then(|(_, count)| count.trim().parse().ok())
        .filter(|count| *count > 0)
        .ok_or_else(|| format!("{}: callgrind counted nothing:\n{log}", stage.name))
}

fn bounds() -> Result<Bounds, String> {
    let text = std::fs::read_to_string(BOUNDS).map_err(|error| format!("{BOUNDS}: {error}"))?;
    Bounds::parse(&text)
}

/// Counts every stage; true if all are within the baseline.
fn check(renew: bool) -> Result<bool, String> {
    let mut bounds = bounds()?;
    let max_ratio = bounds.current("ratio", "a stage / its baseline")?;
    let mut counted = BTreeMap::new();
    let mut kept = true;
    println!("{:36} {:>14} {:>12} {:>8}", "instructions per operation", "now", "baseline", "");
    for stage in STAGES {
        let each = count(stage)? as f64 / stage.operations as f64;
        let rounded = each.round();
        counted.insert(stage.name.to_owned(), rounded);
        let before = bounds.current("instructions", stage.name).ok().filter(|_| !renew);
        let (before, verdict) = match before {
            Some(before) if each > before * max_ratio => {
                kept = false;
                (format!("{before}"), format!("{:+.0}% TOO MANY", (each / before - 1.0) * 100.0))
            }
            Some(before) => {
                (format!("{before}"), format!("{:+.0}%", (each / before - 1.0) * 100.0))
            }
            None if renew || OVERHEADS.iter().any(|(name, ..)| *name == stage.name) => {
                (String::new(), String::new())
            }
            None => {
                kept = false;
                (String::new(), "NO BASELINE".to_owned())
            }
        };
        println!("{:36} {rounded:>14} {before:>12} {verdict:>8}", stage.name);
    }
    for (stage, without) in OVERHEADS {
        let allowed = bounds.current("ratio", &format!("{stage} / {without}"))?;
        let share = counted[stage] / counted[without];
        println!("{stage}: {share:.3} times `{without}`, at most {allowed}");
        kept &= share <= allowed;
    }
    if renew {
        for (stage, count) in &counted {
            if !OVERHEADS.iter().any(|(name, _)| name == stage)
                || bounds.current("instructions", stage).is_ok()
            {
                bounds.set("instructions", stage, "instructions", *count);
            }
        }
        std::fs::write(BOUNDS, bounds.text()).map_err(|error| format!("{BOUNDS}: {error}"))?;
    }
    Ok(kept)
}

/// So many pods as JSON.
fn manifests(pods: usize) -> String {
    let pod = |at: usize| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{at}"), "namespace": "default", "uid": format!("u{at}")},
            "spec": {"nodeName": "node", "containers": [{
                "name": "c", "image": "image:v1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{
                "name": "c", "ready": true, "restartCount": 0, "image": "image:v1", "imageID": "x",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }]},
        })
    };
    let items: Vec<_> = (0..pods).map(pod).collect();
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Runs `kstatd render kube` under callgrind with jemalloc's heap profiler on or off, and counts all instructions.
fn count_rendering(program: &str, manifests: &str, profiler: bool) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("valgrind {program}: {error}");
    let mut child = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", program, "render", "kube"])
        .env("_RJEM_MALLOC_CONF", format!("prof:{profiler}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(manifests.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    let log = String::from_utf8_lossy(&output.stderr);
    let collected = log.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.ok_or_else(|| format!("{program}: callgrind counted nothing:\n{log}"))
}

/// Compares the instructions of a program with and without the heap profiler. What it takes to start is subtracted.
fn check_profiler(program: &str) -> Result<bool, String> {
    let (some, few) = (manifests(1_000), manifests(1));
    let count = |profiler| -> Result<u64, String> {
        let all = count_rendering(program, &some, profiler)?;
        Ok(all - count_rendering(program, &few, profiler)?)
    };
    let (with, without) = (count(true)?, count(false)?);
    let share = with as f64 / without as f64;
    let allowed = bounds()?.current("ratio", "with the heap profiler / without")?;
    println!(
        "heap profiler: {with} instructions with, {without} without: {share:.4} times, at most {allowed}"
    );
    Ok(share <= allowed)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--stage") {
        let name = arguments.get(at + 1).map(String::as_str);
        let mut stages = STAGES.iter().chain(SLOW_STAGES);
        let Some(stage) = stages.find(|stage| Some(stage.name) == name) else {
            eprintln!("--stage: there is no stage {name:?}");
            return ExitCode::FAILURE;
        };
        collected_by_callgrind(&mut *(stage.set_up)());
        return ExitCode::SUCCESS;
    }
    let profiled = arguments.iter().position(|argument| argument == "--profiler");
    let kept = match profiled.and_then(|at| arguments.get(at + 1)) {
        Some(program) => check_profiler(program),
        None => check(arguments.iter().any(|argument| argument == "--renew")),
    };
    match kept {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("more instructions than allowed; if more are meant, add `--renew`");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
