//! Instructions that the hot stages take, counted by callgrind and held against a checked-in baseline.
//!
//! Unlike times, counts are the same on a busy machine, so CI can refuse a change that makes a stage more than 10% dearer:
//! `.ci/instructions`, which counts what is shipped. When that is what the change is for, `.ci/instructions --renew` writes
//! the new baseline, which the commit then shows. Needs valgrind (Debian: `apt-get install valgrind`).

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, ExitCode};

use kstatd::cache::Rendered;
use kstatd::exposition::budget::{Budget, BudgetMode};
use kstatd::exposition::{Format, ScrapeQuery, Source};
use kstatd::server::gzip::Member;
use kstatd::statsd::mapper::{Buffer, Mapper, MetricType};
use kstatd::statsd::{Offline, OfflineConfig};

#[path = "../fixture/mod.rs"]
mod fixture;
use fixture::{Pods, updates};

/// More than this share of the baseline is refused.
const ALLOWED: f64 = 1.10;
/// What budgets may make of a known line's instructions in the same run: stage, its counterpart, share.
const BESIDE: (&str, &str, f64) = ("the same line with budgets", "ingest a known line", 1.03);
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.json");

/// Something that is done `operations` times once it is set up.
struct Stage {
    name: &'static str,
    operations: u64,
    set_up: fn() -> Box<dyn FnMut()>,
}

const STAGES: &[Stage] = &[
    Stage { name: "decode and render a pod, protobuf", operations: 500, set_up: || render(false) },
    Stage { name: "decode and render a pod, JSON", operations: 500, set_up: || render(true) },
    Stage { name: "update a pod of 1,000", operations: 500, set_up: update },
    Stage { name: "scrape a pod as text", operations: 1_000, set_up: scrape },
    Stage { name: "scrape a pod as gzip", operations: 1_000, set_up: gzip },
    Stage { name: "ingest a known line", operations: 20_000, set_up: || ingest_known(off()) },
    Stage { name: "ingest a new series", operations: 2_000, set_up: || ingest_new(off()) },
    Stage { name: "the same line with budgets", operations: 20_000, set_up: || ingest_known(on()) },
    Stage { name: "the same series with budgets", operations: 2_000, set_up: || ingest_new(on()) },
    Stage { name: "map a name, 100 glob rules", operations: 10_000, set_up: map_hit },
    Stage { name: "miss with 100 glob rules", operations: 10_000, set_up: map_miss },
];

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

fn scrape() -> Box<dyn FnMut()> {
    let (catalog, _) = Pods::new(1_000, false, 0).catalog();
    Box::new(move || {
        let frames = catalog.frames(Format::Text, &ScrapeQuery::default());
        black_box(frames.map(|frame| frame.len()).sum::<usize>());
    })
}

fn gzip() -> Box<dyn FnMut()> {
    let (catalog, _) = Pods::new(1_000, false, 0).catalog();
    let body = move || {
        let pieces = catalog.deflated(Format::Text, &ScrapeQuery::default());
        black_box(Member::new(pieces).map(|frame| frame.len()).sum::<usize>());
    };
    // The first one works out what later ones reuse.
    body();
    Box::new(body)
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

fn off() -> Budget {
    Budget::default()
}

/// As `kstatd run` has them.
fn on() -> Budget {
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

fn ingest_new(budget: Budget) -> Box<dyn FnMut()> {
    let mut registry = empty_registry(budget);
    let lines: Vec<String> = (0..2_000).map(|at| format!("job.run{at}:1|c|#team:core")).collect();
    Box::new(move || lines.iter().for_each(|line| registry.lines(line.as_bytes())))
}

fn look_up(name: &'static str) -> Box<dyn FnMut()> {
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
    look_up("metric50.some_name")
}

fn map_miss() -> Box<dyn FnMut()> {
    look_up("unknown.some_name")
}

/// What callgrind collects: it is told to by this function's name.
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

fn baseline() -> Result<BTreeMap<String, f64>, String> {
    let text = std::fs::read_to_string(BASELINE).map_err(|error| format!("{BASELINE}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{BASELINE}: {error}"))
}

/// Counts every stage; the outcome says whether all keep to the baseline.
fn check(renew: bool) -> Result<bool, String> {
    let known = if renew { BTreeMap::new() } else { baseline()? };
    let mut counted = BTreeMap::new();
    let mut kept = true;
    println!("{:36} {:>14} {:>12} {:>8}", "instructions per operation", "now", "baseline", "");
    for stage in STAGES {
        let each = count(stage)? as f64 / stage.operations as f64;
        let rounded = each.round();
        counted.insert(stage.name.to_owned(), rounded);
        let (before, verdict) = match known.get(stage.name) {
            Some(before) if each > before * ALLOWED => {
                kept = false;
                (format!("{before}"), format!("{:+.0}% TOO MANY", (each / before - 1.0) * 100.0))
            }
            Some(before) => {
                (format!("{before}"), format!("{:+.0}%", (each / before - 1.0) * 100.0))
            }
            None if renew => (String::new(), String::new()),
            None => {
                kept = false;
                (String::new(), "NO BASELINE".to_owned())
            }
        };
        println!("{:36} {rounded:>14} {before:>12} {verdict:>8}", stage.name);
    }
    let (stage, without, allowed) = BESIDE;
    let share = counted[stage] / counted[without];
    println!("{stage}: {share:.3} times what it is without, at most {allowed}");
    kept &= share <= allowed;
    if renew {
        let text = serde_json::to_string_pretty(&counted).map_err(|error| error.to_string())?;
        std::fs::write(Path::new(BASELINE), text + "\n")
            .map_err(|error| format!("{BASELINE}: {error}"))?;
    }
    Ok(kept)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--stage") {
        let name = arguments.get(at + 1).map(String::as_str);
        let Some(stage) = STAGES.iter().find(|stage| Some(stage.name) == name) else {
            eprintln!("--stage: there is no stage {name:?}");
            return ExitCode::FAILURE;
        };
        collected_by_callgrind(&mut *(stage.set_up)());
        return ExitCode::SUCCESS;
    }
    match check(arguments.iter().any(|argument| argument == "--renew")) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("more than 110% of the baseline; if that is meant, add `--renew`");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
