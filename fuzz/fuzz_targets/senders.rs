//! Any lines of known and unknown senders: cached lines have the effect of others, and a line from a pod's address gets no
//! labels of another pod, whatever origin it states. Any text as an origin or a cgroup yields bounded IDs.
//!
//! A NUL ends a datagram; the byte after it selects the sender.
#![no_main]

use std::sync::Arc;

use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::mapper::Mapper;
use kstatd::pods::{Cgroup, Claim, ContainerClaim, Pod, PodIndex, PodWorkload, Selection};
use kstatd::statsd::line::ParserFlags;
use kstatd::statsd::{Offline, OfflineConfig, Clock};
use libfuzzer_sys::fuzz_target;

fn pod(name: &str, last: u8) -> Pod {
    Pod {
        uid: format!("u{name}").into(),
        namespace: "n".into(),
        name: name.into(),
        node: "node".into(),
        workload: Some(PodWorkload { name: name.into(), kind: "deployment".into() }),
        addresses: Box::new([[10, 0, 0, last].into()]),
        node_addresses: Box::new([[10, 0, 0, 9].into()]),
        containers: Box::new([name.into()]),
        started: None,
        is_finished: false,
    }
}

fn offline(index: &Arc<PodIndex>, key_cache_size: usize, clock: &Clock) -> Offline {
    let config = OfflineConfig {
        flags: ParserFlags { origins: true, ..ParserFlags::default() },
        key_cache_size,
        pods: Some(Arc::clone(index)),
        clock: clock.clone(),
        ..OfflineConfig::default()
    };
    Offline::new(Mapper::default(), config)
}

fn series(offline: &Offline) -> Vec<u8> {
    offline.frames(Format::Text, &ScrapeQuery::default()).flatten().collect()
}

fuzz_target!(|data: &[u8]| {
    let claim = Claim::parse(data);
    if let Some(ContainerClaim::Id(id)) = claim.container {
        assert!((1..=128).contains(&id.len()));
    }
    assert!(claim.pod_uid.is_none_or(|uid| (1..=128).contains(&uid.len())));
    let cgroup = Cgroup::parse(&String::from_utf8_lossy(data));
    assert!(cgroup.container.is_none_or(|id| id.len() == 64));
    assert!(cgroup.pod_uid.is_none_or(|uid| uid.len() == 36));

    let index = Arc::new(PodIndex::new(Selection::parse("pod").expect("a selection")));
    index.set_list(0, Some(true));
    index.put(0, pod("a", 1));
    index.put(0, pod("b", 2));
    let clock = Clock::manual();
    let (mut cached, mut uncached) = (offline(&index, 1 << 10, &clock), offline(&index, 0, &clock));
    let mut of_a = offline(&index, 1 << 10, &clock);
    // Twice, so that lines are known the second time.
    for _ in 0..2 {
        for datagram in data.split(|byte| *byte == 0) {
            let Some((&sender, lines)) = datagram.split_first() else { continue };
            let address = (sender % 4 > 0).then(|| [10, 0, 0, sender % 4].into());
            cached.datagrams([(address, lines)]);
            uncached.datagrams([(address, lines)]);
            of_a.datagrams([(Some([10, 0, 0, 1].into()), lines)]);
        }
    }
    assert_eq!(series(&cached), series(&uncached));
    let of_a = String::from_utf8(series(&of_a)).expect("UTF-8");
    let samples = of_a.lines().filter(|line| !line.starts_with('#'));
    for sample in samples {
        assert!(sample.contains("pod=\"a\""), "{sample}");
    }
});
