//! The kinds of difference between two expositions, and the known differences between the originals and kstatd: the table of
//! `docs/compatibility.md` as a value.

use serde::Serialize;

use self::DifferenceKind::{Help, Increase, Name, OnlyInA, OnlyInB, Repeated, Value};
use crate::util::words::words;

words! {
    /// A kind of difference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum DifferenceKind {
        /// Series only in A.
        OnlyInA = "only in A",
        /// Series only in B.
        OnlyInB = "only in B",
        /// Different values.
        Value = "value",
        /// Counters with different increases.
        Increase = "increase",
        /// Label names only on one side.
        Labels = "labels",
        /// Duplicate series.
        Repeated = "repeated",
        /// The type.
        Type = "type",
        /// The stability and deprecation markers of HELP.
        Stability = "stability",
        /// The rest of HELP.
        Help = "help",
        /// The announced family name.
        Name = "name",
        /// The notation of bucket bounds and quantiles.
        Bounds = "bounds",
    }
}

/// A known difference of some families.
pub struct ExplainedDifference {
    /// Family names, with at most one `*`.
    pub families: &'static [&'static str],
    /// The kinds of difference.
    pub what: &'static [DifferenceKind],
    /// The reason.
    pub why: &'static str,
}

const PRESENCE: &[DifferenceKind] = &[OnlyInA, OnlyInB];
const VALUES: &[DifferenceKind] = &[Value, Increase];

const fn explained(
    families: &'static [&'static str],
    what: &'static [DifferenceKind],
    why: &'static str,
) -> ExplainedDifference {
    ExplainedDifference { families, what, why }
}

/// All known differences. The first match applies.
pub const KNOWN: &[ExplainedDifference] = &[
    explained(&["go_*"], PRESENCE, "there is no Go runtime"),
    explained(&["kstatd_*"], PRESENCE, "what kstatd counts beyond the originals"),
    explained(
        &["kube_state_metrics_build_info", "statsd_exporter_build_info"],
        PRESENCE,
        "each program has its own version",
    ),
    explained(
        &["process_*", "promhttp_*", "http_request_duration_seconds"],
        &[OnlyInA, OnlyInB, Value, Increase],
        "each process has its own",
    ),
    explained(
        &[
            "kube_state_metrics_list_total",
            "kube_state_metrics_watch_total",
            "kube_state_metrics_last_config_reload_success_timestamp_seconds",
        ],
        VALUES,
        "each process queries the API server and reads its files at different times",
    ),
    explained(
        &[
            "statsd_exporter_event_queue_flushed_total",
            "statsd_exporter_udp_packet_drops_total",
            "statsd_exporter_relay_*",
            "statsd_metric_mapper_cache_*",
        ],
        VALUES,
        "there is no queue, and lines are remembered with their series",
    ),
    explained(
        &["statsd_exporter_events_error_total", "statsd_exporter_events_conflict_total"],
        &[OnlyInB],
        "what would cost the original every scrape is refused by reason",
    ),
    explained(&["kube_*"], &[Repeated], "a series that an object produces twice is printed once"),
    explained(
        &["kube_*", "http_*", "statsd_*", "promhttp_*", "process_*"],
        &[Help],
        "sentences are kstatd's own; stability and deprecation are the same",
    ),
    explained(&["*_total"], &[Name], "in OpenMetrics a counter's family has no `_total`"),
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
