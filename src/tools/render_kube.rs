//! `kstatd render kube`: the exposition of a cluster that consists of some manifests.
//!
//! The objects pass through the renderers and the cache of the ordinary pipeline, so what is printed is
//! what `/metrics` would have.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::manifests::{Manifest, Place};
use crate::cache::{Catalog, Rendered, Store};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::resources::{self, ObjectBytes, RenderOptions, Renderer, Resource};

/// Why an object cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// No resource has this kind.
    #[error(
        "{place}: kind {kind} of {api_version} has no metrics; name the resources to render with \
         --resources to skip it"
    )]
    UnknownKind {
        /// Where.
        place: Place,
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The kind is known in another version.
    #[error("{place}: kind {kind} of {api_version} has no metrics, but {kind} of {known} has")]
    OtherVersion {
        /// Where.
        place: Place,
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
        /// The group and version that is read.
        known: String,
    },
    /// The object does not have the form of its kind.
    #[error("{place} ({kind} {name}): {reason}")]
    Malformed {
        /// Where.
        place: Place,
        /// The kind.
        kind: String,
        /// Namespace and name.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// The resource of a manifest.
///
/// # Errors
///
/// When no resource has its kind in its version.
pub fn resource(manifest: &Manifest) -> Result<&'static dyn Resource, RenderError> {
    let of_kind = |resource: &&&'static dyn Resource| resource.api().kind == manifest.kind;
    let mut same_kind = resources::registry().iter().filter(of_kind);
    let exact = same_kind.clone().find(|one| api_version(**one) == manifest.api_version);
    if let Some(resource) = exact {
        return Ok(*resource);
    }
    let (place, kind) = (manifest.place.clone(), manifest.kind.clone());
    let api_version_given = manifest.api_version.clone();
    Err(match same_kind.next() {
        Some(known) => RenderError::OtherVersion {
            place,
            kind,
            api_version: api_version_given,
            known: api_version(*known),
        },
        None => RenderError::UnknownKind { place, kind, api_version: api_version_given },
    })
}

fn api_version(resource: &'static dyn Resource) -> String {
    let api = resource.api();
    if api.group.is_empty() {
        api.version.to_owned()
    } else {
        format!("{}/{}", api.group, api.version)
    }
}

/// Every resource that occurs in `manifests`, in byte order of the names.
///
/// # Errors
///
/// The first manifest whose kind is not known.
pub fn resources_of(manifests: &[Manifest]) -> Result<Vec<&'static dyn Resource>, RenderError> {
    let mut found: BTreeMap<&'static str, &'static dyn Resource> = BTreeMap::new();
    for manifest in manifests {
        let resource = resource(manifest)?;
        found.insert(resource.name(), resource);
    }
    Ok(found.into_values().collect())
}

/// Which objects are rendered, and how.
pub struct Selection {
    /// The resources; objects of others are left out.
    pub resources: Vec<(&'static dyn Resource, RenderOptions)>,
    /// Namespaces in the order of the output; empty for all.
    pub namespaces: Vec<String>,
    /// Namespaces to leave out.
    pub namespaces_denylist: Vec<String>,
}

/// One resource being filled.
struct Target {
    namespaced: bool,
    renderer: Arc<dyn Renderer>,
    stores: Vec<Arc<Store>>,
}

/// Prints the exposition of `manifests`.
///
/// # Errors
///
/// The first object that cannot be rendered, or a failure to write.
pub fn render(
    manifests: &[Manifest],
    selection: &Selection,
    format: Format,
    out: &mut impl Write,
) -> Result<(), RenderError> {
    let catalog = Catalog::new();
    let mut targets: BTreeMap<&'static str, Target> = BTreeMap::new();
    for (resource, options) in &selection.resources {
        let renderer = resource.renderer(options);
        let namespaced = resource.api().namespaced;
        // As the pipeline has it: a store for each watched namespace.
        let count = if namespaced { selection.namespaces.len().max(1) } else { 1 };
        let stores: Vec<_> = (0..count).map(|_| Arc::new(Store::new(renderer.schema()))).collect();
        catalog.register(renderer.schema(), stores.clone());
        targets.insert(resource.name(), Target { namespaced, renderer, stores });
    }
    let mut rendered = Rendered::default();
    for (index, manifest) in manifests.iter().enumerate() {
        let Ok(resource) = resource(manifest) else { continue };
        let Some(target) = targets.get(resource.name()) else { continue };
        let stores = target.stores_for(manifest.name().0, selection);
        if stores.is_empty() {
            continue;
        }
        render_one(manifest, &*target.renderer, &mut rendered)?;
        if rendered.uid.is_empty() {
            // A cluster gives every object an identity of its own; files need not.
            rendered.uid = format!("\0{index}").into_bytes();
        }
        for store in stores {
            store.apply(&rendered);
        }
    }
    for frame in catalog.frames(format, &ScrapeQuery::default()) {
        out.write_all(&frame)?;
    }
    if format == Format::OpenMetrics {
        out.write_all(b"# EOF\n")?;
    }
    out.flush()?;
    Ok(())
}

impl Target {
    /// The stores that an object of this namespace belongs to.
    fn stores_for(&self, namespace: Option<&str>, selection: &Selection) -> Vec<&Arc<Store>> {
        if !self.namespaced {
            return self.stores.iter().collect();
        }
        let namespace = namespace.unwrap_or_default();
        if selection.namespaces_denylist.iter().any(|denied| denied == namespace) {
            return Vec::new();
        }
        if selection.namespaces.is_empty() {
            return self.stores.iter().collect();
        }
        let pairs = selection.namespaces.iter().zip(&self.stores);
        pairs.filter(|(watched, _)| *watched == namespace).map(|(_, store)| store).collect()
    }
}

fn render_one(
    manifest: &Manifest,
    renderer: &dyn Renderer,
    rendered: &mut Rendered,
) -> Result<(), RenderError> {
    let malformed = |reason: String| {
        let (namespace, name) = manifest.name();
        let name = name.unwrap_or("without a name");
        RenderError::Malformed {
            place: manifest.place.clone(),
            kind: manifest.kind.clone(),
            name: namespace.map_or(name.to_owned(), |namespace| format!("{namespace}/{name}")),
            reason,
        }
    };
    let json =
        serde_json::to_vec(&manifest.object).map_err(|error| malformed(error.to_string()))?;
    renderer
        .render(ObjectBytes::Json(&json), rendered)
        .map_err(|error| malformed(without_position(&error.to_string())))
}

/// The position in the JSON that the object was turned into means nothing to its author.
fn without_position(reason: &str) -> String {
    let reason = reason.strip_prefix("JSON: ").unwrap_or(reason);
    let end = reason.rfind(" at line ").unwrap_or(reason.len());
    let hint = if reason.contains("invalid type: boolean") {
        " (without quotes y, yes, on, n, no and off are booleans)"
    } else {
        ""
    };
    format!("{}{hint}", &reason[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::manifests;

    fn rendered(text: &str, namespaces: &[&str], denied: &[&str]) -> Result<String, String> {
        let mut manifests = Vec::new();
        manifests::parse("f", text, &mut manifests).map_err(|error| error.to_string())?;
        let resources = resources_of(&manifests).map_err(|error| error.to_string())?;
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let selection = Selection {
            resources: resources.into_iter().map(|one| (one, RenderOptions::default())).collect(),
            namespaces: owned(namespaces),
            namespaces_denylist: owned(denied),
        };
        let mut out = Vec::new();
        render(&manifests, &selection, Format::Text, &mut out)
            .map_err(|error| error.to_string())?;
        String::from_utf8(out).map_err(|error| error.to_string())
    }

    const TWO: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: a}, status: {phase: Active}}\n\
                       ---\n{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: a}}\n\
                       ---\n{apiVersion: v1, kind: Pod, metadata: {name: q, namespace: b}}\n";

    #[test]
    fn objects_without_uid_do_not_replace_each_other() {
        let text = rendered(TWO, &[], &[]).expect("valid");
        assert!(text.contains("kube_namespace_status_phase{namespace=\"a\",phase=\"Active\"} 1\n"));
        let pods = text.lines().filter(|line| line.starts_with("kube_pod_info{")).count();
        assert_eq!(pods, 2, "{text}");
    }

    #[test]
    fn namespaces_apply_to_what_lives_in_them() {
        let pods = |namespaces: &[&str], denied: &[&str]| -> Vec<String> {
            let text = rendered(TWO, namespaces, denied).expect("valid");
            assert!(text.contains("kube_namespace_status_phase{"));
            let names = text.lines().filter_map(|line| line.strip_prefix("kube_pod_info{"));
            names.map(|line| line.split('"').nth(3).expect("pod").to_owned()).collect()
        };
        assert_eq!(pods(&["b", "a"], &[]), ["q", "p"]);
        assert_eq!(pods(&[], &["a"]), ["q"]);
        assert!(pods(&["a"], &["a"]).is_empty());
    }

    #[test]
    fn errors_name_the_object() {
        for (text, part) in [
            ("{apiVersion: v1, kind: Foo}", "f, document 1: kind Foo of v1 has no metrics"),
            ("{apiVersion: extensions/v1beta1, kind: Deployment}", "but Deployment of apps/v1 has"),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: 5}}",
                "f, document 1 (Pod p): ",
            ),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: y}}}",
                "expected a string (without quotes y, yes, on",
            ),
        ] {
            let error = rendered(text, &[], &[]).expect_err(text);
            assert!(error.contains(part), "{part:?} in {error:?}");
        }
    }
}
