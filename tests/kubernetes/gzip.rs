//! Size of gzip bodies, short and long, compared with a general compressor on the same text.
//!
//! The reference is zlib at its default or its highest level, whichever is smaller. Its size is within a few percent
//! of Go's compress/gzip at its default level (`benches/gzip.rs`).

#[allow(dead_code, reason = "the bench takes all of it")]
#[path = "../../benches/fixture/foreign.rs"]
mod foreign;

use std::io::{Read, Write};

use crate::common::{Program, request, until};
use foreign::Foreign;
use kstatd::cache::Catalog;
use kstatd::exposition::{Format, Piece, ScrapeQuery, Source};
use kstatd::server::gzip::Member;
use kstatd_double::{Double, Options};

/// Returns the size that zlib achieves for `text`.
fn reference(text: &[u8]) -> usize {
    let levels = [flate2::Compression::default(), flate2::Compression::best()].map(|level| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
        encoder.write_all(text).expect("a Vec takes everything");
        encoder.finish().expect("a Vec takes everything").len()
    });
    levels[0].min(levels[1])
}

fn inflate(member: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(member);
    decoder.read_to_end(&mut text).expect("one valid member");
    assert!(decoder.into_inner().is_empty(), "bytes after the member");
    text
}

fn assert_small(what: &str, member: &[u8], text: &[u8]) {
    assert!(inflate(member) == text, "{what}: another text");
    let (ours, reference) = (member.len(), reference(text));
    assert!(ours * 10 <= reference * 11, "{what}: {ours} bytes, zlib {reference}");
}

fn body(catalog: &Catalog) -> (Vec<u8>, Vec<u8>) {
    body_of(catalog, &ScrapeQuery::default())
}

fn body_of(catalog: &Catalog, query: &ScrapeQuery) -> (Vec<u8>, Vec<u8>) {
    let member = Member::new(catalog.deflated(Format::Text, query)).flatten().collect();
    (member, catalog.frames(Format::Text, query).flatten().collect())
}

/// Text of real clusters: more objects than a general compressor could search.
#[test]
fn unpredicted_text_compresses_as_well_as_with_zlib() {
    for kind in Foreign::LISTED {
        for pods in [20, 400, 800] {
            let catalog = foreign::catalog(kind, pods);
            let (member, text) = body(&catalog);
            assert_small(&format!("{kind:?}, {pods} pods"), &member, &text);
        }
    }
}

/// Objects in any order, as after months of churn, compress as well as in list order.
#[test]
fn unordered_objects_compress_as_well_as_listed_ones() {
    for pods in [800, 2_000] {
        let (member, text) = body(&foreign::catalog(Foreign::Shuffled, pods));
        assert_small(&format!("{pods} pods in any order"), &member, &text);
        // The lines in arrival order, as printed by a server without an order.
        let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let mut numbers = foreign::Numbers::new(1);
        let headers = |line: &&[u8]| line.starts_with(b"#");
        for family in lines.split_mut(headers).filter(|family| !family.is_empty()) {
            for at in (1..family.len()).rev() {
                family.swap(at, numbers.below(at + 1));
            }
        }
        assert!(member.len() <= reference(&lines.concat()), "{pods} pods");
    }
}

/// Each family may begin with the table of another code, which may end anywhere in a piece of the body: the families
/// before it decide.
#[test]
fn bodies_are_whole_wherever_a_table_ends() {
    let catalog = foreign::catalog(Foreign::Words, 800);
    let (_, text) = body(&catalog);
    let text = String::from_utf8(text).expect("UTF-8");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    let mut numbers = foreign::Numbers::new(5);
    for _ in 0..200 {
        let some = names.iter().filter(|_| numbers.below(4) == 0).map(|&name| name.to_owned());
        let query = ScrapeQuery { names: Some(some.collect()), ..ScrapeQuery::default() };
        let (member, text) = body_of(&catalog, &query);
        assert!(inflate(&member) == text, "another text of {:?}", query.names);
    }
}

/// Building the codes of a large resource takes time: it yields in between.
#[test]
fn huffman_codes_are_built_in_steps() {
    let catalog = foreign::catalog(Foreign::Words, 800);
    let turns = || {
        let pieces = catalog.deflated(Format::Text, &ScrapeQuery::default());
        let gives_way = |piece: &Piece| matches!(piece, Piece::Text(text) if text.is_empty());
        pieces.take_while(gives_way).count()
    };
    let (first, second) = (turns(), turns());
    assert!(first > 50 && second == 0, "{first}, {second}");
}

/// Concurrent first scrapes share their codes and cached bits.
#[test]
fn concurrent_scrapes_share_huffman_codes() {
    let catalog = foreign::catalog(Foreign::Words, 800);
    let gives_way = |piece: &Piece| matches!(piece, Piece::Text(text) if text.is_empty());
    let mut late = catalog.deflated(Format::Text, &ScrapeQuery::default());
    assert!(late.next().as_ref().is_some_and(gives_way), "it begins to make codes");
    body(&catalog);
    assert_eq!(late.take_while(gives_way).count(), 0);
}

/// Codes built for one kind of text are replaced after another kind has arrived.
#[test]
fn huffman_codes_follow_the_text() {
    let catalog = foreign::catalog(Foreign::Hashes, 1_000);
    body(&catalog);
    foreign::refill(&catalog, Foreign::Random, 1_000);
    body(&catalog);
    let (member, text) = body(&catalog);
    assert_small("random after hashes", &member, &text);
}

/// From outside: a nearly empty cluster, and a slightly larger one.
#[test]
fn short_bodies_are_as_small_as_the_originals() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("runtime");
    for pods in [1, 15, 120] {
        let options = Options { pods, ..Options::default() };
        let double = runtime.block_on(Double::start(&options)).expect("double");
        let apiserver = format!("--apiserver={}", double.url());
        let fixed = ["--port=0", "--telemetry-port=0", "--host=127.0.0.1"];
        let flags = [&[apiserver.as_str(), "--enable-gzip-encoding"], &fixed[..]].concat();
        let program = Program::start("kube-state-metrics", flags);
        let main = program.address(&["Started metrics server"], "address");
        let ask = |path: &str, headers: &[(&str, &str)]| {
            request(main, "GET", path, headers).expect("answer")
        };
        until("all pods are there", || {
            let text = ask("/metrics?resources=pods", &[]).text();
            let count = text.lines().filter(|line| line.starts_with("kube_pod_info{")).count();
            (count == double.objects_of("pods")).then_some(())
        });
        for path in ["/metrics", "/metrics?resources=pods", "/metrics?resources=nodes,services"] {
            let member = ask(path, &[("Accept-Encoding", "gzip")]).body;
            assert_small(&format!("{path}, {pods} pods"), &member, &inflate(&member));
        }
    }
}

/// The same for StatsD, where own metrics and series of several sources form one body.
#[test]
fn short_statsd_bodies_are_as_small_as_the_originals() {
    let flags = [
        "--web.listen-address=127.0.0.1:0",
        "--statsd.listen-udp=127.0.0.1:0",
        "--statsd.listen-tcp=",
    ];
    let program = Program::start("statsd_exporter", flags);
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    for path in ["/metrics", "/kstatd/metrics"] {
        // Own metrics change between responses, so the body is compared with its own text.
        let member =
            request(web, "GET", path, &[("Accept-Encoding", "gzip")]).expect("answer").body;
        assert_small(path, &member, &inflate(&member));
    }
}
