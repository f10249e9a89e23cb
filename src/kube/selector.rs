//! Builds the `fieldSelector` of requests from the flags for namespaces and nodes, and checks the selectors of kinds.
//!
//! The grammar is that of Kubernetes. Fields: comma-separated terms of a field, `=`, `==` or `!=`, and a value, in which
//! backslash, comma and `=` are escaped with a backslash. Labels: comma-separated terms such as `app=a`, `app!=a`,
//! `app in (a,b)`, `app notin (a,b)`, `app`, `!app`, `size>1` and `size<1`.

use std::collections::BTreeMap;

use crate::resources::values::resource_name::{is_name_part, is_subdomain};

/// The label or field selector of each kind, by the name of the resource.
pub type KindSelectors = BTreeMap<String, String>;

/// The text of a selector's term, without blanks around it, and its place.
#[derive(Clone, Copy)]
struct Term<'t> {
    text: &'t str,
    /// The byte offset in the selector.
    at: usize,
}

impl<'t> Term<'t> {
    fn new(text: &'t str, at: usize) -> Self {
        let trimmed = text.trim_start();
        Self { at: at + text.len() - trimmed.len(), text: trimmed.trim_end() }
    }

    fn error(&self, problem: &'static str) -> SelectorError {
        SelectorError::Term { column: self.at + 1, text: self.text.to_owned(), problem }
    }

    /// Returns the texts before and after the first of `operators` that occurs.
    fn split(&self, operators: &[&str]) -> Option<(Self, Self)> {
        let found =
            operators.iter().filter_map(|operator| Some((self.text.find(operator)?, operator)));
        // At one place, the operator that is named first counts.
        let (at, operator) = found.min_by_key(|(at, _)| *at)?;
        let after = at + operator.len();
        Some((
            Self::new(&self.text[..at], self.at),
            Self::new(&self.text[after..], self.at + after),
        ))
    }
}

/// Returns the terms, which commas outside of parentheses separate. A backslash escapes the next character.
fn terms(text: &str) -> Vec<Term<'_>> {
    let (mut depth, mut escaped, mut start, mut terms) = (0, false, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            _ if std::mem::take(&mut escaped) => {}
            '\\' => escaped = true,
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth <= 0 => {
                terms.push(Term::new(&text[start..at], start));
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(Term::new(&text[start..], start));
    terms
}

/// The reason why a selector is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The value of a flag has another form.
    #[error("{0:?} must be RESOURCE=SELECTOR, such as pods=app!=batch")]
    Flag(String),
    /// The selector of this resource is malformed.
    #[error("selector of {0}, {1}")]
    Of(String, Box<SelectorError>),
    /// A term is malformed.
    #[error("column {column}: {text:?} {problem}")]
    Term {
        /// Where the text begins, in bytes from 1.
        column: usize,
        /// The part of the term that is wrong.
        text: String,
        /// The rule that the text breaks.
        problem: &'static str,
    },
}

/// Adds a flag's value, `RESOURCE=SELECTOR`, whose selector `check` accepts.
///
/// # Errors
/// The value has another form.
pub fn add(
    text: &str,
    check: fn(&str) -> Result<(), SelectorError>,
    into: &mut KindSelectors,
) -> Result<(), SelectorError> {
    let (resource, selector) = text.split_once('=').unwrap_or_default();
    let resource = resource.trim();
    if resource.is_empty() || selector.trim().is_empty() {
        return Err(SelectorError::Flag(text.to_owned()));
    }
    check(selector).map_err(|error| SelectorError::Of(resource.to_owned(), Box::new(error)))?;
    append(into.entry(resource.to_owned()).or_default(), selector.trim());
    Ok(())
}

/// Appends the terms of another selector.
pub(super) fn append(selector: &mut String, terms: &str) {
    if !selector.is_empty() && !terms.is_empty() {
        selector.push(',');
    }
    selector.push_str(terms);
}

/// Checks a field selector.
///
/// # Errors
/// A term is malformed.
pub fn check_fields(text: &str) -> Result<(), SelectorError> {
    let is_path = |path: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
        !path.is_empty() && path.chars().all(is_part)
    };
    let is_value = |value: &str| {
        let mut chars = value.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' if !matches!(chars.next(), Some('\\' | ',' | '=')) => return false,
                '=' => return false,
                _ => {}
            }
        }
        true
    };
    for term in terms(text) {
        let (field, value) = term
            .split(&["!=", "==", "="])
            .ok_or_else(|| term.error("must be FIELD=VALUE or FIELD!=VALUE"))?;
        if !is_path(field.text) {
            return Err(field.error("is not the path of a field"));
        }
        if !is_value(value.text) {
            return Err(value.error("needs a backslash before backslash, comma and ="));
        }
    }
    Ok(())
}

/// Checks a label selector.
///
/// # Errors
/// A term is malformed.
pub fn check_labels(text: &str) -> Result<(), SelectorError> {
    for term in terms(text) {
        let key = |key: Term<'_>| match is_label_key(key.text) {
            true => Ok(()),
            false => Err(key.error("is not the key of a label")),
        };
        let value = |value: Term<'_>| match is_label_value(value.text) {
            true => Ok(()),
            false => Err(value.error("is not the value of a label")),
        };
        if let Some((name, list)) = term.split(&[" notin ", " in ", " notin(", " in("]) {
            key(name)?;
            let open =
                term.text.find('(').map(|at| Term { text: &term.text[at..], at: term.at + at });
            let list = open.unwrap_or(list);
            let inner = list.text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            let inner = inner.ok_or_else(|| list.error("must be a list in parentheses"))?;
            terms(inner)
                .into_iter()
                .try_for_each(|one| value(Term { at: list.at + 1 + one.at, ..one }))?;
        } else if let Some((name, bound)) = term.split(&[">", "<"]) {
            key(name)?;
            if bound.text.parse::<i64>().is_err() {
                return Err(bound.error("is not a number"));
            }
        } else if let Some((name, wanted)) = term.split(&["!=", "==", "="]) {
            key(name)?;
            value(wanted)?;
        } else {
            let name =
                term.text.strip_prefix('!').map_or(term, |rest| Term::new(rest, term.at + 1));
            key(name)?;
        }
    }
    Ok(())
}

/// Returns whether a text is a qualified name: up to 63 characters, after a DNS domain and a slash if there is one.
fn is_label_key(key: &str) -> bool {
    match key.rsplit_once('/') {
        Some((domain, name)) => is_subdomain(domain, 253) && is_name_part(name),
        None => is_name_part(key),
    }
}

/// Returns whether a text is the value of a label: empty, or up to 63 characters that begin and end with a letter or digit.
fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name_part(value)
}

/// Returns the selector for namespaced resources. It excludes the `denied` namespaces and, unless `node` is empty, all
/// pods of other nodes. `unscheduled` selects pods without a node and overrides `node`.
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

/// Escapes a value for a selector.
pub(super) fn escape(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{cases, texts};

    #[test]
    fn recorded_flags() {
        for case in cases("ksm/field_selectors.json", 11) {
            let denied = texts(&case["namespaces_denylist"]);
            let node = case["node"].as_str().unwrap();
            let unscheduled = case["track_unscheduled_pods"] == true;
            assert_eq!(build(&denied, node, unscheduled), case["field_selector"], "{case}");
            assert_eq!(build(&[], node, unscheduled), case["node_selector"], "{case}");
        }
    }

    #[test]
    fn selectors_of_kinds() {
        for text in [
            "app!=batch",
            "app=a,tier==b",
            "app in (a, b),!x",
            "a.b/c notin (d)",
            "x",
            "size>3",
            "size < 4",
            "app=",
            "app in ()",
        ] {
            assert_eq!(check_labels(text), Ok(()), "{text}");
        }
        for (text, error) in [
            ("", "column 1: \"\" is not the key of a label"),
            ("app=a b", "column 5: \"a b\" is not the value of a label"),
            ("app=a,,b", "column 7: \"\" is not the key of a label"),
            ("app in a", "column 8: \"a\" must be a list in parentheses"),
            ("app in (a,-)", "column 11: \"-\" is not the value of a label"),
            ("ü=a", "column 1: \"ü\" is not the key of a label"),
            ("a..b/c", "column 1: \"a..b/c\" is not the key of a label"),
            ("size>x", "column 6: \"x\" is not a number"),
        ] {
            assert_eq!(check_labels(text).expect_err(text).to_string(), error);
        }
        for text in ["status.phase!=Succeeded", "spec.nodeName=", "a==b\\,c,d=e"] {
            assert_eq!(check_fields(text), Ok(()), "{text}");
        }
        for (text, error) in [
            ("status.phase", "column 1: \"status.phase\" must be FIELD=VALUE or FIELD!=VALUE"),
            ("a=b, c in (d)", "column 6: \"c in (d)\" must be FIELD=VALUE or FIELD!=VALUE"),
            ("=a", "column 1: \"\" is not the path of a field"),
            ("a=b=c", "column 3: \"b=c\" needs a backslash before backslash, comma and ="),
        ] {
            assert_eq!(check_fields(text).expect_err(text).to_string(), error);
        }
        let mut all = KindSelectors::new();
        add("pods=app!=batch", check_labels, &mut all).expect("valid");
        add("pods=tier=web", check_labels, &mut all).expect("valid");
        assert_eq!(all["pods"], "app!=batch,tier=web");
        let error = add("pods", check_labels, &mut all).expect_err("no selector");
        assert_eq!(
            error.to_string(),
            "\"pods\" must be RESOURCE=SELECTOR, such as pods=app!=batch"
        );
    }

    /// Values may contain backslash, comma and `=`.
    #[test]
    fn values_are_escaped() {
        let denied = ["b,c".to_owned(), "a=\\".to_owned()];
        let wanted = "metadata.namespace!=a\\=\\\\,metadata.namespace!=b\\,c,spec.nodeName=n\\=1";
        assert_eq!(build(&denied, "n=1", false), wanted);
    }
}
