//! A definition, and the version of it that a draft is for.

use serde_json::Value;

use super::column::Column;
use super::error::DraftError;
use crate::resources::custom::Definition;
use crate::tools::manifests::Manifest;
use crate::tools::render_kube;

/// A kind with the schema and the printer columns of one version.
#[derive(Debug)]
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
    pub(super) fn read(manifest: &'m Manifest) -> Result<Self, DraftError> {
        if !render_kube::is_definition(manifest) {
            return Err(DraftError::NotADefinition {
                place: manifest.place.clone(),
                kind: manifest.kind.clone(),
                api_version: manifest.api_version.clone(),
            });
        }
        let mut served = render_kube::definitions(std::slice::from_ref(manifest))?;
        let versions = manifest.object.pointer("/spec/versions").and_then(Value::as_array);
        let versions = || versions.into_iter().flatten();
        let position =
            |version: &Value| served.iter().position(|one| version["name"] == *one.version);
        let is_stored = |version: &&Value| version["storage"] == Value::Bool(true);
        let stored =
            versions().filter(is_stored).find_map(|version| Some((position(version)?, version)));
        let chosen =
            stored.or_else(|| versions().find_map(|version| Some((position(version)?, version))));
        let (place, name) =
            (manifest.place.clone(), manifest.name().1.unwrap_or_default().to_owned());
        let Some((at, version)) = chosen else {
            return Err(DraftError::NoVersion { place, name });
        };
        let definition = served.remove(at);
        let required = [
            (&definition.group, "spec.group"),
            (&definition.version, "spec.versions[].name"),
            (&definition.kind, "spec.names.kind"),
            (&definition.plural, "spec.names.plural"),
        ];
        if let Some((_, field)) = required.into_iter().find(|(text, _)| text.is_empty()) {
            return Err(DraftError::Incomplete { place, name, field });
        }
        Ok(Self {
            definition,
            other_versions: served.into_iter().map(|other| other.version).collect(),
            schema: version.pointer("/schema/openAPIV3Schema"),
            columns: Column::all(version),
        })
    }
}
