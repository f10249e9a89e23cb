//! Growth of the cost with pods, rules, series and scrapers, and the interference between both sides.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::data_set::DataSet;
use super::kube::{Cluster, Subject, scrape_at_once, scrape_cost};
use super::mapper;
use super::programs::Programs;
use super::rows::{BothSides, Size, start_both_sides};
use super::scrape::scrape;
use super::statsd::{self, Load};
use super::table::{bytes, count, percent, plain, seconds};

/// Measures clusters from small to very large.
pub fn pods(programs: &Programs, size: Size, data: DataSet) -> Result<String> {
    let sizes: &[u32] =
        if size.quick { &[1_000, 5_000] } else { &[1_000, 10_000, 50_000, 100_000] };
    let mut rows = Vec::new();
    for pods in sizes {
        let cluster = Cluster::new(*pods, data)?;
        let listed = cluster.list(Subject::Ours, programs)?;
        let memory = listed.server.memory()?;
        let scrape = scrape_cost(&listed.server, listed.port, "/metrics", false, 3)?;
        let gzip = scrape_cost(&listed.server, listed.port, "/metrics", true, 3)?;
        let event = cluster.event_cost(&listed, 500.0, size.window)?;
        rows.push(vec![
            count(f64::from(*pods)),
            bytes(scrape.bytes),
            format!("{} / {}", seconds(listed.ready), seconds(listed.cpu)),
            format!("{} ({} peak)", bytes(memory.resident), bytes(memory.peak)),
            format!("{} / {}", seconds(scrape.wall), seconds(scrape.cpu)),
            format!("{} / {}", seconds(gzip.wall), seconds(gzip.cpu)),
            seconds(event),
        ]);
    }
    let head = [
        "Pods",
        "Text",
        "Time / CPU to ready",
        "Memory",
        "Scrape, wall / CPU",
        "gzip scrape, wall / CPU",
        "CPU of one event (500/s)",
    ];
    Ok(plain(&head, &rows))
}

/// Measures each group of families about pods, and flags that change these families, on the same cluster.
pub fn groups(programs: &Programs, size: Size) -> Result<String> {
    let cluster = Cluster::new(size.pods, DataSet::Synthetic)?;
    let no_pods = "--metric-denylist=^kube_pod_";
    let workload = "--metric-opt-in-list=^kstatd_pod_workload_info$";
    let totals = "--metric-opt-in-list=^kstatd_(workload|namespace|kube_node)_.*[^l]$";
    let events = "--metric-opt-in-list=^kstatd_.*_total$";
    let labels = "--pod-workload-labels=workload,workload_type";
    let mut rows = Vec::new();
    for (name, flags) in [
        ("those of kube-state-metrics", &[][..]),
        ("the same with `--skip-zero-states`", &["--skip-zero-states"]),
        ("the same with `--pod-workload-labels=workload,workload_type`", &[labels]),
        ("the same and the workload of each pod", &[workload]),
        ("the same and totals", &[totals]),
        ("the same and counters of events", &[events]),
        ("all of these", &["--metric-opt-in-list=^kstatd_"]),
        ("none of `kube_pod_`", &[no_pods]),
        ("none of `kube_pod_`, but the workload of each pod", &[no_pods, workload]),
        ("none of `kube_pod_`, but totals", &[no_pods, totals]),
        ("none of `kube_pod_`, but counters of events", &[no_pods, events]),
    ] {
        let listed = cluster.list_with(Subject::Ours, programs, flags)?;
        let memory = listed.server.memory()?;
        let scrape = scrape_cost(&listed.server, listed.port, "/metrics", false, 3)?;
        let event = cluster.event_cost(&listed, 500.0, size.window)?;
        rows.push(vec![
            name.to_owned(),
            bytes(scrape.bytes),
            seconds(listed.cpu),
            format!("{} ({} peak)", bytes(memory.resident), bytes(memory.peak)),
            seconds(event),
        ]);
    }
    let head = ["Families", "Text", "CPU to ready", "Memory", "CPU of one event (500/s)"];
    Ok(plain(&head, &rows))
}

/// Measures mappings with few and many rules.
pub fn rules(programs: &Programs) -> Result<String> {
    let mut rows = Vec::new();
    for count in [10, 100, 1_000] {
        let ours = mapper::ours(count)?;
        let (peer, _) = mapper::peer(programs, count)?;
        let pair = |ours, peer| format!("{} ({})", seconds(ours), seconds(peer));
        rows.push(vec![
            count.to_string(),
            pair(ours.hit, peer.hit),
            pair(ours.miss, peer.miss),
            pair(ours.regex, peer.regex),
        ]);
    }
    Ok(plain(&["Rules", "Glob hit (peer)", "Glob miss (peer)", "Last regex (peer)"], &rows))
}

/// Measures registries from small to very large.
pub fn series(programs: &Programs, size: Size) -> Result<String> {
    let sizes: &[usize] =
        if size.quick { &[10_000, 100_000] } else { &[10_000, 100_000, 1_000_000] };
    let mut rows = Vec::new();
    for series in sizes {
        let many = statsd::measure_series(statsd::Subject::Ours, programs, *series)?;
        rows.push(vec![
            count(*series as f64),
            bytes(many.scrape.bytes),
            format!("{} ({} peak)", bytes(many.filled.resident), bytes(many.scraped.peak)),
            format!("{} / {}", seconds(many.scrape.wall), seconds(many.scrape.cpu)),
        ]);
    }
    Ok(plain(&["Series", "Text", "Memory", "Scrape, wall / CPU"], &rows))
}

/// Measures one and several concurrent scrapers.
pub fn scrapers(programs: &Programs, size: Size) -> Result<String> {
    let cluster = Cluster::new(size.changing_pods, DataSet::Synthetic)?;
    let listed = cluster.list(Subject::Ours, programs)?;
    let mut rows = Vec::new();
    for scrapers in [1, 8] {
        for gzip in [false, true] {
            scrape(listed.port, "/metrics", gzip)?;
            listed.server.settle(Duration::from_secs(60))?;
            listed.server.reset_peak()?;
            let rounds = if size.quick { 3 } else { 10 };
            let cpu = listed.server.cpu()?;
            let mut wall = 0.0;
            for _ in 0..rounds {
                wall += scrape_at_once(&listed.server, listed.port, gzip, scrapers)?;
            }
            let rounds = f64::from(rounds);
            let cpu = (listed.server.cpu()? - cpu) / rounds / scrapers as f64;
            rows.push(vec![
                scrapers.to_string(),
                if gzip { "gzip" } else { "plain" }.to_owned(),
                seconds(wall / rounds),
                seconds(cpu),
                bytes(listed.server.memory()?.peak),
            ]);
        }
    }
    let head = ["Scrapers", "Body", "Time until all are done", "CPU of one scrape", "Memory peak"];
    Ok(plain(&head, &rows))
}

/// Measures both sides of one process under load, separately and together.
pub fn interference(programs: &Programs, size: Size) -> Result<String> {
    let cluster = Cluster::new(size.changing_pods, DataSet::Synthetic)?;
    let whole = start_both_sides(programs, &cluster.url())?;
    let load = Load { datagrams: 10_000.0, lines: 20, window: size.window };
    let warm = Load { window: Duration::from_secs(1), ..load };
    statsd::send(whole.udp, warm)?;
    scrape(whole.web, "/metrics", false)?;
    whole.server.settle(Duration::from_secs(60))?;
    let ingesting = measure(&whole, Some(load), false, size)?;
    let scraping = measure(&whole, None, true, size)?;
    let both = measure(&whole, Some(load), true, size)?;
    let alone = ingesting.cpu_per_line * both.lines + scraping.cpu_per_scrape() * both.scrapes;
    let rows = [
        vec![
            "lines alone".to_owned(),
            seconds(ingesting.cpu_per_line),
            String::new(),
            percent(ingesting.lost),
        ],
        vec![
            "scrapes alone, two a second".to_owned(),
            String::new(),
            format!("{} / {}", seconds(scraping.wall), seconds(scraping.cpu_per_scrape())),
            String::new(),
        ],
        vec![
            format!("both: CPU {:.2} × the sum of each alone", both.cpu / alone),
            String::new(),
            seconds(both.wall),
            percent(both.lost),
        ],
    ];
    let head =
        ["200,000 lines/s and a cluster", "CPU of a line", "Scrape, wall / CPU", "Lines lost"];
    Ok(plain(&head, &rows))
}

#[derive(Default)]
struct Interference {
    cpu: f64,
    cpu_per_line: f64,
    lines: f64,
    lost: f64,
    scrapes: f64,
    wall: f64,
}

impl Interference {
    fn cpu_per_scrape(&self) -> f64 {
        self.cpu / self.scrapes
    }
}

fn measure(
    whole: &BothSides,
    load: Option<Load>,
    scraping: bool,
    size: Size,
) -> Result<Interference> {
    let (cpu, lines) = (whole.server.cpu()?, statsd::lines(whole.telemetry)?);
    let udp = whole.udp;
    let sender = std::thread::spawn(move || load.map(|load| statsd::send(udp, load)).transpose());
    let mut walls = Vec::new();
    let start = Instant::now();
    while start.elapsed() < size.window {
        let next = Instant::now() + Duration::from_millis(500);
        if scraping {
            walls.push(scrape(whole.web, "/metrics", false)?.wall.as_secs_f64());
        }
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let sent = sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??.unwrap_or(0);
    whole.server.settle(Duration::from_secs(60))?;
    let cpu = whole.server.cpu()? - cpu;
    let lines = (statsd::lines(whole.telemetry)? - lines) as f64;
    let sent = (sent * load.map_or(0, |load| load.lines) as u64) as f64;
    walls.sort_by(f64::total_cmp);
    Ok(Interference {
        cpu,
        cpu_per_line: cpu / lines,
        lines,
        lost: if sent > 0.0 { 1.0 - lines / sent } else { 0.0 },
        scrapes: walls.len() as f64,
        wall: walls.get(walls.len() / 2).copied().unwrap_or_default(),
    })
}

/// Returns every table with its heading. Failures are added to `failed`.
pub fn all(
    programs: &Programs,
    size: Size,
    wanted: impl Fn(&str) -> bool,
    failed: &mut Vec<String>,
) -> String {
    type Table = fn(&Programs, Size) -> Result<String>;
    let tables: [(&str, &str, Table); 14] = [
        ("growth-pods", "Pods", |programs, size| pods(programs, size, DataSet::Synthetic)),
        ("growth-pods-recorded", "Pods, recorded", |programs, size| {
            pods(programs, size, DataSet::Recorded)
        }),
        ("groups", "Groups of families", groups),
        ("shards", "Shards", super::shards::shards),
        ("growth-rules", "Rules", |programs, _| rules(programs)),
        ("growth-series", "Series", series),
        ("growth-scrapers", "Concurrent scrapers", scrapers),
        ("interference", "Concurrent lines and scrapes", interference),
        ("batching", "Lines per datagram", super::batching::batching),
        ("explosion", "An exploding label", super::explosion::urls),
        ("hostile", "Hostile lines", super::explosion::hostile),
        ("memory-gates", "Memory gates of an agent", super::gates::gates),
        ("kinds", "Every kind", |programs, _| super::kinds::kinds(programs)),
        ("node", "Walks of a tree that changes", super::node::walks),
    ];
    let mut out = String::new();
    for (name, heading, table) in tables {
        if wanted(name) {
            eprintln!("{name}");
            match table(programs, size) {
                Ok(table) => out.push_str(&format!("\n### {heading}\n\n{table}")),
                Err(error) => failed.push(format!("{name}: {error:#}")),
            }
        }
    }
    out
}
