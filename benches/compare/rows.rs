//! The rows of the table of goals: the scenario of each, and its text.

use std::time::Duration;

use anyhow::Result;

use super::custom;
use super::data_set::DataSet;
use super::kube::{self, Cluster, Idle, LargeCluster};
use super::mapper;
use super::process::{Server, free_port};
use super::programs::Programs;
use super::rendering;
use super::scrape;
use super::statsd::{self, Load, Target};
use super::table::{Goal, Row, bytes, count, percent, seconds};

/// The sizes of all loads.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// True for a quick run, whose figures only show tendencies.
    pub quick: bool,
    /// Pods of the large cluster.
    pub pods: u32,
    /// Pods of the changing cluster.
    pub changing_pods: u32,
    /// Series of the large registry.
    pub series: usize,
    /// Custom resources.
    pub custom: usize,
    /// Duration of a load.
    pub window: Duration,
    /// Duration of hostile lines.
    pub hostile: Duration,
    /// Files of the walked tree.
    pub files: usize,
    /// Passes of a walk after its first one.
    pub passes: u8,
}

impl Size {
    /// Returns the sizes that the goals are defined for.
    pub fn full() -> Self {
        Self {
            quick: false,
            pods: 50_000,
            changing_pods: 10_000,
            series: 1_000_000,
            custom: 20_000,
            window: Duration::from_secs(15),
            hostile: Duration::from_secs(60),
            files: 1_000_000,
            passes: 3,
        }
    }

    /// Returns a tenth of the full sizes.
    pub fn quick() -> Self {
        Self {
            quick: true,
            pods: 5_000,
            changing_pods: 2_000,
            series: 100_000,
            custom: 2_000,
            window: Duration::from_secs(4),
            hostile: Duration::from_secs(60),
            files: 100_000,
            passes: 3,
        }
    }
}

/// Measures scrapes, memory and lists of a large cluster.
pub fn cluster(programs: &Programs, size: Size, data: DataSet) -> Result<Vec<Row>> {
    let cluster = Cluster::new(size.pods, data)?;
    let ours = kube::measure_cluster(&cluster, kube::Subject::Ours, programs, size.quick)?;
    let peer = kube::measure_cluster(&cluster, kube::Subject::Peer, programs, size.quick)?;
    drop(cluster);
    let limit = kube::measure_memory_writer(programs, kube::BODY)?;
    let gzip_limit = kube::measure_memory_writer(programs, kube::GZIP_BODY)?;
    let text = ours.plain.bytes;
    // The goal for the compressed body is defined for 433 MB of text.
    let body_goal = 60e6 / 433e6 * text;
    let cost =
        |cost: &kube::Cost| format!("{} wall, {} CPU", seconds(cost.wall), seconds(cost.cpu));
    Ok(vec![
        Row {
            what: format!(
                "{}{} pods with related objects, {} of text: plain scrape",
                data.label(),
                count(f64::from(size.pods)),
                bytes(text)
            ),
            peer: cost(&peer.plain),
            limit: cost(&limit),
            ours: cost(&ours.plain),
            goals: vec![
                Goal::times("the limit's wall time", ours.plain.wall, 1.5, limit.wall),
                Goal::times("the limit's CPU", ours.plain.cpu, 1.5, limit.cpu),
            ],
        },
        Row {
            what: "the same, gzip, from the second scrape on".to_owned(),
            peer: format!("{}, {}", cost(&peer.gzip), bytes(peer.gzip.bytes)),
            limit: format!("{}, sending {}", cost(&gzip_limit), bytes(gzip_limit.bytes)),
            ours: format!("{}, {}", cost(&ours.gzip), bytes(ours.gzip.bytes)),
            goals: vec![
                Goal::times("the peer's CPU", ours.gzip.cpu, 1.0 / 40.0, peer.gzip.cpu),
                Goal::at_most(
                    &format!("body ≤ {}", bytes(body_goal)),
                    ours.gzip.bytes / body_goal,
                    1.0,
                ),
            ],
        },
        memory(&ours, &peer, text),
        Row {
            what: "memory peak while listing".to_owned(),
            peer: bytes(peer.listed.peak),
            limit: String::new(),
            ours: bytes(ours.listed.peak),
            goals: vec![Goal::times(
                "our steady state",
                ours.listed.peak,
                1.3,
                ours.listed.resident,
            )],
        },
        parallel(&ours, &peer),
        Row {
            what: "CPU to ready / time to ready (WatchList)".to_owned(),
            peer: format!("{} / {}", seconds(peer.ready_cpu), seconds(peer.ready)),
            limit: String::new(),
            ours: format!("{} / {}", seconds(ours.ready_cpu), seconds(ours.ready)),
            goals: vec![
                Goal::times("the peer's CPU", ours.ready_cpu, 1.0 / 6.0, peer.ready_cpu),
                Goal::times("the peer's time", ours.ready, 1.0 / 4.0, peer.ready),
            ],
        },
    ])
}

fn memory(ours: &LargeCluster, peer: &LargeCluster, text: f64) -> Row {
    let of = |large: &LargeCluster| {
        let resident = large.listed.resident;
        format!("{} ({:.2} × the text)", bytes(resident), resident / text)
    };
    let resident = ours.listed.resident;
    Row {
        what: "memory before the first scrape".to_owned(),
        peer: of(peer),
        limit: String::new(),
        ours: of(ours),
        goals: vec![
            Goal::times("the peer", resident, 1.0 / 12.0, peer.listed.resident),
            Goal::times("the text", resident, 0.35, text),
        ],
    }
}

fn parallel(ours: &LargeCluster, peer: &LargeCluster) -> Row {
    let of = |large: &LargeCluster| {
        let [plain, gzip] = large.parallel;
        format!(
            "plain {} during, {} after; gzip {} during, {} after",
            bytes(plain.peak),
            bytes(plain.resident),
            bytes(gzip.peak),
            bytes(gzip.resident)
        )
    };
    let most = ours.parallel.iter().map(|memory| memory.peak).fold(0.0, f64::max);
    Row {
        what: "memory during and after 20 parallel scrapes, plain and gzip".to_owned(),
        peer: of(peer),
        limit: String::new(),
        ours: of(ours),
        goals: vec![Goal::times("our steady state", most, 1.25, ours.listed.resident)],
    }
}

/// Measures the cost of a watch event.
pub fn updates(programs: &Programs, size: Size, data: DataSet) -> Result<Vec<Row>> {
    let rates = [500.0, 2_000.0];
    let cluster = Cluster::new(size.changing_pods, data)?;
    let cost = |who| -> Result<Vec<f64>> {
        let listed = cluster.list(who, programs)?;
        rates.iter().map(|rate| cluster.event_cost(&listed, *rate, size.window)).collect()
    };
    let (ours, peer) = (cost(kube::Subject::Ours)?, cost(kube::Subject::Peer)?);
    let both =
        |costs: &[f64]| costs.iter().map(|cost| seconds(*cost)).collect::<Vec<_>>().join(" / ");
    let least = rendering::event(data, size.changing_pods)?;
    let peers = ours.iter().zip(&peer).zip(["the peer at 500/s", "the peer at 2,000/s"]);
    let mut goals: Vec<_> =
        peers.map(|((ours, peer), what)| Goal::times(what, *ours, 1.0 / 6.0, *peer)).collect();
    let fastest = ours.iter().copied().fold(f64::INFINITY, f64::min);
    goals.push(Goal::times("decoding and rendering", fastest, 2.0, least));
    Ok(vec![Row {
        what: format!(
            "{}CPU of one watch event, 500/s and 2,000/s on {} pods",
            data.label(),
            count(f64::from(size.changing_pods))
        ),
        peer: both(&peer),
        limit: format!("{} to decode and render its object", seconds(least)),
        ours: both(&ours),
        goals,
    }])
}

/// Measures the idle cost.
pub fn rest(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let cluster = Cluster::new(50, DataSet::Synthetic)?;
    let peer = cluster.list(kube::Subject::Peer, programs)?;
    let ours = cluster.list(kube::Subject::Ours, programs)?;
    let whole = start_both_sides(programs, &cluster.url())?;
    let servers = [&peer.server, &ours.server, &whole.server];
    let window = size.window.max(Duration::from_secs(10)) * 2;
    let idle = kube::at_rest(&servers, window)?;
    let of = |idle: &Idle| {
        format!(
            "{}, {} CPU, {:.1} wake-ups/s",
            bytes(idle.memory),
            percent(idle.cpu),
            idle.wake_ups
        )
    };
    let [peer, ours, whole] = idle.as_slice() else {
        anyhow::bail!("three servers were measured");
    };
    Ok(vec![Row {
        what: "idle, 50 pods".to_owned(),
        peer: of(peer),
        limit: String::new(),
        ours: format!("{}; with both sides: {}", of(ours), of(whole)),
        goals: vec![
            Goal::at_most("≤ 10 MB", ours.memory / 10e6, 1.0),
            Goal::at_most("≤ 1 wake-up/s", ours.wake_ups, 1.0),
        ],
    }])
}

/// Measures the list of custom resources.
pub fn custom(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let cluster = custom::Cluster::new(size.custom, programs)?;
    let ours = cluster.list(kube::Subject::Ours, programs)?;
    let peer = cluster.list(kube::Subject::Peer, programs)?;
    let of = |taken: &custom::ListCost| {
        format!(
            "{} CPU, {} / {} ({} peak)",
            seconds(taken.cpu),
            seconds(taken.ready),
            bytes(taken.memory.resident),
            bytes(taken.memory.peak)
        )
    };
    Ok(vec![Row {
        what: format!(
            "{} custom resources of {}, 10 families: CPU and time to ready / memory",
            count(size.custom as f64),
            bytes(cluster.object_size() as f64)
        ),
        peer: of(&peer),
        limit: String::new(),
        ours: of(&ours),
        goals: vec![
            Goal::times("the peer's CPU", ours.cpu, 1.0 / 4.0, peer.cpu),
            Goal::times(
                "the peer's memory",
                ours.memory.resident,
                1.0 / 10.0,
                peer.memory.resident,
            ),
        ],
    }])
}

/// A kstatd process with both sides.
pub struct BothSides {
    /// The process.
    pub server: Server,
    /// Port of `/metrics`.
    pub web: u16,
    /// Port of its own metrics.
    pub telemetry: u16,
    /// Port of StatsD over UDP.
    pub udp: u16,
}

/// Starts kstatd and waits until it is ready.
pub fn start_both_sides(programs: &Programs, api_server: &str) -> Result<BothSides> {
    let (web, telemetry, udp) = (free_port()?, free_port()?, free_port()?);
    let arguments = [
        "run".to_owned(),
        format!("--apiserver={api_server}"),
        format!("--listen=127.0.0.1:{web}"),
        format!("--telemetry-listen=127.0.0.1:{telemetry}"),
        format!("--statsd.listen-udp=127.0.0.1:{udp}"),
        "--statsd.listen-tcp=".to_owned(),
    ];
    let server = Server::start("kstatd", &programs.kstatd, &arguments, &programs.scratch)?;
    scrape::wait_for(web, "/readyz", Duration::from_secs(60))?;
    Ok(BothSides { server, web, telemetry, udp })
}

/// Measures datagrams with one line and with twenty.
pub fn datagrams(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let loads = [
        (100_000.0, 1, 1.3, "UDP, 100,000 datagrams/s of one line"),
        (50_000.0, 20, 3.0, "UDP, 50,000 datagrams/s of 20 lines (1 M lines/s)"),
    ];
    let mut rows = Vec::new();
    for (rate, lines, factor, what) in loads {
        let load = Load { datagrams: rate, lines, window: size.window };
        let take = |who| statsd::run_load(&Target::start(who, programs)?, load);
        let limit = take(statsd::Subject::Limit)?;
        let ours = take(statsd::Subject::Ours)?;
        let peer = take(statsd::Subject::Peer)?;
        let of = |taken: &statsd::LoadResult| {
            format!("{} a line, {} lost", seconds(taken.cpu_per_line), percent(taken.lost))
        };
        rows.push(Row {
            what: format!("{what} ({} sent/s)", count(ours.rate)),
            peer: of(&peer),
            limit: of(&limit),
            ours: of(&ours),
            goals: vec![
                Goal::times("the limit", ours.cpu_per_line, factor, limit.cpu_per_line),
                Goal::at_most("nothing lost", ours.lost, 0.0),
            ],
        });
    }
    Ok(rows)
}

/// Measures a large number of series.
pub fn series(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let ours = statsd::measure_series(statsd::Subject::Ours, programs, size.series)?;
    let peer = statsd::measure_series(statsd::Subject::Peer, programs, size.series)?;
    let limit = kube::measure_memory_writer(programs, statsd::BODY)?;
    let of = |many: &statsd::ManySeries| {
        format!(
            "{} ({} peak) / {} wall, {} CPU",
            bytes(many.filled.resident),
            bytes(many.scraped.peak),
            seconds(many.scrape.wall),
            seconds(many.scrape.cpu)
        )
    };
    Ok(vec![Row {
        what: format!(
            "{} series: memory / scrape ({})",
            count(size.series as f64),
            bytes(ours.scrape.bytes)
        ),
        peer: of(&peer),
        limit: format!("{} wall, {} CPU", seconds(limit.wall), seconds(limit.cpu)),
        ours: of(&ours),
        goals: vec![
            Goal::times(
                "the peer's memory",
                ours.filled.resident,
                1.0 / 10.0,
                peer.filled.resident,
            ),
            Goal::times("the limit's wall time", ours.scrape.wall, 3.0, limit.wall),
        ],
    }])
}

/// Measures lookups in the mapper.
pub fn mapping(programs: &Programs) -> Result<Vec<Row>> {
    let (peer, cached) = mapper::peer(programs, 100)?;
    let ours = mapper::ours(100)?;
    Ok(vec![
        Row {
            what: "mapper, 100 glob rules: hit / miss".to_owned(),
            peer: format!(
                "{} / {} (from its cache {} / {})",
                seconds(peer.hit),
                seconds(peer.miss),
                seconds(cached.hit),
                seconds(cached.miss)
            ),
            limit: String::new(),
            ours: format!("{} / {}", seconds(ours.hit), seconds(ours.miss)),
            goals: vec![
                Goal::times("the peer's hit", ours.hit, 1.0 / 6.0, peer.hit),
                Goal::times("the peer's miss", ours.miss, 1.0 / 6.0, peer.miss),
            ],
        },
        Row {
            what: "mapper, 100 regex rules, last one matches".to_owned(),
            peer: seconds(peer.regex),
            limit: String::new(),
            ours: seconds(ours.regex),
            goals: vec![Goal::times("the peer", ours.regex, 1.0 / 8.0, peer.regex)],
        },
    ])
}
