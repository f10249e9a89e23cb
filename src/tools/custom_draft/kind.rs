//! A definition, and the version of it that a draft is for.

use serde_json::Value;

use super::column::Column;
use crate::resources::custom::Definition;
use crate::tools::Result;
use crate::tools::manifests::Manifest;
use crate::tools::render_kube;

/// A kind with the schema and the printer columns of one version.
pub(super) struct CustomKind<'m> {
    /// The kind in the drafted version: the stored one if it is served, otherwise the first that is.
    pub(super) definition: Definition,
    /// The other served versions.
    pub(super) other_versions: Vec<String>,
    /// The schema of its objects.
    pub(super) schema: Option<&'m Value>,
    /// The values that the definition points out.
    pub(super) columns: Vec<Column>,
}

impl<'m> CustomKind<'m> {
    /// Reads a definition.
    ///
    /// # Errors
    /// The object is not a usable definition.
    pub(super) fn read(manifest: &'m Manifest) -> Result<Self> {
        let Manifest { place, api_version, kind, .. } = manifest;
        if !render_kube::is_definition(manifest) {
            return Err(format!(
                "{place}: {kind} of {api_version} is not a CustomResourceDefinition of apiextensions.k8s.io/v1"
            )
            .into());
        }
        let mut served = render_kube::definitions(std::slice::from_ref(manifest))?;
        let versions = manifest.object.pointer("/spec/versions").and_then(Value::as_array);
        let position =
            |version: &Value| served.iter().position(|one| version["name"] == *one.version);
        let versions = versions.into_iter().flatten();
        let versions: Vec<(usize, &Value)> =
            versions.filter_map(|version| Some((position(version)?, version))).collect();
        let stored = versions.iter().find(|(_, version)| version["storage"] == Value::Bool(true));
        let chosen = stored.or(versions.first());
        let lacks = |what: &str| {
            let name = manifest.name().1.unwrap_or_default();
            format!("{place}: CustomResourceDefinition {name}: {what}")
        };
        let &(at, version) = chosen.ok_or_else(|| lacks("spec.versions has no served version"))?;
        let definition = served.remove(at);
        let required = [
            (&definition.group, "spec.group"),
            (&definition.version, "spec.versions[].name"),
            (&definition.kind, "spec.names.kind"),
            (&definition.plural, "spec.names.plural"),
        ];
        if let Some((_, field)) = required.into_iter().find(|(text, _)| text.is_empty()) {
            return Err(lacks(&format!("{field} is missing")).into());
        }
        Ok(Self {
            definition,
            other_versions: served.into_iter().map(|other| other.version).collect(),
            schema: version.pointer("/schema/openAPIV3Schema"),
            columns: Column::all(version),
        })
    }
}
