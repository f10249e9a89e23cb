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
    let wanted: Vec<char> = wanted.chars().collect();
    if wanted.len() > MAX_LENGTH {
        return None;
    }
    let allowed = (wanted.len() / 3).max(1);
    known
        .into_iter()
        .map(|name| (edit_distance(&wanted, &loose(name).chars().collect::<Vec<_>>()), name))
        .filter(|(distance, name)| *distance <= allowed && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the edit distance with transpositions (insert, remove, replace, or swap two neighbours).
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at =
                |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX - 1);
            let mut best =
                (at(&row, j) + usize::from(x != y)).min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or_default()
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
