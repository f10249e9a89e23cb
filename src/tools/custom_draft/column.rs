//! Printer columns: the JSONPath expressions of a definition as paths of the configuration.

use serde_json::Value;

/// The maximum number of printer columns that are read.
const MAX_COLUMNS: usize = 64;

/// A value that the definition points out: a printer column, or a path of the scale subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    /// The description for comments, such as `column "Ready"`.
    pub(super) title: String,
    /// The type as the definition has it: `integer`, `number`, `string`, `boolean` or `date`.
    pub(super) kind: String,
    /// The segments of the path; `None` for an expression that paths cannot express.
    pub(super) path: Option<Vec<String>>,
}

impl Column {
    /// Reads the printer columns of a version, then the replicas of its scale subresource.
    pub(super) fn all(version: &Value) -> Vec<Self> {
        let text = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let columns = version.get("additionalPrinterColumns").and_then(Value::as_array);
        let columns = columns.into_iter().flatten().take(MAX_COLUMNS).map(|column| Self {
            title: format!("column {:?}", text(column, "name").replace(char::is_control, " ")),
            kind: text(column, "type"),
            path: parse(&text(column, "jsonPath")),
        });
        let scale = version.pointer("/subresources/scale");
        let scale = ["specReplicasPath", "statusReplicasPath"].into_iter().filter_map(|key| {
            let path = scale?.get(key)?.as_str()?;
            let title = "scale subresource".to_owned();
            Some(Self { title, kind: "integer".to_owned(), path: parse(path) })
        });
        columns.chain(scale).collect()
    }

    /// Returns the segments of the path, if it can be expressed.
    pub(super) fn segments(&self) -> Option<Vec<&str>> {
        Some(self.path.as_ref()?.iter().map(String::as_str).collect())
    }
}

/// Parses a JSONPath expression that selects at most one value, such as `.status.conditions[?(@.type=="Ready")].status`.
fn parse(expression: &str) -> Option<Vec<String>> {
    let mut rest = expression.trim();
    let mut path = Vec::new();
    while let Some(first) = rest.chars().next() {
        let segment;
        (segment, rest) = match first {
            '.' => member(rest.get(1..)?)?,
            '[' => bracket(rest.get(1..)?)?,
            _ => return None,
        };
        path.push(segment);
    }
    (!path.is_empty()).then_some(path)
}

/// Parses a member name up to the next segment; a backslash escapes a character.
fn member(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut rest = "";
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => {
                rest = text.get(at..)?;
                break;
            }
            _ => name.push(c),
        }
    }
    is_member(&name).then_some((name, rest))
}

/// Parses the rest of a segment in brackets: a quoted name, an index, or a filter for equality.
fn bracket(text: &str) -> Option<(String, &str)> {
    let (inner, rest) = text.split_once(']')?;
    let inner = inner.trim();
    if let Some(name) = unquoted(inner) {
        return is_member(name).then(|| (name.to_owned(), rest));
    }
    if inner.parse::<i64>().is_ok() {
        return Some((inner.to_owned(), rest));
    }
    let filter = inner.strip_prefix("?(")?.strip_suffix(')')?;
    let (key, value) = filter.split_once("==")?;
    let (key, value) = (key.trim().strip_prefix("@.")?, unquoted(value.trim())?);
    let is_plain = |text: &str| !text.is_empty() && !text.contains(['.', '[', '=', '\\']);
    (is_plain(key) && is_plain(value)).then(|| (format!("[{key}={value}]"), rest))
}

fn unquoted(text: &str) -> Option<&str> {
    let within = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\''))
}

/// True if a path segment with this text selects the member of this name, and nothing else.
pub(super) fn is_member(name: &str) -> bool {
    !name.is_empty() && name != "*" && !name.contains(['[', '='])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_become_paths() {
        for (expression, want) in [
            (".spec.replicas", Some(vec!["spec", "replicas"])),
            (
                ".status.conditions[?(@.type == \"Ready\")].status",
                Some(vec!["status", "conditions", "[type=Ready]", "status"]),
            ),
            (
                ".metadata.labels.karpenter\\.sh/nodepool",
                Some(vec!["metadata", "labels", "karpenter.sh/nodepool"]),
            ),
            (".spec['a.b'].c[0]", Some(vec!["spec", "a.b", "c", "0"])),
            (".spec.items[*].name", None),
            (".spec..name", None),
            ("{.spec.name}", None),
            (".spec[?(@.a>1)]", None),
            (".spec.a\\", None),
            (".spec[", None),
            ("", None),
        ] {
            let want = want.map(|path| path.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(parse(expression), want, "{expression}");
        }
    }
}
