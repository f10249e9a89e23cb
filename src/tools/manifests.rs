//! Reads manifests: YAML or JSON files into single objects with their positions.
//!
//! Files with several documents and `List` kinds are split. [`render_kube`](super::render_kube)
//! interprets the objects.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The position of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestPosition {
    /// The file, `standard input` for `-`.
    pub file: String,
    /// The document in the file, from 1.
    pub document: usize,
    /// The item of a list document, from 1.
    pub item: Option<usize>,
}

impl fmt::Display for ManifestPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)?;
        match self.item {
            Some(item) => write!(f, ", item {item}"),
            None => Ok(()),
        }
    }
}

/// An object of a manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The position.
    pub place: ManifestPosition,
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

/// An error of a manifest file.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("{file}: {source}")]
    Read {
        /// The file.
        file: String,
        /// The system error.
        source: std::io::Error,
    },
    /// The file is larger than the command accepts.
    #[error("{file}: larger than {limit} bytes")]
    TooLarge {
        /// The file.
        file: String,
        /// The maximum size in bytes.
        limit: u64,
    },
    /// The text is neither YAML nor JSON; the reason contains line and column.
    #[error("{file}, document {document}: {reason}")]
    Syntax {
        /// The file.
        file: String,
        /// The document in the file, from 1.
        document: usize,
        /// The error.
        reason: String,
    },
    /// A document is not an API object.
    #[error("{place}: {reason}")]
    Object {
        /// The position.
        place: ManifestPosition,
        /// The missing part.
        reason: String,
    },
}

/// Reads all objects of `files` in order; `-` is standard input.
///
/// # Errors
///
/// The first unusable file, document or item.
pub fn load(files: &[PathBuf]) -> Result<Vec<Manifest>, ManifestError> {
    load_at_most(files, u64::MAX)
}

/// Reads all objects of `files` in order, each file of at most `limit` bytes; `-` is standard input.
///
/// # Errors
///
/// The first unusable file, document or item.
pub fn load_at_most(files: &[PathBuf], limit: u64) -> Result<Vec<Manifest>, ManifestError> {
    let mut manifests = Vec::new();
    for path in files {
        let (file, text) = read(path, limit)?;
        parse(&file, &text, &mut manifests)?;
    }
    Ok(manifests)
}

fn read(path: &Path, limit: u64) -> Result<(String, String), ManifestError> {
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
        Ok(size) if size as u64 > limit => Err(ManifestError::TooLarge { file, limit }),
        Ok(_) => Ok((file, text)),
        Err(source) => Err(ManifestError::Read { file, source }),
    }
}

/// Parses the objects of a text.
///
/// # Errors
///
/// The first unusable document or item.
pub fn parse(file: &str, text: &str, into: &mut Vec<Manifest>) -> Result<(), ManifestError> {
    let syntax =
        |document, reason| ManifestError::Syntax { file: file.to_owned(), document, reason };
    let mut document = 0;
    let mut next = |value: Result<Value, String>| {
        document += 1;
        let value = value.map_err(|reason| syntax(document, reason))?;
        add(ManifestPosition { file: file.to_owned(), document, item: None }, value, into)
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
        .map(|value| value.map_err(|error| reason(error.without_snippet())))
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

/// Describes a parse error with its position in the file.
fn reason(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error;
    use serde_saphyr::budget::BudgetBreach;
    let own = match error {
        Error::Budget { breach: BudgetBreach::Depth { depth }, .. } => {
            format!("nested {depth} levels deep, more than supported")
        }
        Error::Budget { .. } => "too large after expanding its aliases".to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => "recursive anchor".to_owned(),
        _ => return error.render(),
    };
    match error.location() {
        Some(at) => format!("{own}: line {}, column {}", at.line(), at.column()),
        None => own,
    }
}

fn add(
    place: ManifestPosition,
    value: Value,
    into: &mut Vec<Manifest>,
) -> Result<(), ManifestError> {
    if value.is_null() {
        return Ok(());
    }
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let missing = |name: &str| ManifestError::Object {
        place: place.clone(),
        reason: if value.is_object() {
            format!("{name} is missing or not a string")
        } else {
            "not an object".to_owned()
        },
    };
    let kind = text("kind").ok_or_else(|| missing("kind"))?;
    let api_version = text("apiVersion").ok_or_else(|| missing("apiVersion"))?;
    let items = value.get("items");
    let empty = items.map_or(kind == "List", Value::is_null);
    if kind.ends_with("List") && empty {
        // Go writes an empty list as null.
        return Ok(());
    }
    let is_list = kind.ends_with("List") && items.is_some_and(Value::is_array);
    if !is_list {
        into.push(Manifest { place, api_version, kind, object: value });
        return Ok(());
    }
    let Value::Object(mut list) = value else { return Ok(()) };
    let Some(Value::Array(items)) = list.remove("items") else { return Ok(()) };
    for (index, mut item) in items.into_iter().enumerate() {
        let item_place = ManifestPosition { item: Some(index + 1), ..place.clone() };
        // The items of a typed list may omit the type.
        if let (Value::Object(fields), Some(item_kind)) = (&mut item, kind.strip_suffix("List"))
            && !item_kind.is_empty()
        {
            fields.entry("kind").or_insert_with(|| item_kind.into());
            fields.entry("apiVersion").or_insert_with(|| api_version.clone().into());
        }
        add(item_place, item, into)?;
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
        assert_eq!(manifests[1].place.item, Some(1));
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
        assert_eq!(manifests[1].place.to_string(), "f.yaml, document 2");
    }

    #[test]
    fn errors_name_file_document_and_line() {
        for (text, parts) in [
            ("apiVersion: v1\nkind: [Pod\n", vec!["f.yaml, document 1", "line"]),
            ("apiVersion: v1\nkind: Pod\n---\na: b: c\n", vec!["f.yaml, document 2", "line 4"]),
            ("kind: Pod\n", vec!["f.yaml, document 1", "apiVersion is missing"]),
            (
                &format!("kind:\n  {}{}", "[".repeat(99), "]".repeat(99)),
                vec!["document 1: nested 65 levels", "line 2"],
            ),
            ("a: &a {b: *a}\n", vec!["recursive anchor: line 1"]),
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
