//! Field selectors: which objects of a namespaced resource the API server is asked for.
//!
//! In go the flags for namespaces and node, out comes the text of `fieldSelector`. Nothing here sends a
//! request. The grammar is that of Kubernetes: terms joined by commas, each a field, `=` or `!=` and a value,
//! in which backslash, comma and `=` are escaped by a backslash.

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

    /// Backslash, comma and `=` end no value.
    #[test]
    fn values_are_escaped() {
        let denied = ["b,c".to_owned(), "a=\\".to_owned()];
        let wanted = "metadata.namespace!=a\\=\\\\,metadata.namespace!=b\\,c,spec.nodeName=n\\=1";
        assert_eq!(build(&denied, "n=1", false), wanted);
    }
}
