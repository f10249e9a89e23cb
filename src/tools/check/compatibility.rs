//! The verdicts of docs/compatibility.md on the names of the originals.
//!
//! The document itself is the table: tests/compatibility.rs compares each row about a name with the program.

/// The document.
pub(crate) const DOCUMENT: &str = include_str!("../../../docs/compatibility.md");

/// The heading of a table.
#[derive(Clone, Copy)]
pub(crate) struct Table(&'static str);

pub(crate) const KUBE_FLAGS: Table = Table("kube-state-metrics: flags");
pub(crate) const OPTIONS_KEYS: Table = Table("kube-state-metrics: keys of the options file");
pub(crate) const KUBE_METRICS: Table = Table("kube-state-metrics: metrics of itself");
pub(crate) const STATSD_FLAGS: Table = Table("statsd_exporter: flags");
pub(crate) const STATSD_METRICS: Table = Table("statsd_exporter: metrics of itself");

/// A row: the verdict (`same`, `better`, `differs` or `absent`) and the explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    name: &'static str,
    pub(crate) verdict: &'static str,
    pub(crate) why: &'static str,
}

/// The rows of a table.
pub(crate) struct Rows {
    rows: Vec<Row>,
    /// The section in the documentation.
    pub(crate) page: String,
}

impl Table {
    /// Reads the rows from the document.
    pub(crate) fn rows(self) -> Rows {
        let mut sections = DOCUMENT.split("\n### ");
        let section = sections.find_map(|section| section.strip_prefix(self.0));
        let section = section.unwrap_or_default().split("\n#").next().unwrap_or_default();
        let row = |line: &'static str| {
            let mut cells = line.strip_prefix("| `")?.strip_suffix('|')?.splitn(3, " | ");
            let (name, verdict) = (cells.next()?.trim_end_matches('`'), cells.next()?);
            Some(Row { name, verdict, why: cells.next()?.trim() })
        };
        let anchor = self.0.replace(':', "").replace(' ', "-");
        let page = format!("docs/compatibility.md#{anchor}");
        Rows { rows: section.lines().filter_map(row).collect(), page }
    }
}

impl Rows {
    /// Returns the row of a name; one such as `go_*` is that of each name with the prefix.
    pub(crate) fn of(&self, name: &str) -> Option<Row> {
        let is_of = |row: &&Row| match row.name.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => row.name == name,
        };
        self.rows.iter().find(is_of).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_in_the_document() {
        let verdict = |table: Table, name: &str| table.rows().of(name).map(|row| row.verdict);
        assert_eq!(verdict(KUBE_FLAGS, "--port"), Some("same"));
        assert_eq!(verdict(KUBE_METRICS, "go_threads"), Some("absent"));
        assert_eq!(verdict(KUBE_FLAGS, "--no-such-flag"), None);
        for table in [KUBE_FLAGS, OPTIONS_KEYS, KUBE_METRICS, STATSD_FLAGS, STATSD_METRICS] {
            assert!(table.rows().rows.len() > 20, "{}", table.0);
        }
        assert_eq!(STATSD_FLAGS.rows().page, "docs/compatibility.md#statsd_exporter-flags");
    }
}
