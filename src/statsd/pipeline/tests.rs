//! Pipelines for the tests of others.

use super::*;
use crate::exposition::budget::{Budget, BudgetMode};

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

/// A metric whose name a reload gave to another one keeps its series, which nobody sees.
#[test]
fn hidden_metrics_are_explained() {
    let config =
        PipelineConfig { clock: crate::statsd::Clock::manual(), ..PipelineConfig::default() };
    let pipeline = Pipeline::start(config).expect("a pipeline without listeners");
    pipeline.receive(b"a:1|c\nb:1|c\n");
    let explain = |line: &[u8]| {
        let question = LineQuestion { line: line.to_vec(), ..LineQuestion::default() };
        let explanation = pipeline.explain(&question);
        let json = serde_json::to_string(&explanation).expect("JSON");
        (explanation.text(), json)
    };
    let note = "the metric is hidden: its name is used by another metric since a reload";
    for is_hidden in [false, true, false] {
        pipeline.reserve(Arc::new(move |name| is_hidden && name == "a"));
        for (line, effect) in [(&b"a:1|c"[..], "updates a"), (b"a:1|c|#x:y", "creates a{x=\"y\"}")]
        {
            let (text, json) = explain(line);
            assert!(text.contains(effect), "{text}");
            assert_eq!(text.contains(note), is_hidden, "{text}");
            assert_eq!(json.contains(note), is_hidden, "{json}");
        }
        assert!(!explain(b"b:1|c").0.contains(note));
    }
}

/// The place of an overflow series that nobody needs any more is free for others.
#[test]
fn the_place_of_an_overflow_series_shrinks_with_its_metric() {
    let mapping = tempfile::NamedTempFile::new().expect("a file");
    let map = |defaults: &str| {
        let text = format!("defaults: {{observer_type: histogram, {defaults}}}\n");
        std::fs::write(mapping.path(), text).expect("written");
    };
    let bounds: Vec<String> = (1..=20).map(|bound| bound.to_string()).collect();
    map(&format!("ttl: 10s, histogram_options: {{buckets: [{}]}}", bounds.join(", ")));
    let config = PipelineConfig {
        clock: crate::statsd::Clock::manual(),
        mapping_file: Some(mapping.path().to_owned()),
        budget: Budget { mode: BudgetMode::Enforce, series: 50, ..Budget::default() },
        ..PipelineConfig::default()
    };
    let pipeline = Pipeline::start(config).expect("a pipeline without listeners");
    // 23 samples, and as many for the overflow series.
    pipeline.receive(b"times:1|ms|#id:wide\n");
    map("histogram_options: {buckets: [1]}");
    pipeline.reload().expect("reloaded");
    pipeline.receive(b"times:1|ms|#id:0\n");
    assert_eq!(pipeline.series(), 2);
    pipeline.advance(Duration::from_secs(60));
    assert_eq!(pipeline.series(), 1);
    // Twelve series of four samples fit, one of them the overflow series.
    for (ids, series, has_overflow) in [(1..11, 11, false), (11..30, 12, true)] {
        ids.for_each(|id| pipeline.receive(format!("times:1|ms|#id:{id}\n").as_bytes()));
        let body = pipeline.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
        let body = String::from_utf8(body).expect("UTF-8");
        let overflow = body.contains("times_count{otel_metric_overflow=\"true\"}");
        assert_eq!((pipeline.series(), overflow), (series, has_overflow), "{body}");
    }
}
