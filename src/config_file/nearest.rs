//! Suggestions for misspelt words.

/// The longest word whose edit distance is computed, in characters.
const MAX_LENGTH: usize = 64;

/// Returns the known word closest to `word`: equal except for case, `_` and `-`, or a few edits away.
pub(crate) fn nearest<'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k str> + Clone,
) -> Option<&'k str> {
    let loose = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let wanted = loose(word);
    if let Some(same) = known.clone().into_iter().find(|name| loose(name) == wanted) {
        return Some(same);
    }
    let length = wanted.chars().count();
    if length > MAX_LENGTH {
        return None;
    }
    let allowed = (length / 3).max(1);
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&wanted, &loose(name)), name))
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the hint for an unknown word: the known word that was probably meant, or `all_are` and all of them.
pub(crate) fn hint(word: &str, known: &[&str], all_are: &str) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!("write {name}"),
        None => format!("{all_are} {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_typos_only() {
        let known = ["resources", "metric_allowlist", "labels_allow_list", "host", "port", "pods"];
        for (word, meant) in [
            ("resorces", Some("resources")),
            ("Resources", Some("resources")),
            ("metric-allow-list", Some("metric_allowlist")),
            ("label_allow_list", Some("labels_allow_list")),
            ("prot", Some("port")),
            ("pod", Some("pods")),
            ("foo", None),
            ("", None),
            ("a", None),
            ("something_else", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), known), None);
    }
}
