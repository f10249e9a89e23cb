//! Differences between an original and kstatd that have a reason: the table of `docs/compatibility.md`, as a value.

use super::what::What;

/// Families that differ, in what, and why.
#[derive(Debug)]
pub struct Known {
    /// Names, with one `*` at most.
    pub families: &'static [&'static str],
    /// In what they differ.
    pub what: &'static [What],
    /// Why.
    pub why: &'static str,
}

const PRESENCE: &[What] = &[What::OnlyInA, What::OnlyInB];
const VALUES: &[What] = &[What::Value, What::Increase];

/// All rows. The first that fits is the reason.
pub const KNOWN: &[Known] = &[
    Known { families: &["go_*"], what: PRESENCE, why: "there is no Go runtime" },
    Known {
        families: &["kstatd_*"],
        what: PRESENCE,
        why: "what kstatd counts beyond the originals",
    },
    Known {
        families: &["kube_state_metrics_build_info", "statsd_exporter_build_info"],
        what: PRESENCE,
        why: "each program has its own version",
    },
    Known {
        families: &["process_*", "promhttp_*", "http_request_duration_seconds"],
        what: &[What::OnlyInA, What::OnlyInB, What::Value, What::Increase],
        why: "each process has its own",
    },
    Known {
        families: &[
            "kube_state_metrics_list_total",
            "kube_state_metrics_watch_total",
            "kube_state_metrics_last_config_reload_success_timestamp_seconds",
        ],
        what: VALUES,
        why: "each process asks the API server and reads its files at times of its own",
    },
    Known {
        families: &[
            "statsd_exporter_event_queue_flushed_total",
            "statsd_exporter_udp_packet_drops_total",
            "statsd_exporter_relay_*",
            "statsd_metric_mapper_cache_*",
        ],
        what: VALUES,
        why: "there is no queue, and lines are remembered with their series",
    },
    Known {
        families: &["statsd_exporter_events_error_total", "statsd_exporter_events_conflict_total"],
        what: &[What::OnlyInB],
        why: "what would cost the original every scrape is refused by reason",
    },
    Known {
        families: &["kube_*"],
        what: &[What::Repeated],
        why: "a series that an object gives rise to twice is printed once",
    },
    Known {
        families: &["kube_*", "http_*", "statsd_*", "promhttp_*", "process_*"],
        what: &[What::Help],
        why: "sentences are kstatd's own; stability and deprecation are the same",
    },
    Known {
        families: &["*_total"],
        what: &[What::Name],
        why: "in OpenMetrics a counter's family has no `_total`",
    },
];

/// Why a family differs in this, if that is known.
pub(super) fn reason(family: &str, what: What) -> Option<&'static str> {
    let fits = |known: &&Known| {
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

    /// The rows under the heading, as cells.
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
    fn the_document_has_the_same_rows() {
        let listed = |words: Vec<String>| words.join(", ");
        let program: Vec<Vec<String>> = KNOWN
            .iter()
            .map(|known| {
                let families = known.families.iter().map(|name| format!("`{name}`")).collect();
                let what = known.what.iter().map(|what| what.text().to_owned()).collect();
                vec![listed(families), listed(what), known.why.to_owned()]
            })
            .collect();
        assert_eq!(documented(), program);
    }

    #[test]
    fn patterns() {
        assert!(matches("go_*", "go_threads") && matches("*_total", "a_total"));
        assert!(matches("a", "a") && !matches("a", "ab") && !matches("ab*b", "ab"));
        assert_eq!(reason("go_threads", What::OnlyInA), Some("there is no Go runtime"));
        assert_eq!(reason("go_threads", What::Value), None);
        assert_eq!(reason("kube_pod_info", What::OnlyInA), None);
    }
}
