//! `metav1.ObjectMeta`, and [`object!`], which defines the lean view of a whole object.

use super::scalars::Time;
use super::series::bool_text;
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
        owner_references: Vec<OwnerReference<'a>> = 13 "ownerReferences" struct OwnerReference {
            kind: Str<'a> = 1 "kind",
            name: Str<'a> = 3 "name",
            controller: Option<bool> = 6 "controller",
        },
    }
}

impl Metadata<'_> {
    /// Returns kind, name and `true` for a controller of each owner; empty texts if there is none.
    pub fn owners(&self) -> impl Iterator<Item = [&str; 3]> {
        let none = self.owner_references.is_empty().then_some([""; 3]);
        none.into_iter().chain(self.owner_references.iter().map(|owner| {
            [&*owner.kind, &*owner.name, bool_text(owner.controller.unwrap_or(false))]
        }))
    }
}

/// A lean view of a whole object.
pub trait Object<'a>: Field<'a> {
    /// Returns the object's metadata.
    fn metadata(&self) -> &Metadata<'_>;
}

/// Defines a [`view!`] of an object and of its parts. The first struct is the object: it also has `metadata`, which
/// [`Object`] returns.
macro_rules! object {
    (
        $(#[$meta:meta])*
        pub struct $name:ident<$lt:lifetime> { $($fields:tt)* }
        $($parts:tt)*
    ) => {
        $crate::wire::view::view! {
            $(#[$meta])*
            pub struct $name<$lt> {
                metadata: $crate::resources::metadata::Metadata<$lt> = 1 "metadata",
                $($fields)*
            }
            $($parts)*
        }

        impl<$lt> $crate::resources::metadata::Object<$lt> for $name<$lt> {
            fn metadata(&self) -> &$crate::resources::metadata::Metadata<'_> {
                &self.metadata
            }
        }
    };
}
pub(crate) use object;

object! {
    /// An object of which metrics read only the metadata.
    pub struct MetadataOnly<'a> {}
}
