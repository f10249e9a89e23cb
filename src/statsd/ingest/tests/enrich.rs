//! Lines of pods: their labels, cached keys, contradictions, and the end of pods.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::Duration;

use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::{Format, ScrapeQuery};
use crate::mapper::Mapper;
use crate::pods::{Pod, PodIndex, PodWorkload, Selection};
use crate::statsd::line::ParserFlags;
use crate::statsd::{Clock, Offline, OfflineConfig};

/// The addresses of the node.
const NODE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9)),
];

/// The address of a pod.
fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// A pod of the workload with the first letter of its name.
fn pod(name: &str, last: u8) -> Pod {
    Pod {
        uid: format!("uid-{name}").into(),
        namespace: "shop".into(),
        name: name.into(),
        node: "n".into(),
        workload: Some(PodWorkload { name: name[..1].into(), kind: "deployment".into() }),
        addresses: Box::new([address(last)]),
        node_addresses: NODE.into(),
        containers: Box::new([format!("id-{name}").into()]),
        started: None,
        is_finished: false,
    }
}

struct World {
    index: Arc<PodIndex>,
    clock: Clock,
    offline: Offline,
}

impl World {
    fn with(selection: &str, mapping: &str, budget: Budget) -> Self {
        Self::over(selection, mapping, budget, |index| index)
    }

    /// Creates a world with an index that `change` returns.
    fn over(
        selection: &str,
        mapping: &str,
        budget: Budget,
        change: impl FnOnce(PodIndex) -> PodIndex,
    ) -> Self {
        let clock = Clock::manual();
        let now = clock.clone();
        let now = Box::new(move || Duration::from_nanos(now.now().nanos()));
        let selection = Selection::parse(selection).expect("a selection");
        let index = Arc::new(change(PodIndex::with_clock(selection, now)));
        index.set_list(0, Some(true));
        let offline = Offline::new(
            Mapper::from_yaml(mapping).expect("a mapping"),
            OfflineConfig {
                flags: ParserFlags { origins: true, ..ParserFlags::default() },
                pods: Some(Arc::clone(&index)),
                clock: clock.clone(),
                budget,
                ..OfflineConfig::default()
            },
        );
        Self { index, clock, offline }
    }

    fn new(selection: &str) -> Self {
        Self::with(selection, "", Budget::default())
    }

    fn put(&self, pod: Pod) {
        self.index.put(0, pod);
    }

    fn send(&mut self, from: Option<u8>, line: &str) {
        let from = from.map(address);
        self.offline.datagrams([(from, line.as_bytes())]);
    }

    /// Returns the series.
    fn series(&self) -> Vec<String> {
        let frames = self.offline.frames(Format::Text, &ScrapeQuery::default());
        let text: Vec<u8> = frames.flatten().collect();
        let text = String::from_utf8(text).expect("UTF-8");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Returns the number of lines by outcome, without zeros.
    fn outcomes(&self) -> Vec<String> {
        let own: Vec<u8> = self.offline.self_metrics().flatten().collect();
        let own = String::from_utf8(own).expect("UTF-8");
        let names = ["enriched_lines", "unknown_sender_lines", "rejected_origins"];
        let is_outcome = |line: &&str| names.iter().any(|name| line.contains(name));
        let lines = own.lines().filter(|line| !line.starts_with('#')).filter(is_outcome);
        let lines = lines.filter(|line| !line.ends_with(" 0"));
        lines
            .filter_map(|line| line.split_once('"'))
            .map(|(_, rest)| rest.replace("\"} ", " "))
            .collect()
    }
}

const WEB: &str = "namespace=\"shop\",workload=\"w\",workload_type=\"deployment\"";

#[test]
fn lines_of_all_pods_of_a_workload_are_one_series() {
    let mut world = World::new("workload");
    world.put(pod("w1", 1));
    world.put(pod("w2", 2));
    for from in [1, 2, 1, 2] {
        world.send(Some(from), "a:1|c|#k:v");
        world.send(Some(from), "b:1:2|ms");
    }
    world.send(Some(3), "a:1|c|#k:v");
    let series = world.series();
    assert!(series.contains(&format!("a{{k=\"v\",{WEB}}} 4")), "{series:?}");
    assert!(series.contains(&format!("b_count{{{WEB}}} 8")), "{series:?}");
    assert!(series.contains(&"a{k=\"v\"} 1".to_owned()), "{series:?}");
    assert_eq!(world.outcomes(), ["address 8", "unknown_address 1"]);
}

/// A container ID is no label, whether its pod is known or not, and known lines stay cached.
#[test]
fn origins_in_lines_are_resolved_and_are_no_labels() {
    let mut world = World::new("pod");
    world.put(pod("w1", 1));
    for _ in 0..2 {
        for origin in
            ["|c:id-w1", "|c:ci-id-w1", "|e:it-false,cn-app,pu-uid-w1", "|c:x|e:pu-uid-w1"]
        {
            world.send(None, &format!("a:1|c|#k:v{origin}"));
            world.send(None, &format!("b:1|c{origin}"));
        }
        world.send(None, "a:1|c|#k:v|c:stranger");
        world.send(None, "a:1|c|#k:v|c:");
        world.send(None, "a:1|c|@0.5|#k:v|c:id-w1|e:pu-uid-w1|T1656581400");
    }
    let series = world.series();
    assert_eq!(series, ["a{k=\"v\",pod=\"w1\"} 12", "a{k=\"v\"} 2", "b{pod=\"w1\"} 8"]);
    assert_eq!(
        world.outcomes(),
        ["container_id 10", "external_data 8", "no_origin 2", "unknown_container 2"]
    );
}

/// The directories of cgroups are searched at most every ten seconds, so that a container is found a little late.
#[test]
fn the_inode_of_a_new_container_is_unknown_for_ten_seconds_only() {
    let root = tempfile::tempdir().expect("directory");
    std::fs::write(root.path().join("cgroup.controllers"), "cpu").expect("written");
    let mut world = World::over("pod", "", Budget::default(), |index| {
        index.with_cgroups(root.path().to_owned())
    });
    let id = "b2".repeat(32);
    world.put(Pod { containers: Box::new([id.clone().into()]), ..pod("w1", 1) });
    // Causes a search.
    world.send(None, "a:1|c|c:in-1");
    let directory = root.path().join(format!("kubepods/{id}"));
    std::fs::create_dir_all(&directory).expect("created");
    let inode = std::fs::metadata(&directory).expect("there").ino();
    for _ in 0..12 {
        world.send(None, &format!("a:1|c|c:in-{inode}"));
        world.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(world.outcomes(), ["container_id 2", "unknown_container 11"]);
}

#[test]
fn an_address_outranks_the_origin_in_the_line() {
    let mut world = World::new("pod");
    world.put(pod("w1", 1));
    world.put(pod("w2", 2));
    world.put(Pod { addresses: Box::default(), ..pod("agent", 0) });
    world.put(Pod { node_addresses: Box::new([[10, 8, 8, 8].into()]), ..pod("far", 4) });
    for _ in 0..2 {
        world.send(Some(1), "a:1|c|#k:v|c:id-w1");
        world.send(Some(1), "a:1|c|#k:v|c:id-w2");
        world.send(Some(1), "a:1|c|#k:v|c:unknown");
        // The address of a node says that a pod of the node may have sent it.
        for (node, origin) in NODE
            .into_iter()
            .flat_map(|node| ["", "|c:id-agent", "|c:id-far"].map(|origin| (node, origin)))
        {
            let line = format!("b:1|c|#k:v{origin}");
            world.offline.datagrams([(Some(node), line.as_bytes())]);
        }
    }
    assert_eq!(
        world.series(),
        ["a{k=\"v\",pod=\"w1\"} 6", "b{k=\"v\",pod=\"agent\"} 4", "b{k=\"v\"} 8"]
    );
    assert_eq!(
        world.outcomes(),
        ["address 6", "container_id 4", "address 2", "node_address 4", "host_network 8"]
    );
}

/// A label of the line or of the rule with the same name is kept under another name.
#[test]
fn labels_of_the_sender_win() {
    let mapping = "mappings:\n- {match: m.*, name: m, labels: {workload: $1, x: y}}\n";
    let mut world = World::with("workload", mapping, Budget::default());
    world.put(pod("w1", 1));
    for _ in 0..2 {
        world.send(Some(1), "a:1|c|#namespace:mine,pod:p");
        world.send(Some(1), "b:1|c|#namespace:mine,exported_namespace:other");
        world.send(Some(1), "m.z:1|c|#workload:mine");
        world.send(None, "a:1|c|#namespace:mine");
    }
    assert_eq!(
        world.series(),
        [
            format!(
                "a{{exported_namespace=\"mine\",{},pod=\"p\",workload=\"w\",workload_type=\"deployment\"}} 2",
                "namespace=\"shop\""
            ),
            "a{namespace=\"mine\"} 2".to_owned(),
            format!("b{{exported_namespace=\"other\",{WEB}}} 2"),
            format!("m{{exported_workload=\"z\",{WEB},x=\"y\"}} 2"),
        ]
    );
}

/// A pod that becomes known, changes or ends has an effect on cached lines at once.
#[test]
fn cached_lines_follow_their_pods() {
    let mut world = World::new("pod");
    world.send(Some(1), "a:1|c");
    world.put(pod("w1", 1));
    world.send(Some(1), "a:1|c");
    world.send(Some(1), "a:1|c");
    world.index.remove(0, "uid-w1");
    world.put(pod("w2", 1));
    world.send(Some(1), "a:1|c");
    assert_eq!(world.series(), ["a 1", "a{pod=\"w1\"} 2", "a{pod=\"w2\"} 1"]);
    world.clock.advance(Duration::from_secs(60));
    world.offline.expire();
    assert_eq!(world.series().len(), 3, "the last values are still scraped");
    world.clock.advance(Duration::from_secs(60));
    world.offline.expire();
    assert_eq!(world.series(), ["a 1", "a{pod=\"w2\"} 1"]);
    world.send(Some(1), "a:1|c");
    assert_eq!(world.series(), ["a 1", "a{pod=\"w2\"} 2"]);
}

/// With labels of the workload, series end with its last pod, whatever their time to live is.
#[test]
fn series_end_with_the_last_pod_of_the_workload() {
    let mapping = "defaults: {ttl: 1h}\n";
    let mut world = World::with("workload", mapping, Budget::default());
    world.put(pod("w1", 1));
    world.put(pod("w2", 2));
    world.send(Some(1), "a:1|c\nb:1|g\nc:1|ms");
    world.index.remove(0, "uid-w1");
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    assert_eq!(world.series().len(), 7, "{:?}", world.series());
    world.index.remove(0, "uid-w2");
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    assert_eq!(world.series(), Vec::<String>::new());
}

/// Pods whose labels are normalised to the same ones share a series, which does not end with the first of them.
#[test]
fn series_with_normalised_labels_do_not_end_with_a_pod() {
    let mapping = "defaults: {normalise: {pod: {regex: '-[a-z]$', replacement: ''}}}\n";
    let mut world = World::with("pod", mapping, Budget::default());
    world.put(pod("w-a", 1));
    world.put(pod("w-b", 2));
    world.send(Some(1), "a:1|c");
    world.send(Some(2), "a:2|c");
    assert_eq!(world.series(), [r#"a{pod="w"} 3"#]);
    world.index.remove(0, "uid-w-a");
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    world.send(Some(2), "a:4|c");
    assert_eq!(world.series(), [r#"a{pod="w"} 7"#]);
}

/// The claim of a sender decides about the cached key, but not whether a line is valid.
#[test]
fn an_origin_that_is_not_text_is_refused_whatever_is_cached() {
    let mut world = World::new("pod");
    for _ in 0..2 {
        let lines = [&b"a:1|c|#t:x"[..], b"a:1|c|#t:x|c:\xff", b"a:1|c|#t:x"];
        for line in lines {
            world.offline.datagrams([(Some(address(1)), line)]);
        }
    }
    assert_eq!(world.series(), [r#"a{t="x"} 4"#]);
}

/// Returns a budget of values of each label, beyond which they become `fold_value`.
fn folding(values_per_label: u64, fold_value: &str) -> Budget {
    let (mode, fold_value) = (BudgetMode::Enforce, fold_value.to_owned());
    Budget { mode, values_per_label, fold_value, ..Budget::default() }
}

/// A value over budget is folded, and the folded series does not end with one of its pods.
#[test]
fn labels_of_senders_count_for_budgets() {
    let budget = folding(2, "other");
    let mut world = World::with("pod", "", budget);
    for last in 1..6 {
        world.put(pod(&format!("w{last}"), last));
        world.send(Some(last), "a:1|c");
        world.send(Some(last), "a:1|c");
    }
    let folded = "a{pod=\"other\"} 6";
    assert_eq!(world.series(), [folded, "a{pod=\"w1\"} 2", "a{pod=\"w2\"} 2"]);
    for last in 1..6 {
        world.index.remove(0, &format!("uid-w{last}"));
    }
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    assert_eq!(world.series(), [folded]);
}

/// The series into which values are folded may begin as that of a sender with this value. It does not end with that.
#[test]
fn a_sender_with_the_fold_value_shares_its_series() {
    let budget = folding(2, "other");
    let mut world = World::with("pod", "", budget);
    for (last, name) in ["other", "w1", "w2", "w3"].into_iter().enumerate() {
        world.put(pod(name, last as u8));
        world.send(Some(last as u8), "a:1|c");
    }
    let folded = world.series().remove(0);
    assert!(folded.starts_with("a{pod=\"other\"} "), "{folded}");
    world.index.remove(0, "uid-other");
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    assert_eq!(world.series()[0], folded);
}

/// A namespace may have the fold value. As long as nothing is folded into them, series of its pods end with these.
#[test]
fn series_with_the_fold_value_end_with_their_sender() {
    let budget = folding(20, "shop");
    let mut world = World::with("namespace,pod", "", budget);
    for (last, name) in ["w1", "w2"].into_iter().enumerate() {
        world.put(pod(name, last as u8));
        world.send(Some(last as u8), "a:1|c");
    }
    world.index.remove(0, "uid-w1");
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    assert_eq!(world.series(), ["a{namespace=\"shop\",pod=\"w2\"} 1"]);
}

/// Lines that another replica has received may arrive long after the end of their pod.
#[test]
fn replicated_lines_of_ended_pods_have_labels() {
    let mut world = World::new("workload");
    world.put(pod("w1", 1));
    world.index.remove(0, "uid-w1");
    world.clock.advance(Duration::from_secs(80));
    world.index.advance();
    world.offline.lines_with_senders(b"\x01uid-w1\x01a:1|c\n");
    assert_eq!(world.series(), [format!("a{{{WEB}}} 1")]);
    // Not when their labels are about to end.
    world.clock.advance(Duration::from_millis(9_500));
    world.index.advance();
    world.offline.lines_with_senders(b"\x01uid-w1\x01b:1|c\n");
    assert_eq!(world.series(), [format!("a{{{WEB}}} 1"), "b 1".to_owned()]);
    world.clock.advance(Duration::from_secs(3));
    world.offline.expire();
    assert_eq!(world.series(), ["b 1"]);
}

/// A pod may have ended before the first list of this replica, but sent lines to another one before.
#[test]
fn replicated_lines_of_pods_that_ended_before_the_first_list_have_labels() {
    let mut world = World::over("workload", "", Budget::default(), PodIndex::for_replicas);
    world.index.set_list(0, Some(false));
    world.put(Pod { is_finished: true, ..pod("w1", 1) });
    world.index.set_list(0, Some(true));
    world.offline.lines_with_senders(b"\x01uid-w1\x01a:1|c\n");
    // Its address may have another owner by now.
    world.send(Some(1), "b:1|c");
    assert_eq!(world.series(), [format!("a{{{WEB}}} 1"), "b 1".to_owned()]);
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    assert_eq!(world.series(), ["b 1"]);
    world.put(Pod { is_finished: true, ..pod("w1", 1) });
    world.offline.lines_with_senders(b"\x01uid-w1\x01a:1|c\n");
    assert_eq!(world.series(), ["a 1", "b 1"]);
}

/// A series whose folded labels are not those of its sender ends with the sender.
#[test]
fn series_with_other_labels_folded_end_with_their_sender() {
    let budget = folding(1, "other");
    let mut world = World::with("workload", "", budget);
    world.put(pod("w1", 1));
    for user in 0..3 {
        world.send(Some(1), &format!("a:1|c|#user:{user}"));
    }
    let of = |user: &str| {
        format!(
            "a{{namespace=\"shop\",user=\"{user}\",workload=\"w\",workload_type=\"deployment\"}}"
        )
    };
    assert_eq!(world.series(), [format!("{} 1", of("0")), format!("{} 2", of("other"))]);
    world.index.remove(0, "uid-w1");
    world.clock.advance(Duration::from_secs(120));
    world.offline.expire();
    assert_eq!(world.series(), Vec::<String>::new());
}

/// Invented origins cost bounded memory and do not disturb known senders.
#[test]
fn invented_origins_are_harmless() {
    let mut world = World::new("pod");
    world.put(pod("w1", 1));
    for number in 0..40_000 {
        world.send(None, &format!("a:1|c|#k:v|c:{number}"));
    }
    world.send(Some(1), &format!("a:1|c|#k:v|c:{}", "x".repeat(60_000)));
    world.send(Some(1), "a:1|c|#k:v");
    assert_eq!(world.series(), ["a{k=\"v\",pod=\"w1\"} 2", "a{k=\"v\"} 40000"]);
}
