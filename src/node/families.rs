//! The families, one row each, and the body of a scrape.

use std::sync::Arc;

use bytes::Bytes;

use super::record::{Record, Scope, Snapshot};
use super::store::{Store, now};
use crate::exposition::{Format, ScrapeQuery, Source, family, header};

/// A family of gauges.
struct Row {
    name: &'static str,
    help: &'static str,
    scope: Scope,
    /// What a record says, at Unix seconds of now.
    value: fn(&Record, f64) -> Option<f64>,
}

const fn row(
    scope: Scope,
    name: &'static str,
    help: &'static str,
    value: fn(&Record, f64) -> Option<f64>,
) -> Row {
    Row { name, help, scope, value }
}

fn used(record: &Record, _: f64) -> Option<f64> {
    Some(record.used)
}

fn inodes(record: &Record, _: f64) -> Option<f64> {
    record.inodes.map(|inodes| inodes as f64)
}

fn age(record: &Record, now: f64) -> Option<f64> {
    Some((now - record.at).max(0.0))
}

fn coverage(record: &Record, _: f64) -> Option<f64> {
    Some(record.coverage)
}

fn limit(record: &Record, _: f64) -> Option<f64> {
    record.limit
}

fn request(record: &Record, _: f64) -> Option<f64> {
    record.request
}

fn ratio(record: &Record, _: f64) -> Option<f64> {
    Some(record.used / record.limit.filter(|limit| *limit > 0.0)?)
}

fn percentage(record: &Record, now: f64) -> Option<f64> {
    Some(100.0 * ratio(record, now)?)
}

/// From now on: it was reckoned for the moment of the figure.
pub(super) fn full(record: &Record, now: f64) -> Option<f64> {
    Some((record.full? - (now - record.at).max(0.0)).max(0.0))
}

fn available(record: &Record, _: f64) -> Option<f64> {
    Some(record.limit? - record.used)
}

/// All of them, in the order of their names.
static ROWS: &[Row] = &[
    row(
        Scope::OtherContainer,
        "ephemeral_storage_container_limit_percentage",
        "Percentage of ephemeral storage used by a container in a pod.",
        percentage,
    ),
    row(
        Scope::OtherVolumeLimit,
        "ephemeral_storage_container_volume_limit_percentage",
        "Percentage of ephemeral storage used by a container's volume in a pod.",
        percentage,
    ),
    row(
        Scope::OtherVolume,
        "ephemeral_storage_container_volume_usage",
        "Current ephemeral storage used by a container's volume in a pod.",
        used,
    ),
    row(
        Scope::OtherNode,
        "ephemeral_storage_node_available",
        "Available ephemeral storage for a node.",
        available,
    ),
    row(
        Scope::OtherNode,
        "ephemeral_storage_node_capacity",
        "Capacity of ephemeral storage for a node.",
        limit,
    ),
    row(
        Scope::OtherNode,
        "ephemeral_storage_node_percentage",
        "Percentage of ephemeral storage used on a node.",
        percentage,
    ),
    row(
        Scope::OtherPod,
        "ephemeral_storage_pod_usage",
        "Current ephemeral byte usage of pod.",
        used,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_coverage_ratio",
        "Part of the container's layer and logs that was looked at; 0 where one of them is not known at all.",
        coverage,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_limit_bytes",
        "The container's limit of ephemeral storage.",
        limit,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_limit_ratio",
        "What the container uses as a part of its limit.",
        ratio,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_request_bytes",
        "The container's request of ephemeral storage.",
        request,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_until_full_seconds",
        "Seconds until the container's limit is reached if it goes on growing as it has; absent where it does not grow.",
        full,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_used_bytes",
        "What the container's limit counts: its writable layer and its logs.",
        used,
    ),
    row(
        Scope::Disk,
        "kstatd_node_filesystem_available_bytes",
        "Bytes that are free on a file system of the node, as the kubelet says.",
        available,
    ),
    row(
        Scope::Disk,
        "kstatd_node_filesystem_capacity_bytes",
        "Size of a file system of the node, as the kubelet says.",
        limit,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_coverage_ratio",
        "Part of what the pod has on the node that was looked at; 0 where something is not known at all.",
        coverage,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_limit_bytes",
        "The pod's limit of ephemeral storage: that of its containers together.",
        limit,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_limit_ratio",
        "What the pod uses as a part of its limit.",
        ratio,
    ),
    row(Scope::Owner, "kstatd_node_pod_owner", "What has made a pod of this node.", used),
    row(
        Scope::Pod,
        "kstatd_node_pod_request_bytes",
        "The pod's request of ephemeral storage: that of its containers together.",
        request,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_until_full_seconds",
        "Seconds until the pod's limit is reached if it goes on growing as it has; absent where it does not grow.",
        full,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_used_bytes",
        "Ephemeral storage of the pod: writable layers, logs and volumes of the node.",
        used,
    ),
    row(Scope::Part, "kstatd_node_storage_age_seconds", "How long ago the figure was true.", age),
    row(
        Scope::Part,
        "kstatd_node_storage_coverage_ratio",
        "Part of the directories that the figure is of; below 1 it is a part of what there is.",
        coverage,
    ),
    row(
        Scope::Part,
        "kstatd_node_storage_used_bytes",
        "Bytes on the disk of one writable layer, the logs of a container, a volume or a path.",
        used,
    ),
    row(
        Scope::Part,
        "kstatd_node_storage_used_inodes",
        "Files and directories of the same.",
        inodes,
    ),
    row(Scope::Volume, "kstatd_node_volume_limit_bytes", "The limit of an emptyDir.", limit),
    row(
        Scope::Volume,
        "kstatd_node_volume_limit_ratio",
        "What an emptyDir uses as a part of its limit.",
        ratio,
    ),
    row(
        Scope::Volume,
        "kstatd_node_volume_until_full_seconds",
        "Seconds until the limit of an emptyDir is reached if it goes on growing as it has; absent where it does not grow.",
        full,
    ),
];

/// The names of all families.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.name)
}

impl Source for Store {
    fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let wanted = |row: &&Row| query.names.as_ref().is_none_or(|of| of.contains(row.name));
        let rows: Vec<&'static Row> = ROWS.iter().filter(wanted).collect();
        Box::new(Body {
            format,
            query: query.clone(),
            snapshot: self.snapshot(),
            now: now(),
            rows: rows.into_iter(),
            row: None,
        })
    }

    fn has_namespaces(&self) -> bool {
        true
    }
}

/// How long a piece is, about.
const PIECE: usize = 32 << 10;

struct Body {
    format: Format,
    query: ScrapeQuery,
    snapshot: Arc<Snapshot>,
    now: f64,
    rows: std::vec::IntoIter<&'static Row>,
    /// The family that is being written, the record that is next, and whether its head was written.
    row: Option<(&'static Row, usize, bool)>,
}

impl Body {
    /// Writes records of a family until the piece is long enough; what is left of it.
    fn write(
        &self,
        out: &mut Vec<u8>,
        (row, from, mut begun): (&'static Row, usize, bool),
    ) -> Option<(&'static Row, usize, bool)> {
        let records = self.snapshot.of(row.scope);
        for (index, record) in records.iter().enumerate().skip(from) {
            if out.len() >= PIECE {
                return Some((row, index, begun));
            }
            let namespaces = self.query.namespaces.as_ref();
            if namespaces.is_some_and(|of| !of.contains(&record.namespace)) {
                continue;
            }
            let Some(value) = (row.value)(record, self.now) else { continue };
            if !begun {
                header::write(out, self.format, row.name, "gauge", row.help);
                begun = true;
            }
            family::sample(out, (row.name, ""), &record.labels, value);
        }
        None
    }
}

impl Iterator for Body {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut out = Vec::with_capacity(PIECE + 1024);
        while out.len() < PIECE {
            let Some(row) = self.row.take().or_else(|| Some((self.rows.next()?, 0, false))) else {
                break;
            };
            self.row = self.write(&mut out, row);
        }
        (!out.is_empty()).then(|| out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_in_the_order_of_their_names_and_each_has_a_sentence() {
        assert!(ROWS.is_sorted_by(|a, b| a.name < b.name));
        assert!(ROWS.iter().all(|row| row.help.ends_with('.')));
    }
}
