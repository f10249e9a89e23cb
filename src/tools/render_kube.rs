//! `kstatd render kube`: the exposition of a cluster that consists of the given manifests.
//!
//! The objects pass through the renderers and the cache of the ordinary pipeline, so the output
//! equals that of `/metrics`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;

use super::manifests::Manifest;
use crate::cache::{Catalog, Rendered, Store};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::resources::custom::{Definition, Resolved};
use crate::resources::{self, ObjectBytes, RenderOptions, Renderer, Resource};
use crate::tools::{CommandError, Result};

/// Returns the supported resource of a manifest's kind and version.
fn known(manifest: &Manifest) -> Option<&'static dyn Resource> {
    resources::registry().iter().copied().find(|resource| {
        resource.api().kind == manifest.kind && api_version(*resource) == manifest.api_version
    })
}

/// Returns the group of an API version.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn api_version(resource: &'static dyn Resource) -> String {
    let api = resource.api();
    if api.group.is_empty() {
        api.version.to_owned()
    } else {
        format!("{}/{}", api.group, api.version)
    }
}

/// The selection of objects, and their render options.
pub struct Selection {
    /// The resources; objects of others are ignored.
    pub resources: Vec<(&'static dyn Resource, RenderOptions)>,
    /// The namespaces in the order of the output; empty for all.
    pub namespaces: Vec<String>,
    /// The namespaces to ignore.
    pub namespaces_denylist: Vec<String>,
    /// The custom resources.
    pub custom: Vec<Resolved>,
}

impl Selection {
    /// Returns the custom resource that a manifest belongs to.
    fn custom(&self, manifest: &Manifest) -> Option<&Resolved> {
        let group_version =
            manifest.api_version.split_once('/').unwrap_or(("", &manifest.api_version));
        let is_of = |definition: &Definition| {
            definition.kind == manifest.kind
                && group_version == (definition.group.as_str(), definition.version.as_str())
        };
        self.custom.iter().find(|resolved| is_of(&resolved.definition))
    }
}

/// Returns the custom resource definitions in `manifests`.
///
/// # Errors
///
/// When one is malformed.
pub fn definitions(manifests: &[Manifest]) -> Result<Vec<Definition>> {
    let mut definitions = Vec::new();
    for manifest in manifests.iter().filter(|manifest| is_definition(manifest)) {
        let found = serde_json::to_vec(&manifest.object)
            .map_err(|error| error.to_string())
            .and_then(|json| {
                crate::kube::discovery::definitions(ObjectBytes::Json(&json))
                    .map_err(|error| without_position(&error.to_string()))
            });
        definitions.extend(found.map_err(|reason| malformed(manifest, reason))?);
    }
    definitions.sort_unstable();
    definitions.dedup();
    Ok(definitions)
}

/// True for a custom resource definition of a supported version.
pub(super) fn is_definition(manifest: &Manifest) -> bool {
    manifest.kind == "CustomResourceDefinition" && manifest.api_version == "apiextensions.k8s.io/v1"
}

/// Describes in one line the objects of `manifests` that are ignored because their kind has no
/// metrics or is not selected. If the resources were `named` explicitly, unselected kinds are not
/// mentioned. Returns `None` if there are none.
pub fn skipped(manifests: &[Manifest], selection: &Selection, named: bool) -> Option<String> {
    let (mut foreign, mut off) = (BTreeMap::<String, u64>::new(), BTreeMap::<&str, u64>::new());
    for manifest in manifests {
        let Manifest { kind, api_version, .. } = manifest;
        let is_used = !selection.custom.is_empty() && is_definition(manifest);
        if is_used || selection.custom(manifest).is_some() {
            continue;
        }
        let is_selected =
            |name: &str| selection.resources.iter().any(|(one, _)| one.name() == name);
        match known(manifest).map(|resource| resource.name()) {
            None => *foreign.entry(format!("{kind} of {api_version}")).or_default() += 1,
            Some(name) if !named && !is_selected(name) => *off.entry(name).or_default() += 1,
            Some(_) => {}
        }
    }
    let objects: u64 = foreign.values().chain(off.values()).sum();
    let list = |(what, count): (&str, &u64)| format!("{what} ({count})");
    let kinds: Vec<_> = foreign.iter().map(|(what, count)| list((what, count))).collect();
    let names: Vec<_> = off.iter().map(|(name, count)| list((name, count))).collect();
    let mut parts = Vec::new();
    if !kinds.is_empty() {
        parts.push(format!("no metrics for {}", kinds.join("; ")));
    }
    if !names.is_empty() {
        parts.push(format!("off unless --resources names them: {}", names.join(", ")));
    }
    let plural = if objects == 1 { "" } else { "s" };
    (objects > 0).then(|| format!("skipped {objects} object{plural}: {}", parts.join("; ")))
}

/// A resource being filled.
struct Target {
    namespaced: bool,
    renderer: Arc<dyn Renderer>,
    stores: Vec<Arc<Store>>,
}

/// Prints the exposition of `manifests`.
///
/// # Errors
///
/// The first object that cannot be rendered, or a write error. A closed pipe is none.
pub fn render(
    manifests: &[Manifest],
    selection: &Selection,
    format: Format,
    out: &mut impl Write,
) -> Result<()> {
    let catalog = Catalog::new();
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    let built_in = selection
        .resources
        .iter()
        .map(|(resource, options)| (resource.renderer(options), resource.api().namespaced));
    let custom = selection
        .custom
        .iter()
        .map(|resolved| (Arc::clone(&resolved.renderer), resolved.definition.namespaced));
    for (renderer, namespaced) in built_in.chain(custom) {
        // Like the pipeline: one store per watched namespace.
        let count = if namespaced { selection.namespaces.len().max(1) } else { 1 };
        let stores: Vec<_> = (0..count).map(|_| Arc::new(Store::new(renderer.schema()))).collect();
        let schema = renderer.schema();
        catalog.register(Arc::clone(&schema), stores.clone());
        targets.insert(schema.resource.clone(), Target { namespaced, renderer, stores });
    }
    let mut rendered = Rendered::default();
    for (index, manifest) in manifests.iter().enumerate() {
        let custom = selection.custom(manifest).map(|custom| custom.definition.resource_name());
        let built_in = known(manifest).map(|resource| resource.name().to_owned());
        for target in [custom, built_in].into_iter().flatten().filter_map(|name| targets.get(&name))
        {
            let stores = target.stores_for(manifest.name().0, selection);
            if stores.is_empty() {
                continue;
            }
            render_one(manifest, &*target.renderer, &mut rendered)?;
            if rendered.uid.is_empty() {
                // Manifests may lack a UID, which a cluster would assign.
                rendered.uid = format!("\0{index}").into_bytes();
            }
            for store in stores {
                store.apply(&rendered);
            }
        }
    }
    match write(catalog.frames(format, &ScrapeQuery::default()), format, out) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the output: {error}").into())
        }
        _ => Ok(()),
    }
}

/// Writes a whole exposition.
pub(super) fn write(
    frames: impl Iterator<Item = Bytes>,
    format: Format,
    out: &mut impl Write,
) -> io::Result<()> {
    for frame in frames {
        out.write_all(&frame)?;
    }
    if format == Format::OpenMetrics {
        out.write_all(b"# EOF\n")?;
    }
    out.flush()
}

impl Target {
    /// Returns the stores for an object of this namespace.
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

fn render_one(manifest: &Manifest, renderer: &dyn Renderer, rendered: &mut Rendered) -> Result<()> {
    let malformed = |reason: String| malformed(manifest, reason);
    let json =
        serde_json::to_vec(&manifest.object).map_err(|error| malformed(error.to_string()))?;
    renderer
        .render(ObjectBytes::Json(&json), rendered)
        .map_err(|error| malformed(without_position(&error.to_string())))
}

fn malformed(manifest: &Manifest, reason: String) -> CommandError {
    let (namespace, name) = manifest.name();
    let name = name.unwrap_or("without a name");
    let name = namespace.map_or(name.to_owned(), |namespace| format!("{namespace}/{name}"));
    format!("{} ({} {name}): {reason}", manifest.place, manifest.kind).into()
}

/// Removes the position in the converted JSON, which means nothing to the user.
fn without_position(reason: &str) -> String {
    let reason = reason.strip_prefix("JSON: ").unwrap_or(reason);
    let end = reason.rfind(" at line ").unwrap_or(reason.len());
    reason[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::manifests;

    fn rendered(text: &str, namespaces: &[&str], denied: &[&str]) -> Result<String, String> {
        let mut manifests = Vec::new();
        manifests::parse("f", text, &mut manifests).map_err(|error| error.to_string())?;
        let resources = resources::registry().iter().filter(|one| one.api().default_enabled);
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let selection = Selection {
            resources: resources.map(|one| (*one, RenderOptions::default())).collect(),
            namespaces: owned(namespaces),
            namespaces_denylist: owned(denied),
            custom: Vec::new(),
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
    fn objects_without_uid_are_kept_apart() {
        let text = rendered(TWO, &[], &[]).expect("valid");
        assert!(text.contains("kube_namespace_status_phase{namespace=\"a\",phase=\"Active\"} 1\n"));
        let pods = text.lines().filter(|line| line.starts_with("kube_pod_info{")).count();
        assert_eq!(pods, 2, "{text}");
    }

    #[test]
    fn namespaces_filter_namespaced_objects() {
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
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: 5}}",
                "f, document 1 (Pod p): ",
            ),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {a: y}}}",
                "expected a string",
            ),
        ] {
            let error = rendered(text, &[], &[]).expect_err(text);
            assert!(error.contains(part), "{part:?} in {error:?}");
        }
    }

    #[test]
    fn skipped_objects_are_counted() {
        let line = |text: &str, named: &[&str]| {
            let mut manifests = Vec::new();
            manifests::parse("f", text, &mut manifests).expect(text);
            let chosen = resources::registry().iter().filter(|one| match named {
                [] => one.api().default_enabled,
                names => names.contains(&one.name()),
            });
            let selection = Selection {
                resources: chosen.map(|one| (*one, RenderOptions::default())).collect(),
                namespaces: Vec::new(),
                namespaces_denylist: Vec::new(),
                custom: Vec::new(),
            };
            skipped(&manifests, &selection, !named.is_empty())
        };
        let mixed = "{apiVersion: a/v1, kind: Foo}\n---\n{apiVersion: a/v1, kind: Foo}\n---\n\
                     {apiVersion: extensions/v1beta1, kind: Deployment}\n---\n\
                     {apiVersion: serving.knative.dev/v1, kind: Service}\n---\n\
                     {apiVersion: rbac.authorization.k8s.io/v1, kind: Role}\n---\n\
                     {apiVersion: v1, kind: Pod}\n";
        assert_eq!(
            line(mixed, &[]).expect("something"),
            "skipped 5 objects: no metrics for Deployment of extensions/v1beta1 (1); \
             Foo of a/v1 (2); Service of serving.knative.dev/v1 (1); off unless --resources names \
             them: roles (1)"
        );
        assert!(!line(mixed, &["pods"]).expect("something").contains("roles"));
        assert_eq!(line(TWO, &[]), None);
    }
}
