//! The table of limits: rows of five cells in a Markdown file.

use anyhow::{Context, Result, ensure};

/// The header of the table.
const HEAD: &str = "| Load | State | Measured | Limit | CI |";
const RULE: &str = "|---|---|---|---|---|";

/// A file with the table.
pub struct Table {
    before: String,
    rows: Vec<Row>,
    after: String,
}

struct Row {
    what: String,
    moment: String,
    measured: f64,
    limit: f64,
    is_gate: bool,
}

impl Table {
    /// Parses the table in this text.
    ///
    /// # Errors
    ///
    /// There is no table, or a row is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let (before, rest) = text.split_once(HEAD).context("no table of limits")?;
        let rest = rest.trim_start().strip_prefix(RULE).context("no rule under the head")?;
        let rest = rest.strip_prefix('\n').unwrap_or(rest);
        let end: usize =
            rest.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum();
        let (rows, after) = rest.split_at(end.min(rest.len()));
        let rows = rows.lines().map(Row::parse).collect::<Result<_>>()?;
        Ok(Self { before: before.to_owned(), rows, after: after.to_owned() })
    }

    /// Replaces or adds a row.
    pub fn set(&mut self, what: &str, moment: &str, measured: f64, limit: f64, is_gate: bool) {
        let row =
            Row { what: what.to_owned(), moment: moment.to_owned(), measured, limit, is_gate };
        match self.rows.iter_mut().find(|row| row.what == what && row.moment == moment) {
            Some(old) => *old = row,
            None => self.rows.push(row),
        }
    }

    /// Returns the file with the current table.
    pub fn text(&self) -> String {
        let rows = self.rows.iter().map(|row| {
            let gate = if row.is_gate { "yes" } else { "no" };
            let Row { what, moment, measured, limit, .. } = row;
            format!("| {what} | {moment} | {measured:.1} MB | {limit:.1} MB | {gate} |\n")
        });
        format!("{}{HEAD}\n{RULE}\n{}{}", self.before, String::from_iter(rows), self.after)
    }
}

impl Row {
    fn parse(line: &str) -> Result<Self> {
        let cells = Vec::from_iter(line.trim().trim_matches('|').split('|').map(str::trim));
        let megabytes = |text: &str| {
            let number = text.strip_suffix(" MB").and_then(|number| number.parse::<f64>().ok());
            number.with_context(|| format!("{text:?} is no number of MB in {line}"))
        };
        let [what, moment, measured, limit, gate] = cells[..] else {
            anyhow::bail!("{line} has not five cells");
        };
        ensure!(matches!(gate, "yes" | "no"), "{line} does not end in yes or no");
        Ok(Self {
            what: what.to_owned(),
            moment: moment.to_owned(),
            measured: megabytes(measured)?,
            limit: megabytes(limit)?,
            is_gate: gate == "yes",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_replaced_and_added() {
        let text = format!("a\n\n{HEAD}\n{RULE}\n| x | rest | 1.0 MB | 1.2 MB | yes |\n\nb\n");
        let mut table = Table::parse(&text).unwrap();
        assert_eq!(table.text(), text);
        table.set("x", "rest", 2.0, 2.3, true);
        table.set("x", "peak", 3.0, 3.45, false);
        let rows = "| x | rest | 2.0 MB | 2.3 MB | yes |\n| x | peak | 3.0 MB | 3.5 MB | no |\n";
        assert_eq!(table.text(), format!("a\n\n{HEAD}\n{RULE}\n{rows}\nb\n"));
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        for row in [
            "| x | rest | 1.0 MB | yes |",
            "| x | r | 1 GB | 2.0 MB | yes |",
            "| x | r | 1 MB | 2 MB | |",
        ] {
            let Err(error) = Table::parse(&format!("{HEAD}\n{RULE}\n{row}\n")) else {
                panic!("{row} is read");
            };
            assert!(format!("{error:#}").contains(row.trim_end_matches('\n')), "{error:#}");
        }
    }
}
