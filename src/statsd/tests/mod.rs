//! Tests of the whole StatsD pipeline.

pub(crate) mod history;

use std::sync::Arc;
use std::time::Duration;

use super::line::ParserFlags;
use super::{Clock, Pipeline, PipelineConfig, SelfMetrics};
use crate::exposition::budget::{Budget, BudgetMode};
use crate::exposition::{Format, ScrapeQuery, Source as _};
use crate::pods::{Pod, PodIndex, Selection};

/// Returns the samples of a scrape.
fn samples(pipeline: &Pipeline, format: Format) -> Vec<String> {
    let body: Vec<u8> = pipeline.frames(format, &ScrapeQuery::default()).flatten().collect();
    let body = String::from_utf8(body).expect("text");
    body.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// During a rollout of `--statsd.enrich`, one replica states the pods of its lines and another one does not.
#[test]
fn lines_of_a_replica_without_senders_get_no_labels_of_another_replicas_pods() {
    let selection = Selection::parse("pod").expect("a selection");
    let pods = Arc::new(PodIndex::new(selection));
    pods.set_list(0, Some(true));
    for name in ["web", "db"] {
        pods.put(
            0,
            Pod {
                uid: format!("uid-{name}").into(),
                namespace: "shop".into(),
                name: name.into(),
                node: "n".into(),
                workload: None,
                addresses: Box::new([]),
                node_addresses: Box::default(),
                containers: Box::new([format!("id-{name}").into()]),
                started: None,
                is_finished: false,
            },
        );
    }
    let config = PipelineConfig {
        clock: Clock::manual(),
        mirrored: true,
        self_metrics: SelfMetrics::None,
        pods: Some(pods),
        flags: ParserFlags { origins: true, ..ParserFlags::default() },
        ..PipelineConfig::default()
    };
    let pipeline = Pipeline::start(config).expect("a pipeline without listeners");
    for _ in 0..2 {
        pipeline.apply_mirrored(b"\x01uid-web\x01a:1|c\n", true);
        pipeline.apply_mirrored(b"a:1|c\na:1|c|c:id-db\n", false);
    }
    assert_eq!(samples(&pipeline, Format::Text), ["a 2", "a{pod=\"db\"} 2", "a{pod=\"web\"} 2"]);
}

/// A scrape has at most as many samples as `--limit.series`, with `--openmetrics.created` too.
#[test]
fn start_times_count_for_budgets() {
    let mapping = tempfile::NamedTempFile::new().expect("a file");
    let rules = "defaults: {ttl: 10s}\n\
                 mappings: [{match: histogram, observer_type: histogram, name: histogram}]\n";
    std::fs::write(mapping.path(), rules).expect("written");
    for (name, kind, has_start) in [
        ("a_total", "c", true),
        ("a", "c", false),
        ("a", "g", false),
        ("summary", "ms", true),
        ("histogram", "h", true),
    ] {
        for (series, series_per_metric) in [(40, 0), (0, 40), (41, 0), (0, 41)] {
            let mode = BudgetMode::Enforce;
            let config = PipelineConfig {
                clock: Clock::manual(),
                budget: Budget { mode, series, series_per_metric, ..Budget::default() },
                openmetrics_created: true,
                self_metrics: SelfMetrics::None,
                mapping_file: Some(mapping.path().to_owned()),
                ..PipelineConfig::default()
            };
            let pipeline = Pipeline::start(config).expect("a pipeline without listeners");
            for _ in 0..2 {
                for id in 0..50 {
                    pipeline.receive(format!("{name}:1|{kind}|#id:{id}").as_bytes());
                }
                let samples = samples(&pipeline, Format::OpenMetrics);
                let starts = samples.iter().any(|sample| sample.contains("_created"));
                assert_eq!(starts, has_start, "{name}|{kind}");
                let most = (series + series_per_metric) as usize;
                assert!((30..=most).contains(&samples.len()), "{samples:#?}");
                // All of them end, which makes room for as many.
                pipeline.advance(Duration::from_secs(60));
            }
        }
    }
}
