//! Names of metrics and labels, made from the names in a definition.

/// The maximum length of a name in bytes.
const MAX_NAME: usize = 120;

/// Returns a lower-case word of letters, digits and underscores, such as `nodepool` for `NodePool`.
pub(super) fn word(text: &str) -> String {
    let valid = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    text.chars().take(MAX_NAME).map(valid).collect()
}

/// Converts a name to snake case: `HPAReplicas` is `hpa_replicas`, `example.io/zone` is `example_io_zone`.
pub(super) fn snake(text: &str) -> String {
    let chars: Vec<char> = text.chars().take(MAX_NAME).collect();
    let mut out = String::new();
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| chars.get(at));
        let next_is_lower = chars.get(at + 1).is_some_and(char::is_ascii_lowercase);
        let starts_word = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    || before.is_ascii_uppercase() && next_is_lower
            });
        let separates = starts_word || !c.is_ascii_alphanumeric();
        if separates && !out.is_empty() && !out.ends_with('_') {
            out.push('_');
        }
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        }
    }
    out.trim_end_matches('_').to_owned()
}

/// Joins a path to a name in snake case, truncated.
pub(super) fn joined(path: &[&str]) -> String {
    let words: Vec<String> =
        path.iter().map(|part| snake(part)).filter(|word| !word.is_empty()).collect();
    let name: String = words.join("_").chars().take(MAX_NAME).collect();
    if name.is_empty() { "value".to_owned() } else { name }
}

/// Returns the singular of a name in snake case, by the regular rules of English.
pub(super) fn singular(name: &str) -> String {
    let stem = |suffix, replacement: &str| {
        name.strip_suffix(suffix).map(|stem: &str| format!("{stem}{replacement}"))
    };
    stem("ies", "y")
        .or_else(|| {
            ["sses", "uses", "xes", "ches"]
                .iter()
                .find_map(|es| stem(es, es.strip_suffix("es").unwrap_or(es)))
        })
        .or_else(|| stem("ss", "ss"))
        .or_else(|| stem("s", ""))
        .unwrap_or_else(|| name.to_owned())
}

/// Removes the suffix of a reference: `issuerRef` is `issuer`.
pub(super) fn referent(name: &str) -> &str {
    let suffixes = ["References", "Reference", "Refs", "Ref"];
    let stem = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    stem.filter(|stem| !stem.is_empty()).unwrap_or(name)
}

/// Returns a name that is not `taken`: the first free candidate, or the last one with a number.
pub(super) fn unique(candidates: &[String], taken: impl Fn(&str) -> bool) -> String {
    if let Some(free) = candidates.iter().find(|name| !taken(name)) {
        return free.clone();
    }
    let last = candidates.last().map_or("value", String::as_str);
    let numbered = (2_u32..).map(|number| format!("{last}_{number}"));
    numbered.into_iter().find(|name| !taken(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_snake_case() {
        for (text, want) in [
            ("readyReplicas", "ready_replicas"),
            ("HPAReplicas", "hpa_replicas"),
            ("imageID", "image_id"),
            ("x509Name", "x509_name"),
            ("example.io/zone", "example_io_zone"),
            ("__a--b__", "a_b"),
            ("ä", ""),
        ] {
            assert_eq!(snake(text), want, "{text}");
        }
        assert_eq!(joined(&["status", "ä", "notAfter"]), "status_not_after");
        assert_eq!(joined(&["ä"]), "value");
    }

    #[test]
    fn plurals_and_references() {
        for (plural, want) in [
            ("listeners", "listener"),
            ("policies", "policy"),
            ("template_statuses", "template_status"),
            ("boxes", "box"),
            ("address", "address"),
            ("status", "statu"),
        ] {
            assert_eq!(singular(plural), want);
        }
        assert_eq!((referent("issuerRef"), referent("Ref")), ("issuer", "Ref"));
    }
}
