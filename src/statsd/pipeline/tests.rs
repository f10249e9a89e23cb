//! Pipelines for the tests of others.

use super::*;

impl Pipeline {
    /// Starts a pipeline without listeners and rules, whose relay has no thread. Returns it with what takes the lines that the relay
    /// was to send so far.
    pub(crate) fn start_relaying(
        config: PipelineConfig,
    ) -> (Self, Box<dyn FnMut() -> Vec<u8> + Send>) {
        let target = crate::statsd::RelayConfig {
            address: "relay".to_owned(),
            target: "127.0.0.1:9".to_owned(),
            packet_length: 0,
        };
        let (relay, sender) = Relay::new(&target).expect("an address");
        let pipeline = Self::start_with(config, Mapper::default(), Some(relay));
        let take = move || sender.queue.try_iter().flat_map(|batch| batch.text).collect();
        (pipeline.expect("a pipeline without listeners"), Box::new(take))
    }

    /// Applies lines of a client, each followed by a line feed, as those of a UDP socket.
    pub(crate) fn receive(&self, text: &[u8]) {
        let mut worker = Worker::new(&self.shared, Listener::Udp);
        worker.begin();
        worker.lines(text.strip_suffix(b"\n").unwrap_or(text));
        worker.end();
    }
}

/// A scrape of a single family neither reads nor renders thousands of others.
#[test]
fn families_that_are_not_wanted_are_not_collected() {
    struct Unwanted;
    impl Collect for Unwanted {
        fn collect(&self, _out: &mut Vec<Family>) {
            panic!("collected");
        }

        fn may_have(&self, names: &BTreeSet<String>) -> bool {
            names.contains("unwanted")
        }
    }
    let config = PipelineConfig {
        clock: crate::statsd::Clock::manual(),
        self_metrics: SelfMetrics::All,
        additional: Some(Arc::new(Unwanted)),
        ..PipelineConfig::default()
    };
    let pipeline = Pipeline::start(config).expect("a pipeline without listeners");
    pipeline.receive(b"a:1|c\na:1|g\nb:1|c\n");
    for (name, text) in [
        ("a", "a 1\n"),
        (CONFLICTS, "statsd_exporter_events_conflict_total{metric_name=\"a\",type=\"gauge\"} 1\n"),
        ("statsd_exporter_lines_total", "statsd_exporter_lines_total 3\n"),
    ] {
        let query = ScrapeQuery { names: Some([name.to_owned()].into()), ..ScrapeQuery::default() };
        let body: Vec<u8> = pipeline.frames(Format::Text, &query).flatten().collect();
        let body = String::from_utf8(body).expect("UTF-8");
        let samples: String = body.split_inclusive('\n').filter(|l| !l.starts_with('#')).collect();
        assert_eq!(samples, text);
    }
}
