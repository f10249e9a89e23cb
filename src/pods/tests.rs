//! Pods that end, come back, share addresses and labels.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::index::{LAST_BATCH, LAST_LINES, LINGER};
use super::*;
use crate::util::shrink::SMALL;

/// No labels.
const NONE: [u64; 0] = [];

/// An index whose clock the test advances.
struct World {
    index: PodIndex,
    seconds: Arc<AtomicU64>,
    writer: u64,
}

impl World {
    fn new(selection: &str) -> Self {
        let seconds = Arc::new(AtomicU64::new(1_000));
        let clock = Arc::clone(&seconds);
        let clock = Box::new(move || Duration::from_secs(clock.load(Ordering::Relaxed)));
        let selection = Selection::parse(selection).expect("a selection");
        let index = PodIndex::with_clock(selection, clock);
        index.set_list(0, Some(true));
        let writer = index.writer();
        Self { index, seconds, writer }
    }

    /// Lets time pass, and returns the labels that have come out of use.
    fn pass(&self, time: Duration) -> Vec<u64> {
        self.seconds.fetch_add(time.as_secs() + 1, Ordering::Relaxed);
        self.index.advance().0
    }

    fn put(&self, pod: Pod) {
        self.index.put(self.writer, pod);
    }

    /// Returns the name of the pod with this address.
    fn sender(&self, last: u8) -> Result<String, Missing> {
        self.index.by_address([127, 0, 0, last].into()).map(|found| found.pod.name.to_string())
    }

    fn labels(&self, uid: &str) -> u64 {
        self.index.by_uid(uid).expect("known").labels.expect("labels").id
    }
}

fn pod(name: &str, last: u8, started: i64) -> Pod {
    Pod {
        uid: format!("uid-{name}").into(),
        namespace: "shop".into(),
        name: name.into(),
        node: "node-1".into(),
        workload: Some(PodWorkload { name: "web".into(), kind: "deployment".into() }),
        addresses: Box::new([[127, 0, 0, last].into()]),
        node_addresses: Box::new([[127, 0, 9, 1].into()]),
        containers: Box::new([format!("container-{name}").into()]),
        started: Some(started),
        is_finished: false,
    }
}

#[test]
fn a_pod_is_found_by_address_container_and_uid_until_shortly_after_its_end() {
    let world = World::new("workload");
    world.put(pod("a", 1, 10));
    let before = world.index.generation();
    world.put(pod("a", 1, 10));
    assert_eq!(world.index.generation(), before, "the same again is no change");
    assert_eq!(world.sender(1), Ok("a".to_owned()));
    assert!(world.index.by_container("container-a").is_ok());
    assert!(world.index.by_uid("uid-a").is_ok());
    assert_eq!(world.sender(2), Err(Missing::Unknown));
    world.index.remove(world.writer, "uid-a");
    assert_eq!(world.sender(1), Ok("a".to_owned()), "its last lines may be on their way");
    assert_eq!(world.pass(LAST_LINES), NONE);
    assert_eq!(world.sender(1), Err(Missing::Ended));
    assert_eq!(world.index.by_container("container-a").err(), Some(Missing::Ended));
    assert_ne!(world.index.generation(), before);
    assert_eq!(world.pass(LINGER), [1], "its labels have no pod any more");
    assert_eq!(world.sender(1), Err(Missing::Unknown));
    assert_eq!(world.index.advance(), (Vec::new(), None));
}

#[test]
fn an_address_belongs_to_the_pod_that_started_last() {
    let world = World::new("pod");
    world.put(pod("new", 1, 20));
    world.put(pod("old", 1, 10));
    assert_eq!(world.sender(1), Ok("new".to_owned()), "whatever the order of events");
    world.index.remove(world.writer, "uid-new");
    assert_eq!(world.sender(1), Ok("old".to_owned()), "the other still exists");
    world.index.remove(world.writer, "uid-old");
    world.put(pod("newest", 1, 5));
    assert_eq!(world.sender(1), Ok("newest".to_owned()), "an ended pod sends nothing");
}

#[test]
fn a_finished_pod_has_ended_though_it_exists() {
    let world = World::new("workload");
    let finished = |name| Pod { is_finished: true, ..pod(name, 1, 10) };
    world.put(finished("before"));
    assert_eq!(world.sender(1), Err(Missing::Unknown), "it had ended before it was known");
    world.put(pod("job", 1, 10));
    world.put(finished("job"));
    assert_eq!(world.sender(1), Ok("job".to_owned()));
    world.pass(LAST_LINES);
    assert_eq!(world.sender(1), Err(Missing::Ended));
    world.index.remove(world.writer, "uid-job");
    assert_eq!(world.pass(LINGER), [1]);
}

#[test]
fn addresses_of_nodes_are_told_apart() {
    let world = World::new("workload");
    world.put(Pod { addresses: Box::default(), ..pod("agent", 1, 10) });
    let node = || world.index.by_address([127, 0, 9, 1].into()).map(|found| found.pod.name.clone());
    assert_eq!(node(), Err(Missing::HostNetwork));
    world.index.remove(world.writer, "uid-agent");
    world.pass(LAST_LINES);
    world.pass(LINGER);
    assert_eq!(node(), Err(Missing::Unknown));
    world.index.set_list(1, Some(false));
    assert_eq!(node(), Err(Missing::NotSynced), "a list is not complete");
    world.index.set_list(1, None);
    assert_eq!(node(), Err(Missing::Unknown));
    world.index.set_list(0, None);
    assert_eq!(node(), Err(Missing::NotSynced), "no list is served");
}

#[test]
fn labels_are_shared_and_stay_while_any_pod_has_them() {
    let world = World::new("workload");
    world.put(pod("a", 1, 10));
    world.put(pod("b", 2, 10));
    assert_eq!(world.labels("uid-a"), world.labels("uid-b"));
    let found = world.index.by_uid("uid-a").expect("known").labels.expect("labels");
    let pairs: Vec<_> = found.pairs.iter().map(|(name, value)| (name.as_str(), &**value)).collect();
    let want = [("namespace", "shop"), ("workload", "web"), ("workload_type", "deployment")];
    assert_eq!(pairs, want);
    world.index.remove(world.writer, "uid-a");
    assert_eq!(world.pass(LAST_LINES + LINGER), NONE);
    // A pod that comes back keeps them, and an owner that becomes known changes them.
    world.index.remove(world.writer, "uid-b");
    world.put(pod("c", 3, 30));
    assert_eq!(world.pass(LAST_LINES + LINGER), NONE);
    assert_eq!(world.labels("uid-c"), 1);
    world.put(Pod { workload: None, ..pod("c", 3, 30) });
    assert_eq!(world.labels("uid-c"), 1, "its owners are not known for a while");
    let other = PodWorkload { name: "other".into(), kind: "deployment".into() };
    world.put(Pod { workload: Some(other), ..pod("c", 3, 30) });
    assert_eq!(world.labels("uid-c"), 2);
    let (unused, next) = world.index.advance();
    assert_eq!((unused, next.is_some()), (Vec::new(), true), "a batch of lines may still get them");
    assert_eq!(world.pass(LAST_BATCH), vec![1]);
    world.put(Pod { workload: None, ..pod("d", 4, 30) });
    assert!(world.index.by_uid("uid-d").expect("known").labels.is_none());
}

#[test]
fn a_replaced_writer_removes_nothing_of_its_successor() {
    let world = World::new("workload");
    world.put(pod("a", 1, 10));
    let next = world.index.writer();
    world.index.put(next, pod("a", 1, 10));
    world.index.remove(world.writer, "uid-a");
    assert_eq!(world.pass(LAST_LINES + LINGER), NONE);
    assert_eq!(world.sender(1), Ok("a".to_owned()));
    // The other order of events: the pod ends and comes back at once.
    world.index.remove(next, "uid-a");
    world.index.put(world.writer, pod("a", 1, 10));
    assert_eq!(world.pass(LAST_LINES + LINGER), NONE);
    assert_eq!(world.sender(1), Ok("a".to_owned()));
}

#[test]
fn origins_are_parsed() {
    for (sections, container, uid) in [
        ("", None, None),
        ("|c:abc", Some(ContainerClaim::Id("abc")), None),
        ("|c:ci-abc|e:it-false,cn-app,pu-u1", Some(ContainerClaim::Id("abc")), Some("u1")),
        ("|c:in-4711", Some(ContainerClaim::Inode(4_711)), None),
        ("|c:in-x|e:pu-", None, None),
        ("|c:|e:", None, None),
        ("|c:a|c:b", Some(ContainerClaim::Id("b")), None),
        ("|e:pu-u2,it-true|T5", None, Some("u2")),
    ] {
        let want = Claim { container, pod_uid: uid };
        assert_eq!(Claim::parse(sections.as_bytes()), want, "{sections}");
    }
    assert_eq!(Claim::parse(b"|c:\xff"), Claim::default());
    assert_eq!(Claim::parse(&[b"|c:".as_slice(), &[b'a'; 129]].concat()), Claim::default());
}

#[test]
fn selections_are_parsed() {
    let names = |text: &str| {
        let selection = Selection::parse(text)?;
        Ok::<Vec<_>, UnknownLabel>(selection.labels().map(PodLabel::as_str).collect())
    };
    assert_eq!(names("workload"), Ok(vec!["namespace", "workload", "workload_type"]));
    assert_eq!(names("pod, node,pod"), Ok(vec!["node", "pod"]));
    assert_eq!(names("workload,node"), Ok(vec!["node", "workload"]));
    for text in ["", "pods", "pod,"] {
        assert!(
            names(text)
                .is_err_and(|error| error.to_string().contains("must be one of namespace, node"))
        );
    }
}

#[test]
fn tables_shrink_when_pods_leave() {
    let world = World::new("workload,pod");
    let name = |number: u16| number.to_string();
    for number in 0..2_000u16 {
        let [high, low] = number.to_be_bytes();
        let mut pod = pod(&name(number), 1, 10);
        pod.addresses = Box::new([[127, 1, high, low].into()]);
        pod.node_addresses = Box::new([[127, 2, high, low].into()]);
        world.put(pod);
    }
    assert!(world.index.capacity() >= 2_000);
    (1..2_000)
        .for_each(|number| world.index.remove(world.writer, &format!("uid-{}", name(number))));
    world.pass(LAST_LINES);
    world.pass(LINGER);
    assert!(world.index.by_uid("uid-0").is_ok() && world.index.by_uid("uid-1").is_err());
    assert!(world.index.capacity() <= SMALL, "{}", world.index.capacity());
}
