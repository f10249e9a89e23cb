//! Reads manifests: YAML or JSON files into single objects with their positions.
//!
//! Files with several documents and `List` kinds are split. [`render_kube`](super::render_kube)
//! interprets the objects.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::tools::Result;

/// An object of a manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file (`standard input` for `-`), the document in it, and the item of a list document, each from 1.
    pub place: String,
    /// The `apiVersion`.
    pub api_version: String,
    /// The `kind`.
    pub kind: String,
    /// The entire object.
    pub object: Value,
}

impl Manifest {
    /// Returns `metadata.namespace` and `metadata.name`, if present.
    pub fn name(&self) -> (Option<&str>, Option<&str>) {
        let field = |name| self.object.get("metadata")?.get(name)?.as_str();
        (field("namespace"), field("name"))
    }
}

/// Reads all objects of `files` in order; `-` is standard input.
///
/// # Errors
///
/// The first unusable file, document or item.
pub fn load(files: &[PathBuf]) -> Result<Vec<Manifest>> {
    load_at_most(files, u64::MAX)
}

/// Reads all objects of `files` in order, each file of at most `limit` bytes; `-` is standard input.
///
/// # Errors
///
/// The first unusable file, document or item.
pub fn load_at_most(files: &[PathBuf], limit: u64) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for path in files {
        let (file, text) = read(path, limit)?;
        parse(&file, &text, &mut manifests)?;
    }
    Ok(manifests)
}

fn read(path: &Path, limit: u64) -> Result<(String, String)> {
    let stdin = path == Path::new("-");
    let file =
        if stdin { "standard input".to_owned() } else { path.to_string_lossy().into_owned() };
    let mut text = String::new();
    let cut = limit.saturating_add(1);
    let result = if stdin {
        std::io::stdin().lock().take(cut).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|open| open.take(cut).read_to_string(&mut text))
    };
    match result {
        Ok(size) if size as u64 > limit => Err(format!("{file}: larger than {limit} bytes").into()),
        Ok(_) => Ok((file, text)),
        Err(error) => Err(format!("{file}: {error}").into()),
    }
}

/// Parses the objects of a text.
///
/// # Errors
///
/// The first unusable document or item.
pub fn parse(file: &str, text: &str, into: &mut Vec<Manifest>) -> Result<()> {
    let mut documents = 0;
    let mut next = |value: Result<Value, String>| {
        documents += 1;
        let document = format!("{file}, document {documents}");
        let value = value.map_err(|reason| format!("{document}: {reason}"))?;
        add(&document, None, value, into)
    };
    if text.trim_start_matches('\u{feff}').trim_start().starts_with('{') {
        // YAML is nearly a superset of JSON, but the JSON parser is faster and has clearer errors.
        // A YAML flow mapping also begins with a brace.
        let values: Result<Vec<Value>, _> =
            serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(values) = values {
            return values.into_iter().map(Ok).try_for_each(next);
        }
    }
    let mut bytes = text.as_bytes();
    serde_saphyr::read_with_options::<_, Value>(&mut bytes, options())
        .map(|value| value.map_err(|error| error.without_snippet().render()))
        .try_for_each(&mut next)
}

/// Returns parser limits: the files belong to the user, so their size is not limited, but nesting
/// is.
fn options() -> serde_saphyr::Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_reader_input_bytes = None;
    budget.max_events = usize::MAX;
    budget.max_nodes = usize::MAX;
    budget.max_documents = usize::MAX;
    budget.max_total_scalar_bytes = usize::MAX;
    let mut options = serde_saphyr::Options::default();
    options.budget = Some(budget);
    // Like kubectl: the last of duplicate keys wins, 010 is 8, and unquoted y, yes, on, n, no, off
    // are booleans.
    options.legacy_octal_numbers = true;
    options.duplicate_keys = serde_saphyr::options::DuplicateKeyPolicy::LastWins;
    options
}

/// Adds the object or the objects of a document, or of an item of its list.
fn add(
    document: &str,
    item: Option<usize>,
    mut value: Value,
    into: &mut Vec<Manifest>,
) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    let place = item.map_or(document.to_owned(), |item| format!("{document}, item {item}"));
    let text = |name: &str| {
        let text = value.get(name).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| match value.is_object() {
            true => format!("{place}: {name} is missing or not a string"),
            false => format!("{place}: not an object"),
        })
    };
    let (kind, api_version) = (text("kind")?, text("apiVersion")?);
    let items = match (kind.strip_suffix("List"), value.get_mut("items")) {
        // Go writes an empty list as null.
        (Some(_), Some(Value::Null)) | (Some(""), None) => return Ok(()),
        (Some(_), Some(Value::Array(items))) => std::mem::take(items),
        _ => {
            into.push(Manifest { place, api_version, kind, object: value });
            return Ok(());
        }
    };
    for (index, mut item) in items.into_iter().enumerate() {
        // The items of a typed list may omit the type.
        if let (Value::Object(fields), Some(item_kind)) = (&mut item, kind.strip_suffix("List"))
            && !item_kind.is_empty()
        {
            fields.entry("kind").or_insert_with(|| item_kind.into());
            fields.entry("apiVersion").or_insert_with(|| api_version.clone().into());
        }
        add(document, Some(index + 1), item, into)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Manifest>, String> {
        let mut manifests = Vec::new();
        parse("f.yaml", text, &mut manifests).map(|()| manifests).map_err(|e| e.to_string())
    }

    #[test]
    fn documents_and_lists() {
        let manifests = parsed(
            "# comment\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: x}\n---\n---\n\
             apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment}\n\
             - apiVersion: v1\n  kind: NodeList\n  items: [{metadata: {name: n}}]\n",
        )
        .expect("valid");
        let seen: Vec<(&str, &str)> =
            manifests.iter().map(|m| (m.api_version.as_str(), m.kind.as_str())).collect();
        assert_eq!(seen, [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Node")]);
        assert_eq!(manifests[0].name(), (Some("x"), Some("a")));
        assert_eq!(manifests[1].place, "f.yaml, document 2, item 1");
    }

    #[test]
    fn output_of_charts_is_parsed() {
        let manifests = parsed(
            "---\n# Source: a.yaml\n---\n# Source: b.yaml\napiVersion: v1\nkind: PodList\nitems:\n---\n\
             apiVersion: v1\nkind: List\nitems: []\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  \
             labels: {a: b, a: c}\n---\napiVersion: a/v1\nkind: AllowList\nspec: {}\n---\n",
        )
        .expect("valid");
        assert_eq!(manifests.len(), 2);
        assert_eq!(manifests[0].object["metadata"]["labels"]["a"], "c");
    }

    #[test]
    fn json_documents_in_a_row() {
        let text =
            "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}\n{\"apiVersion\":\"v1\",\"kind\":\"Node\"}";
        let manifests = parsed(text).expect("valid");
        assert_eq!(manifests[1].place, "f.yaml, document 2");
    }

    #[test]
    fn errors_name_file_document_and_line() {
        for (text, parts) in [
            ("apiVersion: v1\nkind: [Pod\n", vec!["f.yaml, document 1", "line"]),
            ("apiVersion: v1\nkind: Pod\n---\na: b: c\n", vec!["f.yaml, document 2", "line 4"]),
            ("kind: Pod\n", vec!["f.yaml, document 1", "apiVersion is missing"]),
            (
                &format!("kind:\n  {}{}", "[".repeat(99), "]".repeat(99)),
                vec!["f.yaml, document 1: ", "depth: 65", "line 2"],
            ),
            ("a: &a {b: *a}\n", vec!["document 1: recursive references", "line 1"]),
            ("[1]\n", vec!["f.yaml, document 1", "not an object"]),
            ("{\"kind\": \"Pod\",}}", vec!["f.yaml, document 1"]),
            (
                "apiVersion: v1\nkind: List\nitems: [{kind: Pod, apiVersion: v1}, {kind: 5}]\n",
                vec!["f.yaml, document 1, item 2", "kind is missing"],
            ),
        ] {
            let error = parsed(text).expect_err(text);
            for part in parts {
                assert!(error.contains(part), "{part:?} in {error:?}");
            }
        }
    }
}
