//! The kinds of difference between two expositions, and the known differences between the originals and kstatd, which
//! `docs/compatibility.md` lists.

use std::sync::LazyLock;

use serde::Serialize;

use crate::tools::check::compatibility::DOCUMENT;
use crate::util::words::words;

words! {
    /// A kind of difference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum DifferenceKind {
        /// Series only in A.
        OnlyInA = "only in A",
        /// Series only in B.
        OnlyInB = "only in B",
        /// Different values.
        Value = "value",
        /// Counters with different increases.
        Increase = "increase",
        /// Label names only on one side.
        Labels = "labels",
        /// Duplicate series.
        Repeated = "repeated",
        /// The type.
        Type = "type",
        /// The stability and deprecation markers of HELP.
        Stability = "stability",
        /// The rest of HELP.
        Help = "help",
        /// The announced family name.
        Name = "name",
        /// The notation of bucket bounds and quantiles.
        Bounds = "bounds",
    }
}

/// A known difference of some families.
struct KnownDifference {
    /// Family names, with at most one `*`.
    families: Vec<&'static str>,
    /// The kinds of difference.
    what: Vec<DifferenceKind>,
    /// The reason.
    why: &'static str,
}

/// The rows of the table in the document. The first match applies.
static KNOWN: LazyLock<Vec<KnownDifference>> = LazyLock::new(|| {
    let section = DOCUMENT.split("\n## What `kstatd diff` explains\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    section.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect()
});

fn row(line: &'static str) -> Option<KnownDifference> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(3, " | ");
    let families = cells.next()?.split(", ").map(|name| name.trim_matches('`')).collect();
    let what = cells.next()?.split(", ").filter_map(DifferenceKind::parse).collect();
    Some(KnownDifference { families, what, why: cells.next()? })
}

/// Returns the reason for this difference of a family, if it is known.
pub(super) fn reason(family: &str, what: DifferenceKind) -> Option<&'static str> {
    let fits = |known: &&KnownDifference| {
        known.what.contains(&what) && known.families.iter().any(|pattern| matches(pattern, family))
    };
    KNOWN.iter().find(fits).map(|known| known.why)
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_of_the_document_are_read() {
        assert_eq!(KNOWN.len(), 10);
        for known in KNOWN.iter() {
            let is_empty = known.families.is_empty() || known.what.is_empty();
            assert!(!is_empty && !known.why.is_empty(), "{:?}", known.families);
        }
        let kinds: Vec<usize> = KNOWN.iter().map(|known| known.what.len()).collect();
        assert_eq!(kinds, [2, 2, 2, 4, 2, 2, 1, 1, 1, 1]);
    }

    #[test]
    fn patterns() {
        assert!(matches("go_*", "go_threads") && matches("*_total", "a_total"));
        assert!(matches("a", "a") && !matches("a", "ab") && !matches("ab*b", "ab"));
        assert_eq!(reason("go_threads", DifferenceKind::OnlyInA), Some("there is no Go runtime"));
        assert_eq!(reason("go_threads", DifferenceKind::Value), None);
        assert_eq!(reason("kube_pod_info", DifferenceKind::OnlyInA), None);
    }
}
