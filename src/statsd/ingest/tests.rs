//! Tests of the work that a datagram causes, relative to its length.

mod enrich;

use std::collections::BTreeSet;

use crate::mapper::Mapper;
use crate::statsd::{Offline, OfflineConfig};
use crate::util::work_counter::take;

const MAPPING: &str = "\
defaults: {normalise: {url: [url, {regex: '[0-9]+', replacement: n}]}}
mappings:
- {match: 'api.*.*', name: api, labels: {route: $1, kind: $2}}
- {match: '*.*.x.*.*', name: deep}
- {match: '^job[.](.*)$', match_type: regex, name: job, labels: {id: $1}}
- {match: 'h.*', name: h, observer_type: histogram}
";

/// The approximate size of each datagram in bytes.
const SIZE: usize = 58_000;

fn cost(datagram: &str) -> f64 {
    let mapper = Mapper::from_yaml(MAPPING).expect("a valid mapping");
    let mut offline = Offline::new(mapper, OfflineConfig::default());
    take();
    offline.lines(datagram.as_bytes());
    take() as f64 / datagram.len() as f64
}

/// Repeats `part` to fill a datagram together with the rest.
fn fill(before: &str, part: &str, after: &str) -> String {
    let count = (SIZE - before.len() - after.len()) / part.len();
    format!("{before}{}{after}", part.repeat(count))
}

fn tags(count: usize, separator: char) -> String {
    (0..count).map(|n| format!("k{n}{separator}v,")).collect()
}

#[test]
fn no_datagram_costs_twice_as_much_as_ordinary_lines() {
    let line = |n: usize| format!("requests.done:1|c|#route:r{n},status:200,region:eu-west-1\n");
    let ordinary: String = (0..1_000).map(line).collect();
    let allowed = 2.0 * cost(&ordinary);
    let mut costly = Vec::new();
    let (colons, equals) = (tags(1_000, ':'), tags(1_000, '='));
    let prefix = "p".repeat(40);
    let similar: String = (0..1_000).map(|n| format!("{prefix}{}:v,", 9_999 - n)).collect();
    let escaped: String = (0..1_000).map(|n| format!("-é.{n}:v,")).collect();
    let urls: String = (0..9).map(|n| format!("url:/{n}{},", "/1".repeat(3_000))).collect();
    for (what, datagram) in [
        ("values and tags", fill("a:1", ":1", &format!("|ms|#{colons}"))),
        ("too many tags", fill("a:1", ":1", &format!("|ms|#{}", tags(3_500, ':')))),
        ("types and tags", fill(&format!("a,{equals}:1|c"), ":1|g:1|c", "")),
        ("all types and tags", fill(&format!("a,{equals}:1|c"), ":1|ms:1|h:1|d:1|c", "")),
        ("rates", fill(&format!("a,{equals}:1|c"), ":1|c|@0.1:1|ms|@0.1", "")),
        ("bad values and tags", fill("a:x", ":x", &format!("|ms|#{colons}"))),
        ("too many sections", fill("a:1", ":1", &"|@1".repeat(9_000))),
        ("empty sections", fill("a:1|c", "|", "")),
        ("bad sections", fill("a:1", ":1", &format!("|ms|x|#{colons}"))),
        ("bad tags", fill("a:1|c|#", "x,", "")),
        ("similar tags", format!("a:1|c|#{similar}")),
        ("escaped tags", format!("a:1|c|#{escaped}")),
        ("one tag again and again", fill("a:1|c|#", "k:v,", "")),
        ("normalised tags", format!("a:1|c|#{urls}")),
        ("falling counters", fill(&format!("a,{equals}:1|c"), ":-1|c", "")),
        ("clashing types", fill(&format!("a,{equals}:1|g"), ":1|c:1|ms:1|h", "")),
        ("not a number", fill(&format!("a,{equals}:1|c"), ":nan|c", "")),
        ("a long name", fill("", "n", ":1|c")),
        ("many segments", fill("", "n.", "n:1|c")),
        ("many segments of a rule", fill("api.", "n.", "n:1|c")),
        ("a regular expression", fill("job.", "n.", "n:1|c")),
        ("a histogram", fill("h.x:1", ":1", &format!("|h|#{colons}"))),
        ("a container", fill("a:1|c|c:x", "|T1", "")),
        ("an event", fill("_e{1,1}:t|t|#", "a:1|c,", "")),
        ("a service check", fill("_sc|a:1|c", ":1|c", "")),
        ("empty lines", fill("", "\n", "")),
        ("short lines", fill("", "a\n", "")),
        ("no value", fill("a", ":", "")),
    ] {
        let cost = cost(&datagram);
        println!("{what}: {cost:.1} steps a byte");
        if cost > allowed {
            costly.push(what);
        }
    }
    assert!(costly.is_empty(), "more than {allowed:.1} steps a byte: {costly:?}");
}

/// The value after a counter is no container.
#[test]
fn lines_state_containers_in_their_sections() {
    let mut offline = Offline::new(Mapper::default(), OfflineConfig::default());
    for (line, containers) in [
        ("a:1|c:2|c:3|c", &[""][..]),
        ("b:1|c|c:ci-1|T5", &["", "ci-1"]),
        ("c:1|c|@0.5|c:in-2", &["", "ci-1", "in-2"]),
        ("d:1:2|ms|#c:x", &["", "ci-1", "in-2"]),
    ] {
        offline.lines(line.as_bytes());
        let registry = &offline.shared().registry;
        let all = registry.senders.all(registry.clock.now()).into_iter();
        let found: BTreeSet<String> = all.map(|sender| sender.container).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), containers, "{line}");
    }
}
