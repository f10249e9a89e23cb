//! Size and cost of gzip bodies for every kind of text.
//!
//! `cargo bench --bench gzip -- DIR` writes the text of each body to a file in DIR, as input for other compressors:
//! `tests/peers/gzipsize` measures Go's. `--pods N` is the size of the large clusters.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use kstatd::cache::{Catalog, Rendered, Store};
use kstatd::exposition::{Format, Piece, ScrapeQuery, Source};
use kstatd::mapper::Mapper;
use kstatd::resources::{ObjectBytes, RenderOptions, registry};
use kstatd::server::gzip::Member;
use kstatd::statsd::{Offline, OfflineConfig};
use kstatd_double::{self as double, Options};

#[allow(dead_code, reason = "this bench changes nothing")]
mod fixture;
#[path = "fixture/foreign.rs"]
mod foreign;
use fixture::Pods;
use foreign::{Foreign, Numbers};

/// Every kind, with the few objects that accompany this many pods.
fn all_kinds(pods: u32) -> Catalog {
    let catalog = Catalog::new();
    for resource in registry() {
        let objects =
            double::objects(&Options { pods, ..Options::default() }, resource.name(), false, 0);
        let renderer = resource.renderer(&RenderOptions::default());
        let store = Arc::new(Store::new(renderer.schema()));
        let (mut list, mut out) = (store.replace(), Rendered::default());
        for object in &objects {
            renderer.render(ObjectBytes::Protobuf(object), &mut out).expect("well-formed");
            list.push(&out);
        }
        list.commit();
        catalog.register(renderer.schema(), vec![store]);
    }
    catalog
}

/// A number of series, with random or realistic labels.
fn series(count: usize, random: bool) -> Offline {
    let mut registry =
        Offline::new(Mapper::from_yaml("").expect("empty"), OfflineConfig::default());
    let mut numbers = Numbers::new(9);
    for at in 0..count {
        let line = if random {
            format!(
                "requests:{}|c|#client:{:08x}{:08x},route:{:08x}",
                at % 977,
                numbers.below(1 << 32),
                numbers.below(1 << 32),
                numbers.below(1 << 32)
            )
        } else {
            format!(
                "api.requests:{}|c|#route:r{},status:{},region:eu-west-{}",
                at % 977,
                at / 12,
                [200, 404, 500][at % 3],
                at / 3 % 4
            )
        };
        registry.lines(line.as_bytes());
    }
    registry
}

type Pieces = Box<dyn Iterator<Item = Piece> + Send>;

fn measure(
    name: &str,
    directory: Option<&PathBuf>,
    pieces: impl Fn() -> Pieces,
    text: impl Fn() -> Vec<u8>,
) {
    let text = text();
    if let Some(directory) = directory {
        std::fs::write(directory.join(format!("{name}.txt")), &text).expect("a writable directory");
    }
    let once = || {
        let start = Instant::now();
        let size: usize = black_box(Member::new(pieces())).map(|frame| frame.len()).sum();
        (size, start.elapsed().as_secs_f64() * 1e3)
    };
    // The first scrape builds codes and caches bits. The longest piece is the time for which a worker is occupied.
    let start = Instant::now();
    let (mut first, mut longest, mut before) = (0, 0.0_f64, 0.0);
    for frame in black_box(Member::new(pieces())) {
        let now = start.elapsed().as_secs_f64() * 1e3;
        (longest, before) = (longest.max(now - before), now);
        first += frame.len();
    }
    let rounds = if text.len() > 100_000_000 { 4 } else { 10 };
    let times = (0..rounds).map(|_| once().1);
    let (size, _) = once();
    assert_eq!(size, first);
    let best = times.fold(f64::MAX, f64::min);
    println!("{name:24} {:>12} {size:>10} {before:>9.2} {longest:>9.2} {best:>9.2}", text.len());
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut directory, mut large, mut only) = (None, 50_000, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--pods" => large = arguments.next().and_then(|n| n.parse().ok()).expect("a number"),
            "--only" => only = arguments.next(),
            _ => directory = Some(PathBuf::from(argument)),
        }
    }
    let wanted = |name: &str| only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let directory = directory.as_ref();
    println!(
        "{:24} {:>12} {:>10} {:>9} {:>9} {:>9}",
        "", "text", "gzip", "first ms", "piece ms", "ms"
    );
    let query = ScrapeQuery::default();
    let kubernetes = |name: &str, catalog: &dyn Fn() -> Catalog| {
        if !wanted(name) {
            return;
        }
        let catalog = catalog();
        measure(
            name,
            directory,
            || catalog.deflated(Format::Text, &query),
            || catalog.frames(Format::Text, &query).flatten().collect(),
        );
    };
    for pods in [1, 10, 100, 1_000] {
        kubernetes(&format!("kinds-{pods}"), &|| all_kinds(pods));
    }
    for pods in [1, 100, 500, 5_000, large] {
        kubernetes(&format!("pods-{pods}"), &|| Pods::new(pods, false, 0).catalog().0);
    }
    for pods in [20, 300, 5_000, large as usize] {
        for foreign in Foreign::LISTED.into_iter().chain([Foreign::Shuffled]) {
            kubernetes(&format!("{foreign:?}-{pods}"), &|| foreign::catalog(foreign, pods));
        }
    }
    for count in [10, 10_000, 100_000, 1_000_000] {
        for (kind, random) in [("series", false), ("random", true)] {
            let name = format!("{kind}-{count}");
            if wanted(&name) {
                let registry = series(count, random);
                let frames = || registry.frames(Format::Text, &query);
                measure(
                    &name,
                    directory,
                    || Box::new(frames().map(Piece::Text)),
                    || frames().flatten().collect(),
                );
            }
        }
    }
}
