//! Known differences between the originals and kstatd: the table of `docs/compatibility.md` as a
//! value.

use super::difference_kind::DifferenceKind;

/// A known difference of some families.
#[derive(Debug)]
pub struct ExplainedDifference {
    /// Family names, with at most one `*`.
    pub families: &'static [&'static str],
    /// The kinds of difference.
    pub what: &'static [DifferenceKind],
    /// The reason.
    pub why: &'static str,
}

const PRESENCE: &[DifferenceKind] = &[DifferenceKind::OnlyInA, DifferenceKind::OnlyInB];
const VALUES: &[DifferenceKind] = &[DifferenceKind::Value, DifferenceKind::Increase];

/// All known differences. The first match applies.
pub const KNOWN: &[ExplainedDifference] = &[
    ExplainedDifference { families: &["go_*"], what: PRESENCE, why: "there is no Go runtime" },
    ExplainedDifference {
        families: &["kstatd_*"],
        what: PRESENCE,
        why: "what kstatd counts beyond the originals",
    },
    ExplainedDifference {
        families: &["kube_state_metrics_build_info", "statsd_exporter_build_info"],
        what: PRESENCE,
        why: "each program has its own version",
    },
    ExplainedDifference {
        families: &["process_*", "promhttp_*", "http_request_duration_seconds"],
        what: &[
            DifferenceKind::OnlyInA,
            DifferenceKind::OnlyInB,
            DifferenceKind::Value,
            DifferenceKind::Increase,
        ],
        why: "each process has its own",
    },
    ExplainedDifference {
        families: &[
            "kube_state_metrics_list_total",
            "kube_state_metrics_watch_total",
            "kube_state_metrics_last_config_reload_success_timestamp_seconds",
        ],
        what: VALUES,
        why: "each process queries the API server and reads its files at different times",
    },
    ExplainedDifference {
        families: &[
            "statsd_exporter_event_queue_flushed_total",
            "statsd_exporter_udp_packet_drops_total",
            "statsd_exporter_relay_*",
            "statsd_metric_mapper_cache_*",
        ],
        what: VALUES,
        why: "there is no queue, and lines are remembered with their series",
    },
    ExplainedDifference {
        families: &["statsd_exporter_events_error_total", "statsd_exporter_events_conflict_total"],
        what: &[DifferenceKind::OnlyInB],
        why: "what would cost the original every scrape is refused by reason",
    },
    ExplainedDifference {
        families: &["kube_*"],
        what: &[DifferenceKind::Repeated],
        why: "a series that an object produces twice is printed once",
    },
    ExplainedDifference {
        families: &["kube_*", "http_*", "statsd_*", "promhttp_*", "process_*"],
        what: &[DifferenceKind::Help],
        why: "sentences are kstatd's own; stability and deprecation are the same",
    },
    ExplainedDifference {
        families: &["*_total"],
        what: &[DifferenceKind::Name],
        why: "in OpenMetrics a counter's family has no `_total`",
    },
];

/// Returns the reason for this difference of a family, if it is known.
pub(super) fn reason(family: &str, what: DifferenceKind) -> Option<&'static str> {
    let fits = |known: &&ExplainedDifference| {
        known.what.contains(&what) && known.families.iter().any(|pattern| matches(pattern, family))
    };
    KNOWN.iter().find(fits).map(|known| known.why)
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cells of the table under the heading.
    fn documented() -> Vec<Vec<String>> {
        let text = include_str!("../../../docs/compatibility.md");
        let part = text.split("\n## What `kstatd diff` explains\n").nth(1).expect("a section");
        let part = part.split("\n## ").next().unwrap_or_default();
        let rows = part.lines().filter(|line| line.starts_with("| `"));
        rows.map(|row| {
            let row = row.trim_start_matches("| ").trim_end_matches(" |");
            row.split(" | ").map(str::to_owned).collect()
        })
        .collect()
    }

    #[test]
    fn the_document_lists_the_same_differences() {
        let listed = |words: Vec<String>| words.join(", ");
        let program: Vec<Vec<String>> = KNOWN
            .iter()
            .map(|known| {
                let families = known.families.iter().map(|name| format!("`{name}`")).collect();
                let what = known.what.iter().map(|what| what.as_str().to_owned()).collect();
                vec![listed(families), listed(what), known.why.to_owned()]
            })
            .collect();
        assert_eq!(documented(), program);
    }

    #[test]
    fn patterns() {
        assert!(matches("go_*", "go_threads") && matches("*_total", "a_total"));
        assert!(matches("a", "a") && !matches("a", "ab") && !matches("ab*b", "ab"));
        assert_eq!(reason("go_threads", DifferenceKind::OnlyInA), Some("there is no Go runtime"));
        assert_eq!(reason("go_threads", DifferenceKind::Value), None);
        assert_eq!(reason("kube_pod_info", DifferenceKind::OnlyInA), None);
    }
}
