//! The metric families of `kstatd node`, one row each, and the encoder of a scrape.

use std::sync::Arc;

use bytes::Bytes;

use super::record::{Record, Scope};
use super::store::{Store, now};
use crate::exposition::family::{self, FamilyRow, family_rows};
use crate::exposition::{Format, ScrapeQuery, header};

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

/// Returns the used share of the limit, if there is one of more than 0.
pub(super) fn ratio(record: &Record, _: f64) -> Option<f64> {
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

/// The approximate size of a body chunk, in bytes.
const PIECE: usize = 32 << 10;

impl Store {
    /// Returns the body of a scrape in pieces.
    pub(crate) fn frames(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> impl Iterator<Item = Bytes> + Send + use<> {
        let (snapshot, query, now) = (self.snapshot(), query.clone(), now());
        let is_asked = |row: &&Row| query.names.as_ref().is_none_or(|of| of.contains(row.name));
        let rows: Vec<&'static Row> = ROWS.iter().filter(is_asked).collect();
        let lengths = Arc::clone(&snapshot);
        let mut positions = rows.into_iter().flat_map(move |row| {
            (0..lengths.of(row.value.0).len()).map(move |position| (row, position))
        });
        // The family of the last header.
        let mut begun = "";
        std::iter::from_fn(move || {
            let mut out = Vec::with_capacity(PIECE + 1024);
            while out.len() < PIECE
                && let Some((row, position)) = positions.next()
            {
                let (scope, value) = row.value;
                let record = snapshot.of(scope).get(position)?;
                let namespaces = query.namespaces.as_ref();
                let value = value(record, now)
                    .filter(|_| namespaces.is_none_or(|of| of.contains(&record.namespace)));
                let Some(value) = value else { continue };
                if begun != row.name {
                    header::write(&mut out, format, row.name, "gauge", row.help);
                    begun = row.name;
                }
                family::sample(&mut out, (row.name, ""), &record.labels, value);
            }
            (!out.is_empty()).then(|| out.into())
        })
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
