//! Field selectors: which objects of a namespaced resource the API server is asked for.
//!
//! In go the flags for namespaces and node, out comes the text of `fieldSelector`. Nothing here sends a
//! request. The grammar is that of Kubernetes: terms joined by commas, each a field, `=`, `==` or `!=` and
//! a value, in which backslash, comma and `=` are escaped by a backslash.

use thiserror::Error;

/// A text that is no field selector.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// A term without `=`, `==` or `!=`.
    #[error("field selector {selector:?}: no =, == or != in {term:?}")]
    Operator {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A value with an unescaped `=`, or a backslash before something that needs none.
    #[error("field selector {selector:?}: value {value:?} is not escaped as \\\\ \\, \\= require")]
    Escape {
        /// The whole selector.
        selector: String,
        /// The value.
        value: String,
    },
}

/// The namespaces to watch: those given, or one entry that is empty and stands for all.
#[must_use]
pub fn watched_namespaces(namespaces: &[String]) -> Vec<String> {
    if namespaces.is_empty() { vec![String::new()] } else { namespaces.to_vec() }
}

/// The selector for namespaced resources: without the namespaces of `denied`, and of one `node` alone
/// unless that is empty. `unscheduled` asks for pods without a node instead, whatever `node` says.
#[must_use]
pub fn build(denied: &[String], node: &str, unscheduled: bool) -> String {
    let mut terms: Vec<String> = denied
        .iter()
        .map(|namespace| format!("metadata.namespace!={}", escape(namespace)))
        .collect();
    terms.sort_unstable();
    if unscheduled || !node.is_empty() {
        let node = if unscheduled { "" } else { node };
        terms.push(format!("spec.nodeName={}", escape(node)));
    }
    terms.join(",")
}

/// The selector that all of `selectors` must hold for: their terms one selector after the other, those of
/// each sorted, as are all together before the last is added.
///
/// # Errors
///
/// One of them is not a field selector.
pub fn merge<'s>(selectors: impl IntoIterator<Item = &'s str>) -> Result<String, SelectorError> {
    let mut merged = String::new();
    for selector in selectors {
        let terms: Result<Vec<_>, _> = [merged.as_str(), selector]
            .into_iter()
            .flat_map(|selector| split(selector).into_iter().map(move |term| parse(selector, term)))
            // A term without field and value holds for everything.
            .filter(|term| !matches!(term, Ok(("", _, ""))))
            .map(|term| term.map(|(field, operator, value)| [field, operator, value].concat()))
            .collect();
        merged = terms?.join(",");
    }
    Ok(merged)
}

/// `value` as it stands in a selector.
fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The terms of a selector, sorted: its parts between unescaped commas, empty ones left out.
fn split(selector: &str) -> Vec<&str> {
    let mut escaped = false;
    let terms = selector.split(|c| {
        let separates = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        separates
    });
    let mut terms: Vec<&str> = terms.filter(|term| !term.is_empty()).collect();
    terms.sort_unstable();
    terms
}

/// Field, operator and (escaped) value of a term.
fn parse<'t>(
    selector: &str,
    term: &'t str,
) -> Result<(&'t str, &'static str, &'t str), SelectorError> {
    let Some((field, value)) = term.split_once('=') else {
        return Err(SelectorError::Operator {
            selector: selector.to_owned(),
            term: term.to_owned(),
        });
    };
    let (field, operator, value) = match (field.strip_suffix('!'), value.strip_prefix('=')) {
        (Some(field), _) => (field, "!=", value),
        (None, Some(value)) => (field, "=", value),
        (None, None) => (field, "=", value),
    };
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        let valid = match c {
            '\\' => matches!(chars.next(), Some('\\' | ',' | '=')),
            '=' => false,
            _ => true,
        };
        if !valid {
            return Err(SelectorError::Escape {
                selector: selector.to_owned(),
                value: value.to_owned(),
            });
        }
    }
    Ok((field, operator, value))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn cases(text: &str) -> Vec<Value> {
        let data: Value = serde_json::from_str(text).unwrap();
        let cases = data["cases"].as_array().unwrap().clone();
        assert!(cases.len() > 10);
        cases
    }

    fn strings(value: &Value) -> Vec<String> {
        let items = value.as_array().unwrap().iter();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn recorded_flags() {
        for case in cases(include_str!("../../tests/conformance/ksm/field_selectors.json")) {
            let denied = strings(&case["namespaces_denylist"]);
            let node = case["node"].as_str().unwrap();
            let unscheduled = case["track_unscheduled_pods"] == true;
            let watched = watched_namespaces(&strings(&case["namespaces"]));
            assert_eq!(watched, strings(&case["watched_namespaces"]), "{case}");
            assert_eq!(build(&denied, node, unscheduled), case["field_selector"], "{case}");
            assert_eq!(build(&[], node, unscheduled), case["node_selector"], "{case}");
            let parts = ["exclude_selector", "node_selector"];
            let merged = merge(parts.map(|part| case[part].as_str().unwrap()));
            assert_eq!(merged.unwrap(), case["field_selector"], "{case}");
        }
    }

    #[test]
    fn recorded_merges() {
        for case in cases(include_str!("../../tests/conformance/ksm/field_selector_merge.json")) {
            let selectors = strings(&case["selectors"]);
            let merged = merge(selectors.iter().map(String::as_str));
            assert_eq!(merged.is_err(), !case["error"].is_null(), "{case}: {merged:?}");
            assert_eq!(merged.unwrap_or_default(), case["result"], "{case}");
        }
    }

    #[test]
    fn merging() {
        let merge = |selectors: &[&str]| merge(selectors.iter().copied());
        assert_eq!(merge(&["c=d", "a=b"]).unwrap(), "c=d,a=b");
        assert_eq!(merge(&["c=d,a==b"]).unwrap(), "a=b,c=d");
        assert_eq!(merge(&["=b", "!=a", "x=="]).unwrap(), "!=a,=b,x=");
        assert_eq!(merge(&["c=d", "b=a", "a=b"]).unwrap(), "b=a,c=d,a=b");
        assert_eq!(merge(&["=", "a=b,!="]).unwrap(), "a=b");
        assert_eq!(merge(&[",a=\\,\\\\,,b=1"]).unwrap(), "a=\\,\\\\,b=1");
        for bad in ["a", "a!b", "a=b=c", "a=b!=c", "a==b==c", "a=b\\", "a=b\\x"] {
            assert!(merge(&[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn errors_name_the_selector_and_the_place() {
        let error = merge(["a=b,c"]).unwrap_err().to_string();
        assert_eq!(error, "field selector \"a=b,c\": no =, == or != in \"c\"");
        let error = merge(["a=b\\c"]).unwrap_err().to_string();
        assert!(error.contains("value \"b\\\\c\" is not escaped"), "{error}");
    }
}
