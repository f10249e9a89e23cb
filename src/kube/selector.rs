//! Builds the `fieldSelector` of requests from the flags for namespaces and nodes.
//!
//! The grammar is that of Kubernetes: comma-separated terms of a field, `=` or `!=`, and a value, in which backslash,
//! comma and `=` are escaped with a backslash.

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

    /// Values may contain backslash, comma and `=`.
    #[test]
    fn values_are_escaped() {
        let denied = ["b,c".to_owned(), "a=\\".to_owned()];
        let wanted = "metadata.namespace!=a\\=\\\\,metadata.namespace!=b\\,c,spec.nodeName=n\\=1";
        assert_eq!(build(&denied, "n=1", false), wanted);
    }
}
