//! The families that nearly every kind has. They are computed from the metadata.

use super::kind::{Family, Kind, Stability, of_metadata};
use super::metadata::Object;
use super::scalars::Time;
use super::select::selection::Selection;
use super::series::Series;
use crate::go;
use crate::wire::view::Map;

/// Defines the creation time in unix seconds, without a series if it is not set.
pub const fn created<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    of_metadata(Family::new(name, stability, &[], "Unix time of the {}'s creation.", |view, s| {
        s.value(view.metadata().creation_timestamp.set());
    }))
}

/// Defines the deletion time in unix seconds, without a series if it is not set.
pub const fn deleted<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    let help = "Unix time at which the {} is due to be deleted.";
    of_metadata(Family::new(name, stability, &[], help, |view, s| {
        s.value(view.metadata().deletion_timestamp.and_then(Time::set));
    }))
}

/// Defines `metadata.generation`.
pub const fn generation<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    let help = "How often the {}'s desired state was changed.";
    of_metadata(Family::new(name, stability, &[], help, |view, s| {
        s.value(view.metadata().generation);
    }))
}

/// Defines `metadata.resourceVersion`, without a series if it is not a number.
pub const fn version<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    let help = "The version of the {} that the API server last reported.";
    of_metadata(Family::new(name, stability, &[], help, |view, s| {
        s.value(go::float::parse(view.metadata().resource_version.as_bytes()).ok());
    }))
}

/// Defines the value 1 with the identity labels only.
pub const fn info<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    of_metadata(Family::new(name, stability, &[], "1 for each {}.", |_, s| s.value(1.0)))
}

/// Defines the object's labels that the allow list selects.
pub const fn labels<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    let help = "The {}'s labels that the allow list selects.";
    of_metadata(Family::new(name, stability, &["label_*"], help, |view, s| {
        selected(&s.options().labels, "label", &view.metadata().labels, s);
    }))
}

/// Defines the object's annotations that the allow list selects.
pub const fn annotations<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    let help = "The {}'s annotations that the allow list selects.";
    of_metadata(Family::new(name, stability, &["annotation_*"], help, |view, s| {
        selected(&s.options().annotations, "annotation", &view.metadata().annotations, s);
    }))
}

/// Defines one series for each owner, or one with empty labels.
pub const fn owners<K: Kind>(stability: Stability, name: &'static str) -> Family<K> {
    const LABELS: &[&str] = &["owner_kind", "owner_name", "owner_is_controller"];
    of_metadata(Family::new(name, stability, LABELS, "The objects that own the {}.", |view, s| {
        for [kind, name, controller] in view.metadata().owners() {
            s.with(&[(LABELS[0], kind), (LABELS[1], name), (LABELS[2], controller)], 1.0);
        }
    }))
}

fn selected(selection: &Selection, prefix: &str, map: &Map<'_>, series: &mut Series<'_>) {
    if selection.is_empty() {
        return;
    }
    let entries = map.entries();
    let chosen = entries
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .filter(|(key, _)| selection.matches(key));
    let normalise = &series.options().normalise;
    if normalise.is_empty() {
        return series.with_object_labels(prefix, chosen);
    }
    let chosen: Vec<_> = chosen.map(|(key, value)| (key, normalise.value(key, value))).collect();
    let chosen = chosen
        .iter()
        .map(|(key, value)| (*key, &**value))
        .filter(|(key, value)| !value.is_empty() || !normalise.changes(key));
    series.with_object_labels(prefix, chosen);
}
