//! Senders whose lines get labels, such as the pods of a simulated cluster, and the receivers of copies of their lines.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;

use super::features::Feature;
use super::pod_connections::PodConnections;
use super::unreadable::bytes_of;
use super::{History, Labels};
use crate::exposition::typed::TypedBody;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::mapper::Mapper;
use crate::pods::PodIndex;
use crate::statsd::ingest::{Peer, Sender, Shared};
use crate::statsd::mirror::Mirror;
use crate::statsd::relay::{Relay, RelayConfig, RelaySender};
use crate::statsd::scrape::Scrape;
use crate::statsd::{Offline, OfflineConfig};

/// A line that a rule drops.
pub(super) const DROPPED: &str = "drop.x:1|c";

/// The origin of lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) address: Option<IpAddr>,
    /// The section of each line that states its origin; empty if there is none.
    pub(crate) claim: String,
}

/// The pods that send the lines of a history.
pub(crate) trait Senders {
    /// Returns the index of the pods.
    fn index(&self) -> &Arc<PodIndex>;

    /// Returns the origin of the next lines.
    fn next(&self, rng: &mut Rng) -> Origin;

    /// Returns what another line of the same peer states, if one precedes the next lines in their datagram.
    fn before(&self) -> Option<String>;

    /// Checks the labels that a line from there gets at this moment, and the outcome that is counted.
    fn check(&self, origin: &Origin, labels: &Labels, outcome: &'static str) -> Result<(), String>;

    /// Returns the end of series with these labels, which include those of a sender if it was known.
    fn end(&self, labels: &Labels) -> SeriesEnd;
}

/// The end of series with their sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeriesEnd {
    /// They may have ended.
    pub(crate) may: bool,
    /// They must have ended.
    pub(crate) must: bool,
}

/// A relay and another replica, which receive all lines.
pub(super) struct Copies {
    relay: RelaySender,
    replica: Offline,
    /// The number of the next line for the replica.
    next: u64,
    /// The lines since the last check.
    sent: Vec<u8>,
    /// The lines by the outcome of the search for their sender.
    outcomes: BTreeMap<String, u64>,
    rejected_claims: u64,
    connections: PodConnections,
}

/// The result of sending lines.
pub(super) struct SentLines {
    /// The labels that they get.
    labels: Labels,
    /// The lines and the outcome of the search for their sender, for the journal.
    about: String,
    /// Another line came before or between them.
    has_other: bool,
    /// They came over TCP.
    is_stream: bool,
}

impl Copies {
    /// Returns a pipeline whose lines come from pods, and the receivers of its lines.
    pub(super) fn start(
        mapper: Mapper,
        config: OfflineConfig,
        change: impl Fn(&mut Shared),
    ) -> (Offline, Self) {
        let target = RelayConfig {
            address: "relay".to_owned(),
            target: "127.0.0.1:9".to_owned(),
            packet_length: 1_400,
        };
        let (relay, sender) = Relay::new(&target).expect("an address");
        let mapper = Arc::new(mapper);
        let replica = Offline::with(Arc::clone(&mapper), config.clone(), &change);
        let offline = Offline::with(mapper, config, |shared| {
            change(shared);
            (shared.relay, shared.mirror) = (Some(relay), Some(Mirror::new(true)));
        });
        let (sent, outcomes) = (Vec::new(), BTreeMap::new());
        let connections = PodConnections::new(offline.shared());
        let (next, rejected_claims) = (0, 0);
        let relay = sender;
        (offline, Self { relay, replica, next, sent, outcomes, rejected_claims, connections })
    }

    pub(super) fn replica(&self) -> &Offline {
        &self.replica
    }

    /// Removes the series of the replica that have expired, and those whose sender has ended in the other pipeline: the index, which
    /// both share, returns labels that are not in use any more once.
    pub(super) fn expire(&self, other: &Offline) {
        let [replica, other] = [&self.replica, other].map(|offline| &offline.shared().registry);
        replica.run_due();
        let ended: Vec<u64> =
            replica.sender_labels().difference(&other.sender_labels()).copied().collect();
        replica.end_senders(&ended);
    }

    /// Sends lines from one of the pods.
    pub(super) fn send(
        &mut self,
        offline: &mut Offline,
        pods: &dyn Senders,
        origin: &Origin,
        lines: &[String],
    ) -> Result<SentLines, String> {
        let peer = origin.address.map_or(Peer::Unknown, Peer::Address);
        let mut text = String::new();
        if let Some(claim) = pods.before() {
            let sender = Sender::resolve(pods.index(), peer, claim.as_bytes());
            self.count(&sender, 1);
            text = format!("{DROPPED}{claim}\n");
        }
        let sender = Sender::resolve(pods.index(), peer, &bytes_of(&origin.claim));
        let pairs = sender.labels.iter().flat_map(|labels| &labels.pairs);
        let labels: Labels =
            pairs.map(|(name, value)| (name.as_str().to_owned(), value.to_string())).collect();
        let outcome = sender.outcome.as_str();
        pods.check(origin, &labels, outcome).map_err(|why| format!("{lines:?}: {why}"))?;
        self.count(&sender, lines.len() as u64);
        let mut has_other = !text.is_empty();
        text.extend(lines.iter().map(|line| format!("{line}{}\n", origin.claim)));
        let plan = self.connections.plan(origin.address);
        if let Some(plan) = &plan {
            let mut between = String::new();
            if let Some(other) = plan.interrupter {
                let sender = Sender::resolve(pods.index(), Peer::Address(other), b"");
                self.count(&sender, 1);
                between = format!("{DROPPED}\n");
                has_other = true;
            }
            self.connections.send(plan, &bytes_of(&text), between.as_bytes());
            // It came before the last line.
            let last = text.trim_end().rfind('\n').map_or(0, |end| end + 1);
            text.insert_str(last, &between);
        } else {
            offline.datagrams([(origin.address, &bytes_of(&text)[..])]);
        }
        let mirror = offline.shared().mirror.as_ref().expect("a mirror");
        let copy = mirror.read(Some(self.next), true, usize::MAX);
        self.next = copy.next;
        self.replica.lines_with_senders(copy.text.trim_ascii_end());
        self.sent.extend(bytes_of(&text));
        let about = format!("{text}from {:?}: {outcome}", origin.address);
        Ok(SentLines { labels, about, has_other, is_stream: plan.is_some() })
    }

    /// Counts lines from a sender.
    fn count(&mut self, sender: &Sender, lines: u64) {
        *self.outcomes.entry(sender.outcome.as_str().to_owned()).or_default() += lines;
        self.rejected_claims += lines * u64::from(sender.rejected.is_some());
    }

    /// Compares the relayed lines with those that were sent, the series of the replica with a scrape, and the counts of senders
    /// with the expected ones.
    pub(super) fn check(&mut self, offline: &Offline, scrape: &[u8]) -> Result<(), String> {
        let relayed: Vec<u8> = self.relay.queue.try_iter().flat_map(|batch| batch.text).collect();
        let sent = std::mem::take(&mut self.sent);
        if relayed != sent {
            let [relayed, sent] = [&relayed, &sent].map(|text| String::from_utf8_lossy(text));
            return Err(format!("relayed {relayed}instead of {sent}"));
        }
        let query = ScrapeQuery::default();
        let replica: Vec<u8> = self.replica.frames(Format::Text, &query).flatten().collect();
        if replica != scrape {
            let [replica, scrape] = [&replica, scrape].map(String::from_utf8_lossy);
            return Err(format!("the replica has\n{replica}\ninstead of\n{scrape}"));
        }
        let own: Vec<u8> = offline.self_metrics().flatten().collect();
        let own = String::from_utf8_lossy(&own);
        let counts = |families: &[&str]| -> BTreeMap<String, u64> {
            let lines = own.lines().filter(|line| families.iter().any(|at| line.starts_with(at)));
            let counts = lines.filter_map(|line| {
                let (label, count) = line.split_once('"')?.1.split_once("\"} ")?;
                Some((label.to_owned(), count.parse().ok()?))
            });
            counts.filter(|(_, count)| *count > 0).collect()
        };
        let outcomes = counts(&[
            "kstatd_statsd_enriched_lines_total{",
            "kstatd_statsd_unknown_sender_lines_total{",
        ]);
        let rejected: u64 = counts(&["kstatd_statsd_rejected_origins_total{"]).values().sum();
        if (&outcomes, rejected) != (&self.outcomes, self.rejected_claims) {
            let (expected, claims) = (&self.outcomes, self.rejected_claims);
            return Err(format!(
                "{outcomes:?} and {rejected} rejected claims, not {expected:?} and {claims}"
            ));
        }
        Ok(())
    }
}

/// The series of a history as a source.
pub(crate) struct SeriesSource(pub(super) Arc<Shared>);

impl SeriesSource {
    fn scrape(&self, query: &ScrapeQuery) -> Scrape {
        let registry = &self.0.registry;
        Scrape::new(registry.view(), Vec::new(), None, query.names.clone(), registry.clock.clone())
    }
}

impl Source for SeriesSource {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        Box::new(self.scrape(query).text(format, false))
    }

    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        Some(Box::new(self.scrape(query)))
    }
}

/// Leaves out the reasons for which [`DROPPED`], which came among other lines, counts as dropped.
pub(super) fn leave_out_dropped(reasons: &mut Vec<&'static str>) {
    reasons.retain(|reason| !matches!(*reason, "dropped_by_rule" | "dropped"));
}

impl History {
    /// Sends lines from one of the pods, which state this origin if there is one.
    pub(super) fn send_with(
        &mut self,
        claim: Option<String>,
        lines: &[String],
    ) -> Result<(Vec<&'static str>, Labels), String> {
        let before = self.offline.shared().metrics.rejections();
        let (pods, copies) = self.pods.as_mut().expect("pods");
        let mut origin = pods.next(&mut self.rng);
        origin.claim = claim.unwrap_or(origin.claim);
        let SentLines { labels, about, has_other, is_stream } =
            copies.send(&mut self.offline, &**pods, &origin, lines)?;
        if is_stream {
            self.used(Feature::Tcp);
        }
        self.used(if labels.is_empty() { Feature::UnknownSender } else { Feature::Enriched });
        self.trace("lines", about.as_bytes());
        let mut reasons = self.offline.reasons_since(&before);
        if has_other {
            leave_out_dropped(&mut reasons);
        }
        Ok((reasons, labels))
    }
}
