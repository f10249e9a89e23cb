//! `metav1.ObjectMeta`, and the families that nearly every kind derives from it.

use crate::go;

use super::scalars::Time;
use super::select::selection::Selection;
use super::series::{Series, bool_text};
use crate::wire::view::{Field, Map, Str, view};

view! {
    /// The metadata fields that metrics read.
    pub struct Metadata<'a> {
        name: Str<'a> = 1 "name",
        namespace: Str<'a> = 3 "namespace",
        uid: Str<'a> = 5 "uid",
        resource_version: Str<'a> = 6 "resourceVersion",
        generation: i64 = 7 "generation",
        creation_timestamp: Time = 8 "creationTimestamp",
        deletion_timestamp: Option<Time> = 9 "deletionTimestamp",
        labels: Map<'a> = 11 "labels",
        annotations: Map<'a> = 12 "annotations",
        owner_references: Vec<OwnerReference<'a>> = 13 "ownerReferences",
    }

    /// An entry of `ownerReferences`.
    pub struct OwnerReference<'a> {
        kind: Str<'a> = 1 "kind",
        name: Str<'a> = 3 "name",
        controller: Option<bool> = 6 "controller",
    }
}

/// A lean view of a whole object.
pub trait Object<'a>: Field<'a> {
    /// Returns the object's metadata.
    fn metadata(&self) -> &Metadata<'a>;
}

/// Writes the creation time in unix seconds, if set.
pub fn created<'a>(view: &impl Object<'a>, series: &mut Series<'_>) {
    let time = view.metadata().creation_timestamp;
    if !time.is_zero() {
        series.value(time.seconds());
    }
}

/// Writes the deletion time in unix seconds, if set and not the zero time.
pub fn deleted<'a>(view: &impl Object<'a>, series: &mut Series<'_>) {
    if let Some(time) = view.metadata().deletion_timestamp
        && !time.is_zero()
    {
        series.value(time.seconds());
    }
}

/// Writes `metadata.generation`.
pub fn generation<'a>(view: &impl Object<'a>, series: &mut Series<'_>) {
    series.value(view.metadata().generation as f64);
}

/// Writes `metadata.resourceVersion`, if it is a number.
pub fn resource_version<'a>(view: &impl Object<'a>, series: &mut Series<'_>) {
    if let Ok(version) = go::float::parse(view.metadata().resource_version.as_bytes()) {
        series.value(version);
    }
}

/// Writes the value 1 with the identity labels only.
pub fn one<'a>(_: &impl Object<'a>, series: &mut Series<'_>) {
    series.value(1.0);
}

/// Writes the object's labels that the allow list selects.
pub fn labels<'a>(view: &impl Object<'a>, series: &mut Series<'_>) {
    let selection = &series.options().labels;
    selected(selection, "label", &view.metadata().labels, series);
}

/// Writes the object's annotations that the allow list selects.
pub fn annotations<'a>(view: &impl Object<'a>, series: &mut Series<'_>) {
    let selection = &series.options().annotations;
    selected(selection, "annotation", &view.metadata().annotations, series);
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
        return series.with_object_labels(&[], prefix, chosen, 1.0);
    }
    let chosen: Vec<_> = chosen.map(|(key, value)| (key, normalise.value(key, value))).collect();
    let chosen = chosen
        .iter()
        .map(|(key, value)| (*key, &**value))
        .filter(|(key, value)| !value.is_empty() || !normalise.changes(key));
    series.with_object_labels(&[], prefix, chosen, 1.0);
}

/// Writes one series for each owner, or one with empty labels: `owner_kind`, `owner_name`, `owner_is_controller`.
pub fn owners<'a>(view: &impl Object<'a>, series: &mut Series<'_>) {
    let owners = &view.metadata().owner_references;
    if owners.is_empty() {
        let labels = [("owner_kind", ""), ("owner_name", ""), ("owner_is_controller", "")];
        series.with(&labels, 1.0);
    }
    for owner in owners {
        let labels = [
            ("owner_kind", &*owner.kind),
            ("owner_name", &*owner.name),
            ("owner_is_controller", bool_text(owner.controller.unwrap_or(false))),
        ];
        series.with(&labels, 1.0);
    }
}
