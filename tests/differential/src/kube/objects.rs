//! Random objects of random kinds, from the fields of the types of the Kubernetes API.

use kstatd_double::{APIS, Api};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::custom;
use super::deviations;
use super::oracle::messages::Schema;
use super::oracle::random;
use super::server::Placed;

/// Namespaces of the objects.
pub const NAMESPACES: &[&str] = &["a", "b", "c"];

/// Returns the API version and kind of a resource. Custom resources have several versions.
pub fn kind_of(resource: &str) -> (String, &'static str) {
    let Some(api) = APIS.iter().find(|api| api.name == resource) else {
        let kind = custom::KINDS.iter().find(|kind| kind.plural == resource);
        return (String::new(), kind.map_or("", |kind| kind.name));
    };
    let version = if api.group.is_empty() {
        api.version.to_owned()
    } else {
        format!("{}/{}", api.group, api.version)
    };
    (version, api.kind)
}

/// Returns the name of the message in the schema.
fn message(api: &Api) -> String {
    let group = api.group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    // The schema has the fields of these kinds in the version before; they are the same.
    let version =
        if api.kind.starts_with("MutatingAdmissionPolicy") { "v1beta1" } else { api.version };
    format!("api.{group}.{version}.{}", api.kind)
}

/// Creates an object; objects with the same number have the same name, UID and namespace.
pub fn object(schema: &Schema, api: &Api, number: usize, rng: &mut StdRng) -> Placed {
    let mut object = random::object(schema, &message(api), rng);
    let (version, kind) = kind_of(api.name);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), version.into());
        fields.insert("kind".to_owned(), kind.into());
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if !metadata.is_object() {
            *metadata = json!({});
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("name".to_owned(), format!("{}-{number}", api.name).into());
            metadata.insert("uid".to_owned(), format!("uid-{}-{number}", api.name).into());
            metadata.remove("namespace");
            if api.namespaced {
                let namespace = NAMESPACES.get(number % NAMESPACES.len()).copied();
                metadata.insert("namespace".to_owned(), namespace.unwrap_or("a").into());
            }
        }
        // A field selector must select the same object before and after a change.
        if api.name == "pods"
            && let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut)
        {
            let nodes = ["node-1", "node-2", ""];
            let node = nodes.get(number % nodes.len()).copied().unwrap_or_default();
            spec.insert("nodeName".to_owned(), node.into());
        } else if api.name == "pods" {
            fields.insert("spec".to_owned(), json!({"nodeName": "node-1"}));
        }
    }
    deviations::avoid(api.name, &mut object);
    Placed { resource: api.name.to_owned(), object }
}

/// Returns a few kinds.
pub fn kinds(rng: &mut StdRng) -> Vec<&'static Api> {
    let count = rng.random_range(1..7);
    let mut kinds: Vec<&Api> = APIS.sample(rng, count).collect();
    kinds.sort_by_key(|api| api.name);
    kinds
}
