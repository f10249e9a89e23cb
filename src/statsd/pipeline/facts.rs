//! The facts about the StatsD pipeline for the status page.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use super::Pipeline;
use crate::exposition::labels;
use crate::statsd::metrics::{Count, Listener, NameCount, SampleOutcome};
use crate::statsd::receive::receiver::Receiver;
use crate::statsd::series::budget_violations::truncated;
use crate::statsd::series::tree::Snapshot;
use crate::status::{
    self, ConfigFile, LARGEST, Largest, OverBudget, Refused, Rule, SHOWN, Sample, Statsd, Unmapped,
    excess_rank,
};

/// The file with the maximum receive buffer of a socket.
const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";

impl Pipeline {
    /// Returns the current facts.
    pub(crate) fn facts(&self) -> Statsd {
        let metrics = &self.shared.metrics;
        let mapping = self.shared.mapping.load();
        let (mut hits, never_hit): (Vec<_>, Vec<_>) =
            mapping.hits.iter().partition(|(_, hits)| *hits > 0);
        hits.sort_by_key(|(_, hits)| std::cmp::Reverse(*hits));
        let rule =
            |(pattern, hits): &(&str, u64)| Rule { pattern: (*pattern).to_owned(), hits: *hits };
        let (mapped_since_load, unmapped_since_load) = metrics.since_load();
        let names = metrics.examples.unmapped_names();
        let registry = &self.shared.registry;
        let pages = registry.view().pages;
        Statsd {
            series: self.series(),
            families: pages.families().count() as u64,
            lines: metrics.lines(None),
            listeners: self.listening(),
            rmem_max: std::fs::read_to_string(RMEM_MAX)
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            mapping_file: self.mapping_path(),
            mapped: metrics.mapped(),
            unmapped: metrics.count(Count::Unmapped),
            mapped_since_load,
            unmapped_since_load,
            rules: hits.iter().take(SHOWN).map(rule).collect(),
            rule_count: (hits.len() + never_hit.len()) as u64,
            never_hit: never_hit.iter().take(SHOWN).map(|(rule, _)| (*rule).to_owned()).collect(),
            never_hit_count: never_hit.len() as u64,
            unmapped_names: names
                .into_iter()
                .take(SHOWN)
                .map(|NameCount { name, events }| Unmapped { name: name.into(), events })
                .collect(),
            refused: self.refused(),
            new_in_an_hour: registry.growth().iter().sum(),
            largest: largest(&pages),
            over_budget: self.over_budget(),
            senders: self.shared.datagram_senders.report(registry.clock.now()),
        }
    }

    fn over_budget(&self) -> Vec<OverBudget> {
        let clock = &self.shared.registry.clock;
        clock.follow_wall_clock();
        let epoch = clock.epoch();
        let wall = |tick| epoch.wall(tick).as_secs_f64();
        let now = wall(clock.now().tick());
        let mut all = self.shared.registry.violations.all();
        all.sort_by_key(|violation| excess_rank(now, wall(violation.last), violation.times));
        let shown = all.into_iter().take(SHOWN).map(|violation| OverBudget {
            metric: violation.metric,
            label: violation.label,
            limit: violation.limit.as_str(),
            action: violation.action.as_str(),
            label_sets: violation.times,
            at: wall(violation.last),
        });
        shown.collect()
    }

    /// Returns the state of the mapping file, if there is one.
    pub(crate) fn mapping(&self) -> Option<ConfigFile> {
        let metrics = &self.shared.metrics;
        let at = metrics.mapping_loaded_at.load(Ordering::Relaxed);
        Some(ConfigFile {
            what: "mapping",
            path: self.mapping_path()?,
            in_force: metrics.mapping_loaded.load(Ordering::Relaxed),
            loaded: (at > 0).then_some(at as f64 / 1000.0),
            error: metrics.mapping_error.lock().clone(),
            unanswered_since: None,
        })
    }

    /// Adds the values that the status page plots.
    pub(crate) fn sample(&self, sample: &mut Sample) {
        let dropped: u64 =
            self.threads.receivers.iter().flat_map(Receiver::sockets).map(|s| s.dropped).sum();
        sample.total("lines", "", self.lines(None) as f64);
        sample.total("drops", "", dropped as f64);
        sample.level("series", "", self.series() as f64);
    }

    fn mapping_path(&self) -> Option<String> {
        self.mapping_file.as_deref().map(Path::to_string_lossy).map(|path| path.into_owned())
    }

    /// Returns the listeners. Several sockets of one are together, because lines are not counted for each.
    fn listening(&self) -> Vec<status::Listener> {
        let lines = |listener| self.lines(Some(listener));
        let mut listeners: Vec<status::Listener> = Vec::new();
        for socket in self.threads.receivers.iter().flat_map(Receiver::sockets) {
            let protocol = socket.listener.as_str();
            let receive_buffer_bytes = socket.receive_buffer.map(|bytes| bytes as u64);
            let is_known = |known: &&mut status::Listener| known.protocol == protocol;
            if let Some(known) = listeners.iter_mut().find(is_known) {
                known.receive_buffer_bytes = known.receive_buffer_bytes.min(receive_buffer_bytes);
                known.dropped = known.dropped.map(|dropped| dropped + socket.dropped);
                continue;
            }
            listeners.push(status::Listener {
                protocol,
                address: match socket.listener {
                    Listener::Unixgram => self.unix_path.clone().unwrap_or_default(),
                    _ => self.threads.udp.map_or_else(String::new, |address| address.to_string()),
                },
                lines: lines(socket.listener),
                receive_buffer_bytes,
                dropped: Some(socket.dropped),
            });
        }
        listeners.extend(self.threads.tcp.map(|address| status::Listener {
            protocol: Listener::Tcp.as_str(),
            address: address.to_string(),
            lines: lines(Listener::Tcp),
            receive_buffer_bytes: None,
            dropped: None,
        }));
        listeners
    }

    fn refused(&self) -> Vec<Refused> {
        let metrics = &self.shared.metrics;
        let mut lines = metrics.examples.rejected();
        let mut refused: Vec<Refused> = SampleOutcome::all()
            .filter_map(|outcome| {
                let example = lines.remove(outcome.as_str())?;
                let count = match outcome {
                    // Includes whole lines, which have no samples.
                    SampleOutcome::Malformed(error) => metrics.errors.get(error as usize)?,
                    _ => metrics.samples.get(outcome.index())?,
                };
                let count = count.load(Ordering::Relaxed);
                let at = example.at.duration_since(UNIX_EPOCH).unwrap_or_default();
                let (at, line) = (at.as_millis() as f64 / 1000.0, example.line);
                Some(Refused { reason: outcome.as_str(), count, at, line })
            })
            .collect();
        refused.sort_by(|a, b| b.at.total_cmp(&a.at));
        refused
    }
}

/// Returns the families with the most series.
fn largest(pages: &Snapshot) -> Vec<Largest> {
    let mut families: Vec<_> = pages.families().collect();
    families.sort_by_key(|(_, series)| std::cmp::Reverse(*series));
    let shown = families.iter().take(LARGEST).map(|(family, series)| {
        let first = pages.find_series(&family.name, |_, labels| Some(labels.to_vec()));
        let text = first.unwrap_or_default();
        let names: Vec<_> =
            labels::iter(&text).map(|(name, _)| String::from_utf8_lossy(name)).collect();
        Largest {
            name: truncated(&family.name).to_owned(),
            kind: family.kind.exposed_kind().as_str(),
            label_sets: *series,
            labels: truncated(&names.join(", ")).to_owned(),
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::exposition::budget::{Budget, BudgetMode};
    use crate::statsd::ingest::Worker;
    use crate::statsd::{Clock, PipelineConfig};

    /// A thread uses the old mapping for the rest of its batch.
    #[test]
    fn names_that_a_reload_has_mapped_are_not_shown() {
        let mapping = tempfile::NamedTempFile::new().expect("a file");
        let map = |name: &str| {
            let rules = format!("mappings: [{{match: {name}, name: {name}}}]\n");
            std::fs::write(mapping.path(), rules).expect("written");
        };
        map("other");
        let config = PipelineConfig {
            clock: Clock::manual(),
            mapping_file: Some(mapping.path().to_owned()),
            ..PipelineConfig::default()
        };
        let pipeline = Pipeline::start(config).expect("a pipeline without listeners");
        let mut worker = Worker::new(&pipeline.shared, Listener::Udp);
        let names = || {
            let names = pipeline.facts().unmapped_names.into_iter();
            names.map(|unmapped| unmapped.name).collect::<Vec<_>>()
        };
        worker.begin();
        worker.line(b"known:1|c");
        assert_eq!(names(), ["known"]);
        map("known");
        pipeline.reload().expect("reloaded");
        // The first of them is new, the second one cached.
        worker.line(b"known:1|c|#a:b");
        (0..1_000).for_each(|_| worker.line(b"known:1|c"));
        assert!(names().is_empty());
        worker.begin();
        worker.line(b"other:1|c");
        assert_eq!(names(), ["other"]);
        worker.end();
    }

    #[test]
    fn the_lines_of_listeners_add_up() {
        let config = PipelineConfig {
            udp: Some("127.0.0.1:0".parse().expect("address")),
            udp_sockets: 3,
            clock: Clock::manual(),
            ..PipelineConfig::default()
        };
        let pipeline = Pipeline::start(config).expect("a pipeline");
        pipeline.receive(b"a:1|c\nb:1|c\n");
        let Statsd { lines, listeners, .. } = pipeline.facts();
        let shown: u64 = listeners.iter().map(|listener| listener.lines).sum();
        assert_eq!((lines, shown), (2, 2));
        assert!(listeners.iter().all(|listener| listener.receive_buffer_bytes > Some(0)));
    }

    /// Budgets that were exceeded often in the past do not hide one that is exceeded now.
    #[test]
    fn recent_excesses_come_first() {
        let budget = Budget { mode: BudgetMode::Enforce, values_per_label: 1, ..Budget::default() };
        let config = PipelineConfig { clock: Clock::manual(), budget, ..PipelineConfig::default() };
        let pipeline = Pipeline::start(config).expect("a pipeline without listeners");
        let exceed = |metric: &str, times: usize| {
            let lines = (0..=times).map(|value| format!("{metric}:1|c|#l:{value}\n"));
            pipeline.receive(lines.collect::<String>().as_bytes());
        };
        (0..=SHOWN).for_each(|number| exceed(&format!("often_{number}"), 2));
        exceed("seldom", 1);
        let first = || pipeline.facts().over_budget.swap_remove(0).metric;
        assert_eq!(first(), "often_0");
        pipeline.advance(Duration::from_secs(600));
        pipeline.receive(b"seldom:1|c|#l:new\n");
        assert_eq!(first(), "seldom");
    }
}
