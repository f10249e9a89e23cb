//! The metric families of `kstatd node`, one row each, and the encoder of a scrape.

use std::sync::Arc;

use bytes::Bytes;

use super::record::{Record, Scope, Snapshot};
use super::store::{Store, now};
use crate::exposition::family::{self, FamilyRow, family_rows};
use crate::exposition::{Format, ScrapeQuery, Source, header};

/// A family with its scope and the function that returns the value of a record at `now` (Unix seconds).
type Row = FamilyRow<(Scope, fn(&Record, f64) -> Option<f64>)>;

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
static ROWS: &[Row] = family_rows! {
    Gauge "ephemeral_storage_container_limit_percentage",
        "Percentage of ephemeral storage used by a container in a pod.": (Scope::CompatContainer, percentage);
    Gauge "ephemeral_storage_container_volume_limit_percentage",
        "Percentage of ephemeral storage used by a container's volume in a pod.": (Scope::CompatVolumeLimit, percentage);
    Gauge "ephemeral_storage_container_volume_usage",
        "Current ephemeral storage used by a container's volume in a pod.": (Scope::CompatVolume, used);
    Gauge "ephemeral_storage_node_available",
        "Available ephemeral storage for a node.": (Scope::CompatNode, available);
    Gauge "ephemeral_storage_node_capacity",
        "Capacity of ephemeral storage for a node.": (Scope::CompatNode, limit);
    Gauge "ephemeral_storage_node_percentage",
        "Percentage of ephemeral storage used on a node.": (Scope::CompatNode, percentage);
    Gauge "ephemeral_storage_pod_usage",
        "Current ephemeral byte usage of pod.": (Scope::CompatPod, used);
    Gauge "kstatd_node_container_coverage_ratio",
        "Fraction of the container's layer and logs that was measured; 0 if either is unknown.": (Scope::Container, coverage);
    Gauge "kstatd_node_container_limit_bytes",
        "Ephemeral storage limit of the container.": (Scope::Container, limit);
    Gauge "kstatd_node_container_limit_ratio",
        "Ephemeral storage usage of the container as a fraction of its limit.": (Scope::Container, ratio);
    Gauge "kstatd_node_container_request_bytes",
        "Ephemeral storage request of the container.": (Scope::Container, request);
    Gauge "kstatd_node_container_until_full_seconds",
        "Predicted seconds until the container reaches its limit at the current growth; absent if it does not grow.": (Scope::Container, full);
    Gauge "kstatd_node_container_used_bytes",
        "Ephemeral storage usage of the container: writable layer and logs.": (Scope::Container, used);
    Gauge "kstatd_node_filesystem_available_bytes",
        "Available bytes of a node file system, as reported by the kubelet.": (Scope::FileSystem, available);
    Gauge "kstatd_node_filesystem_capacity_bytes",
        "Size of a node file system, as reported by the kubelet.": (Scope::FileSystem, limit);
    Gauge "kstatd_node_pod_coverage_ratio",
        "Fraction of the pod's ephemeral storage that was measured; 0 if any part is unknown.": (Scope::Pod, coverage);
    Gauge "kstatd_node_pod_limit_bytes",
        "Ephemeral storage limit of the pod, computed from its containers.": (Scope::Pod, limit);
    Gauge "kstatd_node_pod_limit_ratio",
        "Ephemeral storage usage of the pod as a fraction of its limit.": (Scope::Pod, ratio);
    Gauge "kstatd_node_pod_owner",
        "Owner of a pod on this node.": (Scope::Owner, used);
    Gauge "kstatd_node_pod_request_bytes",
        "Ephemeral storage request of the pod, computed from its containers.": (Scope::Pod, request);
    Gauge "kstatd_node_pod_until_full_seconds",
        "Predicted seconds until the pod reaches its limit at the current growth; absent if it does not grow.": (Scope::Pod, full);
    Gauge "kstatd_node_pod_used_bytes",
        "Ephemeral storage usage of the pod: writable layers, logs and local volumes.": (Scope::Pod, used);
    Gauge "kstatd_node_storage_age_seconds",
        "Age of the measurement in seconds.": (Scope::Part, age);
    Gauge "kstatd_node_storage_coverage_ratio",
        "Fraction of the directories that was measured; below 1 the figure is a lower bound.": (Scope::Part, coverage);
    Gauge "kstatd_node_storage_used_bytes",
        "Disk usage of a writable layer, the logs of a container, a volume or a path.": (Scope::Part, used);
    Gauge "kstatd_node_storage_used_inodes",
        "Number of files and directories in a writable layer, container logs, a volume or a path.": (Scope::Part, inodes);
    Gauge "kstatd_node_volume_limit_bytes",
        "Size limit of an emptyDir volume.": (Scope::Volume, limit);
    Gauge "kstatd_node_volume_limit_ratio",
        "Usage of an emptyDir volume as a fraction of its limit.": (Scope::Volume, ratio);
    Gauge "kstatd_node_volume_until_full_seconds",
        "Predicted seconds until an emptyDir volume reaches its limit at the current growth; absent if it does not grow.": (Scope::Volume, full);
};

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
        let (scope, value) = row.value;
        let records = self.snapshot.of(scope);
        for (index, record) in records.iter().enumerate().skip(from) {
            if out.len() >= PIECE {
                return Some(Position { row, record: index, has_header });
            }
            let namespaces = self.query.namespaces.as_ref();
            if namespaces.is_some_and(|of| !of.contains(&record.namespace)) {
                continue;
            }
            let Some(value) = value(record, self.now) else { continue };
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
