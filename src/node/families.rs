//! The metric families of `kstatd node`, one row each, and the encoder of a scrape.

use std::sync::Arc;

use bytes::Bytes;

use super::record::{Record, Scope, Snapshot};
use super::store::{Store, now};
use crate::exposition::{Format, ScrapeQuery, Source, family, header};

/// A gauge family.
struct Row {
    name: &'static str,
    help: &'static str,
    scope: Scope,
    /// Returns the value for a record at `now` (Unix seconds).
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

/// Returns the seconds until the limit is reached, counted from `now`; the record counts them from
/// the time of its figure.
pub(super) fn full(record: &Record, now: f64) -> Option<f64> {
    Some((record.full? - (now - record.at).max(0.0)).max(0.0))
}

fn available(record: &Record, _: f64) -> Option<f64> {
    Some(record.limit? - record.used)
}

/// All families, sorted by name.
static ROWS: &[Row] = &[
    row(
        Scope::CompatContainer,
        "ephemeral_storage_container_limit_percentage",
        "Percentage of ephemeral storage used by a container in a pod.",
        percentage,
    ),
    row(
        Scope::CompatVolumeLimit,
        "ephemeral_storage_container_volume_limit_percentage",
        "Percentage of ephemeral storage used by a container's volume in a pod.",
        percentage,
    ),
    row(
        Scope::CompatVolume,
        "ephemeral_storage_container_volume_usage",
        "Current ephemeral storage used by a container's volume in a pod.",
        used,
    ),
    row(
        Scope::CompatNode,
        "ephemeral_storage_node_available",
        "Available ephemeral storage for a node.",
        available,
    ),
    row(
        Scope::CompatNode,
        "ephemeral_storage_node_capacity",
        "Capacity of ephemeral storage for a node.",
        limit,
    ),
    row(
        Scope::CompatNode,
        "ephemeral_storage_node_percentage",
        "Percentage of ephemeral storage used on a node.",
        percentage,
    ),
    row(
        Scope::CompatPod,
        "ephemeral_storage_pod_usage",
        "Current ephemeral byte usage of pod.",
        used,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_coverage_ratio",
        "Fraction of the container's layer and logs that was measured; 0 if either is unknown.",
        coverage,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_limit_bytes",
        "Ephemeral storage limit of the container.",
        limit,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_limit_ratio",
        "Ephemeral storage usage of the container as a fraction of its limit.",
        ratio,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_request_bytes",
        "Ephemeral storage request of the container.",
        request,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_until_full_seconds",
        "Predicted seconds until the container reaches its limit at the current growth; absent if it does not grow.",
        full,
    ),
    row(
        Scope::Container,
        "kstatd_node_container_used_bytes",
        "Ephemeral storage usage of the container: writable layer and logs.",
        used,
    ),
    row(
        Scope::FileSystem,
        "kstatd_node_filesystem_available_bytes",
        "Available bytes of a node file system, as reported by the kubelet.",
        available,
    ),
    row(
        Scope::FileSystem,
        "kstatd_node_filesystem_capacity_bytes",
        "Size of a node file system, as reported by the kubelet.",
        limit,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_coverage_ratio",
        "Fraction of the pod's ephemeral storage that was measured; 0 if any part is unknown.",
        coverage,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_limit_bytes",
        "Ephemeral storage limit of the pod, computed from its containers.",
        limit,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_limit_ratio",
        "Ephemeral storage usage of the pod as a fraction of its limit.",
        ratio,
    ),
    row(Scope::Owner, "kstatd_node_pod_owner", "Owner of a pod on this node.", used),
    row(
        Scope::Pod,
        "kstatd_node_pod_request_bytes",
        "Ephemeral storage request of the pod, computed from its containers.",
        request,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_until_full_seconds",
        "Predicted seconds until the pod reaches its limit at the current growth; absent if it does not grow.",
        full,
    ),
    row(
        Scope::Pod,
        "kstatd_node_pod_used_bytes",
        "Ephemeral storage usage of the pod: writable layers, logs and local volumes.",
        used,
    ),
    row(Scope::Part, "kstatd_node_storage_age_seconds", "Age of the measurement in seconds.", age),
    row(
        Scope::Part,
        "kstatd_node_storage_coverage_ratio",
        "Fraction of the directories that was measured; below 1 the figure is a lower bound.",
        coverage,
    ),
    row(
        Scope::Part,
        "kstatd_node_storage_used_bytes",
        "Disk usage of a writable layer, the logs of a container, a volume or a path.",
        used,
    ),
    row(
        Scope::Part,
        "kstatd_node_storage_used_inodes",
        "Number of files and directories in a writable layer, container logs, a volume or a path.",
        inodes,
    ),
    row(
        Scope::Volume,
        "kstatd_node_volume_limit_bytes",
        "Size limit of an emptyDir volume.",
        limit,
    ),
    row(
        Scope::Volume,
        "kstatd_node_volume_limit_ratio",
        "Usage of an emptyDir volume as a fraction of its limit.",
        ratio,
    ),
    row(
        Scope::Volume,
        "kstatd_node_volume_until_full_seconds",
        "Predicted seconds until an emptyDir volume reaches its limit at the current growth; absent if it does not grow.",
        full,
    ),
];

/// Returns the names of all families.
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
            position: None,
        })
    }

    fn has_namespaces(&self) -> bool {
        true
    }
}

/// The approximate size of a body chunk, in bytes.
const PIECE: usize = 32 << 10;

struct Body {
    format: Format,
    query: ScrapeQuery,
    snapshot: Arc<Snapshot>,
    now: f64,
    rows: std::vec::IntoIter<&'static Row>,
    /// The position in the current family.
    position: Option<Position>,
}

/// A position in a family.
#[derive(Clone, Copy)]
struct Position {
    row: &'static Row,
    /// The index of the next record.
    record: usize,
    has_header: bool,
}

impl Body {
    /// Writes records of a family until the chunk is full and returns the position of the next
    /// record.
    fn write(&self, out: &mut Vec<u8>, position: Position) -> Option<Position> {
        let Position { row, record: from, mut has_header } = position;
        let records = self.snapshot.of(row.scope);
        for (index, record) in records.iter().enumerate().skip(from) {
            if out.len() >= PIECE {
                return Some(Position { row, record: index, has_header });
            }
            let namespaces = self.query.namespaces.as_ref();
            if namespaces.is_some_and(|of| !of.contains(&record.namespace)) {
                continue;
            }
            let Some(value) = (row.value)(record, self.now) else { continue };
            if !has_header {
                header::write(out, self.format, row.name, "gauge", row.help);
                has_header = true;
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
            let first = |row| Position { row, record: 0, has_header: false };
            let Some(position) = self.position.take().or_else(|| self.rows.next().map(first))
            else {
                break;
            };
            self.position = self.write(&mut out, position);
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
