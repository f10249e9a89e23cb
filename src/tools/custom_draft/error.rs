//! The errors of drafting.

use crate::tools::manifests::ManifestPosition;
use crate::tools::render_kube::RenderError;

/// An error of drafting.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// The definition is malformed.
    #[error(transparent)]
    Malformed(#[from] RenderError),
    /// The object is not a definition.
    #[error(
        "{place}: {kind} of {api_version} is not a CustomResourceDefinition of apiextensions.k8s.io/v1"
    )]
    NotADefinition {
        /// The position.
        place: ManifestPosition,
        /// The kind.
        kind: String,
        /// The `apiVersion`.
        api_version: String,
    },
    /// The definition lacks a name that the configuration needs.
    #[error("{place}: CustomResourceDefinition {name}: {field} is missing")]
    Incomplete {
        /// The position.
        place: ManifestPosition,
        /// The name of the definition.
        name: String,
        /// The missing field.
        field: &'static str,
    },
    /// No version of the definition is served.
    #[error("{place}: CustomResourceDefinition {name}: spec.versions has no served version")]
    NoVersion {
        /// The position.
        place: ManifestPosition,
        /// The name of the definition.
        name: String,
    },
    /// Two definitions are for the same kind.
    #[error("{place}: {kind} of {group} is already defined in {first}")]
    Duplicate {
        /// The position of the second definition.
        place: ManifestPosition,
        /// The position of the first definition.
        first: Box<ManifestPosition>,
        /// The group.
        group: String,
        /// The kind.
        kind: String,
    },
    /// The input is empty.
    #[error("the input has no CustomResourceDefinition")]
    Empty,
}
